/**
 * Collaborators, bounds, defaults and counters of a registration cache. The fields that every registration cache has (`ucs_config_rcache_table`), to be
 * embedded with an empty prefix: `UCX_GAUDI_COPY_RCACHE_MAX_REGIONS`. UCX's fields MEM_PRIO and PURGE_ON_FORK are missing: nothing in Node hooks memory
 * calls, or forks without exec.
 */

import type { ConfigTable } from '../config/config.ts';
import { memorySizeType, orAuto, restricted, timeType, uintInfType } from '../config/value.ts';
import type { Status } from '../type/status.ts';
import type { BufferRegions } from './region.ts';

/** Registers and deregisters memory for a cache. */
export interface Registrar<R extends object> {
  /** The address of the first byte of a buffer, which does not change while the buffer lives. */
  addressOf(owner: ArrayBufferLike): number;
  /**
   * Registers memory.
   * @param protection bits of {@link Protection}
   * @returns the registration, which must not keep an ArrayBuffer alive, or a failed {@link Status}
   */
  register(start: number, byteLength: number, protection: number): R | Status;
  /**
   * Ends a registration; called in `release`, `acquire`, `purge`, `progress` or a task of the event loop, never in a report of unmapped memory. Should not
   * throw, because the caller of the cache did not cause the failure. An error goes to {@link RcacheOptions.onError}, and the registration counts as
   * ended: it is not tried again.
   */
  deregister(registration: R): void;
}

/** Reports garbage-collected ArrayBuffers, as FinalizationRegistry does. */
export interface CollectionWatch<T extends object> {
  register(target: WeakKey, heldValue: T, unregisterToken: T): void;
  unregister(unregisterToken: T): void;
}

/** Bounds and collaborators of an {@link Rcache}. */
export interface RcacheOptions<R extends object> {
  /** Name of the cache in statistics. Default `rcache`. */
  readonly name?: string;
  readonly registrar: Registrar<R>;
  /** The most regions. Default {@link DEFAULT_MAX_REGIONS}; Infinity for no bound. */
  readonly maxRegions?: number;
  /** The most registered bytes. Default {@link DEFAULT_MAX_SIZE}; Infinity for no bound. */
  readonly maxSize?: number;
  /** The most bytes of unmapped memory that wait for the next use of the cache; beyond it `defer` is called. Default Infinity. */
  readonly maxUnreleased?: number;
  /** Bytes of the longest ArrayBuffer that is registered as a whole; of longer ones only the used pages are. Default Infinity. */
  readonly wholeBytesMax?: number;
  /** Least alignment of regions that are not whole ArrayBuffers, a power of two. Default {@link DEFAULT_ALIGNMENT}. */
  readonly alignment?: number;
  /** Receives the errors that `deregister` throws; must not throw. Default: logs an error to standard error. */
  readonly onError?: (error: unknown) => void;
  /** Runs a task soon, with an empty stack. Default setImmediate. */
  readonly defer?: (task: () => void) => void;
  /** Creates the watch for collected buffers. Default FinalizationRegistry. */
  readonly watch?: (collected: (buffer: BufferRegions<R>) => void) => CollectionWatch<BufferRegions<R>>;
}

/** Counters with the names of UCX (`ucs_rcache` statistics). */
export interface RcacheCounters {
  /** Calls of `acquire` and `acquireRange`. */
  gets: number;
  /** Hits without pending reports of unmapped memory. */
  hits_fast: number;
  /** Hits after pending reports of unmapped memory were processed. */
  hits_slow: number;
  /** Misses. */
  misses: number;
  /** Regions joined to larger ones. */
  regions_merged: number;
  /** Reports of released memory: `unmapped`, `invalidate`, buffers collected, detached or resized. */
  unmap_events: number;
  /** Regions that such reports removed from the table. */
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

/** Counters with the value 0. */
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

/** The values of the table. */
export interface RcacheConfig {
  /** Nanoseconds. */
  readonly RCACHE_OVERHEAD: number | 'auto';
  readonly RCACHE_MAX_REGIONS: number;
  readonly RCACHE_MAX_SIZE: number;
  readonly RCACHE_MAX_UNRELEASED: number;
}

/** The table. */
export const RCACHE_CONFIG_TABLE: ConfigTable<RcacheConfig> = {
  prefix: '',
  fields: [
    {
      name: 'RCACHE_OVERHEAD',
      type: orAuto(timeType),
      default: 'auto',
      doc: 'Estimated time of looking up a registration in the cache, for the choice of protocols.',
    },
    {
      name: 'RCACHE_MAX_REGIONS',
      type: restricted(uintInfType, 'an unsigned integer of at least 1, or inf', isPositive),
      default: '16384',
      doc: 'Maximum number of cached registrations; those in use are never evicted, and may exceed it.',
    },
    {
      name: 'RCACHE_MAX_SIZE',
      type: restricted(memorySizeType, 'a size of at least 1: <number>[b|k|m|g|t], or inf', isPositive),
      default: '16g',
      doc: 'Maximum bytes of cached registrations; those in use are never evicted, and may exceed it.',
    },
    {
      name: 'RCACHE_MAX_UNRELEASED',
      type: memorySizeType,
      default: 'inf',
      doc: 'Maximum bytes of unmapped memory that stay pinned until the next transfer; beyond it a task of the event loop unpins them.',
    },
  ],
};

function isPositive(bound: number): boolean {
  return bound > 0;
}
