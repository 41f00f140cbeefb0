/**
 * The shared sleep of all callers that wait for transfers of one device: one promise and one timer. Its users decide when to wake it.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';

/** A shared sleep. */
export class DmaSleep {
  readonly #clock: Clock;
  #promise: Promise<void> | undefined = undefined;
  #resolve: (() => void) | undefined = undefined;
  #timer: Timer | undefined = undefined;
  #deadlineNs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Remaining time of the sleep in nanoseconds; 0 without sleepers. */
  get leftNs(): number {
    return this.#promise === undefined ? 0 : Math.max(1, this.#deadlineNs - this.#clock.nowNs());
  }

  /**
   * Sleeps until {@link wake} or for `timeoutNs`. Later callers join the sleep: all wake together, at the
   * earliest of their deadlines. Keeps the process alive meanwhile.
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

  /** Ends the sleep for all callers. Without effect if there are no sleepers. */
  wake(): void {
    if (this.#promise === undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#promise = undefined;
    this.#resolve?.();
    this.#resolve = undefined;
  }
}
