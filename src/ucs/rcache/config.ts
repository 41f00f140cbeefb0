/**
 * The fields that every registration cache has (`ucs_config_rcache_table`), to be embedded with an empty prefix: `UCX_GAUDI_COPY_RCACHE_MAX_REGIONS`.
 * UCX's fields MEM_PRIO and PURGE_ON_FORK are missing: nothing in Node hooks memory calls, or forks without exec.
 */

import type { ConfigTable } from '../config/config.ts';
import { memorySizeType, orAuto, restricted, timeType, uintInfType } from '../config/value.ts';

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
