/** The task of a collective operation, as data: its kind, its ranks and its regions. It does not choose the algorithm. */

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
