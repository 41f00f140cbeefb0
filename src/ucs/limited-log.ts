/** Warnings that a peer can cause: some in a while, then only their number, so that nobody can fill a disk from outside. */

import type { Clock } from './clock.ts';
import type { Log } from './log.ts';

/** Warnings within {@link WINDOW_NS}; more are counted. */
export const WARNINGS_MAX = 10;
/** The while. */
export const WINDOW_NS = 10e9;

/** A log with a limit. */
export class LimitedLog {
  readonly #log: Log;
  readonly #clock: Clock;
  #windowNs = Number.NEGATIVE_INFINITY;
  #written = 0;
  #left = 0;

  constructor(log: Log, clock: Clock) {
    this.#log = log;
    this.#clock = clock;
  }

  warn(message: string): void {
    const nowNs = this.#clock.nowNs();
    if (nowNs - this.#windowNs >= WINDOW_NS) {
      this.tellLeft();
      this.#windowNs = nowNs;
      this.#written = 0;
    }
    if (this.#written < WARNINGS_MAX) {
      this.#written += 1;
      this.#log.warn(message);
    } else {
      this.#left += 1;
    }
  }

  /** What is of no concern unless somebody looks for it. */
  diag(message: string): void {
    this.#log.diag(message);
  }

  /** Says how many warnings were left out, if any were. */
  tellLeft(): void {
    if (this.#left > 0) this.#log.warn(`${this.#left} more warnings about peers were left out`);
    this.#left = 0;
  }
}
