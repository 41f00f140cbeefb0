/**
 * The registration cache: registering memory is slow, so registrations outlive their use. Memory in ArrayBuffers is identified by its buffer, never by address:
 * a new buffer at an old address cannot hit a stale registration. Foreign memory, known by its address only, is looked up in a map of regions; its owner
 * reports when it is unmapped ({@link Rcache.unmapped}).
 *
 * References: the table (a WeakMap) and the lists refer to a region, and a region refers to its ArrayBuffer only while it is in use. So an unused ArrayBuffer
 * can be collected while its registration is in the cache; the collector's callback, a task of the event loop, then deregisters the memory.
 */

import { IntervalMap } from '../datastruct/interval-map.ts';
import { LruList } from '../datastruct/lru-list.ts';
import { createLog, LogLevel, standardErrorSink } from '../debug/log.ts';
import { closedError, invalidParam } from '../type/error.ts';
import { Status } from '../type/status.ts';
import {
  type CollectionWatch,
  DEFAULT_ALIGNMENT,
  DEFAULT_MAX_REGIONS,
  DEFAULT_MAX_SIZE,
  noCounts,
  type RcacheCounters,
  type RcacheOptions,
  type Registrar,
} from './options.ts';
import {
  alignBounds,
  BufferRegions,
  type MemoryLimits,
  mergeBounds,
  Protection,
  RcacheRegion,
  type RegionBounds,
  UnmapQueue,
} from './region.ts';

/** Maximum number of remembered failures to register an address range; at the bound all are forgotten. */
const FAILURES_MAX = 1024;
const ALL_ADDRESSES: MemoryLimits = { start: 0, end: 2 ** 47 };

interface Failure {
  readonly protection: number;
  readonly status: Status;
}

/**
 * A cache of registrations. The bounds hold for idle regions: regions in use are never evicted, may exceed the bounds, and are trimmed when they are released.
 * A failed registration is not tried again until memory is reported unmapped or the cache is purged, unless a retry may succeed (NO_MEMORY, NO_RESOURCE, BUSY,
 * INVALID_ADDR).
 */
export class Rcache<R extends object> {
  readonly name: string;
  readonly maxRegions: number;
  readonly maxSize: number;
  readonly maxUnreleased: number;
  readonly wholeBytesMax: number;
  readonly alignment: number;
  readonly counters: RcacheCounters;
  readonly #registrar: Registrar<R>;
  readonly #onError: (error: unknown) => void;
  readonly #defer: (task: () => void) => void;
  readonly #watch: CollectionWatch<BufferRegions<R>>;
  readonly #buffers: WeakMap<ArrayBufferLike, BufferRegions<R>> = new WeakMap();
  /** Regions of memory that is identified by its address. */
  readonly #ranges: IntervalMap<RcacheRegion<R>> = new IntervalMap();
  readonly #failures: IntervalMap<Failure> = new IntervalMap();
  readonly #unmaps: UnmapQueue = new UnmapQueue();
  /** All regions in the order of their last use. Idle ones are always valid; regions in use are valid or not. */
  readonly #regions: LruList<RcacheRegion<R>> = new LruList();
  #numInUse = 0;
  #lastGeneration = 0;
  /** Incremented when the remembered failures are forgotten, those of buffers too. */
  #failureEpoch = 0;
  #isDeferred = false;
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM for bounds that are not positive */
  constructor(options: RcacheOptions<R>) {
    this.name = options.name ?? 'rcache';
    this.maxRegions = checkBound('maxRegions', options.maxRegions ?? DEFAULT_MAX_REGIONS);
    this.maxSize = checkBound('maxSize', options.maxSize ?? DEFAULT_MAX_SIZE);
    this.maxUnreleased = options.maxUnreleased ?? Number.POSITIVE_INFINITY;
    this.wholeBytesMax = options.wholeBytesMax ?? Number.POSITIVE_INFINITY;
    this.alignment = options.alignment ?? DEFAULT_ALIGNMENT;
    this.counters = noCounts();
    this.#registrar = options.registrar;
    this.#onError = options.onError ?? logError;
    this.#defer = options.defer ?? setImmediate;
    const watch = options.watch ?? ((collected) => new FinalizationRegistry(collected));
    this.#watch = watch((buffer) => this.#collected(buffer));
  }

  /** Registered regions, in use or idle. */
  get numRegions(): number {
    return this.#regions.count;
  }

  /** Number of acquired regions. */
  get numInUse(): number {
    return this.#numInUse;
  }

  get totalSize(): number {
    return this.#regions.byteLength;
  }

  /** Number of ranges that were reported unmapped and not yet processed. */
  get unmapsPending(): number {
    return this.#unmaps.length;
  }

  /**
   * Acquires the region that covers a range of a buffer, registering it on a miss. The region stays registered and keeps the buffer alive until it is released
   * as often as it was acquired. A hit is O(1) and allocates nothing.
   * @param byteLength -1 for all bytes from `offset` on
   * @returns the region; INVALID_PARAM for a buffer that is empty or detached, or a range outside of it; otherwise the status of the failed registration, which
   *   leaves nothing behind
   * @throws UcxError ERR_CLOSED after `close`
   */
  acquire(owner: ArrayBufferLike, offset = 0, byteLength = -1): RcacheRegion<R> | Status {
    if (this.#closed) throw closedError('registration cache');
    this.counters.gets++;
    if (this.#unmaps.length === 0) {
      const region = this.#find(this.#buffers.get(owner), owner, offset, byteLength);
      if (region !== undefined) {
        this.counters.hits_fast++;
        this.#use(region, owner);
        return region;
      }
    }
    return this.#acquireSlow(owner, offset, byteLength);
  }

  /**
   * Acquires the region that covers memory identified by its address, registering it on a miss. Overlapping regions are merged. The owner of the memory must
   * report when it is unmapped ({@link unmapped}); until then the region can be found.
   * @param start address, below 2^47
   * @param protection bits of {@link Protection} that the memory has: an overlapping region with another protection is removed
   * @param alignment power of two; at least that of the cache
   * @returns like {@link acquire}
   * @throws UcxError ERR_CLOSED after `close`
   */
  acquireRange(
    start: number,
    byteLength: number,
    protection: number = Protection.READ_WRITE,
    alignment: number = this.alignment,
  ): RcacheRegion<R> | Status {
    if (this.#closed) throw closedError('registration cache');
    this.counters.gets++;
    const isFast = this.#unmaps.length === 0;
    if (!isFast) this.progress();
    const end = start + byteLength;
    if (!(start > 0 && byteLength > 0 && end <= ALL_ADDRESSES.end)) return Status.INVALID_PARAM;
    const region = this.#ranges.covering(start, end);
    if (region !== undefined && (region.protection & protection) === protection && region.alignment >= alignment) {
      if (isFast) this.counters.hits_fast++;
      else this.counters.hits_slow++;
      this.#use(region, undefined);
      return region;
    }
    return this.#missRange(start, end, protection, alignment);
  }

  /**
   * Releases a region. The last release makes it idle, or deregisters it if it is invalid or does not fit the bounds.
   * @throws UcxError ERR_INVALID_PARAM if the region is not acquired
   */
  release(region: RcacheRegion<R>): void {
    if (region.references <= 0) throw invalidParam('region', 'must be in use', `generation ${region.generation}`);
    this.counters.puts++;
    if (--region.references === 0) this.#settle(region);
    if (this.#unmaps.length > 0) this.progress();
  }

  /**
   * Removes the regions of a buffer whose memory is about to be freed or moved. They are deregistered now, or at their last release.
   * @returns false if the buffer has no region
   */
  invalidate(owner: ArrayBufferLike): boolean {
    this.counters.unmap_events++;
    const known = this.#buffers.get(owner);
    const had = known !== undefined && known.count > 0;
    if (known !== undefined) this.#forget(known);
    return had;
  }

  /**
   * Reports that memory was unmapped or is about to be: later calls do not find regions of it. May be called inside any callback, because it only records the
   * range; the next use of the cache or a task of the event loop deregisters the regions.
   */
  unmapped(start: number, byteLength: number): void {
    this.counters.unmap_events++;
    this.#unmaps.add(start, start + byteLength);
    if (this.#unmaps.byteLength <= this.maxUnreleased || this.#isDeferred) return;
    this.#isDeferred = true;
    this.#defer(() => {
      this.#isDeferred = false;
      this.progress();
    });
  }

  /**
   * Processes the reports of {@link unmapped}. If the cache has regions of buffers, it examines all of them, because buffers in the unmapped memory lose their
   * regions too.
   */
  progress(): void {
    if (this.#unmaps.length === 0) return;
    const unmapped = this.#unmaps.take();
    for (const { start, end } of unmapped) {
      for (const { value } of this.#ranges.overlapping(start, end)) this.#drop(value);
    }
    if (this.numRegions > this.#ranges.size) this.#dropBuffersIn(unmapped);
    this.#forgetFailures();
  }

  /**
   * Evicts the least recently used idle region, for a registrar that detects a lack of resources only after registering.
   * @returns false if none is idle
   */
  evictIdle(): boolean {
    if (this.#numInUse === this.#regions.count) return false;
    let region = this.#regions.first;
    // Moves regions in use to the end, so that later calls do not pass them again.
    for (; region !== undefined && region.references > 0; region = this.#regions.first) this.#regions.touch(region);
    if (region === undefined) return false;
    this.#evict(region);
    return true;
  }

  /** Removes all regions: idle ones are deregistered now, the others at their last release. */
  purge(): void {
    for (let region = this.#regions.first; region !== undefined; ) {
      const next = this.#regions.after(region);
      if (region.valid) this.#giveUp(region);
      region = next;
    }
    this.#forgetFailures();
    this.#unmaps.take();
  }

  /** Purges the cache; afterwards only releases are allowed. Idempotent. */
  close(): void {
    this.#closed = true;
    this.purge();
  }

  #dropBuffersIn(unmapped: IntervalMap<undefined>): void {
    for (let region = this.#regions.first; region !== undefined; ) {
      const next = this.#regions.after(region);
      const isBuffer = region.valid && region.buffer !== undefined;
      if (isBuffer && unmapped.firstOverlapping(region.start, region.end) !== undefined) this.#drop(region);
      region = next;
    }
  }

  /** Forgets remembered failures, because a retry may succeed now. */
  #forgetFailures(): void {
    this.#failures.clear();
    this.#failureEpoch++;
  }

  #find(
    known: BufferRegions<R> | undefined,
    owner: ArrayBufferLike,
    offset: number,
    byteLength: number,
  ): RcacheRegion<R> | undefined {
    if (known === undefined || known.byteLength !== owner.byteLength) return undefined;
    if (known.parts === undefined) return known.whole;
    const start = known.start + offset;
    return known.parts.covering(start, byteLength < 0 ? known.end : start + byteLength);
  }

  #use(region: RcacheRegion<R>, owner: ArrayBufferLike | undefined): void {
    if (region.references++ > 0) return;
    this.#numInUse++;
    region.owner = owner;
  }

  #acquireSlow(owner: ArrayBufferLike, offset: number, byteLength: number): RcacheRegion<R> | Status {
    const hadUnmaps = this.#unmaps.length > 0;
    this.progress();
    let known = this.#buffers.get(owner);
    if (known !== undefined && known.byteLength !== owner.byteLength) {
      this.#lost(known);
      known = undefined;
    }
    if (owner.byteLength === 0) return Status.INVALID_PARAM;
    const bytes = byteLength < 0 ? owner.byteLength - offset : byteLength;
    if (!(offset >= 0 && bytes > 0 && offset + bytes <= owner.byteLength)) return Status.INVALID_PARAM;
    known ??= this.#know(owner);
    const found = hadUnmaps ? this.#find(known, owner, offset, bytes) : undefined;
    if (found !== undefined) {
      this.counters.hits_slow++;
      this.#use(found, owner);
      return found;
    }
    return this.#missBuffer(owner, known, known.start + offset, known.start + offset + bytes);
  }

  #know(owner: ArrayBufferLike): BufferRegions<R> {
    const parts = owner.byteLength > this.wholeBytesMax ? new IntervalMap<RcacheRegion<R>>() : undefined;
    const known = new BufferRegions<R>(this.#registrar.addressOf(owner), owner.byteLength, parts);
    this.#buffers.set(owner, known);
    return known;
  }

  #missBuffer(owner: ArrayBufferLike, known: BufferRegions<R>, start: number, end: number): RcacheRegion<R> | Status {
    this.counters.misses++;
    if (known.failure !== Status.OK && known.failureEpoch === this.#failureEpoch) return known.failure;
    const { parts } = known;
    const alone =
      parts === undefined
        ? { start: known.start, end: known.end, alignment: this.alignment }
        : alignBounds(start, end, this.alignment, known);
    const region = this.#make(parts, known, alone, Protection.READ_WRITE);
    if (typeof region === 'number') {
      if (parts === undefined && isLasting(region)) {
        known.failure = region;
        known.failureEpoch = this.#failureEpoch;
      }
      return region;
    }
    if (parts === undefined) known.whole = region;
    region.owner = owner;
    if (known.count++ === 0) this.#watch.register(owner, known, known);
    return region;
  }

  #missRange(start: number, end: number, protection: number, alignment: number): RcacheRegion<R> | Status {
    this.counters.misses++;
    const alone = alignBounds(start, end, Math.max(alignment, this.alignment), ALL_ADDRESSES);
    const failed = this.#failures.find(alone.start);
    const isSame = failed?.start === alone.start && failed.end === alone.end && failed.value.protection === protection;
    if (isSame) return failed.value.status;
    const region = this.#make(this.#ranges, undefined, alone, protection);
    if (typeof region === 'number' && isLasting(region)) {
      for (const old of this.#failures.overlapping(alone.start, alone.end)) this.#failures.delete(old.start);
      if (this.#failures.size >= FAILURES_MAX) this.#failures.clear();
      this.#failures.insert(alone.start, alone.end, { protection, status: region });
    }
    return region;
  }

  /** Registers memory, merged with overlapping regions if that succeeds, otherwise alone; acquired once. */
  #make(
    regions: IntervalMap<RcacheRegion<R>> | undefined,
    buffer: BufferRegions<R> | undefined,
    alone: RegionBounds,
    protection: number,
  ): RcacheRegion<R> | Status {
    let bounds = regions === undefined ? alone : mergeBounds(regions, alone, protection, buffer ?? ALL_ADDRESSES);
    let registration = this.#register(bounds, protection);
    if (typeof registration === 'number' && bounds !== alone) {
      bounds = alone;
      registration = this.#register(alone, protection);
    }
    if (typeof registration === 'number') return registration;
    const { start, end, alignment } = bounds;
    for (const { value } of regions?.overlapping(start, end) ?? []) {
      if (value.protection === protection) this.counters.regions_merged++;
      this.#giveUp(value);
    }
    const generation = ++this.#lastGeneration;
    const byteLength = end - start;
    const region = new RcacheRegion<R>({ registration, generation, start, byteLength, protection, alignment, buffer });
    region.references = 1;
    this.counters.mem_regs++;
    this.#numInUse++;
    this.#regions.add(region);
    regions?.insert(start, end, region);
    return region;
  }

  #register({ start, end }: RegionBounds, protection: number): R | Status {
    const byteLength = end - start;
    this.#trim(1, byteLength > this.maxSize ? 0 : byteLength);
    let registration = this.#registrar.register(start, byteLength, protection);
    // Idle regions must not prevent the registration of other memory.
    while (registration === Status.NO_MEMORY && this.evictIdle()) {
      registration = this.#registrar.register(start, byteLength, protection);
    }
    return registration;
  }

  /** Handles the last release of a region. */
  #settle(region: RcacheRegion<R>): void {
    const { owner, buffer } = region;
    this.#numInUse--;
    region.owner = undefined;
    if (!region.valid) {
      this.#regions.remove(region);
      this.#deregister(region);
      return;
    }
    this.#regions.touch(region);
    if (buffer !== undefined && owner?.byteLength !== buffer.byteLength) this.#lost(buffer);
    // Evicting all others would not free enough space for a region that is longer than the bound.
    else if (region.byteLength > this.maxSize) this.#evict(region);
    else this.#trim(0, 0);
  }

  /** Evicts idle regions until `regions` more with `bytes` more fit the bounds, or none is idle. */
  #trim(regions: number, bytes: number): void {
    while (this.numRegions + regions > this.maxRegions || this.totalSize + bytes > this.maxSize) {
      if (!this.evictIdle()) return;
    }
  }

  #evict(region: RcacheRegion<R>): void {
    this.#leaveTable(region);
    this.#regions.remove(region);
    this.#deregister(region);
  }

  /** Removes a region from the table and deregisters it, now or at its last release. */
  #giveUp(region: RcacheRegion<R>): void {
    if (region.references === 0) this.#evict(region);
    else this.#leaveTable(region);
  }

  /** Removes a region whose memory was unmapped. */
  #drop(region: RcacheRegion<R>): void {
    this.counters.regions_inv_unmap++;
    this.#giveUp(region);
  }

  #collected(buffer: BufferRegions<R>): void {
    if (buffer.count > 0) this.#lost(buffer);
  }

  /** Removes the regions of a buffer that was collected, detached or resized. */
  #lost(buffer: BufferRegions<R>): void {
    if (buffer.count > 0) this.counters.unmap_events++;
    this.#forget(buffer);
  }

  #forget(buffer: BufferRegions<R>): void {
    buffer.failure = Status.OK;
    if (buffer.whole !== undefined) this.#drop(buffer.whole);
    if (buffer.parts !== undefined) for (const { value } of [...buffer.parts]) this.#drop(value);
  }

  #leaveTable(region: RcacheRegion<R>): void {
    region.valid = false;
    const { buffer } = region;
    if (buffer === undefined) {
      this.#ranges.delete(region.start);
      return;
    }
    if (buffer.parts === undefined) buffer.whole = undefined;
    else buffer.parts.delete(region.start);
    if (--buffer.count === 0) this.#watch.unregister(buffer);
  }

  #deregister(region: RcacheRegion<R>): void {
    this.counters.mem_deregs++;
    try {
      this.#registrar.deregister(region.registration);
    } catch (error) {
      this.#onError(error);
    }
  }
}

/** Whether a registration that failed with this status would fail again. */
function isLasting(status: Status): boolean {
  return (
    status !== Status.NO_MEMORY &&
    status !== Status.NO_RESOURCE &&
    status !== Status.BUSY &&
    status !== Status.INVALID_ADDR
  );
}

function logError(error: unknown): void {
  createLog('rcache', LogLevel.ERROR, standardErrorSink).error(`cannot deregister memory: ${String(error)}`);
}

function checkBound(argument: string, value: number): number {
  if (!(value > 0)) throw invalidParam(argument, 'must be above 0', value);
  return value;
}
