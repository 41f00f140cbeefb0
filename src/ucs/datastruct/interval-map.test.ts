import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { type Interval, IntervalMap } from './interval-map.ts';

class ListOracle {
  entries: Interval<number>[] = [];

  overlapping(start: number, end: number): Interval<number>[] {
    if (start >= end) return [];
    return this.entries.filter((entry) => entry.start < end && start < entry.end).sort((a, b) => a.start - b.start);
  }

  insert(start: number, end: number, value: number): boolean {
    if (this.overlapping(start, end).length > 0) return false;
    this.entries.push({ start, end, value });
    return true;
  }

  delete(start: number): Interval<number> | undefined {
    const found = this.entries.find((entry) => entry.start === start);
    this.entries = this.entries.filter((entry) => entry !== found);
    return found;
  }
}

describe('IntervalMap', () => {
  it('finds the owner of an address', () => {
    const map = new IntervalMap<string>();
    expect(map.insert(100, 200, 'a')).toBe(true);
    expect(map.insert(200, 201, 'b')).toBe(true);
    expect(map.find(99)).toBeUndefined();
    expect(map.find(100)?.value).toBe('a');
    expect(map.find(199)).toEqual({ start: 100, end: 200, value: 'a' });
    expect(map.find(200)?.value).toBe('b');
    expect(map.find(201)).toBeUndefined();
    expect(map.size).toBe(2);
  });

  it('refuses overlaps and keeps the existing intervals', () => {
    const map = new IntervalMap<number>();
    map.insert(10, 20, 1);
    for (const [start, end] of [
      [10, 20],
      [5, 11],
      [19, 30],
      [12, 13],
      [0, 100],
    ] as const) {
      expect(map.insert(start, end, 2)).toBe(false);
    }
    expect([...map]).toEqual([{ start: 10, end: 20, value: 1 }]);
    map.clear();
    expect(map.size).toBe(0);
    expect(map.find(10)).toBeUndefined();
  });

  it('rejects bounds that form no interval', () => {
    const map = new IntervalMap<number>();
    expect(() => map.insert(0.5, 2, 0)).toThrow(/start/);
    expect(() => map.insert(2 ** 53, 2 ** 53 + 2, 0)).toThrow(/start/);
    expect(() => map.insert(5, 5, 0)).toThrow(/end/);
    expect(() => map.insert(5, 4, 0)).toThrow(/end/);
    expect(() => map.insert(5, Number.NaN, 0)).toThrow(/end/);
  });

  it.each([1, 2000])('of %s intervals covers each whole interval, until it is removed or cleared', (count) => {
    const map = new IntervalMap<number>();
    for (let i = 0; i < count; i++) map.insert(i * 100, i * 100 + 50, i);
    const last = (count - 1) * 100;
    const covered = () => [map.covering(last, last + 50), map.covering(last + 49, last + 50)];
    // The second time from recent finds, if there are any.
    for (let time = 0; time < 2; time++) {
      expect(covered()).toEqual([count - 1, count - 1]);
      expect([map.covering(last, last + 51), map.covering(last - 1, last + 1)]).toEqual([undefined, undefined]);
    }
    map.delete(last);
    expect(covered()).toEqual([undefined, undefined]);
    map.insert(last, last + 50, count - 1);
    expect(covered()).toEqual([count - 1, count - 1]);
    map.clear();
    expect(covered()).toEqual([undefined, undefined]);
  });

  it('agrees with a list on random operations', () => {
    const bound = fc.nat(60);
    const operation = fc.record({
      kind: fc.constantFrom('insert', 'insert', 'delete'),
      start: bound,
      length: fc.integer({ min: 1, max: 9 }),
    });
    fc.assert(
      fc.property(fc.array(operation, { maxLength: 80 }), (operations) => {
        const map = new IntervalMap<number>();
        const oracle = new ListOracle();
        operations.forEach(({ kind, start, length }, step) => {
          if (kind === 'insert') {
            expect(map.insert(start, start + length, step)).toBe(oracle.insert(start, start + length, step));
          } else {
            expect(map.delete(start)).toEqual(oracle.delete(start));
          }
          expect([...map]).toEqual(oracle.overlapping(-1, 100));
          for (let address = -1; address < 72; address += 3) {
            expect(map.find(address)).toEqual(oracle.overlapping(address, address + 1)[0]);
            const expected = oracle.overlapping(address, address + length - 2);
            expect(map.overlapping(address, address + length - 2)).toEqual(expected);
            expect(map.firstOverlapping(address, address + length - 2)).toEqual(expected[0]);
          }
        });
      }),
      { numRuns: 50 },
    );
  });

  it('agrees with a list when it is large, also for recent finds', () => {
    const COUNT = 3000;
    const STEP = 6000;
    const operation = fc.record({
      kind: fc.constantFrom('covering', 'covering', 'covering', 'delete', 'insert'),
      index: fc.nat(COUNT - 1),
      offset: fc.nat(STEP),
      length: fc.integer({ min: 1, max: 400_000 }),
    });
    fc.assert(
      fc.property(fc.array(operation, { minLength: 200, maxLength: 400 }), (operations) => {
        const map = new IntervalMap<{ id: number }>();
        const ends = new Map<number, { end: number; value: { id: number } }>();
        for (let i = 0; i < COUNT; i++) {
          // In random order; lengths below and above a page, and some longer than those that the table of recent finds clears page by page.
          const start = ((i * 1789) % COUNT) * STEP * 100;
          const value = { id: i };
          const end = start + (i % 50 === 0 ? 400_000 : 1 + ((i * 37) % STEP));
          expect(map.insert(start, end, value)).toBe(true);
          ends.set(start, { end, value });
        }
        for (const [step, { kind, index, offset, length }] of operations.entries()) {
          const start = index * STEP * 100;
          const known = ends.get(start);
          if (kind === 'delete') {
            expect(map.delete(start)?.value).toBe(known?.value);
            ends.delete(start);
          } else if (kind === 'insert') {
            const value = { id: COUNT + step };
            expect(map.insert(start, start + length, value)).toBe(known === undefined);
            if (known === undefined) ends.set(start, { end: start + length, value });
          } else {
            for (const bytes of [1, 8, length]) {
              const from = start + offset;
              const covers = known !== undefined && from + bytes <= known.end;
              expect(map.covering(from, from + bytes)).toBe(covers ? known.value : undefined);
            }
          }
        }
        expect(map.size).toBe(ends.size);
        expect([...map].map(({ start }) => start)).toEqual([...ends.keys()].sort((a, b) => a - b));
      }),
      { numRuns: 20 },
    );
  });
});
