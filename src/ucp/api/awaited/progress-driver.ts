/**
 * Drives the progress of a worker while its operations are awaited: polls for a short time, then sleeps on the events of the
 * transports. It knows nothing of requests; a worker without awaited operations is left alone and uses no CPU.
 */

import { addAbortListener } from 'node:events';
import { setImmediate as nextTurn } from 'node:timers/promises';
import { throwLater } from '../../../ucs/debug/uncaught.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';

/** Polls of one turn at most, whatever the clock says. */
const POLLS_MAX = 10_000;
/** Time after which the event loop gets its turn, so that timers and signals are not starved. */
const TURN_NS = 1e6;

/** Longest sleep without a look at the world: bounds the cost of an event that never comes. */
export const SLEEP_NS_MAX = 1e9;

/** What can be slept on. */
export interface Sleeper {
  /**
   * Calls `wake`, once or more often, when there may be something to do: an operation has ended, or a message has arrived.
   * @param wake kept until then, once: a sleeper always gives the same function
   */
  sleepOn(wake: () => void): void;
}

/** What is driven. */
export interface Progressable extends Sleeper {
  progress(): number;
}

/** The driver of one worker. */
export class ProgressDriver {
  readonly #worker: Progressable;
  readonly #clock: Clock;
  readonly #spinNs: number;
  /** Awaited operations. */
  #awaited = 0;
  #driving = false;
  #lastTurnNs: number;
  /** Each ends one of the sleeps at hand: that of the driver, or of an operation that waits for a request. */
  readonly #wakers: Set<() => void> = new Set();
  /** Given to every sleep. */
  readonly #onEvent = (): void => this.wake();
  /** Ends the calls of {@link serve} that go on. */
  readonly #serving: Set<() => void> = new Set();

  /** @param spinNs time to poll before sleeping */
  constructor(worker: Progressable, clock: Clock, spinNs: number) {
    this.#worker = worker;
    this.#clock = clock;
    this.#spinNs = spinNs;
    this.#lastTurnNs = clock.nowNs();
  }

  /** Somebody awaits one more operation: progress is driven until as many {@link end} calls have come. */
  begin(): void {
    this.#awaited += 1;
    // A sleep that began before does not watch the transport of this operation.
    this.wake();
    if (!this.#driving) void this.#drive();
  }

  end(): void {
    this.#awaited -= 1;
    // Nobody may be left to wait for: the sleep must not hold the process until its end.
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

  /** Ends the sleeps at hand: there is something to do that no transport tells of, or on a transport that is not slept on. */
  wake(): void {
    if (this.#wakers.size === 0) return;
    for (const wake of [...this.#wakers]) wake();
  }

  /** One turn: polls for the spin time, then sleeps until a transport has something new. */
  async step(): Promise<void> {
    if (!this.#poll()) await this.sleep();
    await this.breathe();
  }

  /** Lets other promises run, and from time to time the whole event loop. */
  async breathe(): Promise<void> {
    if (this.#clock.nowNs() - this.#lastTurnNs < TURN_NS) return;
    await nextTurn();
    this.#lastTurnNs = this.#clock.nowNs();
  }

  /** Sleeps until a transport may have something new, or {@link wake} is called. */
  sleep(): Promise<void> {
    return new Promise((resolve) => {
      const wake = (): void => {
        this.#wakers.delete(wake);
        alive.cancel();
        resolve();
      };
      // Transports let the process end; a program that awaits an operation does not want it to.
      const alive = this.#clock.setTimer(SLEEP_NS_MAX, wake);
      alive.ref();
      this.#wakers.add(wake);
      this.#worker.sleepOn(this.#onEvent);
    });
  }

  async #drive(): Promise<void> {
    this.#driving = true;
    while (this.#awaited > 0) {
      try {
        await this.step();
      } catch (error) {
        // Thrown by a callback of the application: an uncaught exception, as from every other callback. Others are driven on.
        throwLater(error);
      }
    }
    this.#driving = false;
  }

  /** Polls until there is progress or the spin time is over; true for progress. */
  #poll(): boolean {
    const deadline = this.#clock.nowNs() + this.#spinNs;
    for (let polls = 0; polls < POLLS_MAX; polls++) {
      if (this.#worker.progress() > 0) return true;
      if (this.#clock.nowNs() >= deadline) return false;
    }
    return false;
  }
}
