/**
 * Operations that need a reply of the peer, in the order of the replies: puts, which it acknowledges, gets, and flushes of a connection, which wait for
 * earlier operations. Also the destination of a short get: a buffer of the program that is not registered, into which the bytes are copied after they are
 * received.
 */

import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion, IovEntry } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { completeOne } from '../../base/checks.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { TCP_NAME } from '../key.ts';

const NO_BYTES: Uint8Array = new Uint8Array(0);

/** The buffer of a short get; later gets reuse the object. */
export class ShortTarget implements MdMemory {
  readonly mdName: string = TCP_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly address = 0n;
  /** The buffer may move, so it has no address for system calls. */
  readonly location = 0;
  readonly generation = 0;
  readonly live = true;
  bytes: Uint8Array = NO_BYTES;
  inFlight = 0;

  get byteLength(): number {
    return this.bytes.byteLength;
  }
}

/** An entry of the local list of a put or get that the peer replies to. */
export interface TcpIovEntry extends IovEntry {
  readonly memory: HostMemory | ShortTarget;
}

/** The list of an operation whose memory is not kept. */
export const NO_MEMORY: readonly TcpIovEntry[] = [];
/** Memory of an entry that is not in use. */
const NOTHING: ShortTarget = new ShortTarget();
/** Initial capacity for operations. */
const OPERATIONS_MIN = 8;

/** An entry of a list, which later operations reuse. */
interface Entry extends TcpIovEntry {
  memory: HostMemory | ShortTarget;
  offset: number;
  byteLength: number;
}

/** An operation, which later ones reuse. */
class Operation {
  /** Numbers of its frames. */
  first = 0;
  last = 0;
  /** The endpoint that has started it. */
  owner: object | undefined = undefined;
  /** Undefined for a cancelled operation: the peer still replies to its frames. */
  completion: Completion | undefined = undefined;
  failure: Status = Status.OK;
  /** Local memory, which counts as in flight: a copy, because the caller may reuse its list when the call returns. */
  readonly iov: Entry[] = [];
  /** The memory of a short get. */
  readonly target: ShortTarget = new ShortTarget();

  setIov(iov: readonly TcpIovEntry[]): void {
    let count = 0;
    for (; count < iov.length; count++) {
      const { memory, offset, byteLength } = iov[count]!;
      this.setEntry(count, memory, offset, byteLength);
    }
    // Not the length of the caller's list, which may be an object without one: then it is empty.
    this.iov.length = count;
  }

  setEntry(index: number, memory: HostMemory | ShortTarget, offset: number, byteLength: number): void {
    memory.inFlight += 1;
    const entry = this.iov[index];
    if (entry === undefined) {
      this.iov[index] = { memory, offset, byteLength };
      return;
    }
    entry.memory = memory;
    entry.offset = offset;
    entry.byteLength = byteLength;
  }

  /** Drops its references to user memory after a cancel. */
  releaseMemory(): void {
    for (let i = 0; i < this.iov.length; i++) {
      const entry = this.iov[i]!;
      entry.memory.inFlight -= 1;
      entry.memory = NOTHING;
    }
    this.target.bytes = NOTHING.bytes;
  }
}

/** Operations of an interface, of all its connections, that have completions and have not ended. */
export class Outstanding {
  count = 0;
}

/** The operations of one kind on one connection. Frames are numbered from 1. */
export class PendingOperations {
  /** Frames that were sent, and frames that the peer has replied to. */
  sent = 0;
  done = 0;
  /** First failure that no completion has reported; a flush reports it. */
  failure: Status = Status.OK;
  /** A ring, whose length is a power of two: `#count` operations from `#first` on, and objects to reuse. */
  #operations: Operation[] = [];
  #first = 0;
  #count = 0;
  readonly #outstanding: Outstanding;

  constructor(outstanding: Outstanding) {
    this.#outstanding = outstanding;
  }

  /** Number of frames without a reply. */
  get inFlight(): number {
    return this.sent - this.done;
  }

  /**
   * Adds the operation of an endpoint that consists of the last `frames` sent frames.
   * @returns the copy of the list, valid until the reply to the last of them
   */
  expect(frames: number, completion: Completion, iov: readonly TcpIovEntry[], owner: object): readonly TcpIovEntry[] {
    const operation = this.#add(frames, completion, owner);
    operation.setIov(iov);
    return operation.iov;
  }

  /** Like {@link expect}, for one frame whose bytes are copied to a buffer of the program. */
  expectShort(
    completion: Completion,
    target: Uint8Array,
    offset: number,
    byteLength: number,
    owner: object,
  ): readonly TcpIovEntry[] {
    const operation = this.#add(1, completion, owner);
    operation.target.bytes = target;
    operation.setEntry(0, operation.target, offset, byteLength);
    operation.iov.length = 1;
    return operation.iov;
  }

  #add(frames: number, completion: Completion, owner: object): Operation {
    if (this.#count === this.#operations.length) this.#grow();
    const operation = this.#at(this.#count);
    this.#count += 1;
    operation.first = this.sent - frames + 1;
    operation.last = this.sent;
    operation.owner = owner;
    operation.completion = completion;
    operation.failure = Status.OK;
    this.#outstanding.count += 1;
    return operation;
  }

  /** The operation at an index from the first on. */
  #at(index: number): Operation {
    return this.#operations[(this.#first + index) & (this.#operations.length - 1)]!;
  }

  #grow(): void {
    const { length } = this.#operations;
    const operations = this.#operations.map((_, index) => this.#at(index));
    for (let i = Math.max(length, OPERATIONS_MIN); i > 0; i--) operations.push(new Operation());
    this.#operations = operations;
    this.#first = 0;
  }

  /** Ends the operations of an endpoint with CANCELED, whether the peer has replied or not. */
  cancel(owner: object): void {
    const ended: Completion[] = [];
    for (let i = 0; i < this.#count; i++) {
      const operation = this.#at(i);
      if (operation.owner !== owner || operation.completion === undefined) continue;
      ended.push(operation.completion);
      operation.releaseMemory();
      operation.completion = undefined;
      this.#outstanding.count -= 1;
    }
    for (const completion of ended) completeOne(completion, Status.CANCELED);
  }

  /** Processes the replies to the next `count` frames, with `status`; false if fewer are pending. */
  answer(count: number, status: Status): boolean {
    if (!(count > 0 && count <= this.inFlight)) return false;
    this.done += count;
    if (status < 0) this.#note(status);
    while (this.#count > 0) {
      const operation = this.#at(0);
      if (operation.last > this.done) break;
      this.#finish(operation, operation.failure);
    }
    return true;
  }

  /** Ends all operations with `status`. */
  close(status: Status): void {
    this.done = this.sent;
    while (this.#count > 0) {
      const operation = this.#at(0);
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
    const operation = this.#count > 0 ? this.#at(0) : undefined;
    if (operation !== undefined && this.done >= operation.first) operation.failure = status;
    else if (this.failure === Status.OK) this.failure = status;
  }

  /** Ends the first operation. Its completion may call anything, may end all others, and may start one that reuses this one. */
  #finish(operation: Operation, status: Status): void {
    this.#first = (this.#first + 1) & (this.#operations.length - 1);
    this.#count -= 1;
    const { completion, iov } = operation;
    operation.owner = undefined;
    operation.completion = undefined;
    if (completion === undefined) return;
    let isLost = false;
    for (let i = 0; i < iov.length; i++) {
      const { memory, offset, byteLength } = iov[i]!;
      if (offset + byteLength > memory.byteLength) isLost = true;
    }
    operation.releaseMemory();
    this.#outstanding.count -= 1;
    // If memory was detached, wrong bytes were sent, or the received ones are lost.
    completeOne(completion, isLost && status === Status.OK ? Status.INVALID_ADDR : status);
  }
}

/** A frame of a get that the peer has to reply to. Objects are reused. */
export class PendingGet {
  owner: object | undefined = undefined;
  /** Its bytes are discarded. */
  isCancelled = false;
  iov: readonly TcpIovEntry[] = NO_MEMORY;
  from = 0;
  byteLength = 0;
}

/** A pending flush. Its messages must have been sent. */
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
  readonly #outstanding: Outstanding;
  readonly #puts: PendingOperations;
  readonly #gets: PendingOperations;

  constructor(outstanding: Outstanding, puts: PendingOperations, gets: PendingOperations) {
    this.#outstanding = outstanding;
    this.#puts = puts;
    this.#gets = gets;
  }

  get length(): number {
    return this.#pending.length;
  }

  /** Adds a flush of everything before it. @param frames number of frames that were queued before it */
  add(frames: number, completion: Completion, owner: object): void {
    this.#outstanding.count += 1;
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
      this.#outstanding.count -= 1;
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
      this.#outstanding.count -= 1;
      completeOne(completion, status);
    }
  }
}
