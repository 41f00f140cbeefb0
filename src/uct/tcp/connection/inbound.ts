/**
 * Processes the frames of a peer: passes messages to their handler, bodies to memory and replies to their operations, and serves gets. A protocol violation
 * ends the connection.
 */

import { Ring } from '../../../ucs/datastruct/ring.ts';
import { copyBytes } from '../../../ucs/memory/bytes.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import type { HostMemory } from '../../base/host/memory.ts';
import { memoryOfGet, memoryOfPut, type TcpKeyTable } from '../key.ts';
import {
  FRAME_BODY_BYTES_MAX,
  FrameType,
  GETS_MAX,
  getLengthOf,
  HEADER_BYTES,
  offsetOf,
  PUTS_MAX,
  valueIn,
  writeSignal,
} from '../layout.ts';
import type { TcpShared } from '../shared.ts';
import type { TcpBuffers } from './buffers.ts';
import { failureOfPeer, Liveness } from './liveness.ts';
import { NO_MEMORY, PendingGet, PendingOperations, type ShortTarget, type TcpIovEntry } from './operations.ts';
import type { Outgoing } from './queue.ts';
import type { Transmitter } from './sender.ts';

/** Maximum number of queued frames for a peer that does not read its replies: more than a peer within the limits can cause. */
const WAITING_MAX: number = PUTS_MAX + 1024;
/** Result of a frame that is not a violation. */
export const NO_VIOLATION = '';

/** A body that is being received directly into memory, which consists of ranges in order. One object for each connection that receives one. */
export class Payload {
  /** Bytes that have not been received. */
  left = 0;
  /** The bytes are discarded: the key was invalid, or the memory has been released since. */
  isLost = false;
  /** Entries from `#count` on are undefined. Never shortened: it would be allocated again for the next body. */
  readonly #memories: (HostMemory | ShortTarget | undefined)[] = [];
  readonly #offsets: number[] = [];
  readonly #lengths: number[] = [];
  #count = 0;
  #piece = 0;

  /** Begins a body. */
  begin(byteLength: number, isLost: boolean): void {
    this.left = byteLength;
    this.isLost = isLost;
    this.#count = 0;
    this.#piece = 0;
  }

  /** Adds a range of memory. */
  add(memory: HostMemory | ShortTarget, offset: number, byteLength: number): void {
    if (byteLength === 0) return;
    this.#memories[this.#count] = memory;
    this.#offsets[this.#count] = offset;
    this.#lengths[this.#count] = byteLength;
    this.#count += 1;
  }

  /** Adds the range `[from, from + byteLength)` of a list. */
  addIov(iov: readonly TcpIovEntry[], from: number, byteLength: number): void {
    let skip = from;
    let left = byteLength;
    for (let i = 0; i < iov.length && left > 0; i++) {
      const { memory, offset, byteLength: entryBytes } = iov[i]!;
      const bytes = Math.min(entryBytes - skip, left);
      if (bytes <= 0) skip -= entryBytes;
      else {
        this.add(memory, offset + skip, bytes);
        skip = 0;
        left -= bytes;
      }
    }
  }

  /** Address of the next byte; 0 if it cannot be received directly into memory. */
  get address(): number {
    if (!this.#isKept()) return 0;
    const { location } = this.#memories[this.#piece]!;
    return location === 0 ? 0 : location + this.#offsets[this.#piece]!;
  }

  /** Contiguous bytes from {@link address} on. */
  get contiguous(): number {
    return this.#lengths[this.#piece]!;
  }

  /** Advances by the bytes that were written at {@link address}. The memory of a whole body is not kept: it belongs to the program. */
  advance(byteLength: number): void {
    this.left -= byteLength;
    if (this.left === 0) {
      for (let i = 0; i < this.#count; i++) this.#memories[i] = undefined;
    } else if (!this.isLost) {
      this.#offsets[this.#piece]! += byteLength;
      this.#lengths[this.#piece]! -= byteLength;
      if (this.#lengths[this.#piece] === 0) this.#piece += 1;
    }
  }

  /** Copies bytes that were received elsewhere, at most {@link left}. */
  take(source: Uint8Array, from: number, byteLength: number): void {
    let at = from;
    let rest = byteLength;
    while (rest > 0) {
      const isKept = this.#isKept();
      const bytes = isKept ? Math.min(rest, this.contiguous) : rest;
      if (isKept) copyBytes(this.#memories[this.#piece]!.bytes, this.#offsets[this.#piece]!, source, at, bytes);
      this.advance(bytes);
      at += bytes;
      rest -= bytes;
    }
  }

  /** Whether the next byte has a destination. Once a byte has none, no later byte has one. */
  #isKept(): boolean {
    if (this.isLost) return false;
    const memory = this.#memories[this.#piece]!;
    // Freed or detached while the body was being received.
    this.isLost = !memory.live || this.#offsets[this.#piece]! + this.#lengths[this.#piece]! > memory.byteLength;
    return !this.isLost;
  }
}

/** Replies to the gets of a peer: frames with bytes of memory that it may read. */
class GetAnswers {
  /** Replies that are not sent yet. */
  queued = 0;
  readonly #buffers: TcpBuffers;
  readonly #keys: TcpKeyTable;
  /** Counts replies that were sent. */
  readonly #sent: Completion = {
    count: 1,
    failure: Status.OK,
    onComplete: () => {
      this.#sent.count = 1;
      this.queued -= 1;
    },
  };

  constructor(buffers: TcpBuffers, keys: TcpKeyTable) {
    this.#buffers = buffers;
    this.#keys = keys;
  }

  /** The reply to a GET whose length is checked: its bytes, or a NACK. */
  answerTo(words: Int32Array, at: number): Outgoing {
    const { pool } = this.#buffers;
    const byteLength = getLengthOf(words, at);
    const memory = memoryOfGet(this.#keys, words, at);
    const isGood = memory !== undefined;
    const answer = pool.takeSmall();
    writeSignal(answer.words, 0, FrameType.GET_DATA, isGood ? byteLength : 0);
    answer.addHeader(HEADER_BYTES);
    if (isGood && byteLength > 0) answer.addMemory(memory, offsetOf(words, at), byteLength);
    if (isGood) answer.addPadding(byteLength, pool.zeros);
    answer.addEnd(isGood ? Status.OK : Status.INVALID_ADDR);
    answer.completion = this.#sent;
    this.queued += 1;
    return answer;
  }
}

/** Processes the frames of one connection. Functions that return a string return the violation that a frame causes, or {@link NO_VIOLATION}. */
export class Inbound {
  /** Whether frames may be delivered: false before the connection is up, and from its end on, which a handler may cause. */
  isUp = false;
  /** Whether the peer has announced (BYE) that it has no more endpoints. */
  hasBye = false;
  /** Number of operations that have ended, messages that have arrived, and steps of long ones. */
  events = 0;
  readonly payload: Payload = new Payload();
  readonly puts: PendingOperations;
  readonly gets: PendingOperations;
  readonly transmitter: Transmitter;
  readonly liveness: Liveness = new Liveness();
  readonly #shared: TcpShared;
  readonly #identity: string;
  readonly #pendingGets: Ring<PendingGet> = new Ring(GETS_MAX);
  readonly #freeGets: PendingGet[] = [];
  /** What is being received: a put, with its status, or data for a get of an endpoint. */
  #isPut = false;
  #getOwner: object | undefined = undefined;
  #bodyStatus: Status = Status.OK;
  readonly #getAnswers: GetAnswers;

  /** @param identity the id of the peer, as the source of its messages */
  constructor(shared: TcpShared, transmitter: Transmitter, identity: string) {
    this.#shared = shared;
    this.transmitter = transmitter;
    this.#identity = identity;
    this.puts = new PendingOperations(shared.outstanding);
    this.gets = new PendingOperations(shared.outstanding);
    this.#getAnswers = new GetAnswers(shared.buffers, shared.keys);
  }

  /** Whether there is a handler for messages. */
  get hasHandler(): boolean {
    return this.#shared.handler !== undefined;
  }

  /** Registers a sent frame of a get, for a range of its list. The caller has checked that at most {@link GETS_MAX} are pending. */
  expectGet(iov: readonly TcpIovEntry[], from: number, byteLength: number, owner: object): void {
    const get = this.#freeGets.pop() ?? new PendingGet();
    get.owner = owner;
    get.isCancelled = false;
    get.iov = iov;
    get.from = from;
    get.byteLength = byteLength;
    this.#pendingGets.push(get);
  }

  /** Ends the operations of an endpoint. What the peer sends for them is discarded. */
  cancel(owner: object): void {
    if (this.payload.left > 0 && !this.#isPut && this.#getOwner === owner) this.payload.isLost = true;
    for (let i = 0; i < this.#pendingGets.length; i++) {
      const get = this.#pendingGets.at(i)!;
      if (get.owner === owner) get.isCancelled = true;
    }
  }

  /** Ends all operations with `status`. */
  close(status: Status): void {
    this.#pendingGets.clear();
    this.puts.close(status);
    this.gets.close(status);
  }

  onMessage(id: number): void {
    this.events += 1;
    const frame = this.#shared.buffers.rxFrame;
    frame.source = this.#identity;
    this.#shared.counters.received(frame.byteLength);
    this.#shared.handler?.(id, frame);
  }

  onPut(words: Int32Array, at: number): void {
    const memory = memoryOfPut(this.#shared.keys, words, at);
    this.#isPut = true;
    this.#bodyStatus = memory === undefined ? Status.INVALID_ADDR : Status.OK;
    this.payload.begin(valueIn(words, at), memory === undefined);
    if (memory !== undefined) this.payload.add(memory, offsetOf(words, at), valueIn(words, at));
  }

  /** Address of the memory of a put whose bytes follow those of others; 0 if it has none. */
  placeOfPut(words: Int32Array, at: number): number {
    const memory = memoryOfPut(this.#shared.keys, words, at);
    return memory === undefined ? 0 : memory.location + offsetOf(words, at);
  }

  onGetData(byteLength: number): string {
    const get = this.#pendingGets.peek();
    const isComplete = byteLength === get?.byteLength;
    if (get === undefined || !(isComplete || byteLength === 0)) {
      return `unexpected reply to a get, ${byteLength} bytes`;
    }
    this.#pendingGets.shift();
    this.#isPut = false;
    this.#bodyStatus = isComplete ? Status.OK : Status.IO_ERROR;
    this.#getOwner = get.owner;
    this.payload.begin(byteLength, get.isCancelled);
    if (!get.isCancelled) this.payload.addIov(get.iov, get.from, byteLength);
    get.owner = undefined;
    get.iov = NO_MEMORY;
    this.#freeGets.push(get);
    return NO_VIOLATION;
  }

  /** Called when the body of a put, or the data of a get, is complete, with this status. */
  onPayloadEnd(outcome: number): string {
    this.events += 1;
    const end = outcome === Status.OK ? this.#bodyStatus : failureOfPeer(outcome);
    // The memory was released while its bytes were being received.
    const status = this.payload.isLost ? Status.INVALID_ADDR : end;
    if (!this.#isPut) this.#answered(this.gets, 1, status);
    else if (this.transmitter.length > WAITING_MAX) return 'too many puts without reading the replies';
    else if (status === Status.OK) this.transmitter.addPendingAck();
    else this.transmitter.sendNack(status);
    return NO_VIOLATION;
  }

  onGet(words: Int32Array, at: number): string {
    if (this.#getAnswers.queued >= GETS_MAX) return `more than ${GETS_MAX} pending gets`;
    const byteLength = getLengthOf(words, at);
    if (byteLength > FRAME_BODY_BYTES_MAX) return `get with invalid length ${byteLength}`;
    this.transmitter.push(this.#getAnswers.answerTo(words, at));
    return NO_VIOLATION;
  }

  onAcknowledged(count: number): string {
    return this.#answered(this.puts, count, Status.OK)
      ? NO_VIOLATION
      : `acknowledgement of ${count} puts that are not pending`;
  }

  onNack(status: number): string {
    if (status >= 0) return `NACK with invalid status ${status}`;
    return this.#answered(this.puts, 1, failureOfPeer(status)) ? NO_VIOLATION : 'unexpected NACK: no put is pending';
  }

  onHeartbeat(intervalMs: number): void {
    if (intervalMs > 0) this.liveness.heartbeatMs = intervalMs;
  }

  #answered(operations: PendingOperations, count: number, status: Status): boolean {
    this.events += 1;
    return operations.answer(count, status);
  }
}
