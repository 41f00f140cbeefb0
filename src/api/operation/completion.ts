/** Operations that consist of several transfers: the count of pending ones, as a completion of transports. */

import { Status } from '../../ucs/type/status.ts';
import type { Completion } from '../../uct/api/iface.ts';

/** For operations that have ended when their call returns: never called. */
export const ENDED_IN_CALL: Completion = { count: 1, failure: Status.OK, onComplete: () => undefined };

/** Ends with the last of its transfers, and with the first failure. */
export abstract class CountedCompletion implements Completion {
  /** Number of pending transfers, and the first failure: see Completion. */
  count = 0;
  failure: Status = Status.OK;

  /** Called when the count has reached 0. */
  abstract onComplete(): void;

  /** Called when a transfer has ended; see `count`. */
  complete(status: Status): void {
    if (status < 0 && this.failure === Status.OK) this.failure = status;
    this.count -= 1;
    if (this.count === 0) this.onComplete();
  }
}

/**
 * The transfers of one operation or copy. One count belongs to the loop that starts them, which ends with `complete(Status.OK)`, so that transfers that end
 * in their call do not end the operation early.
 */
export class Parts extends CountedCompletion {
  override count = 1;
  readonly #done: (status: Status, error?: unknown) => void;
  #error: unknown;

  constructor(done: (status: Status, error?: unknown) => void) {
    super();
    this.#done = done;
  }

  /** Counts one more transfer. @returns the function to call when it ends */
  add(): (status: Status, error?: unknown) => void {
    this.count += 1;
    return (status, error) => {
      if (status < 0 && this.failure === Status.OK) this.#error = error;
      this.complete(status);
    };
  }

  onComplete(): void {
    this.#done(this.failure, this.#error);
  }
}
