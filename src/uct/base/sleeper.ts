/** The sleep of those who wait for one interface: one promise and one timer for all of them. It does not know what wakes it. */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** @throws UcxError ERR_INVALID_PARAM for what is no time to sleep */
export function checkTimeout(timeoutNs: number): void {
  if (Number.isFinite(timeoutNs) && timeoutNs >= 0) return;
  throw invalidParam('timeoutNs', 'must be finite and not negative', timeoutNs);
}

/** A sleep that can be joined. */
export class Sleeper {
  readonly #clock: Clock;
  readonly #onEnd: () => void;
  #promise: Promise<void> | undefined;
  #resolve: () => void = () => undefined;
  #timer: Timer | undefined;
  #deadlineNs = 0;

  /** @param onEnd called whenever a sleep ends, before those who slept go on */
  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /** Whether a caller sleeps. */
  get sleeping(): boolean {
    return this.#promise !== undefined;
  }

  /** Sleeps until {@link wake}, or until the earliest time that was asked for. The timer does not hold the process open. */
  sleep(timeoutNs: number): Promise<void> {
    const deadlineNs = this.#clock.nowNs() + timeoutNs;
    if (this.#promise === undefined) {
      this.#promise = new Promise((resolve) => {
        this.#resolve = resolve;
      });
    } else if (deadlineNs >= this.#deadlineNs) {
      return this.#promise;
    }
    this.#timer?.cancel();
    this.#deadlineNs = deadlineNs;
    this.#timer = this.#clock.setTimer(timeoutNs, () => this.wake());
    return this.#promise;
  }

  /** Ends the sleep of all. */
  wake(): void {
    if (this.#promise === undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#promise = undefined;
    this.#onEnd();
    this.#resolve();
  }
}
