/** The errors of collective operations. */

import { UcxError } from '../../../ucs/type/error.ts';
import { Status, statusString } from '../../../ucs/type/status.ts';
import type { Header } from './header.ts';

/** Maximum bytes of the text of a failure message: longer than any text, and shorter than the header of an active message may be. */
const TEXT_MAX = 4000;

/** Code of the error for using a team after its failure. */
export const TEAM_FAILED = 'ERR_COLL_TEAM_FAILED';

/** A rank, and a description of the operation that it has called. */
interface CalledBy {
  readonly rank: number;
  readonly operation: string;
}

/** The error if two ranks call different operations. Code `ERR_COLL_MISMATCH`. */
export function mismatch(sequence: number, own: CalledBy, other: CalledBy): UcxError {
  return new UcxError({
    code: 'ERR_COLL_MISMATCH',
    status: Status.INVALID_PARAM,
    message: `operation ${sequence} of the team: rank ${own.rank} called ${own.operation}, but rank ${other.rank} called ${other.operation}`,
    details: { rank: other.rank, sequence },
  });
}

/**
 * The error for a rank that is lost, or on which an operation failed. Code `ERR_COLL_RANK_FAILED`. @param why the predicate of the sentence whose subject is
 * the rank
 */
export function rankFailed(rank: number, status: Status, why: string, cause?: unknown): UcxError {
  return new UcxError({
    code: 'ERR_COLL_RANK_FAILED',
    status,
    message: `rank ${rank} ${why}: ${statusString(status).toLowerCase()}`,
    details: { rank },
    cause,
  });
}

/** The error if ranks did not reply in time. Code `ERR_COLL_TIMED_OUT`. @param what the operation that waited */
export function timedOut(what: string, ranks: readonly number[], timeoutMs: number): UcxError {
  const names = ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks.join(', ')}`;
  return new UcxError({
    code: 'ERR_COLL_TIMED_OUT',
    status: Status.TIMED_OUT,
    message: `${what}: timed out after ${timeoutMs} ms, waiting for ${names}`,
    details: { rank: ranks[0], ranks: ranks.join(',') },
  });
}

/** A failure of the team that another rank has reported. Code `ERR_COLL_RANK_FAILED`. */
export function reportedBy(reporter: number, rank: number, status: Status, text: string): UcxError {
  return new UcxError({
    code: 'ERR_COLL_RANK_FAILED',
    status,
    message: `${text} (reported by rank ${reporter})`,
    details: { rank, reporter },
  });
}

/** The error for using a team after its failure. Code `ERR_COLL_TEAM_FAILED`. */
export function teamFailed(failure: UcxError): UcxError {
  return new UcxError({
    code: TEAM_FAILED,
    status: failure.status,
    message: `the team has failed and cannot be used any more: ${failure.message}`,
    details: failure.details,
    cause: failure,
  });
}

/** The fields of a failure message: the status, and the rank at fault. */
export function reasonOf({ status, details }: UcxError, rank: number): Pick<Header, 'status' | 'offset'> {
  return { status, offset: Number(details['rank'] ?? rank) };
}

/** The error message as bytes, cut off at {@link TEXT_MAX} bytes. */
export function textOf({ message }: UcxError): Uint8Array {
  return new TextEncoder().encode(message).subarray(0, TEXT_MAX);
}
