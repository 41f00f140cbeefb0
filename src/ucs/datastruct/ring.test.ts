import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { Ring } from './ring.ts';

describe('Ring', () => {
  it('returns items in order and refuses more than its capacity', () => {
    const ring = new Ring<string>(2);
    expect(ring.isEmpty).toBe(true);
    expect(ring.push('a')).toBe(true);
    expect(ring.push('b')).toBe(true);
    expect(ring.isFull).toBe(true);
    expect(ring.push('c')).toBe(false);
    expect(ring.peek()).toBe('a');
    expect(ring.shift()).toBe('a');
    expect(ring.push('c')).toBe(true);
    expect([ring.at(-1), ring.at(0), ring.at(1), ring.at(2)]).toEqual([undefined, 'b', 'c', undefined]);
    ring.clear();
    expect(ring.length).toBe(0);
    expect(ring.shift()).toBeUndefined();
    expect(ring.peek()).toBeUndefined();
  });

  it('that is empty again has no first item', () => {
    const ring = new Ring<string>(4);
    ring.push('a');
    expect(ring.shift()).toBe('a');
    expect([ring.peek(), ring.at(0), ring.isEmpty]).toEqual([undefined, undefined, true]);
  });

  it('has no first item after it was full and emptied one by one', () => {
    const ring = new Ring<string>(2);
    for (const item of ['a', 'b']) ring.push(item);
    expect([ring.shift(), ring.shift()]).toEqual(['a', 'b']);
    expect([ring.peek(), ring.isEmpty]).toEqual([undefined, true]);
  });

  it('rejects capacities that are not a power of two', () => {
    for (const bad of [0, -2, 3, 1.5, 2 ** 31, Number.NaN]) expect(() => new Ring(bad)).toThrow(/capacity/);
  });

  it('agrees with an array', () => {
    fc.assert(
      fc.property(fc.constantFrom(1, 2, 8), fc.array(fc.boolean(), { maxLength: 200 }), (capacity, pushes) => {
        const ring = new Ring<number>(capacity);
        const oracle: number[] = [];
        pushes.forEach((push, step) => {
          if (push) {
            const room = oracle.length < capacity;
            expect(ring.push(step)).toBe(room);
            if (room) oracle.push(step);
          } else {
            expect(ring.shift()).toBe(oracle.shift());
          }
          expect(ring.length).toBe(oracle.length);
          expect(oracle.map((_, index) => ring.at(index))).toEqual(oracle);
        });
      }),
    );
  });
});
