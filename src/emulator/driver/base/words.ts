/**
 * 64-bit values in the 32-bit words of argument blocks. For the control path: bigint and rounding numbers.
 */

const HIGH = 0x1_0000_0000;

/** Zeroes the first `count` words, as the driver does before it fills in an answer. */
export function clearWords(words: Uint32Array, count: number): void {
  for (let i = 0; i < count; i++) words[i] = 0;
}

/** The 64-bit value at a word. */
export function readU64(words: Uint32Array, word: number): bigint {
  return (BigInt(words[word + 1]!) << 32n) | BigInt(words[word]!);
}

/** The 64-bit value at a word as a number: exact below 2^53. */
export function readNumber(words: Uint32Array, word: number): number {
  return words[word + 1]! * HIGH + words[word]!;
}

/** Stores a 64-bit value at a word. */
export function writeU64(words: Uint32Array, word: number, value: bigint): void {
  words[word] = Number(value & 0xffff_ffffn);
  words[word + 1] = Number((value >> 32n) & 0xffff_ffffn);
}
