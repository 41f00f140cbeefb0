/**
 * Liveness of the peer of a connection: its process by its frames, its host by the TCP acknowledgements that the kernel receives. Also the name of the peer
 * for logs, and the statuses that it may send.
 */

import { Errno, printAddress, tcpAckedMs, tcpRemoteAddress, tcpUnreadBytes } from '../../../sys/index.ts';
import { Status, statusOf } from '../../../ucs/type/status.ts';

/** Number of heartbeat intervals without a heartbeat after which the peer counts as failed. A heartbeat may be late or lost. */
export const INTERVALS = 3;

export class Liveness {
  /** Interval of the peer's heartbeats; 0 until the first. */
  heartbeatMs = 0;
  /** Time since which the peer's host has had data to acknowledge. */
  #askedMs = 0;
  /** Number of signs of life at the last check, and when it was found to have changed. */
  #signs = 0;
  #seenMs = 0;

  /** Call before sending data that the peer's host must acknowledge. */
  ask(fd: number, nowMs: number): void {
    // Without unacknowledged data the time starts now, because this process may have slept since the last heartbeat.
    if (tcpAckedMs(fd) === 0) this.#askedMs = nowMs;
  }

  /** Records what has been received; call it periodically. @param signs see Receiver.signsOfLife */
  look(signs: number, nowMs: number): void {
    if (signs === this.#signs) return;
    this.#signs = signs;
    this.#seenMs = nowMs;
  }

  /** Time in milliseconds without a sign of life, if it is too long; 0 while the peer works. Call {@link look} before. */
  silenceMs(fd: number, nowMs: number, peerTimeoutMs: number): number {
    const processMs = Math.max(peerTimeoutMs, this.heartbeatMs * INTERVALS);
    // Unread data is not silence of the peer: this process has not read it.
    if (this.heartbeatMs > 0 && nowMs - this.#seenMs > processMs && tcpUnreadBytes(fd) === 0) return processMs;
    return tcpAckedMs(fd) > peerTimeoutMs && nowMs - this.#askedMs > peerTimeoutMs ? peerTimeoutMs : 0;
  }
}

const FAILURES: ReadonlySet<number> = new Set(Object.values(Status).filter((value) => value < 0));

/** The failure in a word of a peer; IO_ERROR for an unknown status, or for one that would cause a retry. */
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
    return 'a disconnected peer';
  }
}
