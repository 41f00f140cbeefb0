/** A registration cache of host memory for a memory domain: bounds from the configuration, errors to the log, deferred work to the clock. */

import { addressOf } from '../../../sys/index.ts';
import type { RcacheConfig } from '../../../ucs/rcache/config.ts';
import type { Registrar } from '../../../ucs/rcache/options.ts';
import { Rcache } from '../../../ucs/rcache/rcache.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';

/** The options of a cache that the memory domain sets. */
export interface HostCacheOptions<R extends object> extends Omit<Registrar<R>, 'addressOf'> {
  /** Name in statistics. */
  readonly name: string;
  readonly config: RcacheConfig;
  /** Bytes of the longest ArrayBuffer that is registered as a whole; of longer ones only the used pages are. */
  readonly wholeBytesMax: number;
}

/** Creates the cache. */
export function openHostCache<R extends object>(
  { name, config, wholeBytesMax, register, deregister }: HostCacheOptions<R>,
  { log, clock }: Pick<ComponentServices, 'log' | 'clock'>,
): Rcache<R> {
  return new Rcache({
    name,
    registrar: { addressOf: (owner) => addressOf(new Uint8Array(owner)), register, deregister },
    maxRegions: config.RCACHE_MAX_REGIONS,
    maxSize: config.RCACHE_MAX_SIZE,
    maxUnreleased: config.RCACHE_MAX_UNRELEASED,
    wholeBytesMax,
    onError: (error) => log.error(`registration cache: ${String(error)}`),
    defer: (task) => {
      clock.setTimer(0, task);
    },
  });
}

/** Its counters and levels. */
export function cacheStats(name: string, cache: Rcache<object>): StatsNode {
  const levels = { num_regions: cache.numRegions, total_size: cache.totalSize };
  return statsNode('ucs_rcache', name, { ...cache.counters, ...levels });
}
