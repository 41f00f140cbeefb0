/** The errors of collective operations. */

import { UcxError } from '../../../ucs/type/error.ts';
import { Status, statusString } from '../../../ucs/type/status.ts';
import type { Header } from './header.ts';

/** The longest text of a message: more than any, and less than a header of an active message has room for. */
const TEXT_MAX = 4000;

/** The code of an error for the use of a team after its failure. */
export const TEAM_FAILED = 'ERR_COLL_TEAM_FAILED';

/** A rank, and the operation that it has called, in words. */
interface CalledBy {
  readonly rank: number;
  readonly operation: string;
}

/** The error for ranks that do not mean the same operation. Code `ERR_COLL_MISMATCH`. */
export function mismatch(sequence: number, own: CalledBy, other: CalledBy): UcxError {
  return new UcxError({
    code: 'ERR_COLL_MISMATCH',
    status: Status.INVALID_PARAM,
    message: `operation ${sequence} of the team: rank ${own.rank} called ${own.operation}, and rank ${other.rank} called ${other.operation}`,
    details: { rank: other.rank, sequence },
  });
}

/** The error for a rank that is lost, or whose part of an operation failed. Code `ERR_COLL_RANK_FAILED`. */
export function rankFailed(rank: number, status: Status, why: string, cause?: unknown): UcxError {
  return new UcxError({
    code: 'ERR_COLL_RANK_FAILED',
    status,
    message: `rank ${rank} ${why}: ${statusString(status).toLowerCase()}`,
    details: { rank },
    cause,
  });
}

/** The error for ranks that were waited for too long. Code `ERR_COLL_TIMED_OUT`. */
export function timedOut(what: string, ranks: readonly number[], timeoutMs: number): UcxError {
  const names = ranks.length === 1 ? `rank ${ranks[0]}` : `ranks ${ranks.join(', ')}`;
  return new UcxError({
    code: 'ERR_COLL_TIMED_OUT',
    status: Status.TIMED_OUT,
    message: `${what}: waited ${timeoutMs} ms for ${names}`,
    details: { rank: ranks[0], ranks: ranks.join(',') },
  });
}

/** The failure of the team as another rank has reported it. Code `ERR_COLL_RANK_FAILED`. */
export function reportedBy(reporter: number, rank: number, status: Status, text: string): UcxError {
  return new UcxError({
    code: 'ERR_COLL_RANK_FAILED',
    status,
    message: `${text} (reported by rank ${reporter})`,
    details: { rank, reporter },
  });
}

/** The error for the use of a team after its failure. Code `ERR_COLL_TEAM_FAILED`. */
export function teamFailed(failure: UcxError): UcxError {
  return new UcxError({
    code: TEAM_FAILED,
    status: failure.status,
    message: `the team cannot be used any more: ${failure.message}`,
    details: failure.details,
    cause: failure,
  });
}

/** The fields of a message about a failure: its status, and the rank at fault. */
export function reasonOf({ status, details }: UcxError, rank: number): Pick<Header, 'status' | 'offset'> {
  return { status, offset: Number(details['rank'] ?? rank) };
}

/** The text of a message about a failure, as far as it fits. */
export function textOf({ message }: UcxError): Uint8Array {
  return new TextEncoder().encode(message).subarray(0, TEXT_MAX);
}
