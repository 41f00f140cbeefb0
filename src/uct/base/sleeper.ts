/** The shared sleep of all callers that wait for one interface: one promise and one timer. Its user wakes it. */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** @throws UcxError ERR_INVALID_PARAM if it is not a valid time-out */
export function checkTimeout(timeoutNs: number): void {
  if (Number.isFinite(timeoutNs) && timeoutNs >= 0) return;
  throw invalidParam('timeoutNs', 'must be finite and not negative', timeoutNs);
}

/** A sleep that several callers share. */
export class Sleeper {
  readonly #clock: Clock;
  readonly #onEnd: () => void;
  #promise: Promise<void> | undefined;
  #resolve: () => void = () => undefined;
  #timer: Timer | undefined;
  #deadlineNs = 0;

  /** @param onEnd called at the end of a sleep, before the callers continue */
  constructor(clock: Clock, onEnd: () => void) {
    this.#clock = clock;
    this.#onEnd = onEnd;
  }

  /** Whether a caller sleeps. */
  get sleeping(): boolean {
    return this.#promise !== undefined;
  }

  /** Sleeps until {@link wake}, or until the earliest requested time. The timer does not keep the process running. */
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

  /** Ends the sleep of all callers. */
  wake(): void {
    if (this.#promise === undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#promise = undefined;
    this.#onEnd();
    this.#resolve();
  }
}
