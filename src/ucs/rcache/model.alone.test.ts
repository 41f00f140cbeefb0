/**
 * The registration cache against an oracle that records for every page which memory it contains: random uses, reports, failures and forced garbage
 * collections never return a registration of other memory, and never leave one behind.
 */

import fc from 'fast-check';
import { describe, expect, it } from 'vitest';
import { collectGarbage } from '../../../test/fixtures/collect-garbage.ts';
import { FakeRegistrar, type Pin } from '../../../test/fixtures/transports/fake-registrar.ts';
import { Status } from '../type/status.ts';
import { Rcache } from './rcache.ts';
import { Protection, type RcacheRegion } from './region.ts';

const PAGE = 4096;
const RAW_BASE = 0x1000_0000;
const RAW_PAGES = 16;
const SLOT_BASE = 0x2000_0000;
const SLOT_SPACING = 0x1000_0000;
const SLOTS = 3;
/** Distance between successive places of one slot. */
const MOVE = 0x1_0000;
const MAX_REGIONS = 5;

/** The memory at every page: a number that changes with the memory. */
class Memory {
  readonly #versions = new Map<number, number>();

  at(address: number): number {
    return this.#versions.get(Math.floor(address / PAGE)) ?? 0;
  }

  replace(start: number, byteLength: number): void {
    for (let page = Math.floor(start / PAGE); page * PAGE < start + byteLength; page++) {
      this.#versions.set(page, (this.#versions.get(page) ?? 0) + 1);
    }
  }

  versions(start: number, byteLength: number): number[] {
    const found: number[] = [];
    for (let page = Math.floor(start / PAGE); page * PAGE < start + byteLength; page++)
      found.push(this.at(page * PAGE));
    return found;
  }
}

/** Registers the current contents; buffers get the address of their slot, even if another one had it before. */
class RememberingRegistrar extends FakeRegistrar {
  readonly memory: Memory;
  readonly places = new WeakMap<ArrayBufferLike, number>();
  readonly seen = new WeakMap<Pin, { start: number; byteLength: number; versions: number[] }>();

  constructor(memory: Memory) {
    super();
    this.memory = memory;
  }

  override addressOf(owner: ArrayBufferLike): number {
    return this.places.get(owner)!;
  }

  override register(start: number, byteLength: number, protection: number): Pin | Status {
    const pin = super.register(start, byteLength, protection);
    if (typeof pin !== 'number') {
      this.seen.set(pin, { start, byteLength, versions: this.memory.versions(start, byteLength) });
    }
    return pin;
  }
}

interface Held {
  readonly region: RcacheRegion<Pin>;
  readonly slot: number;
  /** The buffer of a region in use, referenced only by the cache. */
  readonly buffer: WeakRef<ArrayBuffer> | undefined;
}

class System {
  readonly memory = new Memory();
  readonly registrar = new RememberingRegistrar(this.memory);
  readonly cache: Rcache<Pin>;
  readonly slots: ArrayBuffer[] = [];
  readonly held: Held[] = [];
  readonly parted: boolean;
  uses = 0;
  refused = 0;

  /** @param parted whether buffers are too long to be registered as a whole */
  constructor(parted: boolean) {
    this.parted = parted;
    const wholeBytesMax = parted ? PAGE : Number.POSITIVE_INFINITY;
    this.cache = new Rcache<Pin>({ registrar: this.registrar, maxRegions: MAX_REGIONS, wholeBytesMax });
    for (let slot = 0; slot < SLOTS; slot++) this.fill(slot);
  }

  /** Puts a new buffer into a slot, at the address of the old one unless that is in use. */
  fill(slot: number): void {
    const buffer = new ArrayBuffer(3 * PAGE);
    const old = this.slots[slot];
    const inUse = this.held.some((held) => held.buffer?.deref() === old);
    const address = old === undefined ? SLOT_BASE + slot * SLOT_SPACING : this.place(slot) + (inUse ? MOVE : 0);
    this.registrar.places.set(buffer, address);
    this.memory.replace(address, buffer.byteLength);
    this.slots[slot] = buffer;
  }

  /** Address of the buffer in a slot. */
  place(slot: number): number {
    return this.registrar.places.get(this.slots[slot]!)!;
  }

  /** Checks the result of an acquire: a live registration of all of this memory. */
  take(result: RcacheRegion<Pin> | Status, start: number, byteLength: number, protection: number, slot: number): void {
    this.uses++;
    if (typeof result === 'number') {
      this.refused++;
      expect([Status.BUSY, Status.IO_ERROR, Status.NO_MEMORY]).toContain(result);
      return;
    }
    expect(result.start).toBeLessThanOrEqual(start);
    expect(result.end).toBeGreaterThanOrEqual(start + byteLength);
    expect(result.protection & protection).toBe(protection);
    const { registration } = result;
    expect(this.registrar.live.has(registration)).toBe(true);
    const then = this.registrar.seen.get(registration)!;
    const skip = Math.floor(start / PAGE) - Math.floor(then.start / PAGE);
    const now = this.memory.versions(start, byteLength);
    expect(then.versions.slice(skip, skip + now.length)).toEqual(now);
    this.held.push({ region: result, slot, buffer: slot < 0 ? undefined : new WeakRef(this.slots[slot]!) });
  }

  check(): void {
    const { cache, registrar, held } = this;
    const { counters } = cache;
    for (const { region, slot, buffer } of held) {
      if (!registrar.live.has(region.registration)) expect.fail('a region in use is not registered');
      if (slot >= 0 && buffer?.deref() === undefined) expect.fail('the buffer of a region in use was collected');
    }
    // One comparison instead of eight: this runs after every step.
    const bytes = [...registrar.live].reduce((sum, { byteLength }) => sum + byteLength, 0);
    const inUse = new Set(held.map(({ region }) => region)).size;
    const { gets, hits_fast, hits_slow, misses, mem_regs, mem_deregs } = counters;
    expect({
      regions: cache.numRegions,
      registered: mem_regs - mem_deregs,
      totalSize: cache.totalSize,
      inUse: cache.numInUse,
      isBounded: cache.numRegions <= Math.max(MAX_REGIONS, cache.numInUse),
      gets,
      found: hits_fast + hits_slow + misses,
    }).toEqual({
      regions: registrar.live.size,
      registered: registrar.live.size,
      totalSize: bytes,
      inUse,
      isBounded: true,
      gets: this.uses,
      found: this.uses,
    });
  }
}

type Step =
  | {
      readonly kind: 'range';
      readonly page: number;
      readonly skip: number;
      readonly bytes: number;
      readonly protection: number;
    }
  | { readonly kind: 'buffer'; readonly slot: number; readonly offset: number; readonly bytes: number }
  | { readonly kind: 'release' | 'drop' | 'invalidate'; readonly pick: number }
  | { readonly kind: 'unmapped'; readonly page: number; readonly bytes: number }
  | { readonly kind: 'unmappedBuffer'; readonly slot: number }
  | { readonly kind: 'fail'; readonly status: Status }
  | { readonly kind: 'collect' | 'purge' | 'progress' };

const step: fc.Arbitrary<Step> = fc.oneof(
  {
    weight: 6,
    arbitrary: fc.record({
      kind: fc.constant('range' as const),
      page: fc.nat(RAW_PAGES - 1),
      skip: fc.nat(PAGE - 1),
      bytes: fc.integer({ min: 1, max: 5 * PAGE }),
      protection: fc.constantFrom(Protection.READ, Protection.READ_WRITE),
    }),
  },
  {
    weight: 5,
    arbitrary: fc.record({
      kind: fc.constant('buffer' as const),
      slot: fc.nat(SLOTS - 1),
      offset: fc.nat(2 * PAGE),
      bytes: fc.integer({ min: 1, max: PAGE }),
    }),
  },
  {
    weight: 7,
    arbitrary: fc.record({ kind: fc.constantFrom('release', 'release', 'drop', 'invalidate'), pick: fc.nat(99) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      kind: fc.constant('unmapped' as const),
      page: fc.nat(RAW_PAGES - 1),
      bytes: fc.integer({ min: 1, max: 3 * PAGE }),
    }),
  },
  { weight: 3, arbitrary: fc.record({ kind: fc.constant('unmappedBuffer' as const), slot: fc.nat(SLOTS - 1) }) },
  {
    weight: 1,
    arbitrary: fc.record({
      kind: fc.constant('fail' as const),
      status: fc.constantFrom(Status.BUSY, Status.IO_ERROR, Status.NO_MEMORY),
    }),
  },
  { weight: 2, arbitrary: fc.record({ kind: fc.constantFrom('collect', 'progress') }) },
  { weight: 1, arbitrary: fc.record({ kind: fc.constant('purge' as const) }) },
);

async function collect(): Promise<void> {
  // An object that a WeakRef has returned stays alive until the end of the task.
  await new Promise((resolve) => setImmediate(resolve));
  collectGarbage();
  await new Promise((resolve) => setImmediate(resolve));
}

async function run(system: System, current: Step): Promise<void> {
  const { cache, slots, held, memory, registrar } = system;
  switch (current.kind) {
    case 'range': {
      const { page, skip, bytes, protection } = current;
      const start = RAW_BASE + page * PAGE + skip;
      system.take(cache.acquireRange(start, bytes, protection), start, bytes, protection, -1);
      return;
    }
    case 'buffer': {
      const { slot, offset, bytes } = current;
      const start = system.place(slot) + offset;
      system.take(cache.acquire(slots[slot]!, offset, bytes), start, bytes, Protection.READ_WRITE, slot);
      return;
    }
    case 'release': {
      if (held.length === 0) return;
      const [{ region }] = held.splice(current.pick % held.length, 1) as [Held];
      cache.release(region);
      return;
    }
    case 'drop':
      system.fill(current.pick % SLOTS);
      return;
    case 'invalidate':
      cache.invalidate(slots[current.pick % SLOTS]!);
      return;
    case 'unmapped': {
      const start = RAW_BASE + current.page * PAGE;
      cache.unmapped(start, current.bytes);
      memory.replace(start, current.bytes);
      return;
    }
    case 'unmappedBuffer': {
      const start = system.place(current.slot);
      cache.unmapped(start, 3 * PAGE);
      memory.replace(start, 3 * PAGE);
      return;
    }
    case 'fail':
      registrar.failures = [current.status];
      return;
    case 'collect':
      await collect();
      return;
    case 'progress':
      cache.progress();
      return;
    case 'purge':
      cache.purge();
  }
}

/** Runs the steps, then releases everything; returns the number of cache hits. */
async function runAll(steps: readonly Step[], parted: boolean): Promise<number> {
  const system = new System(parted);
  for (const current of steps) {
    await run(system, current);
    system.check();
  }
  const { cache, registrar } = system;
  for (const { region } of system.held.splice(0)) cache.release(region);
  system.check();
  // Only the cache refers to the buffers now, so they are collected and deregistered.
  system.slots.length = 0;
  cache.unmapped(RAW_BASE, (RAW_PAGES + 8) * PAGE);
  cache.progress();
  for (let turn = 0; turn < 100 && registrar.live.size > 0; turn++) await collect();
  expect([registrar.live.size, cache.numRegions, cache.totalSize]).toEqual([0, 0, 0]);
  return cache.counters.hits_fast + cache.counters.hits_slow;
}

describe('Rcache against a memory oracle', () => {
  it.each([
    ['whole buffers', false],
    ['parts of buffers', true],
  ])(
    'serves no stale registration and leaves none behind: %s',
    async (_what, parted) => {
      let hits = 0;
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 80, size: 'max' }), async (steps) => {
          hits += await runAll(steps, parted);
        }),
        { numRuns: 80 },
      );
      // A cache without hits would pass all other checks.
      expect(hits).toBeGreaterThan(50);
    },
    120_000,
  );
});
