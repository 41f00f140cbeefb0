/**
 * An entry of the pending queue of a connection: a request, or a control message of a protocol. The queue is an intrusive list, so its length is
 * unbounded.
 *
 *   FREE --begin()--> STARTED <--push(), shift()--> QUEUED    PendingQueue: it waits for resources, and is started again from there
 *    ^                   |                            |
 *    |                   '----------- end() ----------'---> ENDED: `status` is final
 *    '---- RequestPool.free() ---------------------------------'
 */

import { CountedCompletion } from '../../api/operation/completion.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** The states: see the diagram above. */
export const RequestState = { FREE: 0, STARTED: 1, QUEUED: 2, ENDED: 3 } as const;
export type RequestState = (typeof RequestState)[keyof typeof RequestState];

/** One of them. It counts the operations of transports that it consists of. */
export abstract class Queued extends CountedCompletion {
  /** INPROGRESS until it ends, then final. */
  status: Status = Status.OK;
  state: RequestState = RequestState.FREE;
  /** Number of its operation: the object may belong to another one when a call returns. */
  generation = 0;
  /** The exception of a start out of the queue; the status is then that of this error. */
  error: unknown = undefined;
  /** The one behind it in a queue. */
  next: Queued | undefined = undefined;
  /** Number by which the peer answers it: see Connection.expect. 0 for none. */
  requestId = 0;
  /** Whether only the peer can end it; a flush waits for it. */
  isRemote = false;
  /** Whether it was abandoned while transports used its memory: it ends when they no longer do. */
  isAbandoned = false;

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  /** True while it waits for resources: it can be cancelled without a trace. */
  get queued(): boolean {
    return this.state === RequestState.QUEUED;
  }

  /** Whether it is a flush or a fence, which has no memory that a transport could use. */
  get isFlush(): boolean {
    return false;
  }

  /** Makes it a new operation in progress. */
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
   * Starts the operation, or starts it again after NO_RESOURCE.
   * @returns OK or a failure when it has ended, INPROGRESS when it will end by itself, NO_RESOURCE to be called again after progress
   */
  abstract start(): Status;

  /** The peer will not answer any more. */
  abstract onAbandoned(status: Status): void;

  /** Ends it, exactly once. */
  abstract end(outcome: Status): void;
}

/** A message of a protocol itself. */
export abstract class OwnMessage extends Queued {
  onAbandoned(status: Status): void {
    this.end(status);
  }

  /** Transports copy it: they end nothing later. */
  onComplete(): void {
    this.end(this.failure);
  }

  end(outcome: Status): void {
    this.status = outcome;
    this.state = RequestState.ENDED;
  }
}

/** Starts one; an exception of a transport becomes its status, and is kept in it. */
export function start(queued: Queued): Status {
  try {
    return queued.start();
  } catch (error) {
    queued.error = error;
    return isUcxError(error) ? error.status : Status.IO_ERROR;
  }
}

/** Those that wait for resources, in order. */
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

  /** Removes those for which `keeps` returns false, and passes them to `take`; returns their number. */
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

  /** Takes one out of the middle; false when it is not here. */
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

/** Marks one as no longer queued. One that has ended at the head of its queue stays ended. */
function leave(queued: Queued): void {
  queued.next = undefined;
  if (queued.queued) queued.state = RequestState.STARTED;
}
