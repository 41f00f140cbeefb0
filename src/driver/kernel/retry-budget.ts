/**
 * How often one ioctl is made again after a signal (EINTR) or a refusal for now (EAGAIN). Counts only: the caller waits and calls.
 * hl-thunk retries both for ever; a bound keeps a driver that never recovers from hanging the process.
 */

import { Errno } from '../../sys/index.ts';

/** Retries after a signal; a profiler sends one each millisecond. */
export const EINTR_RETRIES_MAX = 100;

/** Retries after EAGAIN, each after a yield; then the caller gets EAGAIN and may do something else meanwhile. */
export const EAGAIN_RETRIES_MAX = 64;

/** The retries that one call has left. */
export class RetryBudget {
  #interrupted = 0;
  #refused = 0;

  /** Whether a call with this result is to be made again; counts it. */
  allows(result: number): boolean {
    if (result === -Errno.EINTR) return ++this.#interrupted <= EINTR_RETRIES_MAX;
    return result === -Errno.EAGAIN && ++this.#refused <= EAGAIN_RETRIES_MAX;
  }
}
