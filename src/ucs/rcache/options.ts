/**
 * Options, defaults and counters of a registration cache, and the configuration fields of all registration caches (`ucs_config_rcache_table`), which are
 * embedded with an empty prefix: `UCX_GAUDI_COPY_RCACHE_MAX_REGIONS`. UCX's fields MEM_PRIO and PURGE_ON_FORK are not provided, because Node.js neither hooks
 * memory calls nor forks without exec.
 */

import type { ConfigTable } from '../config/config.ts';
import { memorySizeType, orAuto, restricted, timeType, uintInfType } from '../config/value.ts';
import type { Status } from '../type/status.ts';
import type { BufferRegions } from './region.ts';

/** Registers and deregisters memory for a cache. */
export interface Registrar<R extends object> {
  /** The address of the first byte of a buffer, which never moves. */
  addressOf(owner: ArrayBufferLike): number;
  /**
   * Registers memory.
   * @param protection bits of {@link Protection}
   * @returns the registration, which must not keep an ArrayBuffer alive, or a failed {@link Status}
   */
  register(start: number, byteLength: number, protection: number): R | Status;
  /**
   * Ends a registration; called in `release`, `acquire`, `purge`, `progress` or a task of the event loop, never in `unmapped`. Should not throw, because the
   * caller of the cache did not cause the failure. An error goes to {@link RcacheOptions.onError}, and the call is not repeated.
   */
  deregister(registration: R): void;
}

/** Reports garbage-collected ArrayBuffers, as FinalizationRegistry does. */
export interface CollectionWatch<T extends object> {
  register(target: WeakKey, heldValue: T, unregisterToken: T): void;
  unregister(unregisterToken: T): void;
}

/** Options of an {@link Rcache}. */
export interface RcacheOptions<R extends object> {
  /** Name of the cache in statistics. Default `rcache`. */
  readonly name?: string;
  readonly registrar: Registrar<R>;
  /** Maximum number of regions. Default {@link DEFAULT_MAX_REGIONS}; Infinity for no bound. */
  readonly maxRegions?: number;
  /** Maximum number of registered bytes. Default {@link DEFAULT_MAX_SIZE}; Infinity for no bound. */
  readonly maxSize?: number;
  /** Maximum number of bytes of unmapped memory that stay registered until the next use of the cache; beyond it `defer` is called. Default Infinity. */
  readonly maxUnreleased?: number;
  /** Length in bytes up to which an ArrayBuffer is registered as a whole; of a longer one, only the used pages are registered. Default Infinity. */
  readonly wholeBytesMax?: number;
  /** Minimum alignment of regions that are not whole ArrayBuffers, a power of two. Default {@link DEFAULT_ALIGNMENT}. */
  readonly alignment?: number;
  /** Receives the errors that `deregister` throws; must not throw. Default: logs an error to standard error. */
  readonly onError?: (error: unknown) => void;
  /** Runs a task soon, outside of the current call. Default setImmediate. */
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
  /** Regions merged into larger ones. */
  regions_merged: number;
  /** Reports of released memory: calls of `unmapped` and `invalidate`, and buffers found collected, detached or resized. */
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

export interface RcacheConfig {
  /** Nanoseconds. */
  readonly RCACHE_OVERHEAD: number | 'auto';
  readonly RCACHE_MAX_REGIONS: number;
  readonly RCACHE_MAX_SIZE: number;
  readonly RCACHE_MAX_UNRELEASED: number;
}

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
      doc: 'Maximum number of cached registrations; those in use are never evicted and may exceed the limit.',
    },
    {
      name: 'RCACHE_MAX_SIZE',
      type: restricted(memorySizeType, 'a size of at least 1: <number>[b|k|m|g|t], or inf', isPositive),
      default: '16g',
      doc: 'Maximum bytes of cached registrations; those in use are never evicted and may exceed the limit.',
    },
    {
      name: 'RCACHE_MAX_UNRELEASED',
      type: memorySizeType,
      default: 'inf',
      doc: 'Maximum bytes of unmapped memory that stay pinned until the next transfer; above the limit, a task of the event loop unpins it.',
    },
  ],
};

function isPositive(bound: number): boolean {
  return bound > 0;
}
