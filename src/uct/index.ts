/** The package entry `gaudi-ucx/uct`: memory domains and transports without the protocol layer above them. Re-exports only. */

export { memoryTypeBit } from '../ucs/memory/memory-type.ts';
export { type Counters, type StatsNode, statsNode } from '../ucs/stats/stats-node.ts';
export * from './api/connection-manager.ts';
export * from './api/iface.ts';
export * from './api/memory.ts';
export * from './api/memory-domain.ts';
export { completeOne } from './base/completion.ts';
export { hostRange } from './base/host/host-range.ts';
export { scavenge } from './base/key/segment.ts';
export { type RegisterBlock, RegisterBlocks } from './gaudi/base/card/register-blocks.ts';
export { GaudiResources, type GaudiResourcesOptions } from './gaudi/base/gaudi-resources.ts';
export { gaudiCopyComponent } from './gaudi/copy/component.ts';
export { gaudiIpcComponent } from './gaudi/ipc/component.ts';
export { selfComponent } from './self/component.ts';
export { cmaComponent } from './shm/cma/component.ts';
export { posixComponent } from './shm/posix/component.ts';
export { tcpComponent } from './tcp/component.ts';
