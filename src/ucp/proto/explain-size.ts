/**
 * The explanation for one size: the chosen candidate, the cost of the others, and why they were not chosen. Pure: data in, data out.
 */

import type { RejectedProtocol, SizeExplanation, SizeLoser, SizeWinner } from '../../api/contract/explanation.ts';
import { checkPositive } from '../../ucs/type/check-options.ts';

/** A protocol on a transport for a range of sizes, with the names that users see. */
export interface ExplainedCandidate {
  /** Such as `gaudi_cpy/gaudi0`. */
  readonly transport: string;
  /** Such as `put/short`. */
  readonly protocol: string;
  readonly bytesMin: number;
  /** Inclusive; Infinity for no end. */
  readonly bytesMax: number;
  /** Cost in nanoseconds: `fixedNs + bytes * perByteNs`. */
  readonly fixedNs: number;
  readonly perByteNs: number;
  /** A factor of the estimate besides the attributes of the transport. */
  readonly note?: string | undefined;
}

/** The candidate for sizes up to a bound. */
export interface ExplainedStep {
  /** Inclusive. */
  readonly bytesMax: number;
  readonly candidate: ExplainedCandidate;
}

/** The candidates, the chosen steps, and the rejected candidates. */
export interface Choice {
  readonly candidates: readonly ExplainedCandidate[];
  /** By rising size. */
  readonly steps: readonly ExplainedStep[];
  readonly rejected: readonly RejectedProtocol[];
}

const NS_PER_S = 1e9;

/** Explains the choice for `bytes`. @throws UcxError ERR_INVALID_PARAM unless it is an integer of 1 or more */
export function explainSize({ candidates, steps, rejected }: Choice, bytes: number): SizeExplanation {
  checkPositive('bytes', bytes);
  const step = steps.find(({ bytesMax }) => bytes <= bytesMax);
  const best = step !== undefined && bytes >= step.candidate.bytesMin ? step.candidate : undefined;
  const losers: SizeLoser[] = candidates
    .filter((candidate) => candidate !== best)
    .map((candidate) => loserOf(candidate, best, bytes))
    .sort((left, right) => (left.estimatedNs ?? Infinity) - (right.estimatedNs ?? Infinity));
  return { bytes, winner: best === undefined ? undefined : winnerOf(best, bytes), losers: [...losers, ...rejected] };
}

/** Estimated nanoseconds. */
export function estimateNs({ fixedNs, perByteNs }: ExplainedCandidate, bytes: number): number {
  return Math.round(fixedNs + bytes * perByteNs);
}

function winnerOf(candidate: ExplainedCandidate, bytes: number): SizeWinner {
  const { transport, protocol, note } = candidate;
  const estimatedNs = estimateNs(candidate, bytes);
  const bandwidth = (bytes * NS_PER_S) / Math.max(1, estimatedNs);
  return { transport, protocol, estimatedNs, bandwidth, ...(note === undefined ? {} : { note }) };
}

function loserOf(candidate: ExplainedCandidate, best: ExplainedCandidate | undefined, bytes: number): SizeLoser {
  const { transport, protocol, bytesMin, bytesMax, note } = candidate;
  if (bytes < bytesMin) return { transport, protocol, reason: `takes ${bytesMin} bytes at least` };
  if (bytes > bytesMax) return { transport, protocol, reason: `takes ${bytesMax} bytes at most` };
  const estimatedNs = estimateNs(candidate, bytes);
  const bestNs = best === undefined ? estimatedNs : estimateNs(best, bytes);
  const ratio = estimatedNs / Math.max(1, bestNs);
  const more = ratio >= 1.05 ? `${ratio.toFixed(1)} times` : `${Math.max(0, estimatedNs - bestNs)} ns more`;
  const reason = estimatedNs <= bestNs ? 'costs the same, and comes later' : `costs ${more}`;
  const hint = note === undefined ? '' : ` (${note})`;
  return { transport, protocol, reason: reason + hint, estimatedNs };
}
