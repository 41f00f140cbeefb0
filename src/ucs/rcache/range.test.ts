/** The registration cache for memory identified by its address: merging, protection, alignment, reports of unmapped memory, failures. */

import { describe, expect, it } from 'vitest';
import { FakeRegistrar, type Pin } from '../../../test/fixtures/transports/fake-registrar.ts';
import { Status } from '../type/status.ts';
import type { RcacheOptions } from './options.ts';
import { Rcache } from './rcache.ts';
import { Protection, type RcacheRegion, UNMAP_RANGES_MAX } from './region.ts';

const PAGE = 4096;
const BASE = 0x7000_0000_0000;
const { READ, READ_WRITE } = Protection;

/** The library types of ES2023 do not have resizable buffers. */
const ResizableBuffer = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ArrayBuffer & { resize(byteLength: number): void };

function make(options: Partial<RcacheOptions<Pin>> = {}): { cache: Rcache<Pin>; registrar: FakeRegistrar } {
  const registrar = new FakeRegistrar();
  return { registrar, cache: new Rcache<Pin>({ registrar, ...options }) };
}

/** Acquires pages of the range at BASE. */
function pages(cache: Rcache<Pin>, from: number, to: number, protection: number = READ_WRITE): RcacheRegion<Pin> {
  const region = cache.acquireRange(BASE + from * PAGE, (to - from) * PAGE, protection);
  if (typeof region === 'number') throw new Error(`acquire failed with ${region}`);
  return region;
}

/** The pages that a region covers. */
function span(region: RcacheRegion<Pin>): number[] {
  return [(region.start - BASE) / PAGE, (region.end - BASE) / PAGE];
}

describe('registrations of address ranges', () => {
  it('are created once, and found for each of their parts', () => {
    const { cache, registrar } = make();
    const region = pages(cache, 0, 4);
    expect(pages(cache, 0, 4)).toBe(region);
    expect(cache.acquireRange(BASE + 5000, 100)).toBe(region);
    expect(cache.acquireRange(BASE + 4 * PAGE - 1, 1)).toBe(region);
    expect(cache.counters).toMatchObject({ gets: 4, hits_fast: 3, hits_slow: 0, misses: 1, mem_regs: 1 });
    for (let i = 0; i < 4; i++) cache.release(region);
    expect(pages(cache, 1, 2)).toBe(region);
    cache.release(region);
    expect(registrar.asked).toHaveLength(1);
    expect([cache.numRegions, cache.numInUse, cache.totalSize]).toEqual([1, 0, 4 * PAGE]);
  });

  it('cover whole pages', () => {
    const { cache } = make();
    const region = cache.acquireRange(BASE + 10, 20) as RcacheRegion<Pin>;
    expect(span(region)).toEqual([0, 1]);
    const two = cache.acquireRange(BASE + 3 * PAGE - 1, 2) as RcacheRegion<Pin>;
    expect(span(two)).toEqual([2, 4]);
  });

  it('that overlap are merged', () => {
    const { cache, registrar } = make();
    for (const region of [pages(cache, 0, 2), pages(cache, 4, 6)]) cache.release(region);
    const all = pages(cache, 1, 5);
    expect(span(all)).toEqual([0, 6]);
    expect(registrar.live.size).toBe(1);
    expect(cache.counters).toMatchObject({ regions_merged: 2, mem_regs: 3, mem_deregs: 2, misses: 3 });
    expect(pages(cache, 0, 1)).toBe(all);
    // Adjacent regions are not merged.
    expect(span(pages(cache, 6, 7))).toEqual([6, 7]);
    expect(cache.numRegions).toBe(2);
  });

  it('that are in use when they are merged end with their last release', () => {
    const { cache, registrar } = make();
    const first = pages(cache, 0, 2);
    const union = pages(cache, 1, 3);
    expect(span(union)).toEqual([0, 3]);
    expect([registrar.live.has(first.registration), first.valid]).toEqual([true, false]);
    expect(pages(cache, 0, 1)).toBe(union);
    cache.release(first);
    expect([...registrar.live]).toEqual([union.registration]);
  });

  it('take the strictest alignment of the merged regions', () => {
    const { cache } = make();
    const wide = cache.acquireRange(BASE + 5 * PAGE, PAGE, READ_WRITE, 4 * PAGE) as RcacheRegion<Pin>;
    expect(span(wide)).toEqual([4, 8]);
    cache.release(wide);
    const union = pages(cache, 7, 9);
    expect(span(union)).toEqual([4, 12]);
    expect(union.alignment).toBe(4 * PAGE);
    // A region of smaller alignment does not serve a request for a larger one.
    const plain = pages(cache, 16, 20);
    const strict = cache.acquireRange(BASE + 16 * PAGE, PAGE, READ_WRITE, 2 * PAGE) as RcacheRegion<Pin>;
    expect(strict).not.toBe(plain);
    expect([span(strict), strict.alignment]).toEqual([[16, 20], 2 * PAGE]);
  });

  it('are merged until nothing overlaps any more', () => {
    const { cache } = make({ alignment: 16 });
    const region = (from: number, to: number, alignment = 16): RcacheRegion<Pin> =>
      cache.acquireRange(BASE + from, to - from, READ_WRITE, alignment) as RcacheRegion<Pin>;
    cache.release(region(1024, 1040));
    cache.release(region(2000, 2016, 1024));
    // Overlaps the second one, whose alignment reaches back to the first.
    const all = region(2032, 2064);
    expect([all.start - BASE, all.end - BASE, all.alignment]).toEqual([1024, 3072, 1024]);
    expect(cache.numRegions).toBe(1);
  });

  it('of another protection are removed, not merged', () => {
    const { cache, registrar } = make();
    const readOnly = pages(cache, 0, 3, READ);
    cache.release(readOnly);
    const writable = pages(cache, 2, 4);
    expect(span(writable)).toEqual([2, 4]);
    expect([readOnly.valid, registrar.live.size]).toEqual([false, 1]);
    expect(cache.counters.regions_merged).toBe(0);
    // A region with more protection bits serves the request.
    expect(pages(cache, 2, 3, READ)).toBe(writable);
    const again = pages(cache, 3, 5, READ);
    expect([span(again), again.protection]).toEqual([[3, 5], READ]);
  });

  it('that cannot be merged are created alone', () => {
    const { cache, registrar } = make();
    cache.release(pages(cache, 0, 2));
    registrar.failures = [Status.INVALID_ADDR, Status.OK];
    const alone = pages(cache, 1, 3);
    expect(span(alone)).toEqual([1, 3]);
    expect(registrar.asked.slice(1).map(({ start }) => (start - BASE) / PAGE)).toEqual([0, 1]);
    expect(registrar.live.size).toBe(1);
    registrar.failures = [Status.INVALID_ADDR, Status.INVALID_ADDR];
    expect(cache.acquireRange(BASE + 2 * PAGE, 2 * PAGE)).toBe(Status.INVALID_ADDR);
    // The existing region stays.
    expect(pages(cache, 1, 3)).toBe(alone);
  });

  it('are bounded by count and bytes, the least recently used first, never those in use', () => {
    const { cache } = make({ maxRegions: 3 });
    const [a, b, c] = [0, 10, 20].map((page) => pages(cache, page, page + 1)) as [
      RcacheRegion<Pin>,
      RcacheRegion<Pin>,
      RcacheRegion<Pin>,
    ];
    cache.release(c);
    cache.release(b);
    pages(cache, 30, 31);
    expect([a.valid, b.valid, c.valid]).toEqual([true, true, false]);
    const bytes = make({ maxSize: 4 * PAGE });
    const used = pages(bytes.cache, 0, 3);
    bytes.cache.release(pages(bytes.cache, 10, 11));
    bytes.cache.release(pages(bytes.cache, 20, 22));
    expect([bytes.cache.totalSize, bytes.cache.numRegions, used.valid]).toEqual([3 * PAGE, 1, true]);
  });

  it('as long as the bound stay, and longer ones leave the others alone', () => {
    const { cache } = make({ maxSize: 2 * PAGE });
    const two = pages(cache, 0, 2);
    cache.release(two);
    expect([cache.numRegions, two.valid]).toEqual([1, true]);
    const three = pages(cache, 10, 13);
    expect(two.valid).toBe(true);
    cache.release(three);
    expect([two.valid, three.valid, cache.totalSize]).toEqual([true, false, 2 * PAGE]);
  });

  it.each([0, -1, Number.NaN, 2 ** 47])('are refused at address %s', (start) => {
    const { cache, registrar } = make();
    expect(cache.acquireRange(start, PAGE)).toBe(Status.INVALID_PARAM);
    expect(cache.acquireRange(BASE, 0)).toBe(Status.INVALID_PARAM);
    expect(registrar.asked).toEqual([]);
  });
});

describe('a failed registration', () => {
  it('is not tried again until memory is reported gone', () => {
    const { cache, registrar } = make();
    registrar.failures = [Status.UNSUPPORTED];
    for (let i = 0; i < 3; i++) expect(cache.acquireRange(BASE, PAGE)).toBe(Status.UNSUPPORTED);
    expect(registrar.asked).toHaveLength(1);
    expect([cache.numRegions, cache.counters.mem_regs]).toEqual([0, 0]);
    // A range of other bytes is tried.
    pages(cache, 0, 2);
    cache.purge();
    pages(cache, 0, 1);
    registrar.failures = [Status.UNSUPPORTED];
    expect(cache.acquireRange(BASE + 9 * PAGE, PAGE)).toBe(Status.UNSUPPORTED);
    cache.unmapped(BASE + 9 * PAGE, 1);
    pages(cache, 9, 10);
  });

  it('of a buffer likewise', () => {
    const { cache, registrar } = make();
    const owner = new ArrayBuffer(64);
    registrar.failures = [Status.UNSUPPORTED];
    for (let i = 0; i < 3; i++) expect(cache.acquire(owner)).toBe(Status.UNSUPPORTED);
    expect(registrar.asked).toHaveLength(1);
    cache.unmapped(BASE, 1);
    expect(cache.acquire(owner)).toMatchObject({ byteLength: 64 });
  });

  it('counts for its protection and its bytes only', () => {
    const { cache, registrar } = make();
    registrar.failures = [Status.UNSUPPORTED];
    expect(cache.acquireRange(BASE, PAGE, READ_WRITE)).toBe(Status.UNSUPPORTED);
    // The memory may be readable.
    cache.release(pages(cache, 0, 1, READ));
    cache.unmapped(BASE, PAGE);
    registrar.failures = [Status.UNSUPPORTED, Status.UNSUPPORTED];
    for (const end of [1, 2, 2]) expect(cache.acquireRange(BASE, end * PAGE)).toBe(Status.UNSUPPORTED);
    // The longer range has replaced the shorter one, which is tried again.
    pages(cache, 0, 1);
  });

  it('is remembered with at most 1023 others', () => {
    const { cache, registrar } = make();
    const fail = (page: number): number => {
      registrar.failures = [Status.UNSUPPORTED];
      expect(cache.acquireRange(BASE + page * PAGE, PAGE)).toBe(Status.UNSUPPORTED);
      return registrar.asked.length;
    };
    for (let page = 0; page < 1024; page++) expect(fail(2 * page)).toBe(page + 1);
    expect(fail(0)).toBe(1024);
    expect(fail(5000)).toBe(1025);
    expect(fail(0)).toBe(1026);
  });

  it('of a buffer is tried again after the buffer was invalidated', () => {
    const { cache, registrar } = make();
    const owner = new ArrayBuffer(64);
    registrar.failures = [Status.UNSUPPORTED];
    expect(cache.acquire(owner)).toBe(Status.UNSUPPORTED);
    expect(cache.invalidate(owner)).toBe(false);
    expect(cache.acquire(owner)).toMatchObject({ byteLength: 64 });
  });

  it.each([Status.NO_MEMORY, Status.NO_RESOURCE, Status.BUSY, Status.INVALID_ADDR])(
    'with status %s is tried again',
    (status) => {
      const { cache, registrar } = make();
      registrar.failures = [status];
      expect(cache.acquireRange(BASE, PAGE)).toBe(status);
      pages(cache, 0, 1);
    },
  );
});

describe('a report of unmapped memory', () => {
  it('hides the regions at once without deregistering them', () => {
    const { cache, registrar } = make();
    const idle = pages(cache, 0, 2);
    cache.release(idle);
    const used = pages(cache, 4, 6);
    cache.unmapped(BASE + PAGE, 4 * PAGE);
    expect([registrar.live.size, cache.unmapsPending]).toEqual([2, 1]);
    const next = pages(cache, 5, 6);
    expect(next).not.toBe(used);
    expect([...registrar.live]).toEqual([used.registration, next.registration]);
    cache.release(used);
    expect([...registrar.live]).toEqual([next.registration]);
    expect(cache.counters).toMatchObject({ unmap_events: 1, regions_inv_unmap: 2, mem_deregs: 2 });
  });

  it('of other memory makes one hit slow', () => {
    const { cache } = make();
    const region = pages(cache, 0, 1);
    const owner = new ArrayBuffer(64);
    const buffer = cache.acquire(owner);
    cache.unmapped(BASE + 50 * PAGE, 1);
    expect(pages(cache, 0, 1)).toBe(region);
    expect(pages(cache, 0, 1)).toBe(region);
    cache.unmapped(BASE + 50 * PAGE, 1);
    expect(cache.acquire(owner)).toBe(buffer);
    expect(cache.counters).toMatchObject({ hits_slow: 2, hits_fast: 1 });
  });

  it('is processed during a registration', () => {
    const { cache, registrar } = make();
    registrar.onRegister = () => cache.unmapped(BASE, PAGE);
    const first = pages(cache, 0, 1);
    registrar.onRegister = () => {};
    expect(pages(cache, 0, 1)).not.toBe(first);
    expect(first.valid).toBe(false);
    cache.release(first);
    expect(registrar.live.size).toBe(1);
  });

  it('removes regions of buffers that lie in the memory', () => {
    const { cache, registrar } = make();
    const [one, two] = [new ArrayBuffer(64), new ArrayBuffer(64)];
    for (const owner of [one, two]) cache.release(cache.acquire(owner) as RcacheRegion<Pin>);
    cache.unmapped(registrar.addressOf(one) + 63, 10);
    cache.progress();
    expect([...registrar.live].map(({ start }) => start)).toEqual([registrar.addressOf(two)]);
  });

  it('is processed by release and progress', () => {
    const { cache, registrar } = make();
    const used = pages(cache, 0, 1);
    cache.release(pages(cache, 8, 9));
    cache.unmapped(BASE + 8 * PAGE, PAGE);
    cache.release(used);
    expect([cache.unmapsPending, registrar.live.size]).toEqual([0, 1]);
    cache.unmapped(BASE, PAGE);
    cache.progress();
    expect(registrar.live.size).toBe(0);
  });

  it('uses bounded memory, whatever the number of ranges', () => {
    const { cache, registrar } = make();
    const region = pages(cache, 0, 8);
    cache.release(region);
    for (let i = 0; i < 1000; i++) cache.unmapped(BASE + (i % 2) * 2 * PAGE, 3 * PAGE);
    expect(cache.unmapsPending).toBe(1);
    for (let i = 0; i < 3 * UNMAP_RANGES_MAX; i++) cache.unmapped(BASE + (100 + 2 * i) * PAGE, PAGE);
    expect(cache.unmapsPending).toBeLessThanOrEqual(UNMAP_RANGES_MAX);
    const far = pages(cache, 90_000, 90_001);
    expect(cache.numRegions).toBe(1);
    // Beyond the bound of ranges everything counts as unmapped, but only earlier registrations.
    expect(pages(cache, 90_000, 90_001)).toBe(far);
    expect(registrar.live.size).toBe(1);
  });

  it('schedules a task when too many bytes wait', () => {
    const tasks: (() => void)[] = [];
    const { cache, registrar } = make({ maxUnreleased: 4 * PAGE, defer: (task) => tasks.push(task) });
    for (let page = 0; page < 8; page++) cache.release(pages(cache, page * 2, page * 2 + 1));
    for (let page = 0; page < 4; page++) cache.unmapped(BASE + page * 2 * PAGE, PAGE);
    expect(tasks).toHaveLength(0);
    for (let page = 4; page < 8; page++) cache.unmapped(BASE + page * 2 * PAGE, PAGE);
    expect([tasks.length, registrar.live.size]).toEqual([1, 8]);
    tasks[0]!();
    expect([registrar.live.size, cache.unmapsPending]).toEqual([0, 0]);
    cache.release(pages(cache, 0, 5));
    cache.unmapped(BASE, 5 * PAGE);
    expect(tasks).toHaveLength(2);
  });
});

describe('parts of buffers that are too long to be registered as a whole', () => {
  it('are registered as pages within the buffer', () => {
    const { cache, registrar } = make({ wholeBytesMax: 3 * PAGE });
    const small = new ArrayBuffer(3 * PAGE);
    expect(cache.acquire(small, 10, 1)).toMatchObject({ byteLength: 3 * PAGE, offset: 0 });
    const large = new ArrayBuffer(10 * PAGE + 100);
    const middle = cache.acquire(large, 2 * PAGE + 1, PAGE) as RcacheRegion<Pin>;
    expect([middle.offset, middle.byteLength]).toEqual([2 * PAGE, 2 * PAGE]);
    expect(cache.acquire(large, 3 * PAGE, PAGE)).toBe(middle);
    const tail = cache.acquire(large, 10 * PAGE, -1) as RcacheRegion<Pin>;
    expect([tail.offset, tail.byteLength]).toEqual([10 * PAGE, 100]);
    const joined = cache.acquire(large, 3 * PAGE, 3 * PAGE) as RcacheRegion<Pin>;
    expect([joined.offset, joined.byteLength]).toEqual([2 * PAGE, 4 * PAGE]);
    expect(joined.owner).toBe(large);
    for (const [offset, byteLength] of [
      [10 * PAGE, 101],
      [-1, 2],
      [0, 0],
    ] as const) {
      expect(cache.acquire(large, offset, byteLength)).toBe(Status.INVALID_PARAM);
    }
    expect(registrar.live.size).toBe(4);
    expect(cache.invalidate(large)).toBe(true);
    for (const region of [middle, middle, tail, joined]) cache.release(region);
    expect(registrar.live.size).toBe(1);
  });

  it('all end with the first release after the buffer was resized', () => {
    const { cache, registrar } = make({ wholeBytesMax: PAGE });
    const owner = new ResizableBuffer(8 * PAGE, { maxByteLength: 16 * PAGE });
    const [first, second] = [0, 4].map((page) => cache.acquire(owner, page * PAGE, PAGE) as RcacheRegion<Pin>);
    owner.resize(9 * PAGE);
    cache.release(first!);
    expect([first!.valid, second!.valid]).toEqual([false, false]);
    cache.release(second!);
    expect(registrar.live.size).toBe(0);
  });

  it('are never found for another buffer at the same address', () => {
    const { cache, registrar } = make({ wholeBytesMax: 0 });
    registrar.addressOf = () => BASE;
    const first = cache.acquire(new ArrayBuffer(4 * PAGE), 0, PAGE) as RcacheRegion<Pin>;
    const second = cache.acquire(new ArrayBuffer(4 * PAGE), 0, PAGE) as RcacheRegion<Pin>;
    expect(second.generation).toBeGreaterThan(first.generation);
    expect(pages(cache, 0, 1)).not.toBe(first);
    expect(registrar.live.size).toBe(3);
  });
});
