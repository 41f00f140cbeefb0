/**
 * The receiving half of a connection: cuts the stream into frames and checks them before anything is done with them. Whatever does not make sense
 * ends the connection with a reason.
 */

import { Errno, tcpRecv } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { RecordStream } from '../secure/record-stream.ts';
import {
  END_BYTES,
  FRAME_BODY_BYTES_MAX,
  FrameType,
  HEADER_BYTES,
  headerBytesOf,
  messageIdOf,
  padded,
  statusOf,
  typeOf,
  valueIn,
} from './frame.ts';
import type { Payload } from './payload.ts';
import type { TcpBuffers } from './tcp-buffers.ts';

/** Longer bodies are received straight into memory: what follows their header is not read along with it. */
const BULK_BYTES_MIN = 65_536;
/** Bytes that are read where a header with a long body is to be expected. */
const HEADER_READ_BYTES = 256;

/** What is done with frames. A method that returns false has ended the connection. */
export interface FrameSink {
  /** Where the body goes that is being received. */
  readonly payload: Payload;
  /** Whether messages can be handed out. */
  readonly hasHandler: boolean;
  onMessage(id: number): void;
  onPut(words: Int32Array, at: number): boolean;
  onGetData(byteLength: number): boolean;
  /** The body of a put, or of what a get brings, is complete, or as the status says. */
  onPayloadEnd(status: number): void;
  onGet(words: Int32Array, at: number): boolean;
  onAcknowledged(count: number): boolean;
  onRefused(status: number): boolean;
  onHeartbeat(intervalMs: number): void;
  onBye(): void;
  /** False once the connection has ended, maybe by what a message did. */
  readonly isUp: boolean;
}

/** Why receiving has stopped for good. */
export type ReceiveEnd = 'closed' | 'failed' | 'violation';

/** The receiver. */
export class Receiver {
  /** How it ended; undefined while it has not. */
  end: ReceiveEnd | undefined = undefined;
  /** Error number of `failed`. */
  failure = 0;
  /** What the peer did, for `violation`. */
  violation = '';
  readonly #fd: number;
  readonly #records: RecordStream | undefined;
  readonly #buffers: TcpBuffers;
  readonly #sink: FrameSink;
  /** What has come of a frame that is not complete. */
  #partial: Uint8Array | undefined = undefined;
  /** Padding behind a body, which is still to come. */
  #padding = 0;
  #inPayload = false;
  /** Behind the body and its padding comes an end. */
  #expectsEnd = false;
  /** A message waits in what is left over for a message handler. */
  #isStalled = false;
  #expectsBulk = false;

  /** @param records that everything comes out of; undefined for a connection that is not encrypted */
  constructor(fd: number, buffers: TcpBuffers, sink: FrameSink, records: RecordStream | undefined) {
    this.#records = records;
    this.#fd = fd;
    this.#buffers = buffers;
    this.#sink = sink;
  }

  /**
   * Receives what is there and hands it out.
   * @param polls calls of the kernel at most
   * @returns bytes received; see {@link end}
   */
  receive(polls: number): number {
    if (this.#isStalled && !this.#resume()) return 0;
    let total = 0;
    for (let poll = 0; poll < polls && this.#sink.isUp && !this.#isStalled; poll++) {
      const { payload } = this.#sink;
      const isDirect = this.#records === undefined && this.#inPayload && payload.left > 0 && payload.address !== 0;
      const wanted = isDirect ? Math.min(payload.contiguous, payload.left) : this.#room();
      const received = isDirect ? tcpRecv(this.#fd, payload.address, wanted) : this.#fill(wanted);
      if (received <= 0) {
        if (received !== -Errno.EAGAIN) this.#stop(received);
        return total;
      }
      total += received;
      if (isDirect) {
        payload.advance(received);
        if (payload.left === 0) this.#endPayload();
      }
      // A record that is shorter is no sign that there is nothing more.
      if ((received < wanted && this.#records === undefined) || this.end !== undefined) return total;
    }
    return total;
  }

  /** Where the next read begins in the shared memory: so that the frame behind the rest of a body lies at a multiple of 8. */
  get #start(): number {
    if (this.#partial !== undefined) return this.#partial.byteLength;
    const rest = (this.#inPayload ? this.#sink.payload.left : 0) + this.#padding;
    return -rest & 7;
  }

  /** Room for the next read. */
  #room(): number {
    return this.#expectsBulk && this.#partial === undefined
      ? HEADER_READ_BYTES
      : this.#buffers.rx.byteLength - this.#start;
  }

  /** Reads into the shared memory and takes the frames out of it. */
  #fill(wanted: number): number {
    const { rx } = this.#buffers;
    const partial = this.#partial;
    const start = this.#start;
    const received =
      this.#records === undefined ? tcpRecv(this.#fd, rx.address + start, wanted) : this.#records.receive(rx.u8, start);
    if (received <= 0) return received;
    if (partial !== undefined) rx.u8.set(partial);
    this.#consume(partial === undefined ? start : 0, start + received);
    return received;
  }

  /** Hands out what waited for a message handler; false while there is still none. */
  #resume(): boolean {
    if (!this.#sink.hasHandler) return false;
    this.#isStalled = false;
    const partial = this.#partial!;
    this.#buffers.rx.u8.set(partial);
    this.#consume(0, partial.byteLength);
    return true;
  }

  #consume(from: number, end: number): void {
    const used = this.#parse(from, end);
    this.#partial = used === end ? undefined : this.#buffers.rx.u8.slice(used, end);
  }

  /** Hands out the frames in `[from, end)` of the shared memory; returns where the one begins that is not complete. */
  #parse(from: number, end: number): number {
    const { words } = this.#buffers.rxFrame;
    let at = from;
    while (at < end && this.#sink.isUp) {
      if (this.#inPayload || this.#padding > 0) {
        at += this.#takeBody(at, end);
        continue;
      }
      if (end - at < HEADER_BYTES) break;
      const word = at >> 2;
      if (this.#expectsEnd) {
        this.#expectsEnd = false;
        this.#sink.onPayloadEnd(statusOf(words, word));
        at += END_BYTES;
        continue;
      }
      const type = typeOf(words, word);
      if (type === FrameType.AM || type === FrameType.AM_ZCOPY) {
        const next = this.#message(at, end, type === FrameType.AM_ZCOPY);
        if (next === 0) break;
        at = next;
      } else {
        const headerBytes = headerBytesOf(type);
        if (headerBytes === 0) return this.#violate(`a frame of type ${type}`, end);
        if (end - at < headerBytes) break;
        if (!this.#control(type, word)) return end;
        at += headerBytes;
      }
    }
    return at;
  }

  /** Hands a message out; returns where the next frame begins, 0 where the message is not complete. */
  #message(at: number, end: number, hasEnd: boolean): number {
    const frame = this.#buffers.rxFrame;
    const byteLength = valueIn(frame.words, at >> 2);
    if (byteLength < 0 || byteLength > this.#buffers.rxBytesMax) {
      return this.#violate(`a message of ${byteLength >>> 0} bytes`, end);
    }
    const behind = at + HEADER_BYTES + padded(byteLength);
    const next = hasEnd ? behind + END_BYTES : behind;
    if (next > end) return 0;
    if (hasEnd && statusOf(frame.words, behind >> 2) !== Status.OK) return next;
    if (!this.#sink.hasHandler) {
      this.#isStalled = true;
      return 0;
    }
    frame.offset = at + HEADER_BYTES;
    frame.byteLength = byteLength;
    this.#expectsBulk = false;
    this.#sink.onMessage(messageIdOf(frame.words, at >> 2));
    return next;
  }

  /** Takes a frame that is no message; false when the connection has ended. */
  #control(type: number, word: number): boolean {
    const { words } = this.#buffers.rxFrame;
    const value = valueIn(words, word);
    switch (type) {
      case FrameType.PUT:
      case FrameType.GET_DATA:
        if (value < 0 || value > FRAME_BODY_BYTES_MAX) {
          this.#violate(`a body of ${value >>> 0} bytes`, 0);
          return false;
        }
        if (!(type === FrameType.PUT ? this.#sink.onPut(words, word) : this.#sink.onGetData(value))) return false;
        this.#expectsEnd = type === FrameType.GET_DATA;
        this.#beginPayload(value);
        return this.#sink.isUp;
      case FrameType.GET:
        return this.#sink.onGet(words, word);
      case FrameType.ACK:
        return this.#sink.onAcknowledged(value);
      case FrameType.NACK:
        return this.#sink.onRefused(value);
      case FrameType.HEARTBEAT:
        this.#sink.onHeartbeat(value);
        return true;
      default:
        this.#sink.onBye();
        return this.#sink.isUp;
    }
  }

  #beginPayload(byteLength: number): void {
    this.#inPayload = true;
    this.#padding = padded(byteLength) - byteLength;
    this.#expectsBulk = byteLength >= BULK_BYTES_MIN;
    if (byteLength === 0) this.#endPayload();
  }

  #endPayload(): void {
    this.#inPayload = false;
    if (!this.#expectsEnd) this.#sink.onPayloadEnd(Status.OK);
  }

  /** Takes bytes of a body, or of its padding, out of the shared memory; returns how many. */
  #takeBody(at: number, end: number): number {
    if (!this.#inPayload) {
      const padding = Math.min(this.#padding, end - at);
      this.#padding -= padding;
      return padding;
    }
    const { payload } = this.#sink;
    const bytes = Math.min(payload.left, end - at);
    payload.take(this.#buffers.rx.u8, at, bytes);
    if (payload.left === 0) this.#endPayload();
    return bytes;
  }

  #stop(received: number): void {
    if (received === -Errno.EBADMSG && this.#records !== undefined) {
      this.#violate(this.#records.violation, 0);
      return;
    }
    this.failure = -received;
    this.end = received === 0 ? 'closed' : 'failed';
  }

  #violate(what: string, end: number): number {
    this.violation = what;
    this.end = 'violation';
    return end;
  }
}
