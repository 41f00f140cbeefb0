/** A sleep: one promise and one timer, shared by all callers that wait for the same event. */

import type { Clock, Timer } from './clock.ts';

/** Options of a sleep. */
export interface SleeperOptions {
  /** Called at the end of a sleep, before the callers continue. */
  readonly onEnd?: () => void;
  /** Whether a sleep keeps the process alive. Default false. */
  readonly ref?: boolean;
}

export class Sleeper {
  readonly #clock: Clock;
  readonly #onEnd: (() => void) | undefined;
  readonly #ref: boolean;
  #promise: Promise<void> | undefined;
  #resolve: () => void = () => undefined;
  #timer: Timer | undefined;
  #deadlineNs = 0;

  constructor(clock: Clock, { onEnd, ref = false }: SleeperOptions = {}) {
    this.#clock = clock;
    this.#onEnd = onEnd;
    this.#ref = ref;
  }

  /** Whether any caller sleeps. */
  get sleeping(): boolean {
    return this.#promise !== undefined;
  }

  /** Remaining time of the sleep in nanoseconds, at least 1; 0 if no caller sleeps. */
  get leftNs(): number {
    return this.#promise === undefined ? 0 : Math.max(1, this.#deadlineNs - this.#clock.nowNs());
  }

  /** Sleeps until {@link wake}, or until the earliest timeout of all callers: later callers join the sleep, and all wake together. */
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
    if (this.#ref) this.#timer.ref();
    return this.#promise;
  }

  /** Ends the sleep of all callers; no effect if there are none. */
  wake(): void {
    if (this.#promise === undefined) return;
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#promise = undefined;
    this.#onEnd?.();
    this.#resolve();
  }
}
