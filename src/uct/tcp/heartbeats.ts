/** Timer for the heartbeats of an interface. It runs on the event loop, so heartbeats do not depend on progress of the program. */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';

/** The timer. */
export class Heartbeats {
  readonly #clock: Clock;
  readonly #intervalNs: number;
  readonly #onTime: () => boolean;
  #timer: Timer | undefined = undefined;
  #closed = false;

  /** @param onTime sends the heartbeats; returns whether there are peers for the next ones */
  constructor(clock: Clock, intervalNs: number, onTime: () => boolean) {
    this.#clock = clock;
    this.#intervalNs = intervalNs;
    this.#onTime = onTime;
  }

  /** Starts the timer, when there is a peer. Idempotent. */
  start(): void {
    if (this.#timer !== undefined || this.#closed) return;
    this.#timer = this.#clock.setTimer(this.#intervalNs, () => {
      this.#timer = undefined;
      if (this.#onTime()) this.start();
    });
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }
}
