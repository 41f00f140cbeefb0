/**
 * The task of a collective operation, as data: its kind, its ranks and its regions. The cost model of algorithms: time by latency, bandwidth and
 * reduction, from the attributes of the connections.
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
/** A collective operation. */
export type Collective = (typeof COLLECTIVES)[number];

/** The ranks of a team, and where they are. */
export interface Places {
  readonly rank: number;
  readonly size: number;
  /** The ranks of every node. */
  readonly nodes: Nodes;
}

/** The task of one rank. */
export interface Problem {
  readonly collective: Collective;
  readonly places: Places;
  /** The whole team. */
  readonly group: Group;
  /** 0 for operations without a root. */
  readonly root: number;
  /** Bytes of an element: messages are not divided inside one. */
  readonly unit: number;
  /** Blocks to send by rank, or the one region; not used where this rank sends nothing. */
  readonly sources: readonly Region[];
  /** Places of the results by rank, or the one region; not used where this rank has no result. */
  readonly targets: readonly Region[];
  readonly shape: Shape;
}

/** The properties by which an algorithm is chosen: equal on all ranks, whatever memory they use. */
export interface Shape {
  readonly size: number;
  /** Bytes of one block, or of the whole vector for broadcast, reduce and allReduce; the mean with counts by rank. */
  readonly bytes: number;
  /** False with counts by rank. */
  readonly isEqual: boolean;
  /** Ranks of every node. */
  readonly nodeSizes: readonly number[];
}

/** A part of a problem whose regions can be divided: the same part of every region. */
export function sliceOf(problem: Problem, from: number, byteLength: number): Problem {
  const cut = (regions: readonly Region[]): Region[] => regions.map((region) => part(region, from, byteLength));
  return { ...problem, sources: cut(problem.sources), targets: cut(problem.targets) };
}

/** The shape of a problem. */
export function shapeOf({ size, nodes }: Places, bytes: number, isEqual: boolean): Shape {
  return { size, bytes, isEqual, nodeSizes: nodes.map(({ length }) => length) };
}

/** Estimated cost of a message. */
export interface LinkCost {
  readonly latencyNs: number;
  readonly nsPerByte: number;
}

/** Costs that all ranks of a team agree on: the worst that any of them estimates. */
export interface CostModel {
  /** Between ranks of one node. */
  readonly within: LinkCost;
  /** Between nodes. */
  readonly between: LinkCost;
  readonly reduceNsPerByte: number;
  readonly copyNsPerByte: number;
}

/** Reduction and copies in host memory: measured once on the machine of BENCHMARKS.md; they matter by their ratio to the links only. */
export const HOST_COSTS = { reduceNsPerByte: 0.3, copyNsPerByte: 0.1 } as const;
/** Default if the engine has no estimates. */
export const DEFAULT_WITHIN: LinkCost = { latencyNs: 1000, nsPerByte: 0.1 };
/** Default if the engine has no estimates. */
export const DEFAULT_BETWEEN: LinkCost = { latencyNs: 10_000, nsPerByte: 0.5 };

/** Cost of a step of an operation besides the transport, in nanoseconds: messages, requests and rounds of this library. */
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

/** Factor for algorithms whose flows share the connection of a node: the most ranks of a node. */
export function sharing({ nodeSizes }: Shape): number {
  return nodeSizes.length > 1 ? Math.max(...nodeSizes) : 1;
}
