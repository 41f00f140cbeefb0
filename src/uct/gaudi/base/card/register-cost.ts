/** Estimated cost of using unregistered host memory with a card: a pure function of the configuration. */

import type { LinearCost } from '../../../api/memory-domain.ts';
import type { GaudiCopyConfig } from './config.ts';

/** Cost of a registration for each byte: the driver pins page by page. */
const REGISTER_NS_PER_BYTE = 0.03;
/** RCACHE_OVERHEAD=auto: finding a registration, and preparing the memory for the transport. */
const CACHED_NS = 600;

/** The cost. With a cache it is the cost of finding an existing registration, as in UCX. */
export function registerCostOf({ RCACHE, RCACHE_OVERHEAD, REG_COST }: GaudiCopyConfig): LinearCost {
  if (RCACHE === 'no') return { overheadNs: REG_COST, perByteNs: REGISTER_NS_PER_BYTE };
  return { overheadNs: RCACHE_OVERHEAD === 'auto' ? CACHED_NS : RCACHE_OVERHEAD, perByteNs: 0 };
}
