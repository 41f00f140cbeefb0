/** What a peer says has gone wrong: known failures only, as everything of a peer is judged before it is used. */

import { Errno } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';

const FAILURES: ReadonlySet<number> = new Set(Object.values(Status).filter((value) => value < 0));

/** The failure behind a word of a peer; IO_ERROR for one that is none, or that would ask for a repetition. */
export function failureOfPeer(word: number): Status {
  return FAILURES.has(word) && word !== Status.NO_RESOURCE ? (word as Status) : Status.IO_ERROR;
}

/** What the end of a connection that stood is for those who use it. */
export function endOf(code: number): Status {
  const isSilence = code === Errno.ETIMEDOUT || code === Errno.EHOSTUNREACH || code === Errno.ENETUNREACH;
  return isSilence ? Status.ENDPOINT_TIMEOUT : Status.CONNECTION_RESET;
}
