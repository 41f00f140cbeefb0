/**
 * The registration cache for host memory in ArrayBuffers: registering is slow, so registrations outlive their use. Keyed by the
 * identity of the ArrayBuffer, never by address: a new buffer at an old address cannot hit a stale registration. Not for
 * raw addresses, whose unmapping nobody reports.
 *
 * Who holds what: the table (a WeakMap) and the lists hold a region, a region in use holds its ArrayBuffer, an idle region holds
 * none. So an ArrayBuffer that nobody uses is collected with its registration in the cache, and the collector's call-back
 * then deregisters it.
 */

import { closedError, invalidParam } from './error.ts';
import { createLog, LogLevel, standardErrorSink } from './log.ts';
import { RcacheRegion, RegionList } from './rcache-region.ts';
import { Status } from './status.ts';

/** Makes and ends registrations for a cache. */
export interface Registrar<R extends object> {
  /**
   * Registers the whole of `owner`.
   * @returns the registration, which must not keep `owner` alive, or a failed {@link Status}
   */
  register(owner: ArrayBufferLike): R | Status;
  /**
   * Ends a registration; runs in `release`, `acquire`, `purge`, or a task of the event loop. Should not throw: whoever runs it then has no
   * part in the failure. What it throws goes to {@link RcacheOptions.onError}, and the registration counts as ended, never to be tried again.
   */
  deregister(registration: R): void;
}

/** Reports that ArrayBuffers were collected: what FinalizationRegistry does. */
export interface CollectionWatch<T extends object> {
  register(target: WeakKey, heldValue: T, unregisterToken: T): void;
  unregister(unregisterToken: T): void;
}

/** Bounds and collaborators of an {@link Rcache}. */
export interface RcacheOptions<R extends object> {
  readonly registrar: Registrar<R>;
  /** The most regions. Default {@link DEFAULT_MAX_REGIONS}; Infinity for no bound. */
  readonly maxRegions?: number;
  /** The most registered bytes. Default {@link DEFAULT_MAX_SIZE}; Infinity for no bound. */
  readonly maxSize?: number;
  /** Takes what `deregister` threw; must not throw. Default: an error in the log on standard error. */
  readonly onError?: (error: unknown) => void;
  /** Makes the watch for collected buffers; FinalizationRegistry unless a test decides otherwise. */
  readonly watch?: (collected: (region: RcacheRegion<R>) => void) => CollectionWatch<RcacheRegion<R>>;
}

/** Counters with the names of UCX (`ucs_rcache` statistics). */
export interface RcacheCounters {
  /** Calls of `acquire`. */
  gets: number;
  /** Found at once. */
  hits_fast: number;
  /** Found after waiting for a lock in UCX; always 0 here, where there is one thread and no lock. */
  hits_slow: number;
  /** Not found: a registration was tried. */
  misses: number;
  /** Regions joined to larger ones in UCX; always 0 here, where a region is a whole ArrayBuffer. */
  regions_merged: number;
  /** Buffers reported as gone: `invalidate`, collected, detached or resized. */
  unmap_events: number;
  /** Regions that such a report removed from the table. */
  regions_inv_unmap: number;
  /** Calls of `release`. */
  puts: number;
  /** Registrations made. */
  mem_regs: number;
  /** Registrations ended. */
  mem_deregs: number;
}

/** Default of {@link RcacheOptions.maxRegions}. */
export const DEFAULT_MAX_REGIONS = 16384;
/** Default of {@link RcacheOptions.maxSize}: 16 GiB. */
export const DEFAULT_MAX_SIZE: number = 16 * 2 ** 30;

/**
 * A cache of registrations. The bounds hold for what is idle: regions in use are never evicted, may exceed the bounds, and are
 * trimmed when they are released.
 */
export class Rcache<R extends object> {
  readonly maxRegions: number;
  readonly maxSize: number;
  readonly counters: RcacheCounters;
  readonly #registrar: Registrar<R>;
  readonly #onError: (error: unknown) => void;
  readonly #watch: CollectionWatch<RcacheRegion<R>>;
  readonly #table: WeakMap<ArrayBufferLike, RcacheRegion<R>>;
  /** Valid regions without references, the least recently used first. */
  readonly #idle: RegionList<R>;
  /** Regions with references, valid or not. */
  readonly #inUse: RegionList<R>;
  #totalSize: number;
  #lastGeneration: number;
  #closed: boolean;

  /** @throws UcxError ERR_INVALID_PARAM for bounds that are not positive */
  constructor(options: RcacheOptions<R>) {
    this.maxRegions = checkBound('maxRegions', options.maxRegions ?? DEFAULT_MAX_REGIONS);
    this.maxSize = checkBound('maxSize', options.maxSize ?? DEFAULT_MAX_SIZE);
    this.counters = noCounts();
    this.#registrar = options.registrar;
    this.#onError = options.onError ?? logError;
    const watch = options.watch ?? ((collected) => new FinalizationRegistry(collected));
    this.#watch = watch((region) => this.#collected(region));
    this.#table = new WeakMap();
    this.#idle = new RegionList();
    this.#inUse = new RegionList();
    this.#totalSize = 0;
    this.#lastGeneration = 0;
    this.#closed = false;
  }

  /** Registered regions, in use or idle. */
  get numRegions(): number {
    return this.#idle.count + this.#inUse.count;
  }

  /** Regions that are acquired at present. */
  get numInUse(): number {
    return this.#inUse.count;
  }

  /** Registered bytes. */
  get totalSize(): number {
    return this.#totalSize;
  }

  /**
   * The region of a buffer, registered now unless it is already. It stays registered and keeps the buffer alive until it is
   * released as often as it was acquired. A hit is O(1) and allocates nothing.
   * @returns the region; INVALID_PARAM for a buffer that is empty or detached; otherwise the status of the failed registration,
   *   which leaves nothing behind
   * @throws UcxError ERR_CLOSED after `close`
   */
  acquire(owner: ArrayBufferLike): RcacheRegion<R> | Status {
    if (this.#closed) throw closedError('registration cache');
    this.counters.gets++;
    const region = this.#table.get(owner);
    if (region?.valid) {
      if (region.byteLength === owner.byteLength) {
        this.counters.hits_fast++;
        if (region.references++ === 0) {
          this.#idle.remove(region);
          this.#inUse.add(region);
          region.owner = owner;
        }
        return region;
      }
      this.#unmapped(region);
    }
    return this.#miss(owner);
  }

  /**
   * Gives a region back. The last release makes it idle, or deregisters it when it is invalid or does not fit the bounds.
   * @throws UcxError ERR_INVALID_PARAM when the region is not acquired
   */
  release(region: RcacheRegion<R>): void {
    if (region.references <= 0) throw invalidParam('region', 'must be acquired', `generation ${region.generation}`);
    this.counters.puts++;
    if (--region.references > 0) return;
    if (region.valid && region.owner?.byteLength !== region.byteLength) this.#unmapped(region);
    // Evicting all others would not make room for a region that is longer than the bound.
    if (region.valid && region.byteLength > this.maxSize) this.#leaveTable(region);
    this.#inUse.remove(region);
    region.owner = undefined;
    if (region.valid) {
      this.#idle.add(region);
      this.#trim(0, 0);
    } else {
      this.#deregister(region);
    }
  }

  /**
   * Removes the region of a buffer whose memory is about to go or to move. It is deregistered now, or at its last release.
   * @returns false when the buffer has no region
   */
  invalidate(owner: ArrayBufferLike): boolean {
    const region = this.#table.get(owner);
    if (!region?.valid) {
      this.counters.unmap_events++;
      return false;
    }
    this.#unmapped(region);
    return true;
  }

  /** Removes all regions: the idle ones are deregistered now, those in use at their last release. */
  purge(): void {
    for (let region = this.#inUse.first; region !== undefined; region = region.next) {
      if (region.valid) this.#leaveTable(region);
    }
    while (this.#idle.first !== undefined) this.#evict(this.#idle.first);
  }

  /** Purges and refuses further use, except for the release of what is still acquired. Idempotent. */
  close(): void {
    this.#closed = true;
    this.purge();
  }

  #miss(owner: ArrayBufferLike): RcacheRegion<R> | Status {
    if (owner.byteLength === 0) return Status.INVALID_PARAM;
    this.counters.misses++;
    this.#trim(1, owner.byteLength > this.maxSize ? 0 : owner.byteLength);
    let registration = this.#registrar.register(owner);
    // What is idle here must not be the reason why memory cannot be registered.
    while (registration === Status.NO_MEMORY && this.#idle.first !== undefined) {
      this.#evict(this.#idle.first);
      registration = this.#registrar.register(owner);
    }
    if (typeof registration === 'number') return registration;
    const region = new RcacheRegion<R>(registration, ++this.#lastGeneration, owner);
    region.references = 1;
    this.counters.mem_regs++;
    this.#totalSize += region.byteLength;
    this.#inUse.add(region);
    this.#table.set(owner, region);
    this.#watch.register(owner, region, region);
    return region;
  }

  /** Evicts idle regions until `regions` more with `bytes` more fit the bounds, or none is idle. */
  #trim(regions: number, bytes: number): void {
    while (
      this.#idle.first !== undefined &&
      (this.numRegions + regions > this.maxRegions || this.#totalSize + bytes > this.maxSize)
    ) {
      this.#evict(this.#idle.first);
    }
  }

  #evict(region: RcacheRegion<R>): void {
    this.#leaveTable(region);
    this.#idle.remove(region);
    this.#deregister(region);
  }

  #collected(region: RcacheRegion<R>): void {
    if (region.valid) this.#unmapped(region);
  }

  #unmapped(region: RcacheRegion<R>): void {
    this.counters.unmap_events++;
    this.counters.regions_inv_unmap++;
    if (region.owner === undefined) this.#evict(region);
    else this.#leaveTable(region);
  }

  /** The WeakMap keeps an invalid region until its buffer goes or is registered anew; it is not found any more. */
  #leaveTable(region: RcacheRegion<R>): void {
    region.valid = false;
    this.#watch.unregister(region);
  }

  #deregister(region: RcacheRegion<R>): void {
    this.#totalSize -= region.byteLength;
    this.counters.mem_deregs++;
    try {
      this.#registrar.deregister(region.registration);
    } catch (error) {
      this.#onError(error);
    }
  }
}

function logError(error: unknown): void {
  createLog('rcache', LogLevel.ERROR, standardErrorSink).error(`a registration could not be ended: ${String(error)}`);
}

function noCounts(): RcacheCounters {
  return {
    gets: 0,
    hits_fast: 0,
    hits_slow: 0,
    misses: 0,
    regions_merged: 0,
    unmap_events: 0,
    regions_inv_unmap: 0,
    puts: 0,
    mem_regs: 0,
    mem_deregs: 0,
  };
}

function checkBound(argument: string, value: number): number {
  if (!(value > 0)) throw invalidParam(argument, 'must be above 0', value);
  return value;
}
