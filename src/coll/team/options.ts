/** The options of collective operations. */

import type { Dtype, ReduceOp } from '../dtype/dtype.ts';

/** Options of every awaited operation. */
export interface SignalOption {
  /** Cancels the operation: its promise rejects with an AbortError. The team then has failed on all ranks, because they wait for this one. */
  readonly signal?: AbortSignal | undefined;
}

/** Options of every operation with memory. */
export interface DataOptions {
  /** Type of the elements. Default uint8. */
  readonly dtype?: Dtype | undefined;
  /**
   * Elements of one block, or of the whole vector for broadcast, reduce and allReduce: equal on all ranks. Default: what the memory has from the offset on; for
   * scatter and reduceScatter the memory of the result, otherwise that which is sent.
   */
  readonly count?: number | undefined;
  /** First byte of the memory that is sent. Default 0. */
  readonly sendOffset?: number | undefined;
  /** First byte of the memory of the result. Default 0. */
  readonly recvOffset?: number | undefined;
  /** An algorithm to use instead of the estimated best, if it can be used; equal on all ranks. See Team.explain. */
  readonly algorithm?: string | undefined;
}

/** Options of an operation with a root. */
export interface RootOptions extends DataOptions {
  /** The rank that sends, or has the result. Default 0. */
  readonly root?: number | undefined;
}

/** Options of a reduction. */
export interface ReduceOptions extends DataOptions {
  /** The operation. Default sum. */
  readonly op?: ReduceOp | undefined;
}

/** Options of a reduction with a root. */
export interface ReduceToRootOptions extends ReduceOptions, RootOptions {}

/** Options of allGather. */
export interface AllGatherOptions extends DataOptions {
  /** Elements of every rank's block, equal on all ranks (allGatherv); blocks follow one another. */
  readonly recvCounts?: readonly number[] | undefined;
}

/** Options of allToAll. */
export interface AllToAllOptions extends DataOptions {
  /** Elements for every rank (allToAllv); blocks follow one another. With `recvCounts`. */
  readonly sendCounts?: readonly number[] | undefined;
  /** Elements from every rank. */
  readonly recvCounts?: readonly number[] | undefined;
}

/** Options of a sub-team. */
export interface SplitOptions {
  /** Ranks with the same color are one sub-team; undefined for none. An integer from 0 on. */
  readonly color: number | undefined;
  /** Ranks of the sub-team are in the order of their keys, then of their ranks. Default 0. */
  readonly key?: number | undefined;
}
