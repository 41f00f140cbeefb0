/** The time limit of connecting, which does not count pauses of this process: it has not read what the peer has sent meanwhile. It measures no time. */

/** A time limit passes in at least so many polls. */
export const POLLS_MIN = 8;

/**
 * A time limit, later if it is over because the program has not polled.
 * @param pauseNs by how much longer than {@link POLLS_MIN} allows the program has not polled
 * @param timeoutNs maximum time from now
 */
export function extended(deadlineNs: number, nowNs: number, pauseNs: number, timeoutNs: number): number {
  return deadlineNs > nowNs ? deadlineNs : Math.min(deadlineNs + pauseNs, nowNs + timeoutNs);
}
