import fc from 'fast-check';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { collectGarbage } from '../../../test/fixtures/collect-garbage.ts';
import { FakeRegistrar, type Pin } from '../../../test/fixtures/transports/fake-registrar.ts';
import { Status } from '../type/status.ts';
import type { CollectionWatch, RcacheCounters } from './options.ts';
import { Rcache } from './rcache.ts';
import type { BufferRegions, RcacheRegion } from './region.ts';

type Region = RcacheRegion<Pin>;

/** Node 20 has resizable ArrayBuffers (ES2024), but the library types of ES2023 do not. */
interface ResizableBuffer extends ArrayBuffer {
  resize(byteLength: number): void;
}
const ResizableBuffer = ArrayBuffer as unknown as new (
  byteLength: number,
  options: { maxByteLength: number },
) => ResizableBuffer;

/** Triggers collections on command. */
class TestWatch implements CollectionWatch<BufferRegions<Pin>> {
  readonly targets = new Map<BufferRegions<Pin>, WeakKey>();
  readonly #report: (buffer: BufferRegions<Pin>) => void;

  constructor(report: (buffer: BufferRegions<Pin>) => void) {
    this.#report = report;
  }

  register(target: WeakKey, heldValue: BufferRegions<Pin>): void {
    this.targets.set(heldValue, target);
  }

  unregister(token: BufferRegions<Pin>): void {
    this.targets.delete(token);
  }

  collect(target: WeakKey): void {
    for (const [buffer, watched] of [...this.targets]) {
      if (watched !== target) continue;
      this.targets.delete(buffer);
      this.#report(buffer);
    }
  }
}

/** Errors that the caches of a test have reported. */
const errors: unknown[] = [];
afterEach(() => {
  expect(errors).toEqual([]);
});

function makeCache(limits: { maxRegions?: number; maxSize?: number } = {}): {
  cache: Rcache<Pin>;
  registrar: FakeRegistrar;
  watch: TestWatch;
} {
  const registrar = new FakeRegistrar();
  let watch: TestWatch | undefined;
  const cache = new Rcache<Pin>({
    ...limits,
    registrar,
    onError: (error) => errors.push(error),
    watch: (report) => {
      watch = new TestWatch(report);
      return watch;
    },
  });
  return { cache, registrar, watch: watch! };
}

function acquired(cache: Rcache<Pin>, owner: ArrayBufferLike): Region {
  const region = cache.acquire(owner);
  if (typeof region === 'number') throw new Error(`acquire failed with ${region}`);
  return region;
}

describe('Rcache', () => {
  it('registers once and hits afterwards', () => {
    const { cache, registrar } = makeCache();
    const owner = new ArrayBuffer(64);
    const first = acquired(cache, owner);
    expect(acquired(cache, owner)).toBe(first);
    expect(first.references).toBe(2);
    cache.release(first);
    cache.release(first);
    expect(first.owner).toBeUndefined();
    expect(acquired(cache, owner)).toBe(first);
    expect(first.owner).toBe(owner);
    cache.release(first);
    expect(registrar.live.size).toBe(1);
    expect(cache.counters).toMatchObject({ gets: 3, hits_fast: 2, misses: 1, puts: 3, mem_regs: 1, mem_deregs: 0 });
    expect([cache.numRegions, cache.numInUse, cache.totalSize]).toEqual([1, 0, 64]);
  });

  it('has the ten counters of UCX', () => {
    expect(Object.keys(makeCache().cache.counters)).toEqual([
      'gets',
      'hits_fast',
      'hits_slow',
      'misses',
      'regions_merged',
      'unmap_events',
      'regions_inv_unmap',
      'puts',
      'mem_regs',
      'mem_deregs',
    ]);
  });

  it('keeps nothing after a failed registration', () => {
    const { cache, registrar } = makeCache();
    const owner = new ArrayBuffer(8);
    registrar.failures = [Status.NO_RESOURCE];
    expect(cache.acquire(owner)).toBe(Status.NO_RESOURCE);
    expect([cache.numRegions, cache.totalSize, cache.counters.mem_regs]).toEqual([0, 0, 0]);
    expect(acquired(cache, owner).generation).toBe(1);
  });

  it('stays consistent and reports an error when deregistering fails', () => {
    const { cache, registrar, watch } = makeCache({ maxRegions: 4 });
    const expectCounts = (regions: number): void => {
      expect([cache.numRegions, cache.totalSize]).toEqual([regions, regions * 8]);
      expect(cache.counters.mem_regs - cache.counters.mem_deregs).toBe(regions);
      expect(registrar.live.size).toBe(regions);
    };
    const refuse = (count: number): Error[] => {
      registrar.refusals = Array.from({ length: count }, (_, i) => new Error(`refused ${i}`));
      return [...registrar.refusals];
    };
    const owners = Array.from({ length: 4 }, () => new ArrayBuffer(8));
    const regions = owners.map((owner) => acquired(cache, owner));
    for (const region of regions.slice(1)) cache.release(region);

    // By the collector, by the bounds, and at the last release.
    const refused = refuse(3);
    watch.collect(owners[1]!);
    expectCounts(3);
    const more = [acquired(cache, new ArrayBuffer(8)), acquired(cache, new ArrayBuffer(8))];
    expectCounts(4);
    cache.invalidate(owners[0]!);
    cache.release(regions[0]!);
    expectCounts(3);
    expect(errors.splice(0)).toEqual(refused);

    // A purge deregisters all regions even if the first ones fail; no region is deregistered twice.
    for (const region of more) cache.release(region);
    const last = refuse(2);
    cache.close();
    expectCounts(0);
    expect(errors.splice(0)).toEqual(last);
    for (const owner of owners) watch.collect(owner);
    expectCounts(0);
  });

  it('logs errors to standard error without an error handler', () => {
    const lines: string[] = [];
    const write = vi.spyOn(process.stderr, 'write').mockImplementation((line) => lines.push(String(line)) > 0);
    const registrar = new FakeRegistrar();
    registrar.refusals = [new Error('pages are busy')];
    const cache = new Rcache<Pin>({ registrar });
    cache.release(acquired(cache, new ArrayBuffer(8)));
    cache.close();
    write.mockRestore();
    expect(lines).toEqual([expect.stringMatching(/rcache UCX {2}ERROR .*cannot deregister memory.*pages are busy/)]);
  });

  it('evicts idle regions when memory cannot be registered', () => {
    const { cache, registrar } = makeCache();
    const used = acquired(cache, new ArrayBuffer(8));
    for (let i = 0; i < 3; i++) cache.release(acquired(cache, new ArrayBuffer(8)));
    registrar.failures = [Status.NO_MEMORY, Status.NO_MEMORY];
    acquired(cache, new ArrayBuffer(8));
    expect([cache.numRegions, cache.numInUse]).toEqual([3, 2]);
    registrar.failures = [Status.NO_MEMORY, Status.NO_MEMORY, Status.NO_MEMORY];
    expect(cache.acquire(new ArrayBuffer(8))).toBe(Status.NO_MEMORY);
    expect(cache.numRegions).toBe(2);
    expect(used.valid).toBe(true);
  });

  it('evicts the least recently used idle region, never one in use', () => {
    const { cache } = makeCache({ maxRegions: 3 });
    const [a, b, c, d] = [1, 2, 3, 4].map((size) => new ArrayBuffer(size)) as [
      ArrayBuffer,
      ArrayBuffer,
      ArrayBuffer,
      ArrayBuffer,
    ];
    const regionA = acquired(cache, a);
    const regionB = acquired(cache, b);
    const regionC = acquired(cache, c);
    cache.release(regionB);
    cache.release(regionC);
    cache.release(acquired(cache, b));
    acquired(cache, d);
    expect([regionA.valid, regionB.valid, regionC.valid]).toEqual([true, true, false]);
  });

  it('lets regions in use exceed the bounds and trims them at release', () => {
    const { cache, registrar } = makeCache({ maxSize: 100 });
    const regions = [60, 60, 60].map((size) => acquired(cache, new ArrayBuffer(size)));
    expect(cache.totalSize).toBe(180);
    for (const region of regions) cache.release(region);
    expect(cache.totalSize).toBe(60);
    const large = acquired(cache, new ArrayBuffer(101));
    cache.release(large);
    expect(large.valid).toBe(false);
    expect(registrar.live.size).toBe(cache.numRegions);
  });

  it('invalidates idle regions at once, others at their last release', () => {
    const { cache, registrar } = makeCache();
    const owner = new ArrayBuffer(8);
    const first = acquired(cache, owner);
    expect(cache.invalidate(owner)).toBe(true);
    expect(cache.invalidate(owner)).toBe(false);
    expect(registrar.live.has(first.registration)).toBe(true);
    const second = acquired(cache, owner);
    expect(second.generation).toBeGreaterThan(first.generation);
    cache.release(first);
    expect(registrar.live.has(first.registration)).toBe(false);
    cache.release(second);
    expect(cache.invalidate(owner)).toBe(true);
    expect(registrar.live.size).toBe(0);
    expect(cache.counters).toMatchObject({ unmap_events: 3, regions_inv_unmap: 2, mem_regs: 2, mem_deregs: 2 });
  });

  it('never returns a region for a buffer that was resized or detached', () => {
    const { cache, registrar } = makeCache();
    const owner = new ResizableBuffer(8, { maxByteLength: 64 });
    const region = acquired(cache, owner);
    owner.resize(16);
    const larger = acquired(cache, owner);
    expect(larger.byteLength).toBe(16);
    owner.resize(32);
    cache.release(region);
    cache.release(larger);
    expect(registrar.live.size).toBe(0);
    const gone = new ArrayBuffer(8);
    cache.release(acquired(cache, gone));
    structuredClone(gone, { transfer: [gone] });
    expect(cache.acquire(gone)).toBe(Status.INVALID_PARAM);
    expect(registrar.live.size).toBe(0);
    expect(cache.acquire(new ArrayBuffer(0))).toBe(Status.INVALID_PARAM);
  });

  it('registers SharedArrayBuffers', () => {
    const { cache } = makeCache();
    const owner = new SharedArrayBuffer(8);
    const region = acquired(cache, owner);
    expect(acquired(cache, owner)).toBe(region);
  });

  it('purges and closes without deregistering regions in use', () => {
    const { cache, registrar, watch } = makeCache();
    const used = acquired(cache, new ArrayBuffer(8));
    cache.release(acquired(cache, new ArrayBuffer(8)));
    cache.purge();
    expect([cache.numRegions, cache.numInUse, watch.targets.size]).toEqual([1, 1, 0]);
    cache.close();
    cache.close();
    expect(() => cache.acquire(new ArrayBuffer(8))).toThrow(expect.objectContaining({ code: 'ERR_CLOSED' }));
    cache.release(used);
    expect([cache.numRegions, cache.totalSize, registrar.live.size]).toEqual([0, 0, 0]);
  });

  it('refuses a superfluous release and invalid bounds', () => {
    const { cache } = makeCache();
    const region = acquired(cache, new ArrayBuffer(8));
    cache.release(region);
    expect(() => cache.release(region)).toThrow(/must be in use/);
    expect(() => makeCache({ maxRegions: 0 })).toThrow(/maxRegions/);
    expect(() => makeCache({ maxSize: Number.NaN })).toThrow(/maxSize/);
  });
});

describe('Rcache and the garbage collector', () => {
  async function collectUntil(done: () => boolean): Promise<boolean> {
    for (let i = 0; i < 100 && !done(); i++) {
      collectGarbage();
      await new Promise((resolve) => setImmediate(resolve));
    }
    return done();
  }

  it('deregisters a collected buffer and keeps one in use alive', async () => {
    const registrar = new FakeRegistrar();
    const cache = new Rcache<Pin>({ registrar, onError: (error) => errors.push(error) });
    const used = ((): Region => acquired(cache, new ArrayBuffer(4096)))();
    (() => cache.release(acquired(cache, new ArrayBuffer(8192))))();
    expect(registrar.live.size).toBe(2);
    expect(await collectUntil(() => registrar.live.size === 1)).toBe(true);
    expect([...registrar.live][0]?.byteLength).toBe(4096);
    expect(cache.counters).toMatchObject({ unmap_events: 1, regions_inv_unmap: 1, mem_deregs: 1 });
    cache.release(used);
    expect(await collectUntil(() => registrar.live.size === 0)).toBe(true);
    expect([cache.numRegions, cache.totalSize]).toEqual([0, 0]);
  });
});

/** A model of the cache that uses lists. */
interface Model {
  readonly entries: { region: Region; owner: ArrayBuffer; references: number; valid: boolean; idleSince: number }[];
  readonly counters: RcacheCounters;
}

type Step = {
  readonly kind: 'acquire' | 'release' | 'invalidate' | 'collect' | 'resize' | 'fail' | 'purge';
  readonly pick: number;
};

describe('Rcache against a model', () => {
  const MAX_REGIONS = 3;
  const MAX_SIZE = 60;
  const kinds = [
    'acquire',
    'acquire',
    'acquire',
    'release',
    'release',
    'invalidate',
    'collect',
    'resize',
    'fail',
    'purge',
  ];
  const steps = fc.array(fc.record({ kind: fc.constantFrom(...(kinds as Step['kind'][])), pick: fc.nat(1000) }), {
    maxLength: 60,
  });

  function makeBuffer(pick: number): ResizableBuffer {
    return new ResizableBuffer(8 + (pick % 5) * 8, { maxByteLength: 128 });
  }

  it('agrees on random acquire, release, invalidate, collect, resize, failure and purge', () => {
    fc.assert(
      fc.property(steps, (sequence) => {
        const setup = makeCache({ maxRegions: MAX_REGIONS, maxSize: MAX_SIZE });
        const buffers = [0, 1, 2, 3, 4, 5].map(makeBuffer);
        const model: Model = { entries: [], counters: { ...setup.cache.counters } };
        sequence.forEach((step, time) => {
          run(step, time, setup, buffers, model);
          check(setup, model);
        });
        for (const entry of [...model.entries])
          for (; entry.references > 0; entry.references--) setup.cache.release(entry.region);
        setup.cache.close();
        expect([setup.registrar.live.size, setup.cache.numRegions, setup.cache.totalSize]).toEqual([0, 0, 0]);
        expect(setup.watch.targets.size).toBe(0);
      }),
      { numRuns: 300 },
    );
  });

  function drop(model: Model, entry: Model['entries'][number], event: boolean): void {
    entry.valid = false;
    if (event) {
      model.counters.unmap_events++;
      model.counters.regions_inv_unmap++;
    }
    if (entry.references > 0) return;
    model.entries.splice(model.entries.indexOf(entry), 1);
    model.counters.mem_deregs++;
  }

  function trim(model: Model, regions: number, bytes: number): void {
    for (;;) {
      const size = model.entries.reduce((sum, entry) => sum + entry.region.byteLength, 0);
      const idle = model.entries.filter((entry) => entry.references === 0).sort((a, b) => a.idleSince - b.idleSince);
      const fits = model.entries.length + regions <= MAX_REGIONS && size + bytes <= MAX_SIZE;
      if (fits || idle[0] === undefined) return;
      drop(model, idle[0], false);
    }
  }

  function runAcquire(owner: ArrayBuffer, time: number, setup: ReturnType<typeof makeCache>, model: Model): void {
    model.counters.gets++;
    const failure = setup.registrar.failures[0];
    const result = setup.cache.acquire(owner);
    const known = model.entries.find((entry) => entry.owner === owner && entry.valid);
    if (known !== undefined && known.region.byteLength === owner.byteLength) {
      model.counters.hits_fast++;
      known.references++;
      expect(result).toBe(known.region);
      return;
    }
    if (known !== undefined) drop(model, known, true);
    model.counters.misses++;
    trim(model, 1, owner.byteLength > MAX_SIZE ? 0 : owner.byteLength);
    if (failure !== undefined) {
      expect(result).toBe(failure);
      return;
    }
    model.counters.mem_regs++;
    expect(result).toMatchObject({ byteLength: owner.byteLength, references: 1, valid: true });
    model.entries.push({ region: result as Region, owner, references: 1, valid: true, idleSince: time });
  }

  function runRelease(pick: number, time: number, setup: ReturnType<typeof makeCache>, model: Model): void {
    const used = model.entries.filter((entry) => entry.references > 0);
    const entry = used[pick % used.length];
    if (entry === undefined) return;
    setup.cache.release(entry.region);
    model.counters.puts++;
    if (--entry.references > 0) return;
    entry.idleSince = time;
    const changed = entry.valid && entry.owner.byteLength !== entry.region.byteLength;
    if (changed || !entry.valid || entry.region.byteLength > MAX_SIZE) drop(model, entry, changed);
    else trim(model, 0, 0);
  }

  function run(
    step: Step,
    time: number,
    setup: ReturnType<typeof makeCache>,
    buffers: ResizableBuffer[],
    model: Model,
  ): void {
    const index = step.pick % buffers.length;
    const owner = buffers[index]!;
    const known = model.entries.find((entry) => entry.owner === owner && entry.valid);
    switch (step.kind) {
      case 'acquire':
        runAcquire(owner, time, setup, model);
        return;
      case 'release':
        runRelease(step.pick, time, setup, model);
        return;
      case 'invalidate':
        expect(setup.cache.invalidate(owner)).toBe(known !== undefined);
        if (known !== undefined) drop(model, known, true);
        else model.counters.unmap_events++;
        return;
      case 'collect':
        // A buffer in use is pinned: it cannot be collected.
        if (model.entries.some((entry) => entry.owner === owner && entry.references > 0)) return;
        setup.watch.collect(owner);
        if (known !== undefined) drop(model, known, true);
        buffers[index] = makeBuffer(step.pick);
        return;
      case 'resize':
        owner.resize(8 + (step.pick % 11) * 8);
        return;
      case 'fail':
        setup.registrar.failures = step.pick % 2 === 0 ? [Status.BUSY] : [];
        return;
      case 'purge':
        setup.cache.purge();
        for (const entry of [...model.entries]) drop(model, entry, false);
    }
  }

  function check({ cache, registrar }: ReturnType<typeof makeCache>, model: Model): void {
    const regions = model.entries.map((entry) => entry.region);
    expect(new Set(regions.map((region) => region.registration))).toEqual(registrar.live);
    expect(cache.counters).toEqual(model.counters);
    expect(cache.numRegions).toBe(regions.length);
    expect(cache.numInUse).toBe(model.entries.filter((entry) => entry.references > 0).length);
    expect(cache.totalSize).toBe(regions.reduce((sum, region) => sum + region.byteLength, 0));
    for (const { region, references, owner, valid } of model.entries) {
      expect(region).toMatchObject({ references, valid });
      expect(region.owner).toBe(references > 0 ? owner : undefined);
    }
  }
});
