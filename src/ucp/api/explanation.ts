/** What explain() tells: which protocol moves how many bytes, what else could, and why it does not. Types only. */

import type { Engine } from './engine.ts';

/** A transport or protocol that is not used. */
export interface RejectedProtocol {
  /** Transport and device, such as `posix/memory`. */
  readonly transport: string;
  /** Undefined when the transport as a whole is out. */
  readonly protocol: string | undefined;
  /** Why it is not used. */
  readonly reason: string;
}

/** What moves the bytes. */
export interface SizeWinner {
  /** Transport and device, such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /** By the cost model, not measured; undefined where there is no model of the engine. */
  readonly estimatedNs: number | undefined;
  /** Bytes per second, by the same model. */
  readonly bandwidth: number | undefined;
  /** What the estimate takes into account besides the attributes of the transport. */
  readonly note?: string | undefined;
}

/** What does not move them. */
export interface SizeLoser extends RejectedProtocol {
  /** What it would take; undefined where it cannot. */
  readonly estimatedNs?: number | undefined;
}

/** The explanation for one size. */
export interface SizeExplanation {
  /** Size of the operation in bytes. */
  readonly bytes: number;
  /** Undefined where nothing can move so many bytes. */
  readonly winner: SizeWinner | undefined;
  /** Candidates that were not chosen, with the reason. */
  readonly losers: readonly SizeLoser[];
}

/** A range of sizes and what moves them. */
export interface ChosenProtocol {
  /** First size of the range in bytes, inclusive. */
  readonly bytesMin: number;
  /** Inclusive; Infinity for no end. */
  readonly bytesMax: number;
  /** Such as `put/short`. */
  readonly protocol: string;
  /** Such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Estimated time at the smallest size of the range, in nanoseconds: by the cost model, not measured; undefined where there is no model of the engine. */
  readonly estimatedNs: number | undefined;
  /** What the estimate takes into account besides the attributes of the transport, such as `2 of 3 links up`. */
  readonly note?: string | undefined;
}

/** The explanation of one operation between two kinds of memory. */
export interface Explanation extends ExplainedChoice {
  /** What runs the operation, and why that. */
  readonly engine: Engine;
}

/** An explanation that does not say which engine it is of. */
export interface ExplainedChoice {
  readonly operation: string;
  readonly local: string;
  readonly remote: string;
  readonly chosen: readonly ChosenProtocol[];
  readonly rejected: readonly RejectedProtocol[];
  /** The choice for a number of bytes, 1 or more, with an estimate or a reason for every candidate. */
  at(bytes: number): SizeExplanation;
  /** The table as UCX prints it with UCX_PROTO_INFO=y, the rejections below it, and the engine. */
  toString(): string;
}
