/**
 * The sleep of those who wait for the transfers of one device: one promise and one timer for all of them. It does not know what wakes it.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';

/** A sleep that can be shared. */
export class DmaSleep {
  readonly #clock: Clock;
  #promise: Promise<void> | undefined = undefined;
  #resolve: (() => void) | undefined = undefined;
  #timer: Timer | undefined = undefined;
  #deadlineNs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** What is left of the sleep, in nanoseconds; 0 without sleepers. */
  get leftNs(): number {
    return this.#promise === undefined ? 0 : Math.max(1, this.#deadlineNs - this.#clock.nowNs());
  }

  /**
   * Sleeps until {@link wake} or until `timeoutNs` is over. Who comes while others sleep joins them: all wake together, at the
   * earliest of their times. Keeps the process alive meanwhile.
   */
  sleep(timeoutNs: number): Promise<void> {
    const deadlineNs = this.#clock.nowNs() + timeoutNs;
    if (this.#promise !== undefined && deadlineNs >= this.#deadlineNs) return this.#promise;
    this.#timer?.cancel();
    this.#deadlineNs = deadlineNs;
    this.#timer = this.#clock.setTimer(timeoutNs, () => this.wake());
    this.#timer.ref();
    this.#promise ??= new Promise((resolve) => {
      this.#resolve = resolve;
    });
    return this.#promise;
  }

  /** Ends the sleep of all. Without effect if there are no sleepers. */
  wake(): void {
    if (this.#promise === undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#promise = undefined;
    this.#resolve?.();
    this.#resolve = undefined;
  }
}
