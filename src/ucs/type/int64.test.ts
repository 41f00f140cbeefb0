/** 64-bit values as two words, compared with bigints. */

import fc from 'fast-check';
import { expect } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import { distanceFrom, highOf, highWord, joinBig, joinWords, lowWord } from './int64.ts';

const word = fc.integer({ min: -(2 ** 31), max: 2 ** 32 - 1 });
const number = fc.oneof(
  fc.integer({ min: 0, max: Number.MAX_SAFE_INTEGER }),
  fc.constantFrom(0, 1, 2 ** 31, 2 ** 32 - 1, 2 ** 32, 2 ** 32 + 1, Number.MAX_SAFE_INTEGER),
);

property('a number is split into two words and joined again', [number], (value) => {
  expect(highOf(value)).toBe(Number(BigInt.asIntN(32, BigInt(value) >> 32n)));
  expect(joinWords(value | 0, highOf(value))).toBe(value);
  expect(joinWords((value | 0) >>> 0, highOf(value) >>> 0)).toBe(value);
});

property(
  'a bigint is split into two words and joined again',
  [fc.bigInt({ min: 0n, max: 2n ** 64n - 1n })],
  (value) => {
    const [low, high] = [lowWord(value), highWord(value)];
    expect([low, high]).toEqual([low | 0, high | 0]);
    expect(joinBig(low, high)).toBe(value);
    expect(joinBig(low >>> 0, high >>> 0)).toBe(value);
  },
);

property('a distance is exact', [word, word, fc.integer({ min: -(2 ** 52), max: 2 ** 52 })], (low, high, distance) => {
  const base = joinBig(low, high);
  const value = base + BigInt(distance);
  fc.pre(value >= 0n && value < 2n ** 64n);
  expect(distanceFrom(low >>> 0, high >>> 0, lowWord(value), highWord(value))).toBe(distance);
});
