/**
 * An entry of the pending queue of a connection: a request or a protocol message. The queue is an intrusive list, so its length is unbounded.
 *
 *   FREE --begin()--> STARTED <--push(), shift()--> QUEUED    PendingQueue: it waits for resources, and is restarted from there
 *    ^                   |                            |
 *    |                   '----------- end() ----------'---> ENDED: `status` is final
 *    '---- RequestPool.free() ---------------------------------'
 */

import { CountedCompletion } from '../../api/operation/completion.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** See the diagram above. */
export const RequestState = { FREE: 0, STARTED: 1, QUEUED: 2, ENDED: 3 } as const;
export type RequestState = (typeof RequestState)[keyof typeof RequestState];

/** Base class of the entries. Counts the transport operations that belong to it. */
export abstract class Queued extends CountedCompletion {
  /** INPROGRESS until it ends, then final. */
  status: Status = Status.OK;
  state: RequestState = RequestState.FREE;
  /** Number of the operation: after a call, the object may belong to another operation. */
  generation = 0;
  /** The exception thrown by a start from the queue; `status` is then the status of this error. */
  error: unknown = undefined;
  /** Next entry of the queue. */
  next: Queued | undefined = undefined;
  /** Number that the reply of the peer names: see Connection.expect. 0 for none. */
  requestId = 0;
  /** True if only the peer can end it; flushes wait for it. */
  isRemote = false;
  /** True if it was abandoned while transports used its memory: it ends when they no longer do. */
  isAbandoned = false;

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  /** True while it waits for resources: it can be cancelled without side effects. */
  get queued(): boolean {
    return this.state === RequestState.QUEUED;
  }

  /** True for a flush or a fence, which use no memory. */
  get isFlush(): boolean {
    return false;
  }

  /** Resets the object for a new operation in progress. */
  protected beginQueued(): void {
    this.state = RequestState.STARTED;
    this.status = Status.INPROGRESS;
    this.count = 1;
    this.failure = Status.OK;
    this.generation = (this.generation + 1) | 0;
    this.error = undefined;
    this.requestId = 0;
    this.isRemote = false;
    this.isAbandoned = false;
  }

  /**
   * Starts the operation, or restarts it after NO_RESOURCE.
   * @returns OK or a failure if it has ended, INPROGRESS if it ends later, NO_RESOURCE to be called again after progress
   */
  abstract start(): Status;

  /** Called when no reply of the peer will come any more. */
  abstract onAbandoned(status: Status): void;

  /** Ends the operation, exactly once. */
  abstract end(outcome: Status): void;
}

/** A protocol message. */
export abstract class OwnMessage extends Queued {
  onAbandoned(status: Status): void {
    this.end(status);
  }

  /** Nothing to do: transports copy the message, so its start also ends it. */
  onComplete(): void {
    this.end(this.failure);
  }

  end(outcome: Status): void {
    this.status = outcome;
    this.state = RequestState.ENDED;
  }
}

/** Starts an entry. An exception of a transport becomes its status, and is kept in `error`. */
export function start(queued: Queued): Status {
  try {
    return queued.start();
  } catch (error) {
    queued.error = error;
    return isUcxError(error) ? error.status : Status.IO_ERROR;
  }
}

/** Entries that wait for resources, in order. */
export class PendingQueue {
  #head: Queued | undefined = undefined;
  #tail: Queued | undefined = undefined;

  get isEmpty(): boolean {
    return this.#head === undefined;
  }

  get head(): Queued | undefined {
    return this.#head;
  }

  push(queued: Queued): void {
    queued.state = RequestState.QUEUED;
    queued.next = undefined;
    if (this.#tail === undefined) this.#head = queued;
    else this.#tail.next = queued;
    this.#tail = queued;
  }

  shift(): Queued | undefined {
    const queued = this.#head;
    if (queued === undefined) return undefined;
    this.#head = queued.next;
    if (this.#head === undefined) this.#tail = undefined;
    leave(queued);
    return queued;
  }

  /** Removes the entries for which `keeps` returns false, and passes them to `take`; returns their number. */
  sift(keeps: (queued: Queued) => boolean, take: (queued: Queued) => void): number {
    const all: Queued[] = [];
    for (let head = this.shift(); head !== undefined; head = this.shift()) all.push(head);
    let taken = 0;
    for (const queued of all) {
      if (keeps(queued)) this.push(queued);
      else {
        taken += 1;
        take(queued);
      }
    }
    return taken;
  }

  /** Removes an entry from any position; false if it is not in the queue. */
  remove(queued: Queued): boolean {
    let before: Queued | undefined;
    for (let at = this.#head; at !== undefined; before = at, at = at.next) {
      if (at !== queued) continue;
      if (before === undefined) this.#head = at.next;
      else before.next = at.next;
      if (this.#tail === at) this.#tail = before;
      leave(at);
      return true;
    }
    return false;
  }
}

/** Marks an entry as not queued. An entry that ended at the head of its queue stays ended. */
function leave(queued: Queued): void {
  queued.next = undefined;
  if (queued.queued) queued.state = RequestState.STARTED;
}
