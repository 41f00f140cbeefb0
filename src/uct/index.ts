/** The transport layer, without the components that open transports. Re-exports only. */

export { memoryTypeBit } from '../ucs/memory/memory-type.ts';
export { type Counters, type StatsNode, statsNode } from '../ucs/stats/stats-node.ts';
export * from './api/connection-manager.ts';
export * from './api/iface.ts';
export * from './api/memory.ts';
export * from './api/memory-domain.ts';
export { completeOne } from './base/checks.ts';
export { hostRange } from './base/host/memory.ts';
export { scavenge } from './base/key/segment.ts';
export { type RegisterBlock, RegisterBlocks } from './gaudi/base/register-blocks.ts';
export { GaudiResources, type GaudiResourcesOptions } from './gaudi/base/resources.ts';
