/** The peer of a connection: its name for logs, and the statuses that it sends, of which only known failures are accepted. */

import { Errno, printAddress, tcpRemoteAddress } from '../../../sys/index.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';

const FAILURES: ReadonlySet<number> = new Set(Object.values(Status).filter((value) => value < 0));

/** The failure in a word of a peer; IO_ERROR for an unknown status, or one that would cause a repetition. */
export function failureOfPeer(word: number): Status {
  return FAILURES.has(word) && word !== Status.NO_RESOURCE ? statusOf(word) : Status.IO_ERROR;
}

/** The status of operations on an established connection that has ended. */
export function endOf(code: number): Status {
  const isSilence = code === Errno.ETIMEDOUT || code === Errno.EHOSTUNREACH || code === Errno.ENETUNREACH;
  return isSilence ? Status.ENDPOINT_TIMEOUT : Status.CONNECTION_RESET;
}

/** The address of the peer of a socket, for logs. */
export function remoteName(fd: number): string {
  try {
    return printAddress(tcpRemoteAddress(fd));
  } catch {
    return 'a peer that has gone';
  }
}
