/** The time limit of connecting, which does not count pauses of this process: it has not read what the peer has sent meanwhile. It measures no time. */

/** A time limit passes in at least so many polls. */
export const POLLS_MIN = 8;

/**
 * A time limit, later if it is over because the program has not polled.
 * @param pauseNs time since the last poll was due, less the part of the limit that may pass between two polls (1 / {@link POLLS_MIN})
 * @param timeoutNs the whole limit: the new one is at most so far from now
 */
export function extended(deadlineNs: number, nowNs: number, pauseNs: number, timeoutNs: number): number {
  return deadlineNs > nowNs ? deadlineNs : Math.min(deadlineNs + pauseNs, nowNs + timeoutNs);
}
