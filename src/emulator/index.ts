/**
 * The emulated Gaudi node: a virtual habanalabs driver and device behind the driver port. Re-exports only.
 */

export type {
  CardFault,
  CompletionFault,
  ExhaustibleResource,
  ExhaustionFault,
  Fault,
  HangFault,
  IoctlFault,
  OpenFault,
  PlannedFault,
} from './faults/fault-plan.ts';
export { createEmulatedNode, EmulatedNode } from './node.ts';
export { CARDS_MAX, type EmulatedNodeOptions, type NodeConfig } from './node-config.ts';
