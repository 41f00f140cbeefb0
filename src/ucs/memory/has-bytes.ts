/** Whether a byte array, which may have been detached or shortened, still has its bytes. It does not check that an offset is an integer. */

/**
 * Whether `bytes` has at least `end` bytes, and costs no call: true for 0 even if it was detached.
 *
 * It reads the last byte, because in V8 11.3 (Node.js 20) `byteLength` calls two builtins (10 ns), and compiled code that has seen an array of a
 * resizable ArrayBuffer reads the `length` that a detached array had.
 */
export function hasBytes(bytes: Uint8Array, end: number): boolean {
  return end === 0 || bytes[end - 1] !== undefined;
}
