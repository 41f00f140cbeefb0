/** Conversions of float16 and bfloat16: all 65,536 of each, and every boundary of rounding, against exact references. */

import { describe, expect, it } from 'vitest';
import { bfloat16Bits, bfloat16Value, float16Bits, float16Table, float16Value } from './dtype.ts';

/** The value of bits by the definition of IEEE 754, with as many exponent bits as are given. */
function definition(bits: number, exponentBits: number, mantissaBits: number): number {
  const sign = bits >>> 15 === 1 ? -1 : 1;
  const exponent = (bits >>> mantissaBits) & (2 ** exponentBits - 1);
  const mantissa = bits & (2 ** mantissaBits - 1);
  const bias = 2 ** (exponentBits - 1) - 1;
  if (exponent === 2 ** exponentBits - 1) return mantissa === 0 ? sign * Number.POSITIVE_INFINITY : Number.NaN;
  if (exponent === 0) return sign * mantissa * 2 ** (1 - bias - mantissaBits);
  return sign * (2 ** mantissaBits + mantissa) * 2 ** (exponent - bias - mantissaBits);
}

const ALL = Array.from({ length: 65_536 }, (_, bits) => bits);

describe.each([
  ['float16', 5, 10, float16Value, float16Bits],
  ['bfloat16', 8, 7, bfloat16Value, bfloat16Bits],
] as const)('%s', (_name, exponentBits, mantissaBits, valueOf16, bitsOf) => {
  it('has the value of its definition, for all 65,536', () => {
    const wrong = ALL.filter((bits) => !Object.is(valueOf16(bits), definition(bits, exponentBits, mantissaBits)));
    expect(wrong).toEqual([]);
  });

  it('is converted back to the same bits; a NaN to a quiet one', () => {
    const wrong = ALL.filter((bits) => {
      const value = valueOf16(bits);
      return Number.isNaN(value) ? !Number.isNaN(valueOf16(bitsOf(value))) : bitsOf(value) !== bits;
    });
    expect(wrong).toEqual([]);
  });

  it('is the nearest of two neighbours, the even one in the middle, for all neighbours', () => {
    const infinity = (2 ** exponentBits - 1) << mantissaBits;
    const ulp = 2 ** -30;
    const wrong = ALL.slice(0, infinity).filter((bits) => {
      const low = definition(bits, exponentBits, mantissaBits);
      // The neighbour of the largest number is where the next one would be.
      const next =
        bits + 1 === infinity ? 2 * low - definition(bits - 1, exponentBits, mantissaBits) : valueOf16(bits + 1);
      const middle = (low + next) / 2;
      const even = bits % 2 === 0 ? bits : bits + 1;
      const [below, above] = [Math.fround(middle * (1 - ulp * 128)), Math.fround(middle * (1 + ulp * 128))];
      const isExact = Math.fround(middle) === middle;
      if (isExact && bitsOf(middle) !== even) return true;
      if (below > low && below < middle && bitsOf(below) !== bits) return true;
      return above > middle && above < next && bitsOf(above) !== bits + 1;
    });
    expect(wrong).toEqual([]);
    expect(bitsOf(-0)).toBe(0x8000);
    expect(bitsOf(Number.NEGATIVE_INFINITY)).toBe(0x8000 | infinity);
  });
});

describe('the table of float16', () => {
  it('has the value of each', () => {
    expect(ALL.filter((bits) => !Object.is(float16Table()[bits], float16Value(bits)))).toEqual([]);
  });
});
