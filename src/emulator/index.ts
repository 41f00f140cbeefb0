/** The emulated Gaudi node: a virtual habanalabs driver and device behind the interface `DriverNode` (src/driver/port.ts). */

export { type CardIdentity, placesOf } from './config/card-places.ts';
export { type CardPair, parseLinks } from './config/links.ts';
export { CARDS_MAX, type EmulatedNodeOptions, type NodeConfig } from './config/node-config.ts';
export { enterPrivateTree, isInPrivateTree } from './device-nodes/private-tree.ts';
export { DEVICE_FILTER } from './device-nodes/seccomp-filter.ts';
export { superviseProgram } from './device-nodes/supervisor.ts';
export { sendFilter, sendTree } from './device-nodes/supervisor-link.ts';
export { createEmulatedNode, EmulatedNode } from './emulated-node.ts';
export type {
  CardFault,
  CompletionFault,
  ExhaustibleResource,
  ExhaustionFault,
  Fault,
  HangFault,
  IoctlFault,
  LinkFault,
  OpenFault,
  PlannedFault,
} from './faults/fault-plan.ts';
export { readFault } from './faults/fault-plan.ts';
export { EmulatedVerbs } from './rdma/emulated-verbs.ts';
export type { RdmaFault } from './rdma/rdma-faults.ts';
export { endServer, identifyServer, type ServerIdentity } from './server/any-version.ts';
export { NodeServer, type NodeServerOptions } from './server/node-server.ts';
export type { CardStatus, ClientStatus, NodeStatus } from './server/node-status.ts';
export { connectEmulatedNode, findEmulatedNode, RemoteNode } from './server/remote-node.ts';
export { defaultSocketPath, prepareFolder } from './server/socket-path.ts';
export { diffTraces, type TraceDifference } from './trace/trace-diff.ts';
