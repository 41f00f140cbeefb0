/** Operations that consist of parts: the count of pending parts, as a completion of transports. */

import { Status } from '../../ucs/type/status.ts';
import type { Completion } from '../../uct/api/iface.ts';

/** For operations that have ended when their call returns: it is never called. */
export const ENDED_IN_CALL: Completion = { count: 1, failure: Status.OK, onComplete: () => undefined };

/** Ends with the last of its parts, and with the first failure. */
export abstract class CountedCompletion implements Completion {
  /** Parts that have not ended, and their first failure: see Completion. */
  count = 0;
  failure: Status = Status.OK;

  /** Called when the count has reached 0. */
  abstract onComplete(): void;

  /** One of the parts has ended; see `count`. */
  complete(status: Status): void {
    if (status < 0 && this.failure === Status.OK) this.failure = status;
    this.count -= 1;
    if (this.count === 0) this.onComplete();
  }
}

/**
 * The parts of one transfer or copy. One count is for the loop that starts the parts, which ends with `complete(Status.OK)`: parts that end at once do not end the
 * operation early.
 */
export class Parts extends CountedCompletion {
  override count = 1;
  readonly #done: (status: Status, error?: unknown) => void;
  #error: unknown;

  constructor(done: (status: Status, error?: unknown) => void) {
    super();
    this.#done = done;
  }

  /** Counts one more part. @returns the function to call when it ends */
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
