/** Numbers of 64 bits in argument blocks, and as text that programs write. */

import { describe, expect, it } from 'vitest';
import { Errno } from '../../../sys/index.ts';
import { clearWords, parseNumber, parseSignedNumber, readNumber, readU64, writeU64 } from './numbers.ts';

describe('numbers in words', () => {
  it('have their low word first', () => {
    const words = Uint32Array.of(9, 5, 0x8000_0001, 9);
    expect(readU64(words, 1)).toBe(0x8000_0001_0000_0005n);
    expect(readNumber(words, 1)).toBe(0x8000_0001 * 2 ** 32 + 5);
    writeU64(words, 2, 0x1_ffff_fffen);
    expect([...words]).toEqual([9, 5, 0xffff_fffe, 1]);
    clearWords(words, 3);
    expect([...words]).toEqual([0, 0, 0, 1]);
  });
});

const { EINVAL, ERANGE } = Errno;

describe('a number as text', () => {
  it.each<[string, 0 | 10 | 16, bigint | number]>([
    ['12', 0, 12n],
    ['12\n', 10, 12n],
    ['12\n\n', 10, -EINVAL],
    ['+12', 0, 12n],
    ['-12', 0, -EINVAL],
    ['0x1F', 0, 31n],
    ['0X1f', 16, 31n],
    ['1f', 16, 31n],
    ['1f', 0, -EINVAL],
    ['0x1f', 10, -EINVAL],
    ['017', 0, 15n],
    ['017', 10, 17n],
    ['018', 0, -EINVAL],
    ['0', 0, 0n],
    ['', 0, -EINVAL],
    ['0x', 0, -EINVAL],
    ['7\0rest', 10, 7n],
    [' 7', 10, -EINVAL],
    ['255', 0, 255n],
    ['256', 0, -ERANGE],
  ])('%j to the base %i is %s', (text, base, expected) => {
    expect(parseNumber(text, base, 255n)).toBe(expected);
  });

  it.each<[string, bigint | number]>([
    ['9223372036854775807', 2n ** 63n - 1n],
    ['9223372036854775808', -ERANGE],
    ['-9223372036854775808\n', -(2n ** 63n)],
    ['-9223372036854775809', -ERANGE],
    ['+5', 5n],
    ['0x5', -EINVAL],
    ['5 ', -EINVAL],
    ['', -EINVAL],
  ])('with a sign: %j is %s', (text, expected) => {
    expect(parseSignedNumber(text)).toBe(expected);
  });
});
