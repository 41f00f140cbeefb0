/**
 * 64-bit values in the 32-bit words of argument blocks. For the control path: bigint and rounded numbers.
 */

import { highWord, joinBig, joinWords, lowWord } from '../../../ucs/type/int64.ts';

/** Zeroes the first `count` words, as the driver does before it fills in a result. */
export function clearWords(words: Uint32Array, count: number): void {
  for (let i = 0; i < count; i++) words[i] = 0;
}

/** The 64-bit value at a word. */
export function readU64(words: Uint32Array, word: number): bigint {
  return joinBig(words[word]!, words[word + 1]!);
}

/** The 64-bit value at a word as a number: exact below 2^53. */
export function readNumber(words: Uint32Array, word: number): number {
  return joinWords(words[word]!, words[word + 1]!);
}

/** Stores a 64-bit value at a word. */
export function writeU64(words: Uint32Array, word: number, value: bigint): void {
  words[word] = lowWord(value);
  words[word + 1] = highWord(value);
}
