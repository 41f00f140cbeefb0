/** A schedule: the steps of one rank in a collective operation, as data. Algorithms make it; the operations of a team run it. */

/** The memories of an operation. */
export const Space = {
  /** Memory that is only read. */
  SOURCE: 0,
  /** Memory of the result. */
  TARGET: 1,
  /** Host memory that exists while the schedule runs. */
  SCRATCH: 2,
} as const;
export type Space = (typeof Space)[keyof typeof Space];

/** A range of one of the memories. */
export interface Region {
  readonly space: Space;
  /** First byte. */
  readonly offset: number;
  readonly byteLength: number;
}

/** A message to or from a rank. */
export interface Transfer {
  readonly peer: number;
  readonly region: Region;
}

/** A copy or a reduction within this rank. */
export interface LocalStep {
  readonly from: Region;
  readonly to: Region;
  /** The step is `to = operand op from`, or `to = from` without an operand. `operand` may be the same region as `to`. */
  readonly operand: Region | undefined;
}

/** One round of a schedule: its messages are started together; when all have ended, its local steps run in order; then the next round begins. */
export interface Round {
  /** Equal at both ends of a message. Two ranks exchange at most one message in each direction in one round. */
  readonly id: number;
  readonly sends: readonly Transfer[];
  readonly receives: readonly Transfer[];
  readonly steps: readonly LocalStep[];
}

/** The schedule of one rank. */
export interface Schedule {
  readonly rounds: readonly Round[];
  /** Bytes of {@link Space.SCRATCH}. */
  readonly scratchBytes: number;
}

/** The ranks that run an algorithm together. */
export interface Group {
  /** Index of this rank in `ranks`. */
  readonly rank: number;
  readonly size: number;
  /** Ranks of the team, in the order of the group. */
  readonly ranks: readonly number[];
}

/** A group in which one member has, or receives, all data. */
export interface Rooted {
  readonly group: Group;
  /** Index of that member in the group. */
  readonly root: number;
}

/** The ranks of each node, in ascending order. */
export type Nodes = readonly (readonly number[])[];

/** A range of a region. */
export function part({ space, offset }: Region, from: number, byteLength: number): Region {
  return { space, offset: offset + from, byteLength };
}

/** Equal ranges of a region, one after another. */
export function equalParts(region: Region, count: number): Region[] {
  const byteLength = region.byteLength / count;
  return Array.from({ length: count }, (_, index) => part(region, index * byteLength, byteLength));
}

/** Ranges of a region of nearly equal length, each a multiple of `unit` bytes. */
export function balancedParts(region: Region, count: number, unit: number): Region[] {
  const units = region.byteLength / unit;
  const startOf = (index: number): number => Math.floor((units * index) / count) * unit;
  return Array.from({ length: count }, (_, index) => part(region, startOf(index), startOf(index + 1) - startOf(index)));
}
