import { describe, expect, it } from 'vitest';
import { createRandom, systemRandomBytes } from './random.ts';

describe('createRandom', () => {
  it('replays from its seed', () => {
    const first = createRandom(42);
    const second = createRandom(42);
    const other = createRandom(43);
    const numbers = Array.from({ length: 20 }, () => first.nextU32());
    expect(Array.from({ length: 20 }, () => second.nextU32())).toEqual(numbers);
    expect(Array.from({ length: 20 }, () => other.nextU32())).not.toEqual(numbers);
  });

  it('uses all bits of the seed', () => {
    const starts = [0, 1, 2 ** 32, 2 ** 32 + 1, 2 ** 52, Number.MAX_SAFE_INTEGER].map((seed) =>
      createRandom(seed).nextU32(),
    );
    expect(new Set(starts).size).toBe(starts.length);
  });

  it('gives 32-bit integers and does not repeat itself early', () => {
    const random = createRandom(1);
    const seen = new Set<number>();
    for (let i = 0; i < 10_000; i++) seen.add(random.nextU32());
    expect(seen.size).toBeGreaterThan(9_990);
    for (const value of seen) expect(value === value >>> 0).toBe(true);
  });

  it('fills every value of a small range approximately evenly', () => {
    const random = createRandom(3);
    const counts = new Array<number>(6).fill(0);
    for (let i = 0; i < 60_000; i++) counts[random.below(6)]!++;
    for (const count of counts) expect(Math.abs(count - 10_000)).toBeLessThan(500);
    expect(random.below(1)).toBe(0);
    expect(random.below(2 ** 32)).toBeLessThan(2 ** 32);
  });

  it('leaves out the numbers that would make small results likelier', () => {
    // Three quarters of the numbers are below the bound; the others would be small results.
    const bound = 3 * 2 ** 30;
    const [numbers, results] = [createRandom(5), createRandom(5)];
    const wanted = Array.from({ length: 100 }, () => numbers.nextU32()).filter((number) => number < bound);
    expect(wanted.length).toBeLessThan(100);
    expect(wanted.map(() => results.below(bound))).toEqual(wanted);
  });

  it('makes bytes of any length', () => {
    for (const length of [0, 1, 3, 4, 5, 64]) {
      const bytes = createRandom(9).bytes(length);
      expect(bytes).toHaveLength(length);
      const filled = new Uint8Array(length);
      createRandom(9).fill(filled);
      expect(filled).toEqual(bytes);
    }
  });

  it('rejects bad seeds and bounds', () => {
    for (const bad of [-1, 0.5, Number.NaN, 2 ** 53]) expect(() => createRandom(bad)).toThrow(/seed/);
    for (const bad of [0, -1, 1.5, 2 ** 32 + 1]) expect(() => createRandom(1).below(bad)).toThrow(/bound/);
  });
});

describe('systemRandomBytes', () => {
  it('differs from call to call and owns its memory', () => {
    const first = systemRandomBytes(16);
    expect(first).not.toEqual(systemRandomBytes(16));
    expect(first.byteOffset).toBe(0);
    expect(first.buffer.byteLength).toBe(16);
  });
});
