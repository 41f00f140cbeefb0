/** Statuses received from a peer: only known failures are accepted, because data of peers is checked before use. */

import { Errno } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';

const FAILURES: ReadonlySet<number> = new Set(Object.values(Status).filter((value) => value < 0));

/** The failure in a word of a peer; IO_ERROR for an unknown status, or one that would cause a repetition. */
export function failureOfPeer(word: number): Status {
  return FAILURES.has(word) && word !== Status.NO_RESOURCE ? (word as Status) : Status.IO_ERROR;
}

/** The status of operations on an established connection that has ended. */
export function endOf(code: number): Status {
  const isSilence = code === Errno.ETIMEDOUT || code === Errno.EHOSTUNREACH || code === Errno.ENETUNREACH;
  return isSilence ? Status.ENDPOINT_TIMEOUT : Status.CONNECTION_RESET;
}
