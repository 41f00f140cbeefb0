/** A schedule: the steps of one rank in a collective operation, as data. Algorithms make it, and the executor of a team runs it. */

/** The memories of an operation. */
export const Space = {
  /** The memory that is only read. */
  SOURCE: 0,
  /** The memory of the result. */
  TARGET: 1,
  /** Host memory of the operation. */
  SCRATCH: 2,
} as const;
/** One of {@link Space}. */
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

/** A step without messages. */
export interface LocalStep {
  readonly from: Region;
  readonly to: Region;
  /** The step is `to = operand op from`; without an operand `to = from`. It may be the same region as `to`. */
  readonly operand: Region | undefined;
}

/** A part of a schedule: its messages are started together; when all have ended, its local steps run in order; then the next round begins. */
export interface Round {
  /** Equal for both ends of a message. Between two ranks a round has one message in each direction at most. */
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

/** Ranks that run an algorithm together, and this one's place among them. */
export interface Group {
  /** Place of this rank in `ranks`. */
  readonly rank: number;
  readonly size: number;
  /** The ranks of the team, by their place. */
  readonly ranks: readonly number[];
}

/** A group with one member that has everything. */
export interface Rooted {
  readonly group: Group;
  /** Its place in the group. */
  readonly root: number;
}

/** The ranks of every node, in order. */
export type Nodes = readonly (readonly number[])[];

/** A part of a region. */
export function part({ space, offset }: Region, from: number, byteLength: number): Region {
  return { space, offset: offset + from, byteLength };
}

/** Equal parts of a region, one after another. */
export function equalParts(region: Region, count: number): Region[] {
  const byteLength = region.byteLength / count;
  return Array.from({ length: count }, (_, index) => part(region, index * byteLength, byteLength));
}

/** Nearly equal parts of a region, each a multiple of `unit` bytes. */
export function balancedParts(region: Region, count: number, unit: number): Region[] {
  const units = region.byteLength / unit;
  const startOf = (index: number): number => Math.floor((units * index) / count) * unit;
  return Array.from({ length: count }, (_, index) => part(region, startOf(index), startOf(index + 1) - startOf(index)));
}
