/** Comparison of short byte arrays, such as keys and names in messages: `Buffer.compare` costs a call of C++ for each. */

/** Whether two arrays have the same bytes. */
export function equalBytes(left: Uint8Array, right: Uint8Array): boolean {
  if (left.length !== right.length) return false;
  for (let i = 0; i < left.length; i++) if (left[i] !== right[i]) return false;
  return true;
}
