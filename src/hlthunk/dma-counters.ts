/** What one DMA queue has done since it was opened: numbers only. */

import { Status } from '../ucs/status.ts';

/** The counters of a queue, under the names that statistics show. */
export interface DmaCounts {
  /** Transfers that have ended well, and their bytes. */
  readonly operations: number;
  readonly bytes: number;
  /** Transfers that have ended with a failure. */
  readonly errors: number;
  /** Command submissions. */
  readonly submissions: number;
  /** Command submissions that the card has not finished: a level. */
  readonly in_flight: number;
}

const OPERATIONS = 0;
const BYTES = 1;
const ERRORS = 2;
const SUBMISSIONS = 3;

/** Counts. The values lie in an array of Numbers, so that counting never allocates. */
export class DmaCounters {
  readonly #values: Float64Array = new Float64Array(4);

  /** A transfer has ended. */
  ended(status: Status, byteLength: number): void {
    if (status === Status.OK) {
      this.#values[OPERATIONS]! += 1;
      this.#values[BYTES]! += byteLength;
    } else {
      this.#values[ERRORS]! += 1;
    }
  }

  /** A command submission has been taken. */
  submitted(): void {
    this.#values[SUBMISSIONS]! += 1;
  }

  /** The counters, beside the submissions that are in flight now. */
  read(inFlight: number): DmaCounts {
    return {
      operations: this.#values[OPERATIONS]!,
      bytes: this.#values[BYTES]!,
      errors: this.#values[ERRORS]!,
      submissions: this.#values[SUBMISSIONS]!,
      in_flight: inFlight,
    };
  }
}
