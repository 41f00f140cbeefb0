import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { UNMAP_RANGES_MAX, UnmapQueue } from './region.ts';

describe('UnmapQueue', () => {
  it('merges overlapping and adjacent ranges', () => {
    const queue = new UnmapQueue();
    queue.add(10, 20);
    queue.add(30, 40);
    expect([queue.length, queue.byteLength]).toEqual([2, 20]);
    queue.add(20, 30);
    expect([queue.length, queue.byteLength]).toEqual([1, 30]);
    expect([...queue.take()].map(({ start, end }) => [start, end])).toEqual([[10, 40]]);
    expect([queue.length, queue.byteLength, queue.take().size]).toEqual([0, 0, 0]);
  });

  it('covers the whole address space at its bound', () => {
    const queue = new UnmapQueue();
    for (let i = 0; i <= UNMAP_RANGES_MAX; i++) queue.add(i * 10, i * 10 + 5);
    expect(queue.length).toBe(1);
    queue.add(1, 2);
    expect(queue.length).toBe(1);
    const all = queue.take();
    expect(all.firstOverlapping(2 ** 46, 2 ** 46 + 1)).toBeDefined();
  });

  it('holds exactly the bytes that were reported', () => {
    const ranges = fc.array(fc.record({ start: fc.nat(200), length: fc.integer({ min: 1, max: 20 }) }), {
      maxLength: 40,
    });
    fc.assert(
      fc.property(ranges, (reports) => {
        const queue = new UnmapQueue();
        const bytes = new Set<number>();
        for (const { start, length } of reports) {
          queue.add(start, start + length);
          for (let byte = start; byte < start + length; byte++) bytes.add(byte);
        }
        expect(queue.byteLength).toBe(bytes.size);
        const taken = queue.take();
        for (let byte = 0; byte < 230; byte++) expect(taken.find(byte) !== undefined).toBe(bytes.has(byte));
      }),
    );
  });
});
