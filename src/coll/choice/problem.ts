/**
 * The inputs from which an algorithm is chosen and its schedule is built: the ranks, the regions, and the cost model of latency, bandwidth and reduction,
 * which comes from the attributes of the connections.
 */

import { type Group, type Nodes, part, type Region } from '../schedule/schedule.ts';

/** Names of the collective operations. */
export const COLLECTIVES = [
  'barrier',
  'broadcast',
  'gather',
  'scatter',
  'allGather',
  'allToAll',
  'reduce',
  'reduceScatter',
  'allReduce',
] as const;
/** The name of a collective operation. */
export type Collective = (typeof COLLECTIVES)[number];

/** The ranks of a team, and the nodes on which they run. */
export interface Places {
  readonly rank: number;
  readonly size: number;
  readonly nodes: Nodes;
}

/** One rank's arguments of a collective operation: what its schedule is built from. */
export interface Problem {
  readonly collective: Collective;
  readonly places: Places;
  /** The whole team. */
  readonly group: Group;
  /** 0 for operations without a root. */
  readonly root: number;
  /** Bytes of an element: messages do not end inside an element. */
  readonly unit: number;
  /** Blocks to send, by rank, or the only region; not used if this rank does not send. */
  readonly sources: readonly Region[];
  /** Where the results go, by rank, or the only region; not used if this rank does not have a result. */
  readonly targets: readonly Region[];
  readonly shape: Shape;
}

/** The properties by which an algorithm is chosen. Equal on all ranks, independent of the memory types that they use. */
export interface Shape {
  readonly size: number;
  /** Bytes of one block, or of the whole vector for broadcast, reduce and allReduce; the mean if counts differ between ranks. */
  readonly bytes: number;
  /** False if counts differ between ranks. */
  readonly isEqual: boolean;
  readonly nodeSizes: readonly number[];
}

/** The same range of every region of a problem. Only for algorithms whose regions can be divided. */
export function sliceOf(problem: Problem, from: number, byteLength: number): Problem {
  const cut = (regions: readonly Region[]): Region[] => regions.map((region) => part(region, from, byteLength));
  return { ...problem, sources: cut(problem.sources), targets: cut(problem.targets) };
}

export function shapeOf({ size, nodes }: Places, bytes: number, isEqual: boolean): Shape {
  return { size, bytes, isEqual, nodeSizes: nodes.map(({ length }) => length) };
}

/** Estimated cost of a message. */
export interface LinkCost {
  readonly latencyNs: number;
  readonly nsPerByte: number;
}

/** Costs on which all ranks of a team agree: the highest that any rank estimates. */
export interface CostModel {
  /** Between ranks of one node. */
  readonly within: LinkCost;
  /** Between nodes. */
  readonly between: LinkCost;
  readonly reduceNsPerByte: number;
  readonly copyNsPerByte: number;
}

/** Reduction and copies in host memory, measured once on the machine of BENCHMARKS.md. Only their ratio to the cost of links matters. */
export const HOST_COSTS = { reduceNsPerByte: 0.3, copyNsPerByte: 0.1 } as const;
/** Default if the engine has no estimates. */
export const DEFAULT_WITHIN: LinkCost = { latencyNs: 1000, nsPerByte: 0.1 };
/** Default if the engine has no estimates. */
export const DEFAULT_BETWEEN: LinkCost = { latencyNs: 10_000, nsPerByte: 0.5 };

/** Cost of a step besides the transport, in nanoseconds: messages, requests and rounds of this library. */
export const STEP_NS = 2500;

/** Fraction of the latency that each further message costs if several are in flight. */
const OVERLAPPED = 0.5;

/** The cost of the slowest link of a team. */
export function slowest({ nodeSizes }: Shape, { within, between }: CostModel): LinkCost {
  return nodeSizes.length > 1 ? between : within;
}

/** Rounds of a binomial or doubling algorithm. */
export function roundsOf(size: number): number {
  return Math.ceil(Math.log2(size));
}

/** Time of messages one after the other. */
export function sequential({ latencyNs, nsPerByte }: LinkCost, messages: number, bytes: number): number {
  return messages * latencyNs + bytes * nsPerByte;
}

/** Time of messages that are in flight together. */
export function atOnce({ latencyNs, nsPerByte }: LinkCost, messages: number, bytes: number): number {
  return latencyNs * (1 + OVERLAPPED * messages) + bytes * nsPerByte;
}

/** Factor for algorithms whose flows share the connection of a node: the largest number of ranks on one node. */
export function sharing({ nodeSizes }: Shape): number {
  return nodeSizes.length > 1 ? Math.max(...nodeSizes) : 1;
}
