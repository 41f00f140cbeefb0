/**
 * The receiving half of a connection: splits the stream into frames and checks them before they are used. Invalid data ends the connection with a
 * reason.
 */

import { Errno, TCP_PIECES_MAX, type TcpPieces, tcpRecv } from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  copyPutToRun,
  END_BYTES,
  FRAME_BODY_BYTES_MAX,
  FrameType,
  HEADER_BYTES,
  headerBytesOf,
  idAfterPuts,
  messageIdOf,
  PUT_RUN_HEADER_BYTES,
  PUT_RUN_MAX,
  PUT_RUN_WORDS,
  padded,
  paddingOf,
  putWordInRun,
  statusOf,
  typeOf,
  valueIn,
} from '../layout.ts';
import type { RecordStream } from '../secure/session.ts';
import type { TcpBuffers } from './buffers.ts';
import { type Inbound, NO_VIOLATION, type Payload } from './inbound.ts';

/** Longer bodies are received directly into memory, so their header is read without the bytes that follow it. */
const BULK_BYTES_MIN = 65_536;
/** Bytes of a header read if headers with long bodies are expected: those of a PUT_RUN. */
const HEADER_READ_BYTES = PUT_RUN_HEADER_BYTES;

/** Received bytes of a body that count as one sign of life: frames behind a long body arrive late on a slow network. */
const BODY_BYTES_PER_SIGN = 4096;

/** Placeholder for a connection that has not received a run. */
const NO_HEADERS = new Int32Array(0);
/** The end of the shared memory, into which padding is received. */
const JUNK_BYTES = 8;

/** Reason for the end of receiving. */
export type ReceiveEnd = 'closed' | 'failed' | 'violation';

/** The headers of a PUT_RUN, whose bodies follow behind the last of them. */
class PutRun {
  /** Number of headers that are still to come. */
  missing = 0;
  headers: Int32Array = NO_HEADERS;
  #count = 0;
  /** The next header whose body is received. */
  #next = 0;

  /** Number of bodies that have not begun, when no header is missing. */
  get left(): number {
    return this.#count - this.#next;
  }

  /** Begins a run of `count` headers. */
  begin(count: number): void {
    if (this.headers === NO_HEADERS) this.headers = new Int32Array(PUT_RUN_WORDS);
    this.missing = count;
    this.#count = count;
    this.#next = count;
  }

  /** Stores the next header; true if it is the last one. */
  add(words: Int32Array, word: number): boolean {
    copyPutToRun(this.headers, this.#count - this.missing, words, word);
    this.missing -= 1;
    if (this.missing > 0) return false;
    this.#next = 0;
    return true;
  }

  /** Word index of one of the next headers. */
  wordOf(index: number): number {
    return putWordInRun(this.#next + index);
  }

  /** Bytes of the body of one of the next headers. */
  lengthOf(index: number): number {
    return valueIn(this.headers, this.wordOf(index));
  }

  /** Takes the next header: returns its word index. */
  take(): number {
    const at = this.wordOf(0);
    this.#next += 1;
    return at;
  }
}

/** The parser of one connection. */
export class FrameParser {
  /** Reason for the end; undefined while receiving. */
  end: ReceiveEnd | undefined = undefined;
  /** Error number of `failed`. */
  failure = 0;
  /** Number of complete frames. */
  #frames = 0;
  /** Number of bytes of bodies. */
  #bodyBytes = 0;
  /** Description of the violation by the peer, for `violation`. */
  violation = '';
  readonly #fd: number;
  readonly #records: RecordStream | undefined;
  readonly #buffers: TcpBuffers;
  readonly #sink: Inbound;
  /** Where the received part of an incomplete frame is in the shared memory; end 0 if there is none or if another connection has received since. */
  #partialAt = 0;
  #partialEnd = 0;
  /** A private copy of that part. */
  #partial: Uint8Array | undefined = undefined;
  /** Called before another connection receives. */
  readonly #vacate: () => void = () => {
    if (this.#partialEnd === 0) return;
    this.#partial = this.#buffers.rx.u8.slice(this.#partialAt, this.#partialEnd);
    this.#partialEnd = 0;
  };
  /** Bytes of padding after a body that are not received yet. */
  #padding = 0;
  #inPayload = false;
  /** Whether an end follows the body and its padding. */
  #expectsEnd = false;
  /** True while a message in the stored rest waits for a message handler. */
  #isStalled = false;
  #expectsBulk = false;
  readonly #run: PutRun = new PutRun();

  /** @param records source of all data; undefined for a connection that is not encrypted */
  constructor(fd: number, buffers: TcpBuffers, sink: Inbound, records: RecordStream | undefined) {
    this.#records = records;
    this.#fd = fd;
    this.#buffers = buffers;
    this.#sink = sink;
  }

  /** Signs of life of the peer until now: complete frames, and slices of bodies. Bytes of an incomplete frame or record do not count. */
  get signsOfLife(): number {
    return this.#frames + Math.floor(this.#bodyBytes / BODY_BYTES_PER_SIGN);
  }

  /** Whether puts of a run are still to come. */
  get isInRun(): boolean {
    return this.#run.missing > 0 || this.#run.left > 0;
  }

  /**
   * Receives available data and delivers its frames.
   * @param polls maximum number of system calls
   * @returns bytes received; see {@link end}
   */
  receive(polls: number): number {
    if (this.#buffers.isDelivering) return 0;
    this.#buffers.claim(this.#vacate);
    if (this.#isStalled && !this.#resume()) return 0;
    const { transmitter } = this.#sink;
    const { queued } = transmitter;
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
      if (isDirect) this.#bodyBytes += received;
      // Send replies before reading the data behind their requests.
      if (transmitter.queued !== queued) return total;
      // A record that is shorter than the buffer does not mean that there is no more data.
      if ((received < bytesMax && this.#records === undefined) || this.end !== undefined) return total;
    }
    return total;
  }

  /**
   * Reads into the memory of the body and, if that is its last range, into that of the puts behind it, then the bytes that follow: one system call instead of
   * one for each.
   */
  #receiveBody(payload: Payload, bytesMax: number): number {
    const { rx, pieces } = this.#buffers;
    pieces.clear();
    pieces.add(payload.address, bytesMax);
    if (bytesMax < payload.left) {
      const received = pieces.receive(this.#fd);
      if (received > 0) payload.advance(received);
      return received;
    }
    const chained = this.#addRun(pieces);
    const last = chained === 0 ? this.#padding : paddingOf(this.#run.lengthOf(chained - 1));
    const start = -last & 7;
    const room = rx.byteLength - JUNK_BYTES - start;
    pieces.add(rx.address + start, this.#expectsBulk ? Math.min(HEADER_READ_BYTES, room) : room);
    const received = pieces.receive(this.#fd);
    if (received <= 0) return received;
    const behind = this.#endBodies(received, chained);
    if (behind > 0 && this.#sink.isUp) this.#consume(start, start + behind);
    return received;
  }

  /** Adds the memory of the next puts of the run, up to the first one without memory; returns their number. */
  #addRun(pieces: TcpPieces): number {
    const { rx } = this.#buffers;
    const run = this.#run;
    let padding = this.#padding;
    let count = 0;
    // One range is for the rest of the current body, and one for the bytes behind the last body.
    for (let free = TCP_PIECES_MAX - 2; count < run.left && free >= 2; free -= 2, count++) {
      const byteLength = run.lengthOf(count);
      const place = byteLength === 0 ? 0 : this.#sink.placeOfPut(run.headers, run.wordOf(count));
      if (place === 0) break;
      if (padding > 0) pieces.add(rx.address + rx.byteLength - JUNK_BYTES, padding);
      pieces.add(place, byteLength);
      padding = paddingOf(byteLength);
    }
    return count;
  }

  /** Processes bytes that were received into the current body and `chained` ones of the run; returns how many followed those. */
  #endBodies(received: number, chained: number): number {
    const { payload } = this.#sink;
    let left = received;
    for (let following = chained; ; following--) {
      const bytes = Math.min(left, payload.left);
      payload.advance(bytes);
      left -= bytes;
      if (payload.left > 0) return 0;
      this.#endPayload();
      if (following === 0 || !this.#sink.isUp) return left;
      // Without padding between them, the next body has begun.
      if (this.#inPayload) continue;
      const padding = Math.min(left, this.#padding);
      left -= padding;
      this.#endPadding(padding);
      if (!this.#inPayload) return 0;
    }
  }

  /** Offset of the next read in the shared memory, such that the frame after the rest of a body is at a multiple of 8. */
  get #start(): number {
    if (this.#partialEnd > 0) return this.#partialEnd;
    if (this.#partial !== undefined) return this.#partial.byteLength;
    const rest = (this.#inPayload ? this.#sink.payload.left : 0) + this.#padding;
    return -rest & 7;
  }

  /** Free bytes for the next read. */
  #room(): number {
    return this.#expectsBulk && !this.#hasPartial ? HEADER_READ_BYTES : this.#buffers.rx.byteLength - this.#start;
  }

  /** Reads into the shared memory and delivers the frames in it. */
  #fill(bytesMax: number): number {
    const { rx, rxAddress } = this.#buffers;
    const start = this.#start;
    const received =
      this.#records === undefined
        ? tcpRecv(this.#fd, start === 0 ? rxAddress.value! : rx.address + start, bytesMax)
        : this.#records.receive(rx.u8, start);
    if (received <= 0) return received;
    this.#consume(this.#hasPartial ? this.#takePartial() : start, start + received);
    return received;
  }

  /** Delivers messages that waited for a handler; false while there is none. */
  #resume(): boolean {
    if (!this.#sink.hasHandler || !this.#hasPartial) return false;
    this.#isStalled = false;
    const end = this.#start;
    this.#consume(this.#takePartial(), end);
    return true;
  }

  get #hasPartial(): boolean {
    return this.#partialEnd > 0 || this.#partial !== undefined;
  }

  /** Keeps the beginning of a frame: in place if the rest of it, and more, can be read behind it. */
  #keepPartial(at: number, end: number): void {
    const { rx, rxReadBytes } = this.#buffers;
    const isInPlace = rx.byteLength - end >= rxReadBytes;
    if (!isInPlace) rx.u8.copyWithin(0, at, end);
    this.#partialAt = isInPlace ? at : 0;
    this.#partialEnd = isInPlace ? end : end - at;
  }

  /** The start of the incomplete frame in the shared memory, from which parsing continues. */
  #takePartial(): number {
    const at = this.#partialEnd > 0 ? this.#partialAt : 0;
    if (this.#partial !== undefined) this.#buffers.rx.u8.set(this.#partial);
    this.#partial = undefined;
    this.#partialEnd = 0;
    return at;
  }

  /** Delivers the frames of one read. Their replies are sent together, which saves system calls and short TCP segments. */
  #consume(from: number, end: number): void {
    const { transmitter } = this.#sink;
    const { isCorked } = transmitter;
    transmitter.isCorked = true;
    this.#buffers.isDelivering = true;
    let used: number;
    try {
      used = this.#parse(from, end);
    } finally {
      transmitter.isCorked = isCorked;
      this.#buffers.isDelivering = false;
    }
    if (used < end) this.#keepPartial(used, end);
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
        this.#frames += 1;
        if (!this.#accept(this.#sink.onPayloadEnd(statusOf(words, word)))) return end;
        at += END_BYTES;
        continue;
      }
      const type = typeOf(words, word);
      if (this.#run.missing > 0 && type !== FrameType.PUT)
        return this.#violate(`frame of type ${type} in a run of puts`, end);
      if (type === FrameType.AM || type === FrameType.AM_ZCOPY || type === FrameType.AM_AFTER_PUTS) {
        const next = this.#message(at, end, type);
        if (next === 0) break;
        this.#frames += 1;
        at = next;
      } else {
        const headerBytes = headerBytesOf(type);
        if (headerBytes === 0) return this.#violate(`frame of unknown type ${type}`, end);
        if (end - at < headerBytes) break;
        this.#frames += 1;
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
      return this.#violate(`message with invalid length ${byteLength >>> 0}`, end);
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
          this.#violate(`body with invalid length ${value >>> 0}`, 0);
          return false;
        }
        if (this.#run.missing > 0) return this.#addToRun(words, word);
        if (type === FrameType.PUT) this.#sink.onPut(words, word);
        else if (!this.#accept(this.#sink.onGetData(value))) return false;
        this.#expectsEnd = type === FrameType.GET_DATA;
        this.#expectsBulk = value >= BULK_BYTES_MIN;
        this.#beginPayload(value);
        return this.#sink.isUp;
      case FrameType.PUT_RUN:
        if (value < 1 || value > PUT_RUN_MAX) {
          this.#violate(`run with invalid number of puts ${value >>> 0}`, 0);
          return false;
        }
        this.#run.begin(value);
        return true;
      case FrameType.GET:
        return this.#accept(this.#sink.onGet(words, word));
      case FrameType.ACK:
        return this.#accept(this.#sink.onAcknowledged(value));
      case FrameType.NACK:
        return this.#accept(this.#sink.onNack(value));
      case FrameType.HEARTBEAT:
        this.#sink.onHeartbeat(value);
        return true;
      default:
        this.#sink.hasBye = true;
        return true;
    }
  }

  /** Stores a header of a run; after the last one, the first body begins. */
  #addToRun(words: Int32Array, word: number): boolean {
    if (!this.#run.add(words, word)) return true;
    this.#expectsBulk = true;
    this.#expectsEnd = false;
    this.#beginNextOfRun();
    return this.#sink.isUp;
  }

  /** Begins the next body of the run if the previous one is complete and another one follows. */
  #beginNextOfRun(): void {
    const run = this.#run;
    if (this.#padding > 0 || run.left === 0 || !this.#sink.isUp) return;
    const at = run.take();
    this.#sink.onPut(run.headers, at);
    this.#beginPayload(valueIn(run.headers, at));
  }

  #beginPayload(byteLength: number): void {
    this.#inPayload = true;
    this.#padding = paddingOf(byteLength);
    if (byteLength === 0) this.#endPayload();
  }

  #endPayload(): void {
    this.#inPayload = false;
    if (!this.#expectsEnd && !this.#accept(this.#sink.onPayloadEnd(Status.OK))) return;
    this.#beginNextOfRun();
  }

  /** Counts received bytes of padding. */
  #endPadding(byteLength: number): void {
    this.#padding -= byteLength;
    this.#beginNextOfRun();
  }

  /** Consumes bytes of a body or its padding from the shared memory; returns how many. */
  #takeBody(at: number, end: number): number {
    if (!this.#inPayload) {
      const padding = Math.min(this.#padding, end - at);
      this.#endPadding(padding);
      return padding;
    }
    const { payload } = this.#sink;
    const bytes = Math.min(payload.left, end - at);
    payload.take(this.#buffers.rx.u8, at, bytes);
    this.#bodyBytes += bytes;
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

  /** Handles the result of the sink; false for a violation. */
  #accept(violation: string): boolean {
    if (violation === NO_VIOLATION) return true;
    this.#violate(violation, 0);
    return false;
  }

  /** Ends receiving: the connection ends when the call of {@link receive} returns. */
  #violate(what: string, end: number): number {
    this.violation = what;
    this.end = 'violation';
    this.#sink.isUp = false;
    return end;
  }
}
