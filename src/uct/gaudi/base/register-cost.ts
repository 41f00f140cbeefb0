/** What using host memory with a card that is not mapped by the application is estimated to cost: a pure function of the configuration. */

import type { LinearCost } from '../../api/memory-domain.ts';
import type { GaudiCopyConfig } from './config.ts';

/** Growth of the cost of a registration: the driver pins page by page. */
const REGISTER_NS_PER_BYTE = 0.03;
/** RCACHE_OVERHEAD=auto: finding a registration, and describing the memory to the transport. */
const CACHED_NS = 600;

/** The cost: with a cache that of finding what is registered already, as in UCX. */
export function registerCostOf({ RCACHE, RCACHE_OVERHEAD, REG_COST }: GaudiCopyConfig): LinearCost {
  if (RCACHE === 'no') return { overheadNs: REG_COST, perByteNs: REGISTER_NS_PER_BYTE };
  return { overheadNs: RCACHE_OVERHEAD === 'auto' ? CACHED_NS : RCACHE_OVERHEAD, perByteNs: 0 };
}
