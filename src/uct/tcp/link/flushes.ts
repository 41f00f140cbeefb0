/** Flushes of a connection that wait for earlier puts, gets and messages, in order. */

import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import { completeOne } from '../../base/checks.ts';
import type { OutstandingCounter, PendingOperations } from './pending.ts';

/** A flush. Messages must have been sent. */
interface PendingFlush {
  readonly puts: number;
  readonly gets: number;
  readonly frames: number;
  /** The endpoint that has started it. */
  readonly owner: object;
  readonly completion: Completion;
}

/** The flushes of one connection. */
export class Flushes {
  #pending: PendingFlush[] = [];
  readonly #counter: OutstandingCounter;
  readonly #puts: PendingOperations;
  readonly #gets: PendingOperations;

  constructor(counter: OutstandingCounter, puts: PendingOperations, gets: PendingOperations) {
    this.#counter = counter;
    this.#puts = puts;
    this.#gets = gets;
  }

  get length(): number {
    return this.#pending.length;
  }

  /** Adds a flush of everything before it. @param frames number of frames that were queued before it */
  add(frames: number, completion: Completion, owner: object): void {
    this.#counter.countOutstanding(1);
    this.#pending.push({ puts: this.#puts.sent, gets: this.#gets.sent, frames, owner, completion });
  }

  /** Ends the flushes of an endpoint with CANCELED. */
  cancel(owner: object): void {
    const cancelled = this.#pending.filter((flush) => flush.owner === owner);
    this.#pending = this.#pending.filter((flush) => flush.owner !== owner);
    this.#end(cancelled, Status.CANCELED);
  }

  /** Ends the flushes whose operations have ended. @param released number of frames that were sent */
  settle(released: number): void {
    while (this.#pending.length > 0) {
      const { puts, gets, frames, completion } = this.#pending[0]!;
      if (this.#puts.done < puts || this.#gets.done < gets || released < frames) return;
      this.#pending.shift();
      this.#counter.countOutstanding(-1);
      completeOne(completion, this.#puts.takeFailure());
    }
  }

  /** Ends all flushes with `status`. */
  close(status: Status): void {
    const flushes = this.#pending;
    this.#pending = [];
    this.#end(flushes, status);
  }

  #end(flushes: readonly PendingFlush[], status: Status): void {
    for (const { completion } of flushes) {
      this.#counter.countOutstanding(-1);
      completeOne(completion, status);
    }
  }
}
