/**
 * The sending half of a connection: sends frames in order, at once if the kernel accepts them, otherwise when the socket is writable.
 *
 * A batch saves system calls: it begins when a short frame is sent; later frames wait until progress ends the batch or it is large enough. The first frame
 * is never delayed, so the latency of single messages does not change.
 */

import { Errno, type ScratchBlock, TCP_PIECES_MAX, type TcpPieces, tcpSend } from '../../../sys/index.ts';
import { storeWords } from '../../../ucs/memory/bytes.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import { completeOne } from '../../base/checks.ts';
import { FrameType, HEADER_BYTES, writeSignal } from '../layout.ts';
import type { RecordStream } from '../secure/session.ts';
import { type TcpBuffers, TX_START } from './buffers.ts';
import type { Outgoing } from './queue.ts';

/** Maximum number of frames of the application in the queue of one link; more cause NO_RESOURCE. */
export const QUEUE_MAX = 64;
/** Maximum number of message bytes that were copied into queued frames of one link; more cause NO_RESOURCE. */
const COPIED_BYTES_MAX = 524_288;
/** Longest frame that waits in a batch: for a longer one the copy would cost more than its system call. */
const BATCHED_BYTES_MAX = 8256;
/** Number of frames, and of message bytes, from which a batch is sent. */
const BATCH_FRAMES = 32;
const BATCH_BYTES = 65_536;
/** Maximum bytes of the batches of all links. */
const BATCHES_BYTES = 2 ** 20;

export class Transmitter {
  readonly #buffers: TcpBuffers;
  #fd = -1;
  #records: RecordStream | undefined = undefined;
  readonly #onBatch: () => void;
  #head: Outgoing | undefined = undefined;
  #tail: Outgoing | undefined = undefined;
  /** Puts of the peer that have arrived and are not acknowledged yet. */
  #pendingAcks = 0;
  /** Puts of the peer that have arrived since the last one that failed. */
  putsInRow = 0;
  /** The last queued NACK of a put. Replies have the order of the puts, so no acknowledgement may overtake it. */
  #lastNack: Outgoing | undefined = undefined;
  /** Error number that ended the connection; 0 while it is up. */
  failure = 0;
  /** Whether frames are held back, to be sent together. */
  isCorked = false;
  /** Whether a batch has begun: short frames wait for {@link endBatch}. */
  #isBatching = false;
  /** Number of queued frames. */
  length = 0;
  /** Number of message bytes that were copied into them. */
  #copied = 0;
  /** Frames that were queued in order, and those of them that have been sent. Acknowledgements that overtake others are not counted. */
  queued = 0;
  released = 0;
  /** Number of calls that have sent some of them. */
  moved = 0;

  /** @param onBatch called when a batch begins: {@link endBatch} must follow */
  constructor(buffers: TcpBuffers, onBatch: () => void) {
    this.#buffers = buffers;
    this.#onBatch = onBatch;
  }

  /**
   * Uses a connected socket. Nothing may be sent before.
   * @param records encrypts all frames; undefined for a connection that is not encrypted
   */
  attach(fd: number, records: RecordStream | undefined): void {
    this.#fd = fd;
    this.#records = records;
  }

  /** Whether the application may not send more: the maximum number of queued frames, or of copied bytes, is reached. */
  get isFull(): boolean {
    return this.length >= QUEUE_MAX || this.#copied >= COPIED_BYTES_MAX;
  }

  /** Whether frames wait until the socket is writable. */
  get isBlocked(): boolean {
    return this.#head !== undefined && !this.#isBatching;
  }

  /** Whether an operation waits until queued frames are sent. */
  get isAwaited(): boolean {
    for (let each = this.#head; each !== undefined; each = each.next) if (each.completion !== undefined) return true;
    return false;
  }

  /** Whether all frames have been sent. */
  get isEmpty(): boolean {
    return this.#head === undefined;
  }

  /**
   * Sends the frame that was built in the shared memory, after the pending acknowledgements. It is queued if other frames are queued, or as far as the kernel
   * does not accept it.
   * @param byteLength of the frame with its padding
   * @returns OK, or IO_ERROR: see {@link failure}
   */
  sendBuilt(byteLength: number): Status {
    if (this.failure !== 0) return Status.IO_ERROR;
    const { txAddress, txFrameAddress, txFrame } = this.#buffers;
    let start = TX_START;
    let address = txFrameAddress;
    const isShort = byteLength <= BATCHED_BYTES_MAX;
    if (this.#isBatching && !isShort) {
      const status = this.sendMore();
      if (status !== Status.OK) return status;
    }
    if (this.#head !== undefined || (this.#isBatching && isShort)) {
      this.#keep(start, start + byteLength);
      return this.#isBatching && this.#isBatchFull ? this.sendMore() : Status.OK;
    }
    if (isShort) this.#beginBatch();
    if (this.#pendingAcks > 0) {
      start = 0;
      address = txAddress;
      writeSignal(txFrame.words, 0, FrameType.ACK, this.#pendingAcks);
    }
    if (this.#records !== undefined) {
      this.#pendingAcks = 0;
      this.#keep(start, TX_START + byteLength);
      return this.sendMore();
    }
    const total = TX_START + byteLength - start;
    const sent = tcpSend(this.#fd, address.value!, total);
    if (sent === total) {
      this.#pendingAcks = 0;
      return Status.OK;
    }
    if (sent < 0 && sent !== -Errno.EAGAIN) return this.#fail(-sent);
    this.#pendingAcks = 0;
    this.#isBatching = false;
    this.#keep(start + Math.max(sent, 0), start + total).isRest = sent > 0;
    return Status.OK;
  }

  get #isBatchFull(): boolean {
    if (this.isCorked) return false;
    const isLarge = this.length >= BATCH_FRAMES || this.#copied >= BATCH_BYTES;
    return isLarge || this.#buffers.pool.takenBytes >= BATCHES_BYTES;
  }

  #beginBatch(): void {
    this.#isBatching = true;
    this.#onBatch();
  }

  /** Sends the frames that wait for the end of the batch. Returns OK, or IO_ERROR: see {@link failure}. */
  endBatch(): Status {
    if (!this.#isBatching) return Status.OK;
    this.#isBatching = false;
    return this.isCorked ? Status.OK : this.sendMore();
  }

  /** Queues a copy of a range of the shared memory. Returns the frame. */
  #keep(from: number, end: number): Outgoing {
    const rest = this.#buffers.pool.take(end - from);
    rest.copied = end - from;
    this.#copied += rest.copied;
    storeWords(rest.words, 0, rest.block.u8, this.#buffers.tx.u8, from, end - from);
    rest.addHeader(end - from);
    this.#append(rest);
    return rest;
  }

  /** Queues a frame, and sends what the kernel accepts. Returns OK, or IO_ERROR: see {@link failure}. */
  push(outgoing: Outgoing): Status {
    const waits = this.isBlocked || this.isCorked;
    this.#append(outgoing);
    if (this.failure !== 0) return Status.IO_ERROR;
    return waits ? Status.OK : this.sendMore();
  }

  /** The last frame, if it is a PUT_RUN to which another put of the endpoint can be added; undefined for any other. */
  openRunOf(owner: object): Outgoing | undefined {
    const run = this.#tail;
    return this.isCorked && run?.takesPut === true && run.owner === owner && !this.#isSealing ? run : undefined;
  }

  /** Ends the operations of an endpoint in queued frames with CANCELED. The frames keep their length, because the beginning of one may have been sent. */
  cancel(owner: object): void {
    const ended: Completion[] = [];
    for (let each = this.#head; each !== undefined; each = each.next) {
      if (each.owner !== owner) continue;
      each.release();
      if (each.completion !== undefined) ended.push(each.completion);
      each.completion = undefined;
    }
    for (const completion of ended) completeOne(completion, Status.CANCELED);
  }

  /** True while a pending record contains the beginning of the queue. */
  get #isSealing(): boolean {
    return this.#records?.isPending === true;
  }

  /** Whether puts have arrived that are not acknowledged. */
  get hasPendingAcks(): boolean {
    return this.#pendingAcks > 0;
  }

  /** Adds a pending acknowledgement of a put: it is sent with the next frame, or by {@link acknowledge}. */
  addPendingAck(): void {
    this.putsInRow += 1;
    this.#pendingAcks += 1;
  }

  /** Acknowledges the puts that have arrived, at once or between queued frames. */
  acknowledge(): Status {
    if (this.#pendingAcks === 0) return Status.OK;
    const ack = this.#header(FrameType.ACK, this.#pendingAcks);
    this.#pendingAcks = 0;
    return this.#insert(ack);
  }

  /** Reports the failure of the put that follows the acknowledged ones. */
  sendNack(status: Status): Status {
    this.putsInRow = 0;
    const acknowledged = this.acknowledge();
    if (acknowledged !== Status.OK) return acknowledged;
    const nack = this.#header(FrameType.NACK, status);
    this.#lastNack = nack;
    return this.push(nack);
  }

  /** Sends a frame that consists of a header only, at once, after the frames that are held back. */
  signal(type: number, word = 0): Status {
    this.isCorked = false;
    return this.push(this.#header(type, word));
  }

  /** Sends queued frames, as far as the kernel accepts them. Returns OK, or IO_ERROR: see {@link failure}. */
  sendMore(): Status {
    const status = this.#records === undefined ? this.#gatherMore() : this.#sealMore(this.#records);
    // The remaining frames wait until the socket is writable.
    if (this.#head !== undefined) this.#isBatching = false;
    return status;
  }

  #gatherMore(): Status {
    const { pieces, pool } = this.#buffers;
    while (this.#head !== undefined) {
      const total = this.#gather(pieces, pool.zeros);
      const sent = pieces.send(this.#fd);
      if (sent === -Errno.EAGAIN) return Status.OK;
      if (sent < 0) return this.#fail(-sent);
      this.moved += 1;
      this.#sent(sent);
      if (sent < total) return Status.OK;
    }
    return Status.OK;
  }

  /** Sends queued frames in records. A frame counts as sent when the last record with a part of it is sent. */
  #sealMore(records: RecordStream): Status {
    while (this.#head !== undefined) {
      if (!records.isPending) this.#fill(records, this.#buffers.pool.zeros);
      const sent = records.flush();
      if (sent === -Errno.EAGAIN) return Status.OK;
      if (sent < 0) return this.#fail(-sent);
      this.moved += 1;
      this.#sent(sent);
    }
    return Status.OK;
  }

  /** Collects ranges for one system call; returns their bytes. */
  #gather(list: TcpPieces, zeros: ScratchBlock): number {
    list.clear();
    let pieces = 0;
    let total = 0;
    for (let each = this.#head; each !== undefined; each = each.next) {
      each.checkMemory();
      for (let i = each.piece; i < each.count; i++) {
        if (pieces++ === TCP_PIECES_MAX) return total;
        const run = each.runOf(i, zeros);
        list.add(each.placeOf(i, zeros), run);
        total += run;
        if (run < each.restOf(i)) return total;
      }
    }
    return total;
  }

  /** Fills a record from the queue. */
  #fill(records: RecordStream, zeros: ScratchBlock): void {
    for (let each = this.#head; each !== undefined; each = each.next) {
      each.checkMemory();
      for (let i = each.piece; i < each.count; i++) {
        if (records.add(each.placeOf(i, zeros), each.runOf(i, zeros)) < each.restOf(i)) return;
      }
    }
  }

  /** Drops the queued frames; their completions end with `status`. */
  close(status: Status): void {
    if (this.#tail !== undefined) this.#release(this.#tail, status);
  }

  #sent(byteLength: number): void {
    let left = byteLength;
    let last: Outgoing | undefined;
    for (let each = this.#head; each !== undefined && left > 0; each = each.next) {
      left = each.advance(left);
      if (left >= 0) last = each;
    }
    if (last !== undefined) this.#release(last, Status.OK);
  }

  /** Removes the frames up to `last` from the queue, then reports them, because a completion may send more. */
  #release(last: Outgoing, status: Status): void {
    let each = this.#head;
    this.#head = last.next;
    if (this.#head === undefined) this.#tail = undefined;
    last.next = undefined;
    while (each !== undefined) {
      const { completion, failure, next } = each;
      if (each === this.#lastNack) this.#lastNack = undefined;
      this.length -= 1;
      this.#copied -= each.copied;
      if (!each.hasOvertaken) this.released += 1;
      this.#buffers.pool.put(each);
      if (completion !== undefined) completeOne(completion, status || failure);
      each = next;
    }
  }

  #append(outgoing: Outgoing): void {
    if (this.#tail === undefined) this.#head = outgoing;
    else this.#tail.next = outgoing;
    this.#tail = outgoing;
    this.length += 1;
    this.queued += 1;
  }

  /** Inserts a frame before all others, but after one that is partly sent. */
  #insert(outgoing: Outgoing): Status {
    const head = this.#head;
    if (head === undefined) return this.push(outgoing);
    if (this.#lastNack !== undefined || this.#isSealing) {
      this.#append(outgoing);
      return Status.OK;
    }
    outgoing.hasOvertaken = true;
    this.length += 1;
    if (head.isStarted) {
      outgoing.next = head.next;
      head.next = outgoing;
      if (this.#tail === head) this.#tail = outgoing;
    } else {
      outgoing.next = head;
      this.#head = outgoing;
    }
    return Status.OK;
  }

  #header(type: number, word: number): Outgoing {
    const outgoing = this.#buffers.pool.takeSmall();
    writeSignal(outgoing.words, 0, type, word);
    outgoing.addHeader(HEADER_BYTES);
    return outgoing;
  }

  #fail(code: number): Status {
    this.failure = code;
    this.#isBatching = false;
    return Status.IO_ERROR;
  }
}
