/**
 * Automatic progress of a worker: bounded turns of the event loop while there is work, and a sleep on the events of the transports otherwise. It does not
 * keep the process alive; awaited operations do.
 */

import { MessageChannel, type MessagePort } from 'node:worker_threads';
import type { Clock } from '../../ucs/sys/clock.ts';
import { cancelTurn, inNextTurn } from '../../ucs/sys/next-turn.ts';
import { type Progressable, progressInBackground } from './progressable.ts';

/** Maximum time of one turn, after which the event loop runs. */
const TURN_NS_MAX = 1e6;
/** Consecutive turns with work that may keep the process alive. */
const KEPT_TURNS_MAX = 64;

/** The automatic progress of one worker. */
export class AutomaticProgress {
  readonly #worker: Progressable;
  readonly #clock: Clock;
  readonly #spinNs: number;
  /** Whether awaited operations drive progress; {@link look} is called when they have ended. */
  readonly #isDriven: () => boolean;
  #begun = false;
  #turn: NodeJS.Immediate | undefined = undefined;
  #isScheduled = false;
  #closed = false;
  /** Turns with work since the last sleep. */
  #turns = 0;
  #channel: MessageChannel | undefined = undefined;
  #seenCalls = 0;
  #lastWorkNs = 0;
  readonly #onTurn = (): void => this.#run();
  /** Passed to every sleep. */
  readonly #onEvent = (): void => this.look();

  /** @param spinNs time without work before sleeping */
  constructor(worker: Progressable, clock: Clock, spinNs: number, isDriven: () => boolean) {
    this.#worker = worker;
    this.#clock = clock;
    this.#spinNs = spinNs;
    this.#isDriven = isDriven;
  }

  /** Starts automatic progress, because there may be work from now on. Cheap, and without effect in a loop that does not return to the event loop. */
  begin(): void {
    this.#begun = !this.#closed;
    this.look();
  }

  /** Makes progress in the next turn of the event loop, if it has begun. */
  look(): void {
    if (!this.#begun || this.#isScheduled) return;
    this.#isScheduled = true;
    // An immediate that does not keep the process alive would not run while the event loop is idle.
    if (this.#turns < KEPT_TURNS_MAX) this.#turn = inNextTurn(this.#onTurn);
    else this.#freePort().postMessage(undefined);
  }

  /** Stops permanently; a pending sleep has no effect any more. */
  close(): void {
    this.#closed = true;
    this.#begun = false;
    cancelTurn(this.#turn);
    this.#channel?.port1.close();
    this.#channel = undefined;
  }

  /** A message port whose messages schedule turns without keeping the process alive. */
  #freePort(): MessagePort {
    if (this.#channel === undefined) {
      this.#channel = new MessageChannel();
      this.#channel.port2.on('message', this.#onTurn);
      this.#channel.port2.unref();
    }
    return this.#channel.port1;
  }

  #run(): void {
    this.#isScheduled = false;
    if (!this.#begun || this.#isDriven()) return;
    // A program that polls, and lets the event loop run in between, stays in control.
    const isPolled = this.#worker.progressCalls !== this.#seenCalls;
    const nowNs = this.#clock.nowNs();
    if (!isPolled && this.#makeProgress(nowNs)) {
      this.#turns += 1;
      this.#lastWorkNs = this.#clock.nowNs();
    }
    this.#seenCalls = this.#worker.progressCalls;
    if (isPolled || nowNs - this.#lastWorkNs < this.#spinNs) this.look();
    else if (this.#begun) {
      this.#turns = 0;
      this.#worker.sleepOn(this.#onEvent);
    }
  }

  /** Makes progress until there is nothing to do, within the time of a turn; true if there was something to do. */
  #makeProgress(nowNs: number): boolean {
    const deadlineNs = nowNs + TURN_NS_MAX;
    let isWork = false;
    while (this.#begun && progressInBackground(this.#worker) > 0) {
      isWork = true;
      if (this.#clock.nowNs() >= deadlineNs) break;
    }
    if (isWork) this.#worker.signal();
    return isWork;
  }
}
