/**
 * Waiting for progress of a card: blocking, as a system call does, or by a promise that the event loop resolves.
 * The conditions are those of its callers.
 */

import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import type { DmaEngines } from '../../device/dma-engines.ts';

/** Rounds of a blocking wait before it pauses between rounds, and the pause. */
const SPIN_ROUNDS = 256;
const PAUSE_MS = 0.05;
/** A word that never changes: waiting for it is a pause. */
const pause: Int32Array<SharedArrayBuffer> = new Int32Array(new SharedArrayBuffer(4));

/** A registration for the next progress. */
export interface ProgressTicket {
  /** Resolves after the next progress of the node, or on time-out. */
  readonly progress: Promise<void>;
  /** Cancels the registration. */
  cancel(): void;
}

/** The waiters for one card. */
export class Waiters {
  readonly #engines: DmaEngines;
  readonly #clock: Clock;
  readonly #pump: () => void;
  readonly #waiting: Set<() => void> = new Set();

  /** @param pump runs everything that can run */
  constructor(engines: DmaEngines, clock: Clock, pump: () => void) {
    this.#engines = engines;
    this.#clock = clock;
    this.#pump = pump;
  }

  get count(): number {
    return this.#waiting.size;
  }

  /**
   * Blocks the thread until `done` or time-out. Runs what can run meanwhile.
   * @returns the last result of `done`
   */
  block(timeoutNs: number, done: () => boolean): boolean {
    const deadline = this.#clock.nowNs() + timeoutNs;
    const look = (): boolean => {
      this.#pump();
      return done();
    };
    for (let round = 0; ; round++) {
      if (look()) return true;
      const remaining = deadline - this.#clock.nowNs();
      if (remaining <= 0) return false;
      this.#engines.waitProgress(remaining, look);
      // Without engine threads the wait above returns at once: a hung queue must not use a processor until its time-out.
      if (round >= SPIN_ROUNDS) Atomics.wait(pause, 0, 0, PAUSE_MS);
    }
  }

  /** Returns a ticket that resolves at the next progress, or after `timeoutNs`. Keeps the process alive meanwhile. */
  take(timeoutNs: number): ProgressTicket {
    let resolve: () => void = () => {};
    const progress = new Promise<void>((settle) => {
      resolve = settle;
    });
    const timer: Timer = this.#clock.setTimer(timeoutNs, () => finish());
    timer.ref();
    const finish = (): void => {
      timer.cancel();
      this.#waiting.delete(finish);
      resolve();
    };
    this.#waiting.add(finish);
    this.#engines.requestProgressEvent();
    return { progress, cancel: finish };
  }

  /** Wakes all waiters after an event: descriptors done, status changed, an interrupt. */
  wake(): void {
    for (const finish of [...this.#waiting]) finish();
  }
}
