/**
 * The timers of an emulated RDMA device. A real device counts time by itself; therefore timers also end when the program polls: it may never return to the
 * event loop.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';

/** A timer that has not ended. */
interface Pending {
  readonly dueNs: number;
  readonly timer: Timer;
  readonly onDue: () => void;
}

/** The timers. */
export class DeviceTimers {
  readonly #clock: Clock;
  readonly #pending: Set<Pending> = new Set();
  /** No timer ends before this time. */
  #nextNs = Number.POSITIVE_INFINITY;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Calls `onDue` once, after this time. */
  set(delayNs: number, onDue: () => void): Pick<Timer, 'cancel'> {
    const dueNs = this.#clock.nowNs() + delayNs;
    const timer = this.#clock.setTimer(delayNs, () => this.#end(pending));
    const pending: Pending = { dueNs, timer, onDue };
    this.#pending.add(pending);
    this.#nextNs = Math.min(this.#nextNs, dueNs);
    return {
      cancel: () => {
        if (this.#pending.delete(pending)) timer.cancel();
      },
    };
  }

  /** Ends the timers whose time has come. */
  progress(): void {
    if (this.#pending.size === 0) return;
    const nowNs = this.#clock.nowNs();
    if (nowNs < this.#nextNs) return;
    for (const pending of [...this.#pending].filter(({ dueNs }) => dueNs <= nowNs)) this.#end(pending);
    this.#nextNs = Number.POSITIVE_INFINITY;
    for (const { dueNs } of this.#pending) this.#nextNs = Math.min(this.#nextNs, dueNs);
  }

  #end(pending: Pending): void {
    if (!this.#pending.delete(pending)) return;
    pending.timer.cancel();
    pending.onDue();
  }
}
