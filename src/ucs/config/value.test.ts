import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import {
  bandwidthType,
  boolType,
  type ConfigType,
  enumType,
  memorySizeType,
  memoryUnitsType,
  restricted,
  ternaryType,
  timeType,
  uintInfType,
  uintType,
} from './value.ts';

function expectTable<T>(type: ConfigType<T>, good: readonly (readonly [string, T])[], bad: readonly string[]): void {
  for (const [text, value] of good) expect(type.parse(text), text).toEqual(value);
  for (const text of bad) expect(type.parse(text), text).toBeUndefined();
  for (const [, value] of good) expect(type.parse(type.print(value))).toEqual(value);
}

describe('words', () => {
  it('parses bool', () => {
    for (const word of ['y', 'yes', 'on', '1', 'true', 'YES', ' y ']) expect(boolType.parse(word)).toBe(true);
    for (const word of ['n', 'no', 'off', '0', 'false', 'No']) expect(boolType.parse(word)).toBe(false);
    for (const word of ['', 'try', '2', 'yep']) expect(boolType.parse(word)).toBeUndefined();
    expect([boolType.print(true), boolType.print(false)]).toEqual(['y', 'n']);
  });

  it('parses ternary and enums', () => {
    expectTable(
      ternaryType,
      [
        ['try', 'try'],
        ['Maybe', 'try'],
        ['y', 'yes'],
        ['off', 'no'],
      ],
      ['', 'auto'],
    );
    expectTable(
      enumType(['v1', 'v2']),
      [
        ['V1', 'v1'],
        [' v2', 'v2'],
      ],
      ['', 'v3'],
    );
    expect(enumType(['a', 'b', 'c']).syntax).toBe('a, b or c');
    expect(enumType(['a']).syntax).toBe('a');
  });
});

describe('numbers', () => {
  it('parses integers', () => {
    expectTable(
      uintType,
      [
        ['5', 5],
        ['0x1F', 31],
      ],
      ['', '-1', 'inf', '1k'],
    );
    expectTable(
      uintInfType,
      [
        ['5', 5],
        ['INF', Infinity],
      ],
      ['', '-inf', 'auto'],
    );
  });

  it('parses sizes', () => {
    expectTable(
      memoryUnitsType,
      [
        ['0', 0],
        ['8192', 8192],
        ['8192b', 8192],
        ['512K', 512 * 1024],
        ['1m', 2 ** 20],
        ['1kb', 1024],
        ['4G', 4 * 2 ** 30],
        ['2tb', 2 ** 41],
        ['inf', Infinity],
        ['auto', 'auto'],
      ],
      ['', '-1', '1.5k', 'k', '1kk', '1 m', '9999999t', '1mbs'],
    );
    expect(memorySizeType.parse('auto')).toBeUndefined();
    expect([0, 1000, 1024, 3 * 2 ** 20, 2 ** 33, Infinity].map((size) => memorySizeType.print(size))).toEqual([
      '0',
      '1000',
      '1K',
      '3M',
      '8G',
      'inf',
    ]);
  });

  it('parses bandwidths, where b is bits', () => {
    expectTable(
      bandwidthType,
      [
        ['10000MBs', 10000 * 2 ** 20],
        ['8GBs', 8 * 2 ** 30],
        ['8GB/s', 8 * 2 ** 30],
        ['8GBps', 8 * 2 ** 30],
        ['0.5 TBs', 2 ** 39],
        ['100Gbs', (100 * 2 ** 30) / 8],
        ['3Bs', 3],
      ],
      ['', '10', '10MB', 'MBs', '-1MBs', '1XBs', '.GBs', '1e999Bs', '1e308TBs', 'inf', 'auto'],
    );
    expect([bandwidthType.print(10000 * 2 ** 20), bandwidthType.print(2 ** 33)]).toEqual(['10000MBs', '8GBs']);
  });

  it('parses times into nanoseconds', () => {
    expectTable(
      timeType,
      [
        ['1.8us', 1800],
        ['20s', 20e9],
        ['16us', 16000],
        ['0.06ns', 0.06],
        ['5ms', 5e6],
        ['2m', 120e9],
        ['3', 3e9],
        ['0', 0],
        ['.5s', 5e8],
        ['2.us', 2000],
        ['1e3ns', 1000],
        ['inf', Infinity],
      ],
      ['', 'us', '.s', '-1s', '1h', '1e999s', 'nan', 'auto'],
    );
    expect([1800, 20e9, 0.06, 0, 5e6].map((ns) => timeType.print(ns))).toEqual([
      '1.8us',
      '20s',
      '0.06ns',
      '0ns',
      '5ms',
    ]);
  });
});

describe('restricted', () => {
  it('accepts the values that fulfil the rule', () => {
    const even = restricted(uintType, 'an even number', (value) => value % 2 === 0);
    expectTable(even, [['4', 4]], ['3', 'x', '']);
    expect(even.syntax).toBe('an even number');
  });
});

describe('round trips', () => {
  const positive = fc.double({ min: 0, max: 1e15, noNaN: true });
  const cases: readonly [string, ConfigType<never>, fc.Arbitrary<unknown>][] = [
    ['bool', boolType as ConfigType<never>, fc.boolean()],
    ['uint', uintInfType as ConfigType<never>, fc.oneof(fc.maxSafeNat(), fc.constant(Infinity))],
    [
      'size',
      memoryUnitsType as ConfigType<never>,
      fc.oneof(
        fc.maxSafeNat(),
        fc.nat(99).map((n) => n * 2 ** 20),
        fc.constant('auto'),
      ),
    ],
    [
      'bandwidth',
      bandwidthType as ConfigType<never>,
      fc.oneof(
        positive,
        fc.nat(99).map((n) => n * 2 ** 30),
      ),
    ],
    [
      'time',
      timeType as ConfigType<never>,
      fc.oneof(
        positive,
        fc.nat(99).map((n) => n * 1e6),
        fc.constant(Infinity),
      ),
    ],
  ];
  it.each(cases)('prints every %s as a string that parses to it', (_name, type, values) => {
    fc.assert(
      fc.property(values, (value) => {
        expect(type.parse(type.print(value as never))).toBe(value);
      }),
    );
  });

  it('never throws on any text', () => {
    const types = [boolType, ternaryType, uintInfType, memoryUnitsType, bandwidthType, timeType];
    fc.assert(fc.property(fc.string(), (text) => types.every((type) => type.parse(text) !== null)));
  });
});
