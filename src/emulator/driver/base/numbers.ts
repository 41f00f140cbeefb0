/**
 * 64-bit values in the 32-bit words of argument blocks, as bigint or rounded numbers (control path only). Also parsers for numbers that programs write to
 * files.
 */

import { Errno } from '../../../sys/index.ts';
import { highWord, joinBig, joinWords, lowWord } from '../../../ucs/type/int64.ts';

/** Zeroes the first `count` words, as the driver does before it writes a result. */
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

/**
 * The rest of this file: numbers in strings that programs write to sysfs and debugfs files, parsed as the kernel does.
 *
 * Source: kstrtoull and kstrtoll of lib/kstrtox.c, Linux 6.12.
 */

const S64_MAX = 2n ** 63n - 1n;
const S64_MIN: bigint = -(2n ** 63n);

/**
 * Parses a number as kstrtoull does: digits of the base, then at most one newline. Base 0: `0x` is hexadecimal, a leading 0 octal. The string ends at a
 * NUL, which C programs may include.
 * @param max the largest value
 * @returns the number; -EINVAL for other strings; -ERANGE for a larger number
 */
export function parseNumber(text: string, base: 0 | 10 | 16, max: bigint): bigint | number {
  const end = text.indexOf('\0');
  const string = end < 0 ? text : text.slice(0, end);
  const trimmed = string.endsWith('\n') ? string.slice(0, -1) : string;
  const digits = trimmed.startsWith('+') ? trimmed.slice(1) : trimmed;
  const isHex = base !== 10 && /^0x/i.test(digits);
  const isOctal = base === 0 && !isHex && /^0./.test(digits);
  const rest = isHex ? digits.slice(2) : digits;
  const pattern = isHex || base === 16 ? /^[0-9a-f]+$/i : isOctal ? /^[0-7]+$/ : /^[0-9]+$/;
  if (!pattern.test(rest)) return -Errno.EINVAL;
  const prefix = isHex || base === 16 ? '0x' : isOctal ? '0o' : '';
  const value = BigInt(prefix + rest);
  return value > max ? -Errno.ERANGE : value;
}

/**
 * Parses a signed 64-bit decimal number as kstrtoll does: digits, then at most one newline.
 * @returns the number; -EINVAL for other strings; -ERANGE for a number that does not fit
 */
export function parseSignedNumber(text: string): bigint | number {
  if (!/^[+-]?\d+\n?$/.test(text)) return -Errno.EINVAL;
  const value = BigInt(text.trim());
  return value < S64_MIN || value > S64_MAX ? -Errno.ERANGE : value;
}
