/** Operations that the peer has to answer, in the order of its answers: puts that it acknowledges, and gets. */

import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import { completeOne } from '../../base/completion.ts';
import type { TcpIovEntry } from '../wire/short-target.ts';

/** Number of ended operations at the start of the list after which the list is compacted. */
const COMPACT_AT = 256;

/** An operation. */
interface Operation {
  /** Numbers of its frames. */
  readonly first: number;
  readonly last: number;
  /** The endpoint that has started it. */
  readonly owner: object;
  /** Undefined for one that was cancelled: its frames are answered all the same. */
  completion: Completion | undefined;
  /** Local memory, which counts as in flight. */
  iov: readonly TcpIovEntry[];
  failure: Status;
}

/** Counter of operations that have not ended. */
export interface OutstandingCounter {
  countOutstanding(change: number): void;
}

/** The operations of one kind on one connection. Frames are numbered from 1. */
export class PendingOperations {
  /** Frames that were sent, and frames that were answered. */
  sent = 0;
  done = 0;
  /** First failure that no completion has reported; a flush reports it. */
  failure: Status = Status.OK;
  readonly #operations: (Operation | undefined)[] = [];
  #first = 0;
  readonly #counter: OutstandingCounter;

  constructor(counter: OutstandingCounter) {
    this.#counter = counter;
  }

  /** Number of unanswered frames. */
  get inFlight(): number {
    return this.sent - this.done;
  }

  /** Adds the operation of an endpoint that consists of the last `frames` sent frames. */
  expect(frames: number, completion: Completion, iov: readonly TcpIovEntry[], owner: object): void {
    for (let i = 0; i < iov.length; i++) iov[i]!.memory.inFlight += 1;
    const first = this.sent - frames + 1;
    this.#operations.push({ first, last: this.sent, owner, completion, iov, failure: Status.OK });
    this.#counter.countOutstanding(1);
  }

  /** Ends the operations of an endpoint with CANCELED, whether the peer has answered or not. */
  cancel(owner: object): void {
    const ended: Completion[] = [];
    for (let i = this.#first; i < this.#operations.length; i++) {
      const operation = this.#operations[i]!;
      if (operation.owner !== owner || operation.completion === undefined) continue;
      ended.push(operation.completion);
      for (const { memory } of operation.iov) memory.inFlight -= 1;
      operation.completion = undefined;
      operation.iov = [];
      this.#counter.countOutstanding(-1);
    }
    for (const completion of ended) completeOne(completion, Status.CANCELED);
  }

  /** Answers the next `count` frames with `status`; false if there are not as many. */
  answer(count: number, status: Status): boolean {
    if (!(count > 0 && count <= this.inFlight)) return false;
    this.done += count;
    if (status < 0) this.#note(status);
    while (this.#first < this.#operations.length) {
      const operation = this.#operations[this.#first]!;
      if (operation.last > this.done) break;
      this.#finish(operation, operation.failure);
    }
    return true;
  }

  /** Ends all operations with `status`. */
  close(status: Status): void {
    this.done = this.sent;
    while (this.#first < this.#operations.length) {
      const operation = this.#operations[this.#first]!;
      this.#finish(operation, operation.failure === Status.OK ? status : operation.failure);
    }
  }

  /** Returns the failure that a flush has to report, and clears it. */
  takeFailure(): Status {
    const { failure } = this;
    this.failure = Status.OK;
    return failure;
  }

  /** Records a failure of the operation of the next frame, or of one without a completion. */
  #note(status: Status): void {
    const operation = this.#operations[this.#first];
    if (operation !== undefined && this.done >= operation.first) operation.failure = status;
    else if (this.failure === Status.OK) this.failure = status;
  }

  /** Ends the first operation. Its completion may call anything, and may end all others. */
  #finish({ completion, iov }: Operation, status: Status): void {
    this.#shift();
    if (completion === undefined) return;
    let isLost = false;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      memory.inFlight -= 1;
      if (offset + byteLength > memory.byteLength) isLost = true;
    }
    this.#counter.countOutstanding(-1);
    // If memory was detached, the sent bytes were not its bytes, or the received ones are lost.
    completeOne(completion, isLost && status === Status.OK ? Status.INVALID_ADDR : status);
  }

  #shift(): void {
    this.#operations[this.#first] = undefined;
    this.#first += 1;
    if (this.#first === this.#operations.length) this.#operations.length = 0;
    else if (this.#first >= COMPACT_AT) this.#operations.splice(0, this.#first);
    else return;
    this.#first = 0;
  }
}

/** A get that the peer has to answer. */
export interface PendingGet {
  readonly owner: object;
  /** Its bytes are discarded. */
  isCancelled: boolean;
  readonly iov: readonly TcpIovEntry[];
  readonly from: number;
  readonly byteLength: number;
}
