/**
 * What a registration cache is made of and what it counts: its collaborators, its bounds and their defaults. No behaviour; the cache is in rcache.ts.
 */

import type { Status } from '../type/status.ts';
import type { BufferRegions } from './region.ts';

/** Makes and ends registrations for a cache. */
export interface Registrar<R extends object> {
  /** The address of the first byte of a buffer, which stays there as long as the buffer lives. */
  addressOf(owner: ArrayBufferLike): number;
  /**
   * Registers memory.
   * @param protection bits of {@link Protection}
   * @returns the registration, which must not keep an ArrayBuffer alive, or a failed {@link Status}
   */
  register(start: number, byteLength: number, protection: number): R | Status;
  /**
   * Ends a registration; runs in `release`, `acquire`, `purge`, `progress` or a task of the event loop, never in a report of unmapped memory. Should
   * not throw: whoever runs it then has no part in the failure. What it throws goes to {@link RcacheOptions.onError}, and the registration
   * counts as ended, never to be tried again.
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
  /** What the cache is called in statistics. Default `rcache`. */
  readonly name?: string;
  readonly registrar: Registrar<R>;
  /** The most regions. Default {@link DEFAULT_MAX_REGIONS}; Infinity for no bound. */
  readonly maxRegions?: number;
  /** The most registered bytes. Default {@link DEFAULT_MAX_SIZE}; Infinity for no bound. */
  readonly maxSize?: number;
  /** Bytes of unmapped memory that may wait for the next use of the cache; beyond it `defer` is asked. Default Infinity. */
  readonly maxUnreleased?: number;
  /** Bytes of the longest ArrayBuffer that is registered as a whole; of longer ones the pages that are used. Default Infinity. */
  readonly wholeBytesMax?: number;
  /** Least alignment of regions that are not whole ArrayBuffers, a power of two. Default {@link DEFAULT_ALIGNMENT}. */
  readonly alignment?: number;
  /** Takes what `deregister` threw; must not throw. Default: an error in the log on standard error. */
  readonly onError?: (error: unknown) => void;
  /** Runs a task soon, in no stack of anybody else. Default setImmediate. */
  readonly defer?: (task: () => void) => void;
  /** Makes the watch for collected buffers; FinalizationRegistry unless a test decides otherwise. */
  readonly watch?: (collected: (buffer: BufferRegions<R>) => void) => CollectionWatch<BufferRegions<R>>;
}

/** Counters with the names of UCX (`ucs_rcache` statistics). */
export interface RcacheCounters {
  /** Calls of `acquire` and `acquireRange`. */
  gets: number;
  /** Found at once. */
  hits_fast: number;
  /** Found after reports of unmapped memory had been worked off. */
  hits_slow: number;
  /** Not found. */
  misses: number;
  /** Regions joined to larger ones. */
  regions_merged: number;
  /** Reports of memory that is gone: `unmapped`, `invalidate`, buffers collected, detached or resized. */
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
/** Default of {@link RcacheOptions.alignment}: a page. */
export const DEFAULT_ALIGNMENT = 4096;

/** Counters at the start. */
export function noCounts(): RcacheCounters {
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
