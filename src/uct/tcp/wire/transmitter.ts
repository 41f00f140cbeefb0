/** The sending half of a connection: frames in their order, at once where the kernel takes them, the rest when it does again. */

import { Errno, GATHER_MAX, type ScratchBlock, type TcpGather, tcpSend } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import { completeOne } from '../../base/completion.ts';
import type { RecordStream } from '../secure/record-stream.ts';
import { FrameType, HEADER_BYTES, writeSignal } from './frame.ts';
import type { Outgoing } from './outgoing.ts';
import { type TcpBuffers, TX_START } from './tcp-buffers.ts';

/** Frames of the application that may wait on one link; more find NO_RESOURCE. */
export const QUEUE_MAX = 64;
/** The same for the bytes that were copied into them. */
const COPIED_BYTES_MAX = 524_288;

/** The transmitter. */
export class Transmitter {
  readonly #buffers: TcpBuffers;
  readonly #fd: number;
  readonly #records: RecordStream | undefined;
  #head: Outgoing | undefined = undefined;
  #tail: Outgoing | undefined = undefined;
  /** Puts of the peer that have arrived and that it has not been told of. */
  #pendingAcks = 0;
  /** The last refusal of a put that waits: answers come in the order of the puts, so that no acknowledgement overtakes it. */
  #lastRefusal: Outgoing | undefined = undefined;
  /** Error number that ended the connection; 0 while it works. */
  failure = 0;
  /** Frames that wait. */
  length = 0;
  /** Bytes of messages that were copied into them. */
  #copied = 0;
  /** Frames that were queued in their order, and those of them that have been sent; acknowledgements that overtake them do not count. */
  queued = 0;
  released = 0;
  /** Calls that have sent something of them. */
  moved = 0;

  /** @param records that everything goes through; undefined for a connection that is not encrypted */
  constructor(fd: number, buffers: TcpBuffers, records: RecordStream | undefined) {
    this.#fd = fd;
    this.#records = records;
    this.#buffers = buffers;
  }

  /** Whether the application may not send more: as many frames wait as may, or copies of as many bytes. */
  get isFull(): boolean {
    return this.length >= QUEUE_MAX || this.#copied >= COPIED_BYTES_MAX;
  }

  /** Whether frames wait: nothing may be sent past them. */
  get isBlocked(): boolean {
    return this.#head !== undefined;
  }

  /**
   * Sends the frame that was built in the shared memory, behind pending acknowledgements; it waits where others do, and what the kernel has no
   * room for does too.
   * @param byteLength of the frame with its padding
   * @returns OK, or IO_ERROR: see {@link failure}
   */
  sendBuilt(byteLength: number): Status {
    const { tx, txFrame } = this.#buffers;
    let start = TX_START;
    if (this.#head !== undefined) return this.#keep(start, start + byteLength);
    if (this.#pendingAcks > 0) {
      start = 0;
      writeSignal(txFrame.words, 0, FrameType.ACK, this.#pendingAcks);
    }
    if (this.#records !== undefined) {
      this.#pendingAcks = 0;
      this.#keep(start, TX_START + byteLength);
      return this.#sealMore(this.#records);
    }
    const total = TX_START + byteLength - start;
    const sent = tcpSend(this.#fd, tx.address + start, total);
    if (sent === total) {
      this.#pendingAcks = 0;
      return Status.OK;
    }
    if (sent < 0 && sent !== -Errno.EAGAIN) return this.#fail(-sent);
    this.#pendingAcks = 0;
    return this.#keep(start + Math.max(sent, 0), start + total);
  }

  /** Queues a copy of a part of the shared memory. */
  #keep(from: number, end: number): Status {
    const rest = this.#buffers.pool.take(end - from);
    rest.copied = end - from;
    this.#copied += rest.copied;
    rest.block.u8.set(this.#buffers.tx.u8.subarray(from, end));
    rest.add(rest.block.address, end - from);
    this.#append(rest);
    return Status.OK;
  }

  /** Queues a frame behind the others, and sends what the kernel takes. Returns OK, or IO_ERROR: see {@link failure}. */
  push(outgoing: Outgoing): Status {
    const isFirst = this.#head === undefined;
    this.#append(outgoing);
    return isFirst ? this.sendMore() : Status.OK;
  }

  /** Whether the peer is to be told of puts that have arrived. */
  get hasPendingAcks(): boolean {
    return this.#pendingAcks > 0;
  }

  /** Counts one more pending acknowledgement of a put: it is sent with the next frame, or by {@link acknowledge}. */
  addPendingAck(): void {
    this.#pendingAcks += 1;
  }

  /** Tells the peer of the puts that have arrived: at once, or between the frames that wait. */
  acknowledge(): Status {
    if (this.#pendingAcks === 0) return Status.OK;
    const ack = this.#header(FrameType.ACK, this.#pendingAcks);
    this.#pendingAcks = 0;
    return this.#insert(ack);
  }

  /** Tells the peer that the put behind those that it is told of has failed. */
  refuse(status: Status): Status {
    const acknowledged = this.acknowledge();
    if (acknowledged !== Status.OK) return acknowledged;
    const refusal = this.#header(FrameType.NACK, status);
    this.#lastRefusal = refusal;
    return this.push(refusal);
  }

  /** Sends a frame of a header alone. */
  signal(type: number, word = 0): Status {
    return this.push(this.#header(type, word));
  }

  /** Sends what waits, as far as the kernel takes it. Returns OK, or IO_ERROR: see {@link failure}. */
  sendMore(): Status {
    if (this.#records !== undefined) return this.#sealMore(this.#records);
    const { gather, pool } = this.#buffers;
    while (this.#head !== undefined) {
      const total = this.#gather(gather, pool.zeros);
      const sent = gather.send(this.#fd);
      if (sent === -Errno.EAGAIN) return Status.OK;
      if (sent < 0) return this.#fail(-sent);
      this.moved += 1;
      this.#sent(sent);
      if (sent < total) return Status.OK;
    }
    return Status.OK;
  }

  /** Sends what waits in records. A frame counts as sent when the last record with a part of it is. */
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

  /** Gathers what one call of the kernel sends; returns its bytes. */
  #gather(gather: TcpGather, zeros: ScratchBlock): number {
    gather.clear();
    let pieces = 0;
    let total = 0;
    for (let each = this.#head; each !== undefined; each = each.next) {
      each.checkMemory();
      for (let i = each.piece; i < each.count; i++) {
        if (pieces++ === GATHER_MAX) return total;
        const run = each.runOf(i, zeros);
        gather.add(each.placeOf(i, zeros), run);
        total += run;
        if (run < each.restOf(i)) return total;
      }
    }
    return total;
  }

  /** Fills a record. */
  #fill(records: RecordStream, zeros: ScratchBlock): void {
    for (let each = this.#head; each !== undefined; each = each.next) {
      each.checkMemory();
      for (let i = each.piece; i < each.count; i++) {
        if (records.add(each.placeOf(i, zeros), each.runOf(i, zeros)) < each.restOf(i)) return;
      }
    }
  }

  /** Drops what waits; its completions end with `status`. */
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

  /** Takes the frames up to `last` out; then, because a completion may send more, reports them. */
  #release(last: Outgoing, status: Status): void {
    let each = this.#head;
    this.#head = last.next;
    if (this.#head === undefined) this.#tail = undefined;
    last.next = undefined;
    while (each !== undefined) {
      const { completion, failure, next } = each;
      if (each === this.#lastRefusal) this.#lastRefusal = undefined;
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

  /** Puts a frame before all others but the one that has begun. */
  #insert(outgoing: Outgoing): Status {
    const head = this.#head;
    if (head === undefined) return this.push(outgoing);
    // What the record that waits is made of, is the beginning of the queue.
    if (this.#lastRefusal !== undefined || this.#records?.isPending === true) {
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
    outgoing.add(outgoing.block.address, HEADER_BYTES);
    return outgoing;
  }

  #fail(code: number): Status {
    this.failure = code;
    return Status.IO_ERROR;
  }
}
