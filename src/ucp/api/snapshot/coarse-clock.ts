/**
 * A time for requests that is read from a field: milliseconds as of the last look at the clock of the context. Workers look every few hundred calls of progress, and
 * at the first request after they have slept.
 */

import type { Clock } from '../../../ucs/sys/clock.ts';

const NS_PER_MS = 1e6;

/** The time of one worker. */
export class CoarseClock {
  readonly #clock: Clock;
  readonly #originMs: number;
  #nowMs = 0;
  #isStale = false;

  constructor(clock: Clock) {
    this.#clock = clock;
    this.#originMs = Math.floor(clock.nowNs() / NS_PER_MS);
  }

  /** Whole milliseconds since the worker was created. */
  get nowMs(): number {
    if (this.#isStale) this.look();
    return this.#nowMs;
  }

  /** Looks at the clock. */
  look(): void {
    this.#nowMs = Math.floor(this.#clock.nowNs() / NS_PER_MS) - this.#originMs;
    this.#isStale = false;
  }

  /** The worker sleeps: the next reader looks at the clock. */
  expire(): void {
    this.#isStale = true;
  }
}
