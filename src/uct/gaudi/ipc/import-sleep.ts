/**
 * One sleep of somebody who waits for remote memory: ends when something has arrived, when its time is over, or when it is given up.
 */

import type { Clock, Timer } from '../../../ucs/clock.ts';

/** A sleep. Keeps the process alive until it ends. */
export class ImportSleep {
  /** Resolves at the end. */
  readonly ended: Promise<void>;
  readonly #onEnd: () => void;
  #resolve: () => void = () => {};
  #timer: Timer | undefined = undefined;

  constructor(onEnd: () => void) {
    this.#onEnd = onEnd;
    this.ended = new Promise((resolve) => {
      this.#resolve = resolve;
    });
  }

  /** Begins, for `timeoutNs` at most. */
  start(clock: Clock, timeoutNs: number): void {
    this.#timer = clock.setTimer(timeoutNs, () => this.end());
    this.#timer.ref();
  }

  /** Idempotent. */
  end(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#onEnd();
    this.#resolve();
  }
}
