/** The event of a worker: wait() resolves with it, and it makes the event descriptor readable. */

import type { Clock } from '../../ucs/sys/clock.ts';
import { throwIfAborted } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { addAbortListener } from '../contract/listener.ts';
import { SLEEP_NS_MAX } from './progress-driver.ts';
import type { Progressable } from './progressable.ts';

/** An eventfd. A parameter, because protocols make no system calls. */
export interface SignalFd {
  readonly fd: number;
  signal(): void;
  /** Makes the descriptor unreadable. @returns the number of previous signals */
  tryRead(): number;
  close(): void;
}

/** The event of one worker. */
export class WorkerEvent {
  readonly #worker: Progressable;
  readonly #clock: Clock;
  readonly #newSignal: () => SignalFd;
  readonly #waiters: Set<() => void> = new Set();
  /** Passed to every sleep. */
  readonly #onEvent = (): void => this.signal();
  #signal: SignalFd | undefined;
  #armed = false;

  /** @param newSignal creates the descriptor, at its first use */
  constructor(worker: Progressable, clock: Clock, newSignal: () => SignalFd) {
    this.#worker = worker;
    this.#clock = clock;
    this.#newSignal = newSignal;
  }

  get fd(): number {
    this.#signal ??= this.#newSignal();
    return this.#signal.fd;
  }

  /** See Worker.wait. */
  async wait(signal: AbortSignal | undefined): Promise<void> {
    throwIfAborted(signal);
    let listener: Disposable | undefined;
    await new Promise<void>((resolve) => {
      const wake = (): void => {
        this.#waiters.delete(wake);
        alive.cancel();
        resolve();
      };
      // Transports do not keep the process alive; a program that awaits an event must.
      const alive = this.#clock.setTimer(SLEEP_NS_MAX, wake);
      alive.ref();
      this.#waiters.add(wake);
      if (signal !== undefined) listener = addAbortListener(signal, wake);
      this.#worker.sleepOn(this.#onEvent);
    });
    listener?.[Symbol.dispose]();
    throwIfAborted(signal);
  }

  /** See Worker.arm. */
  arm(): Status {
    this.#signal ??= this.#newSignal();
    // Before the check for events: a loop that polls the descriptor sleeps until the next event.
    this.#signal.tryRead();
    // Armed again, because operations may have been started meanwhile.
    this.#armed = true;
    this.#worker.sleepOn(this.#onEvent);
    return Status.OK;
  }

  /** Called when an operation was started, because its end must wake waiters too. */
  started(): void {
    if (this.#waiters.size > 0) this.#worker.sleepOn(this.#onEvent);
  }

  signal(): void {
    if (this.#armed) {
      this.#armed = false;
      this.#signal?.signal();
    }
    for (const wake of [...this.#waiters]) wake();
  }

  close(): void {
    this.#armed = false;
    this.#signal?.close();
    this.#signal = undefined;
  }
}
