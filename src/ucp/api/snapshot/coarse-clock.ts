/**
 * The coarse time for requests: milliseconds, as of the last reading of the clock of the context. Workers read that clock every few hundred calls of
 * progress, and at the first request after they have slept.
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

  /** Reads the clock of the context. */
  look(): void {
    this.#nowMs = Math.floor(this.#clock.nowNs() / NS_PER_MS) - this.#originMs;
    this.#isStale = false;
  }

  /** Called when the worker sleeps: the next access reads the clock of the context. */
  expire(): void {
    this.#isStale = true;
  }
}
