/** The options of collective operations. */

import type { Dtype, ReduceOp } from '../dtype/dtype.ts';

/** Options of every awaited operation. */
export interface SignalOption {
  /** Cancels the operation: its promise rejects with an AbortError. The team then fails on all ranks, because they wait for this one. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of every operation that uses memory. */
export interface DataOptions {
  /** Type of the elements. Default uint8. */
  readonly dtype?: Dtype | undefined;
  /**
   * Elements of one block, or of the whole vector for broadcast, reduce and allReduce; equal on all ranks. Default: all from the offset to the end of the
   * memory: that of the result for scatter and reduceScatter, otherwise that which is sent.
   */
  readonly count?: number | undefined;
  /** Offset in the memory to send, in bytes. Default 0. */
  readonly sendOffset?: number | undefined;
  /** Offset in the memory of the result, in bytes. Default 0. */
  readonly recvOffset?: number | undefined;
  /** Algorithm to use instead of the one with the best estimate, if it is usable; equal on all ranks. See Team.explain. */
  readonly algorithm?: string | undefined;
}

/** Options of an operation with a root. */
export interface RootOptions extends DataOptions {
  /** The rank that sends the data or receives the result. Default 0. */
  readonly root?: number | undefined;
}

/** Options of a reduction. */
export interface ReduceOptions extends DataOptions {
  /** The reduction operation. Default sum. */
  readonly op?: ReduceOp | undefined;
}

/** Options of a reduction with a root. */
export interface ReduceToRootOptions extends ReduceOptions, RootOptions {}

/** Options of allGather. */
export interface AllGatherOptions extends DataOptions {
  /** Elements of every rank's block, equal on all ranks (allGatherv); the blocks follow one another in memory. */
  readonly recvCounts?: readonly number[] | undefined;
}

/** Options of allToAll. */
export interface AllToAllOptions extends DataOptions {
  /** Elements for every rank (allToAllv); the blocks follow one another in memory. Requires `recvCounts`. */
  readonly sendCounts?: readonly number[] | undefined;
  /** Elements from every rank. Requires `sendCounts`. */
  readonly recvCounts?: readonly number[] | undefined;
}

/** Options of a sub-team. */
export interface SplitOptions {
  /** Ranks with the same color form a sub-team; undefined to join none. An integer of at least 0. */
  readonly color: number | undefined;
  /** Ranks of the sub-team are in the order of their keys, then of their ranks. Default 0. */
  readonly key?: number | undefined;
}
