import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { ManualClock } from '../../../ucs/sys/clock.ts';
import { PageTable } from '../../device/memory/mmu.ts';
import { FaultPlan } from '../../faults/fault-plan.ts';
import { VaRange } from './address-blocks.ts';

const BASE = 0xfff0_0000_0000_0000n;
const PAGE = 4096;

function range(pages: number, reserved: readonly [number, number][] = [], pageBytes = PAGE): VaRange {
  const at = (page: number): bigint => BASE + BigInt(page * pageBytes);
  const faults = new FaultPlan(new ManualClock(), () => {});
  return new VaRange(
    {
      range: { start: BASE, end: at(pages) },
      pageBytes,
      table: new PageTable(),
      reserved: reserved.map(([from, to]) => ({ start: at(from), end: at(to) })),
    },
    faults,
  );
}

const plain = { alignment: PAGE, hint: 0n, force: false };

describe('a range of device addresses', () => {
  it('allocates the smallest block that is large enough, the lowest among equals', () => {
    const space = range(16);
    const offsets = Array.from({ length: 16 }, () => space.allocate({ ...plain, byteLength: PAGE }));
    expect(offsets).toEqual(offsets.map((_, index) => index * PAGE));
    for (const page of [2, 3, 4, 8, 12, 13]) space.free(page * PAGE);
    expect(space.allocate({ ...plain, byteLength: 2 * PAGE })).toBe(12 * PAGE);
    expect(space.allocate({ ...plain, byteLength: 1 })).toBe(8 * PAGE);
    expect(space.allocate({ ...plain, byteLength: 3 * PAGE + 1 })).toBe(-1);
    expect(space.usedBytes).toBe(13 * PAGE);
  });

  it('honours aligned free hints, ignores others, and fails them when forced', () => {
    const space = range(16);
    const hint = (page: number, force = false) => ({
      ...plain,
      byteLength: PAGE,
      hint: BASE + BigInt(page * PAGE),
      force,
    });
    expect(space.allocate(hint(5))).toBe(5 * PAGE);
    expect(space.allocate(hint(5))).toBe(0);
    expect(space.allocate(hint(5, true))).toBe(-1);
    expect(space.allocate({ ...hint(7, true), hint: BASE + 5n })).toBe(-1);
    expect(space.allocate({ ...hint(7, true), hint: 5n })).toBe(-1);
    expect(space.allocate(hint(15, true))).toBe(15 * PAGE);
    expect(space.allocate(hint(16, true))).toBe(-1);
  });

  it('allocates reserved parts for a hint only', () => {
    const space = range(4, [[0, 2]]);
    const offsets = [1, 2, 3].map(() => space.allocate({ ...plain, byteLength: PAGE }));
    expect(offsets).toEqual([2 * PAGE, 3 * PAGE, -1]);
    expect(space.allocate({ ...plain, byteLength: PAGE, hint: BASE + BigInt(PAGE) })).toBe(PAGE);
  });

  it('uses whole pages if the page size is not a power of two', () => {
    const page = 0x30000000;
    const space = range(8, [], page);
    expect(space.allocate({ byteLength: 1, alignment: 1, hint: 0n, force: false })).toBe(0);
    expect(
      space.allocate({ byteLength: page + 1, alignment: 1, hint: BASE + BigInt(page) + 4096n, force: false }),
    ).toBe(page);
    expect(space.addressOf(page)).toBe(BASE + BigInt(page));
  });

  it('agrees with an oracle of pages in every small space', () => {
    const step = fc.record({
      free: fc.boolean(),
      pages: fc.integer({ min: 1, max: 4 }),
      alignment: fc.constantFrom(1, 2, 4),
      index: fc.nat(15),
    });
    fc.assert(
      fc.property(fc.integer({ min: 4, max: 16 }), fc.array(step, { maxLength: 40 }), (size, steps) => {
        const space = range(size);
        const taken = new Array<boolean>(size).fill(false);
        const live: [number, number][] = [];
        for (const { free, pages, alignment, index } of steps) {
          if (free && live.length > 0) {
            const [at, count] = live.splice(index % live.length, 1)[0]!;
            space.free(at * PAGE);
            taken.fill(false, at, at + count);
            continue;
          }
          const offset = space.allocate({
            byteLength: pages * PAGE,
            alignment: alignment * PAGE,
            hint: 0n,
            force: false,
          });
          expect(offset < 0 ? -1 : offset / PAGE).toBe(bestFit(taken, pages, alignment));
          if (offset < 0) continue;
          taken.fill(true, offset / PAGE, offset / PAGE + pages);
          live.push([offset / PAGE, pages]);
        }
      }),
    );
  });
});

/** First aligned page in the shortest free block that has room; the lowest such block. */
function bestFit(taken: readonly boolean[], pages: number, alignment: number): number {
  let best = { length: Number.POSITIVE_INFINITY, at: -1 };
  for (let start = 0; start < taken.length; ) {
    if (taken[start]) {
      start += 1;
      continue;
    }
    let end = start;
    while (end < taken.length && !taken[end]) end += 1;
    const at = Math.ceil(start / alignment) * alignment;
    if (at + pages <= end && end - start < best.length) best = { length: end - start, at };
    start = end;
  }
  return best.at;
}
