/** Operations that the peer has to end, in the order in which it does: puts that it acknowledges, gets that it answers. */

import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import { completeOne } from '../../base/completion.ts';

/** So many places of ended operations are kept before the list is moved up. */
const COMPACT_AT = 256;

/** Memory that counts who uses it. */
interface Counted {
  inFlight: number;
}

/** An operation. */
interface Operation {
  /** Numbers of its frames. */
  readonly first: number;
  readonly last: number;
  readonly completion: Completion;
  /** Local memory, which counts as in flight. */
  readonly iov: readonly IovEntry[];
  failure: Status;
}

/** Counts operations that have not ended. */
export interface OutstandingCounter {
  countOutstanding(change: number): void;
}

/** One kind of operations of one connection. Frames are numbered from 1. */
export class PendingOperations {
  /** Frames that were sent, and that have been answered. */
  sent = 0;
  done = 0;
  /** First failure that no completion has told of; a flush does. */
  failure: Status = Status.OK;
  readonly #operations: Operation[] = [];
  #first = 0;
  readonly #counter: OutstandingCounter;

  constructor(counter: OutstandingCounter) {
    this.#counter = counter;
  }

  /** Frames without an answer. */
  get inFlight(): number {
    return this.sent - this.done;
  }

  /** The operation whose `frames` were sent last wants to be told. */
  expect(frames: number, completion: Completion, iov: readonly IovEntry[]): void {
    for (let i = 0; i < iov.length; i++) (iov[i]!.memory as Counted).inFlight += 1;
    this.#operations.push({ first: this.sent - frames + 1, last: this.sent, completion, iov, failure: Status.OK });
    this.#counter.countOutstanding(1);
  }

  /** The next `count` frames have been answered with `status`; false when there are not so many. */
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

  /** Ends all of them. */
  close(status: Status): void {
    this.done = this.sent;
    while (this.#first < this.#operations.length) {
      const operation = this.#operations[this.#first]!;
      this.#finish(operation, operation.failure === Status.OK ? status : operation.failure);
    }
  }

  /** Takes the failure that a flush tells of. */
  takeFailure(): Status {
    const { failure } = this;
    this.failure = Status.OK;
    return failure;
  }

  /** A failure is that of the operation whose frame it was, or of one without a completion. */
  #note(status: Status): void {
    const operation = this.#operations[this.#first];
    if (operation !== undefined && this.done >= operation.first) operation.failure = status;
    else if (this.failure === Status.OK) this.failure = status;
  }

  /** Ends the first operation. Its completion may do anything, also end all others. */
  #finish({ completion, iov }: Operation, status: Status): void {
    this.#shift();
    let isLost = false;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      (memory as Counted).inFlight -= 1;
      if (offset + byteLength > memory.byteLength) isLost = true;
    }
    this.#counter.countOutstanding(-1);
    // Memory that was detached meanwhile: what was sent was not its bytes, what came is nowhere.
    completeOne(completion, isLost && status === Status.OK ? Status.INVALID_ADDR : status);
  }

  #shift(): void {
    this.#operations[this.#first] = undefined as unknown as Operation;
    this.#first += 1;
    if (this.#first === this.#operations.length) this.#operations.length = 0;
    else if (this.#first >= COMPACT_AT) this.#operations.splice(0, this.#first);
    else return;
    this.#first = 0;
  }
}

/** A get that the peer has to answer. */
export interface PendingGet {
  readonly iov: readonly IovEntry[];
  readonly from: number;
  readonly byteLength: number;
}

/** A flush that waits for puts, gets and messages that were started before it: the latter must have left this process. */
export interface PendingFlush {
  readonly puts: number;
  readonly gets: number;
  readonly frames: number;
  readonly completion: Completion;
}
