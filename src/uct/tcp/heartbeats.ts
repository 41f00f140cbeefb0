/** Regular times at which an interface tells its peers that its process lives, from the event loop, whether the program makes progress or not. */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';

/** The times. */
export class Heartbeats {
  readonly #clock: Clock;
  readonly #intervalNs: number;
  readonly #onTime: () => boolean;
  #timer: Timer | undefined = undefined;
  #closed = false;

  /** @param onTime returns whether there will be a peer to tell the next time */
  constructor(clock: Clock, intervalNs: number, onTime: () => boolean) {
    this.#clock = clock;
    this.#intervalNs = intervalNs;
    this.#onTime = onTime;
  }

  /** There is a peer to tell. */
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
