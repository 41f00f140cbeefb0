/**
 * The receiving half of a connection: splits the stream into frames and checks them before they are used. Invalid data ends the connection with a
 * reason.
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
  idAfterPuts,
  messageIdOf,
  padded,
  statusOf,
  typeOf,
  valueIn,
} from './frame.ts';
import type { Payload } from './payload.ts';
import type { TcpBuffers } from './tcp-buffers.ts';

/** Longer bodies are received directly into memory, so their header is read without the bytes that follow it. */
const BULK_BYTES_MIN = Number(process.env['BULK'] ?? 65_536);
/** Bytes to read if a header with a long body is expected. */
const HEADER_READ_BYTES = 256;

/** Consumer of frames. A method that returns false has ended the connection. */
export interface FrameSink {
  /** The destination of the current body. */
  readonly payload: Payload;
  /** Whether there is a handler for messages. */
  readonly hasHandler: boolean;
  /** Answers puts. */
  readonly transmitter: { readonly putsInRow: number };
  onMessage(id: number): void;
  onPut(words: Int32Array, at: number): boolean;
  onGetData(byteLength: number): boolean;
  /** The body of a put, or the data of a get, is complete, with this status. */
  onPayloadEnd(status: number): void;
  onGet(words: Int32Array, at: number): boolean;
  onAcknowledged(count: number): boolean;
  onRefused(status: number): boolean;
  onHeartbeat(intervalMs: number): void;
  onBye(): void;
  /** False once the connection has ended, possibly in a handler. */
  readonly isUp: boolean;
}

/** Reason for the end of receiving. */
export type ReceiveEnd = 'closed' | 'failed' | 'violation';

/** The receiver. */
export class Receiver {
  /** Reason for the end; undefined while receiving. */
  end: ReceiveEnd | undefined = undefined;
  /** Error number of `failed`. */
  failure = 0;
  /** Description of the violation by the peer, for `violation`. */
  violation = '';
  readonly #fd: number;
  readonly #records: RecordStream | undefined;
  readonly #buffers: TcpBuffers;
  readonly #sink: FrameSink;
  /** Received part of an incomplete frame. */
  #partial: Uint8Array | undefined = undefined;
  /** Bytes of padding after a body that are not received yet. */
  #padding = 0;
  #inPayload = false;
  /** Whether an end follows the body and its padding. */
  #expectsEnd = false;
  /** A message in the stored rest waits for a message handler. */
  #isStalled = false;
  #expectsBulk = false;

  /** @param records source of all data; undefined for a connection that is not encrypted */
  constructor(fd: number, buffers: TcpBuffers, sink: FrameSink, records: RecordStream | undefined) {
    this.#records = records;
    this.#fd = fd;
    this.#buffers = buffers;
    this.#sink = sink;
  }

  /**
   * Receives available data and delivers its frames.
   * @param polls maximum number of system calls
   * @returns bytes received; see {@link end}
   */
  receive(polls: number): number {
    if (this.#isStalled && !this.#resume()) return 0;
    let total = 0;
    for (let poll = 0; poll < polls && this.#sink.isUp && !this.#isStalled; poll++) {
      const { payload } = this.#sink;
      const isDirect = this.#records === undefined && this.#inPayload && payload.left > 0 && payload.address !== 0;
      const bytesMax = isDirect ? Math.min(payload.contiguous, payload.left) : this.#room();
      const received = isDirect ? this.#receiveBody(payload, bytesMax) : this.#fill(bytesMax);
      if (received <= 0) {
        if (received !== -Errno.EAGAIN) this.#stop(received);
        return total;
      }
      total += received;
      // A record that is shorter than the buffer does not mean that there is no more data.
      if ((received < bytesMax && this.#records === undefined) || this.end !== undefined) return total;
    }
    return total;
  }

  /** Reads into the memory of the body and, if that is its last piece, what follows it, which saves a call of the kernel. */
  #receiveBody(payload: Payload, bytesMax: number): number {
    const { rx, pieces } = this.#buffers;
    const start = -this.#padding & 7;
    pieces.clear();
    pieces.add(payload.address, bytesMax);
    if (bytesMax === payload.left) pieces.add(rx.address + start, this.#expectsBulk ? HEADER_READ_BYTES : rx.byteLength - start);
    const received = pieces.receive(this.#fd);
    if (received <= 0) return received;
    payload.advance(Math.min(received, bytesMax));
    if (payload.left === 0) this.#endPayload();
    if (received > bytesMax) this.#consume(start, start + received - bytesMax);
    return received;
  }

  /** Offset of the next read in the shared memory, such that the frame after the rest of a body is at a multiple of 8. */
  get #start(): number {
    if (this.#partial !== undefined) return this.#partial.byteLength;
    const rest = (this.#inPayload ? this.#sink.payload.left : 0) + this.#padding;
    return -rest & 7;
  }

  /** Bytes of room for the next read. */
  #room(): number {
    return this.#expectsBulk && this.#partial === undefined
      ? HEADER_READ_BYTES
      : this.#buffers.rx.byteLength - this.#start;
  }

  /** Reads into the shared memory and delivers the frames in it. */
  #fill(bytesMax: number): number {
    const { rx } = this.#buffers;
    const partial = this.#partial;
    const start = this.#start;
    const received =
      this.#records === undefined
        ? tcpRecv(this.#fd, rx.address + start, bytesMax)
        : this.#records.receive(rx.u8, start);
    if (received <= 0) return received;
    if (partial !== undefined) rx.u8.set(partial);
    this.#consume(partial === undefined ? start : 0, start + received);
    return received;
  }

  /** Delivers messages that waited for a handler; false while there is none. */
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

  /** Delivers the frames in `[from, end)` of the shared memory; returns the offset of the first incomplete one. */
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
      if (type === FrameType.AM || type === FrameType.AM_ZCOPY || type === FrameType.AM_AFTER_PUTS) {
        const next = this.#message(at, end, type);
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

  /** Delivers a message; returns the offset of the next frame, or 0 if the message is incomplete. */
  #message(at: number, end: number, type: number): number {
    const hasEnd = type === FrameType.AM_ZCOPY;
    const headerBytes = headerBytesOf(type);
    const frame = this.#buffers.rxFrame;
    const byteLength = valueIn(frame.words, at >> 2);
    if (byteLength < 0 || byteLength > this.#buffers.rxBytesMax) {
      return this.#violate(`a message of ${byteLength >>> 0} bytes`, end);
    }
    const behind = at + headerBytes + padded(byteLength);
    const next = hasEnd ? behind + END_BYTES : behind;
    if (next > end) return 0;
    if (hasEnd && statusOf(frame.words, behind >> 2) !== Status.OK) return next;
    if (!this.#sink.hasHandler) {
      this.#isStalled = true;
      return 0;
    }
    frame.offset = at + headerBytes;
    frame.byteLength = byteLength;
    this.#expectsBulk = false;
    const { words } = frame;
    const isAfterPuts = type === FrameType.AM_AFTER_PUTS;
    this.#sink.onMessage(
      isAfterPuts ? idAfterPuts(words, at >> 2, this.#sink.transmitter.putsInRow) : messageIdOf(words, at >> 2),
    );
    return next;
  }

  /** Processes a frame other than a message; false if the connection has ended. */
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

  /** Consumes bytes of a body or its padding from the shared memory; returns how many. */
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
