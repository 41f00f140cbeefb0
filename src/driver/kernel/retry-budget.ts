/**
 * Limits of the retries of one ioctl after a signal (EINTR) or a transient rejection (EAGAIN). Counts only: the caller waits and calls.
 * hl-thunk retries both endlessly; a limit prevents a driver that never recovers from hanging the process.
 */

import { Errno } from '../../sys/index.ts';

/** Maximum number of retries after a signal; a profiler sends one each millisecond. */
export const EINTR_RETRIES_MAX = 100;

/** Maximum number of retries after EAGAIN, each after a yield; then EAGAIN is returned to the caller, which can do other work meanwhile. */
export const EAGAIN_RETRIES_MAX = 64;

/** The remaining retries of one call. */
export class RetryBudget {
  #interrupted = 0;
  #refused = 0;

  /** Whether a call with this result has to be repeated; counts it. */
  allows(result: number): boolean {
    if (result === -Errno.EINTR) return ++this.#interrupted <= EINTR_RETRIES_MAX;
    return result === -Errno.EAGAIN && ++this.#refused <= EAGAIN_RETRIES_MAX;
  }
}
