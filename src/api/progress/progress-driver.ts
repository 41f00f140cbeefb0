/**
 * Drives the progress of a worker while its operations are awaited: polls for a short time, then sleeps until an event of the transports. Without
 * awaited operations the program drives the worker, or automatic-progress.ts.
 */

import { throwLater } from '../../ucs/debug/uncaught.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { nextTurn } from '../../ucs/sys/next-turn.ts';
import { addAbortListener } from '../contract/listener.ts';
import { AutomaticProgress } from './automatic-progress.ts';
import { type Progressable, progressInBackground } from './progressable.ts';

/** Maximum number of polls in one step, in case the clock stands still. */
const POLLS_MAX = 10_000;
/** Interval at which the event loop runs, so that timers and signals are not delayed. */
const YIELD_INTERVAL_NS = 1e6;

/** Longest sleep: bounds the delay if an event is lost. */
export const SLEEP_NS_MAX = 1e9;

/** The driver of one worker. */
export class ProgressDriver {
  /** Progress without awaited operations. */
  readonly automatic: AutomaticProgress;
  readonly #worker: Progressable;
  readonly #clock: Clock;
  readonly #spinNs: number;
  /** Awaited operations. */
  #awaited = 0;
  #driving = false;
  #lastYieldNs: number;
  /** Functions that each end one pending sleep. */
  readonly #wakers: Set<() => void> = new Set();
  /** Passed to every sleep. */
  readonly #onEvent = (): void => this.wake();
  /** Errors of callbacks that were not thrown yet. */
  readonly #thrown: unknown[] = [];
  /** Functions that each end one pending {@link serve}. */
  readonly #serving: Set<() => void> = new Set();

  /** @param spinNs time to poll before sleeping */
  constructor(worker: Progressable, clock: Clock, spinNs: number) {
    this.automatic = new AutomaticProgress(worker, clock, spinNs, () => this.#driving);
    this.#worker = worker;
    this.#clock = clock;
    this.#spinNs = spinNs;
    this.#lastYieldNs = clock.nowNs();
  }

  /**
   * Keeps an error thrown by a callback of the application, so that the remaining work of the call is done. The current call of progress throws it, or the
   * next; an error left at the end of the current job of the event loop becomes an uncaught exception.
   */
  onThrown(error: unknown): void {
    this.#thrown.push(error);
    queueMicrotask(this.#throwLeft);
  }

  readonly #throwLeft = (): void => {
    for (const error of this.#thrown.splice(0)) throwLater(error);
  };

  /** Throws the first kept error. */
  throwKept(): void {
    if (this.#thrown.length > 0) throw this.#thrown.shift();
  }

  /** Counts one more awaited operation: progress is driven until {@link end} was called equally often. */
  begin(): void {
    this.#awaited += 1;
    // An earlier sleep does not watch the transport of this operation.
    this.wake();
    if (!this.#driving) void this.#drive();
  }

  end(): void {
    this.#awaited -= 1;
    // Without awaited operations, the sleep must not keep the process alive.
    if (this.#awaited === 0) this.wake();
  }

  /** Drives progress until the signal fires, or {@link endServing}. */
  async serve(signal: AbortSignal): Promise<void> {
    this.begin();
    await new Promise<void>((resolve) => {
      const end = (): void => {
        this.#serving.delete(end);
        listener[Symbol.dispose]();
        resolve();
      };
      const listener = addAbortListener(signal, end);
      this.#serving.add(end);
    });
    this.end();
  }

  /** Ends every {@link serve}. */
  endServing(): void {
    for (const end of this.#serving) end();
  }

  /** Ends pending sleeps, for work that no transport signals, or of a transport that the sleep does not watch. */
  wake(): void {
    this.automatic.look();
    if (this.#wakers.size === 0) return;
    for (const wake of [...this.#wakers]) wake();
  }

  /** Polls for the spin time, then sleeps until an event of a transport. Never fails, and may be called in a callback. */
  async step(): Promise<void> {
    // Continues after the current call of progress has returned.
    if (this.#worker.isInProgress) await undefined;
    if (!this.#poll()) await this.sleep();
    await this.yieldIfDue();
  }

  /** Lets other promises run, and periodically the event loop. */
  async yieldIfDue(): Promise<void> {
    if (this.#clock.nowNs() - this.#lastYieldNs < YIELD_INTERVAL_NS) return;
    await nextTurn();
    this.#lastYieldNs = this.#clock.nowNs();
  }

  /** Sleeps until an event of a transport, or {@link wake}. */
  sleep(): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#wakers.delete(wake);
        alive.cancel();
        resolve();
      };
      // Transports do not keep the process alive; an awaited operation must.
      const alive = this.#clock.setTimer(SLEEP_NS_MAX, wake);
      alive.ref();
      this.#wakers.add(wake);
      this.#worker.sleepOn(this.#onEvent);
    });
  }

  async #drive(): Promise<void> {
    this.#driving = true;
    while (this.#awaited > 0) await this.step();
    this.#driving = false;
    this.automatic.look();
  }

  /** Polls until there is progress or the spin time is over; returns true for progress. */
  #poll(): boolean {
    const deadline = this.#clock.nowNs() + this.#spinNs;
    for (let polls = 0; polls < POLLS_MAX; polls++) {
      if (progressInBackground(this.#worker) > 0) return true;
      if (this.#clock.nowNs() >= deadline) return false;
    }
    return false;
  }
}
