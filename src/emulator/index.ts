/**
 * The emulated Gaudi node: a virtual habanalabs driver and device behind the driver port. Re-exports only.
 */

export { type CardIdentity, placesOf } from './config/card-places.ts';
export { type CardPair, parseLinks } from './config/links.ts';
export { CARDS_MAX, type EmulatedNodeOptions, type NodeConfig } from './config/node-config.ts';
export { enterPrivateTree, isInPrivateTree } from './devices/private-tree.ts';
export { DEVICE_FILTER } from './devices/supervisor.ts';
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
export { endServer, identifyServer, type ServerIdentity } from './node/any-version.ts';
export { NodeServer, type NodeServerOptions } from './node/node-server.ts';
export type { CardStatus, ClientStatus, NodeStatus } from './node/node-status.ts';
export { connectEmulatedNode, findEmulatedNode, RemoteNode } from './node/remote-node.ts';
export { defaultSocketPath, prepareFolder } from './node/socket-path.ts';
export { createEmulatedNode, EmulatedNode } from './node.ts';
export { EmulatedVerbs } from './rdma/emulated-verbs.ts';
export type { RdmaFault } from './rdma/rdma-faults.ts';
export { diffTraces, type TraceDifference } from './trace/trace-diff.ts';
