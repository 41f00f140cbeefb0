import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { PageTable } from './mmu.ts';
import { PhysicalMemory } from './physical-memory.ts';

const memory = new PhysicalMemory('hbm', { address: 0, byteLength: 1000 });

describe('PageTable', () => {
  it('rejects overlaps and then changes nothing', () => {
    for (const [start, length] of [
      [10, 10],
      [5, 6],
      [19, 3],
      [0, 40],
      [12, 2],
    ] as const) {
      const table = new PageTable();
      expect(table.map(10, 10, memory, 0)).toBe(true);
      expect(table.map(start, length, memory, 0)).toBe(false);
      expect(table.size).toBe(1);
    }
  });

  it('maps neighbours and forgets what is unmapped', () => {
    const table = new PageTable();
    expect(table.map(10, 10, memory, 0)).toBe(true);
    expect(table.map(20, 10, memory, 100)).toBe(true);
    expect(table.map(0, 10, memory, 200)).toBe(true);
    expect([0, 10, 20].map((at) => table.translate(at)?.memoryOffset)).toEqual([200, 0, 100]);
    table.unmap(10, 10);
    expect(table.translate(10)).toBeUndefined();
    expect(table.translate(9)?.start).toBe(0);
    expect(table.translate(30)).toBeUndefined();
    table.unmap(0, 30);
    expect(table.size).toBe(0);
  });

  it('agrees with an array of pages in every sequence of three calls on four pages', () => {
    const calls = everyRange(4).flatMap((range) => [
      { ...range, unmap: false },
      { ...range, unmap: true },
    ]);
    for (const first of calls) {
      for (const second of calls) for (const third of calls) expectAgreement([first, second, third]);
    }
  });

  it('agrees with an array of bytes', () => {
    const step = fc.record({
      unmap: fc.boolean(),
      start: fc.nat(63),
      length: fc.integer({ min: 1, max: 16 }),
      offset: fc.nat(500),
    });
    fc.assert(
      fc.property(fc.array(step, { maxLength: 60 }), (steps) => {
        const table = new PageTable();
        const bytes = new Array<number>(80).fill(-1);
        const stretches = new Map<number, number>();
        for (const { unmap, start, length, offset } of steps) {
          if (unmap) {
            const first = [...stretches.keys()][start % Math.max(1, stretches.size)];
            if (first === undefined) continue;
            table.unmap(first, stretches.get(first)!);
            bytes.fill(-1, first, first + stretches.get(first)!);
            stretches.delete(first);
          } else {
            const isFree = bytes.slice(start, start + length).every((byte) => byte < 0);
            expect(table.map(start, length, memory, offset)).toBe(isFree);
            if (!isFree) continue;
            for (let i = 0; i < length; i++) bytes[start + i] = offset + i;
            stretches.set(start, length);
          }
          for (let at = 0; at < bytes.length; at++) {
            const found = table.translate(at);
            expect(found === undefined ? -1 : found.memoryOffset + at - found.start).toBe(bytes[at]);
          }
        }
      }),
    );
  });
});

interface Call {
  readonly start: number;
  readonly length: number;
  readonly unmap: boolean;
}

/** Every range of at least one page in `pages` pages. */
function everyRange(pages: number): { readonly start: number; readonly length: number }[] {
  const ranges = [];
  for (let start = 0; start < pages; start++) {
    for (let length = 1; start + length <= pages; length++) ranges.push({ start, length });
  }
  return ranges;
}

/** Runs calls on a table and on an array of pages; a page holds its target, or -1. Unmapping removes whole stretches. */
function expectAgreement(calls: readonly Call[]): void {
  const table = new PageTable();
  const pages = [-1, -1, -1, -1];
  let stretches: Call[] = [];
  for (const [index, call] of calls.entries()) {
    const end = call.start + call.length;
    if (call.unmap) {
      table.unmap(call.start, call.length);
      const gone = stretches.filter(({ start, length }) => start >= call.start && start + length <= end);
      for (const { start, length } of gone) pages.fill(-1, start, start + length);
      stretches = stretches.filter((stretch) => !gone.includes(stretch));
    } else {
      const isFree = pages.slice(call.start, end).every((page) => page < 0);
      if (table.map(call.start, call.length, memory, 100 * (index + 1)) !== isFree) expect.fail(JSON.stringify(calls));
      if (isFree) {
        for (let i = 0; i < call.length; i++) pages[call.start + i] = 100 * (index + 1) + i;
        stretches.push(call);
      }
    }
    for (let page = 0; page < pages.length; page++) {
      const found = table.translate(page);
      const leads = found === undefined ? -1 : found.memoryOffset + page - found.start;
      if (leads !== pages[page]) expect.fail(`${JSON.stringify(calls)}: page ${page} leads to ${leads}`);
    }
  }
}
