/** The magic number at the start of a message, checked from its first byte on: a foreign peer may send less than a header, and then wait. */

/** Bytes of a magic number. */
export const MAGIC_BYTES = 4;

/** Whether the bytes received so far can be the beginning of a message with this magic number (u32, little-endian). */
export function canBegin(bytes: Uint8Array, magic: number): boolean {
  const known = Math.min(bytes.byteLength, MAGIC_BYTES);
  for (let at = 0; at < known; at++) if (bytes[at] !== ((magic >>> (8 * at)) & 0xff)) return false;
  return true;
}

/** The bytes of a magic number that were received, as text for a message. */
export function beginningText(bytes: Uint8Array): string {
  const text = Buffer.from(bytes.subarray(0, MAGIC_BYTES)).toString('latin1');
  return /^[\x20-\x7e]*$/.test(text) ? JSON.stringify(text) : `0x${Buffer.from(text, 'latin1').toString('hex')}`;
}
