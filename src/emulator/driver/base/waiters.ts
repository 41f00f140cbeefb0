/**
 * Waits for progress of a card or for one of its interrupts: blocking, like a system call, or by a promise that the event loop resolves. The callers check
 * their conditions.
 */

import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import type { DmaEngines } from '../../device/engine/dma-engines.ts';

/** Number of rounds of a blocking wait before it pauses between rounds, and the pause. */
const SPIN_ROUNDS = 256;
const PAUSE_MS = 0.05;
/** A word that never changes, for pauses by Atomics.wait. */
const pause: Int32Array<SharedArrayBuffer> = new Int32Array(new SharedArrayBuffer(4));

/** Selects a wait for progress. */
export const NO_INTERRUPT = -1;

/** A registration for the next progress or interrupt. */
export class ProgressTicket {
  /** Resolves after the next progress of the node, the interrupt, or the time-out. */
  readonly progress: Promise<void>;
  readonly #finish: () => void;

  constructor(progress: Promise<void>, finish: () => void) {
    this.progress = progress;
    this.#finish = finish;
  }

  cancel(): void {
    this.#finish();
  }
}

export class Waiters {
  readonly #engines: DmaEngines;
  readonly #clock: Clock;
  readonly #pump: () => void;
  readonly #waiting: Set<() => void> = new Set();
  /** Waiters by interrupt (wait_list_head of struct hl_user_interrupt). */
  readonly #lists: Map<number, Set<() => void>> = new Map();

  /** @param pump runs everything that can run */
  constructor(engines: DmaEngines, clock: Clock, pump: () => void) {
    this.#engines = engines;
    this.#clock = clock;
    this.#pump = pump;
  }

  get any(): boolean {
    return this.#waiting.size > 0 || this.#lists.size > 0;
  }

  /**
   * Blocks the thread until `done` returns true or the time-out, and pumps the card meanwhile.
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
      // Without engine threads, the wait above returns at once: a hung queue must not occupy a processor until its time-out.
      if (round >= SPIN_ROUNDS) Atomics.wait(pause, 0, 0, PAUSE_MS);
    }
  }

  /**
   * Registers for the next progress, with a time-out of `timeoutNs`. Keeps the process alive meanwhile.
   * @param interrupt if given, the ticket resolves at this interrupt instead of at progress
   */
  take(timeoutNs: number, interrupt: number = NO_INTERRUPT): ProgressTicket {
    let resolve: () => void = () => {};
    const progress = new Promise<void>((settle) => {
      resolve = settle;
    });
    const timer: Timer = this.#clock.setTimer(timeoutNs, () => finish());
    timer.ref();
    const finish = (): void => {
      timer.cancel();
      this.#remove(interrupt, finish);
      resolve();
    };
    this.#add(interrupt, finish);
    this.#engines.requestProgressEvent();
    return new ProgressTicket(progress, finish);
  }

  /** Wakes the waiters for progress, such as completed descriptors or a resumed queue. Waiters for interrupts keep sleeping. */
  wake(): void {
    for (const finish of [...this.#waiting]) finish();
    // The card may raise the interrupt after the next descriptor.
    if (this.#lists.size > 0) this.#engines.requestProgressEvent();
  }

  /** Wakes the waiters for an interrupt. */
  wakeInterrupt(interrupt: number): void {
    const list = this.#lists.get(interrupt);
    if (list !== undefined) for (const finish of [...list]) finish();
  }

  /** Wakes all waiters after a change of the status. */
  wakeAll(): void {
    for (const list of [...this.#lists.values()]) for (const finish of [...list]) finish();
    this.wake();
  }

  #add(interrupt: number, finish: () => void): void {
    if (interrupt === NO_INTERRUPT) {
      this.#waiting.add(finish);
      return;
    }
    let list = this.#lists.get(interrupt);
    if (list === undefined) {
      list = new Set();
      this.#lists.set(interrupt, list);
    }
    list.add(finish);
  }

  #remove(interrupt: number, finish: () => void): void {
    if (interrupt === NO_INTERRUPT) {
      this.#waiting.delete(finish);
      return;
    }
    const list = this.#lists.get(interrupt);
    if (list?.delete(finish) === true && list.size === 0) this.#lists.delete(interrupt);
  }
}
