/**
 * The two ends of a ring. The sender copies messages into it while it has free space; its endpoint wakes the receiver. The receiver delivers the messages of
 * one sender in order, and validates their headers before use. One frame object is moved from message to message.
 */

import { copyBytes, storeWords } from '../../../ucs/memory/bytes.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { AmFrame, AmHandler, AmPacker } from '../../api/iface.ts';
import { isInside } from '../../base/checks.ts';
import type { TransferCounters } from '../../base/counters.ts';
import { identityText } from '../../base/iface.ts';
import { Segment } from '../../base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../base/key/segment-name.ts';
import {
  ELEMENT_HEADER_BYTES,
  ElementWord,
  ID_MASK,
  IN_SEGMENT,
  messageSegmentsMax,
  RING_HEADER_BYTES,
  type RingGeometry,
  type RingSender,
  RingWord,
  ringBytes,
  segmentsAt,
  senderOf,
  writeRingHeader,
} from './layout.ts';

/** The sending end of a ring. */
export class RingWriter {
  readonly segment: Segment;
  readonly #words: Int32Array;
  readonly #bytes: Uint8Array;
  readonly #frame: RingFrame;
  readonly #mask: number;
  readonly #elementWords: number;
  readonly #inlineBytesMax: number;
  readonly #segmentsAt: number;
  readonly #segmentBytes: number;
  readonly #segmentMask: number;
  readonly #messageSegmentsMax: number;
  /** Number of segments that were in use when each element was written. */
  readonly #segmentsAtElement: Int32Array;
  /** Number of messages written, and the last known number of processed ones. */
  #head = 0;
  #tail = 0;
  #segmentHead = 0;
  #segmentTail = 0;

  /**
   * Creates the ring.
   * @param sender the directory of the own interface, and its pipe
   * @param folder folder of its file, which the receiver removes
   * @throws SyscallError ENOSPC if /dev/shm is full
   */
  constructor(geometry: RingGeometry, sender: RingSender, folder: string = SEGMENT_FOLDER) {
    this.segment = Segment.create(ringBytes(geometry), { folder, keepsPath: true });
    this.#words = this.segment.words;
    this.#bytes = this.segment.bytes;
    this.#frame = new RingFrame(this.#bytes, this.#words, '');
    this.#mask = geometry.elements - 1;
    this.#elementWords = geometry.elementBytes / 4;
    this.#inlineBytesMax = geometry.elementBytes - ELEMENT_HEADER_BYTES;
    this.#segmentsAt = segmentsAt(geometry);
    this.#segmentBytes = geometry.segmentBytes;
    this.#segmentMask = geometry.segments - 1;
    this.#messageSegmentsMax = messageSegmentsMax(geometry);
    this.#segmentsAtElement = new Int32Array(geometry.elements);
    writeRingHeader(this.#words, this.#bytes, geometry, sender);
  }

  /** Adds a message of header and payload, together at most the longest message. Returns OK or NO_RESOURCE. */
  push(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    const words = this.#words;
    const headerBytes = headerWords * 4;
    const byteLength = headerBytes + payloadLength;
    if (byteLength > this.#inlineBytesMax) {
      return this.#pushLong(id, header, headerWords, payload, payloadOffset, payloadLength);
    }
    if (((this.#head - this.#tail) | 0) > this.#mask && !this.#hasRoom()) return Status.NO_RESOURCE;
    const element = this.#elementNow();
    words[element + ElementWord.INFO] = id;
    words[element + ElementWord.LENGTH] = byteLength;
    const data = element + ElementWord.DATA;
    for (let i = 0; i < headerWords; i++) words[data + i] = header[i]!;
    if (payload !== undefined && payloadLength > 0) {
      storeWords(words, data + headerWords, this.#bytes, payload, payloadOffset, payloadLength);
    }
    this.#publish(element);
    return Status.OK;
  }

  /** Adds a message that the packer writes, at most the longest message. Returns its bytes, or NO_RESOURCE without calling the packer. */
  pack(id: number, packer: AmPacker): number {
    const count = this.#messageSegmentsMax;
    if (!this.#hasSegments(count)) return Status.NO_RESOURCE;
    const first = this.#firstOf(count);
    const index = first & this.#segmentMask;
    const frame = this.#frame;
    frame.offset = this.#segmentsAt + index * this.#segmentBytes;
    frame.byteLength = count * this.#segmentBytes;
    const byteLength = packer.pack(frame);
    if (!isInside(0, byteLength, frame.byteLength)) return Status.INVALID_PARAM;
    this.#publishLong(id, first, this.#segmentsFor(byteLength), byteLength);
    return byteLength;
  }

  /**
   * Requests a wake-up when the ring has free space.
   * @returns false if it has free space already
   */
  wantRoom(): boolean {
    // Stored before TAIL is read, as the receiver stores TAIL before it reads this word.
    Atomics.store(this.#words, RingWord.WANT, 1);
    return !(this.#hasRoom() && this.#hasSegments(this.#messageSegmentsMax));
  }

  #pushLong(
    id: number,
    header: Int32Array,
    headerWords: number,
    payload: Uint8Array | undefined,
    payloadOffset: number,
    payloadLength: number,
  ): Status {
    const byteLength = headerWords * 4 + payloadLength;
    const count = this.#segmentsFor(byteLength);
    if (!this.#hasSegments(count)) return Status.NO_RESOURCE;
    const words = this.#words;
    const first = this.#firstOf(count);
    const at = this.#segmentsAt + (first & this.#segmentMask) * this.#segmentBytes;
    for (let i = 0; i < headerWords; i++) words[(at >> 2) + i] = header[i]!;
    if (payload !== undefined && payloadLength > 0) {
      copyBytes(this.#bytes, at + headerWords * 4, payload, payloadOffset, payloadLength);
    }
    this.#publishLong(id, first, count, byteLength);
    return Status.OK;
  }

  /** Publishes a message in `count` segments from `first` on. */
  #publishLong(id: number, first: number, count: number, byteLength: number): void {
    const words = this.#words;
    const element = this.#elementNow();
    words[element + ElementWord.LENGTH] = byteLength;
    words[element + ElementWord.INFO] = id | IN_SEGMENT;
    words[element + ElementWord.SEGMENT] = first & this.#segmentMask;
    this.#segmentHead = (first + count) | 0;
    this.#publish(element);
  }

  #segmentsFor(byteLength: number): number {
    return byteLength <= this.#segmentBytes ? 1 : Math.ceil(byteLength / this.#segmentBytes);
  }

  /** Index of the first of `count` adjacent segments: if too few are left at the end of the ring, they are skipped. */
  #firstOf(count: number): number {
    const left = this.#segmentMask + 1 - (this.#segmentHead & this.#segmentMask);
    return count <= left ? this.#segmentHead : (this.#segmentHead + left) | 0;
  }

  #elementNow(): number {
    return RING_HEADER_BYTES / 4 + (this.#head & this.#mask) * this.#elementWords;
  }

  #publish(element: number): void {
    this.#segmentsAtElement[this.#head & this.#mask] = this.#segmentHead;
    const head = (this.#head + 1) | 0;
    this.#head = head;
    // Stored last, with a full barrier: a reader that sees the sequence number sees the message, and this end sees a receiver that fell asleep before it.
    Atomics.store(this.#words, element + ElementWord.SEQUENCE, head);
  }

  /** Whether another message fits in the ring; reads the progress of the receiver. */
  #hasRoom(): boolean {
    const tail = Atomics.load(this.#words, RingWord.TAIL);
    // A count that exceeds the number of sent messages is ignored.
    if (((this.#head - tail) | 0) < 0 || ((tail - this.#tail) | 0) < 0) return false;
    if (tail !== this.#tail) {
      this.#tail = tail;
      this.#segmentTail = this.#segmentsAtElement[(tail - 1) & this.#mask]!;
    }
    return ((this.#head - tail) | 0) <= this.#mask;
  }

  /** Whether `count` adjacent segments are free. */
  #hasSegments(count: number): boolean {
    const last = (this.#firstOf(count) + count - 1) | 0;
    const isKnown =
      ((this.#head - this.#tail) | 0) <= this.#mask && ((last - this.#segmentTail) | 0) <= this.#segmentMask;
    if (isKnown) return true;
    return this.#hasRoom() && ((last - this.#segmentTail) | 0) <= this.#segmentMask;
  }
}

/** Maximum number of messages of one ring that one call of progress delivers, so that no sender delays the others. */
const MESSAGES_PER_POLL = 32;

/** The receiving end of a ring. */
export class RingReader {
  readonly segment: Segment;
  /** Set when the sender has closed or died: the remaining messages are delivered, then the ring is removed. */
  closing = false;
  /** True if the sender wrote invalid data: the ring is not read any more. */
  corrupt = false;
  readonly #words: Int32Array;
  readonly #counters: TransferCounters;
  readonly #frame: RingFrame;
  readonly #mask: number;
  readonly #elementWords: number;
  readonly #inlineBytesMax: number;
  readonly #segmentsAt: number;
  readonly #segmentBytes: number;
  readonly #segments: number;
  /** Number of messages after which the sender is notified; it is also notified when there are no more. */
  readonly #releaseAfter: number;
  /** Bytes in segments after which the sender is notified. */
  readonly #releaseAfterBytes: number;
  #head = 0;
  #published = 0;
  /** Bytes of messages in segments, since the sender was notified. */
  #unreleasedBytes = 0;

  constructor(segment: Segment, geometry: RingGeometry, counters: TransferCounters) {
    this.segment = segment;
    this.#counters = counters;
    this.#words = segment.words;
    const { directoryName } = senderOf(segment.words, segment.bytes);
    this.#frame = new RingFrame(segment.bytes, segment.words, identityText(directoryName));
    this.#mask = geometry.elements - 1;
    this.#elementWords = geometry.elementBytes / 4;
    this.#inlineBytesMax = geometry.elementBytes - ELEMENT_HEADER_BYTES;
    this.#segmentsAt = segmentsAt(geometry);
    this.#segmentBytes = geometry.segmentBytes;
    this.#segments = geometry.segments;
    this.#releaseAfter = Math.max(1, Math.min(geometry.elements, geometry.segments) >> 2);
    this.#releaseAfterBytes = (geometry.segments * geometry.segmentBytes) / 4;
  }

  /** Whether there is a message. */
  get hasMessage(): boolean {
    const element = RING_HEADER_BYTES / 4 + (this.#head & this.#mask) * this.#elementWords;
    return Atomics.load(this.#words, element) === ((this.#head + 1) | 0);
  }

  /** Whether a handler has rejected the sender. */
  get isRejected(): boolean {
    return this.#frame.isRejected;
  }

  /**
   * Delivers messages, up to a limit.
   * @returns how many; negative, -1 minus the number, if the sender sleeps until the ring has free space and must be woken
   */
  poll(handler: AmHandler): number {
    const words = this.#words;
    const first = this.#head;
    const last = (first + MESSAGES_PER_POLL) | 0;
    let head = first;
    while (head !== last && this.#unreleasedBytes < this.#releaseAfterBytes) {
      const element = RING_HEADER_BYTES / 4 + (head & this.#mask) * this.#elementWords;
      const next = (head + 1) | 0;
      if (words[element] !== next || !this.#open(element)) break;
      // Advanced before the handler is called, so that no message is delivered twice.
      this.#head = head = next;
      this.#counters.received(this.#frame.byteLength);
      handler(words[element + ElementWord.INFO]! & ID_MASK, this.#frame);
      if (this.#frame.isRejected) {
        this.closing = true;
        break;
      }
    }
    const count = (head - first) | 0;
    const unreleased = (head - this.#published) | 0;
    const isFew = unreleased < this.#releaseAfter && this.#unreleasedBytes < this.#releaseAfterBytes;
    if (unreleased === 0 || (count > 0 && isFew)) return count;
    return this.#publish(head) ? -1 - count : count;
  }

  /** Moves the frame to a message; false if the data of the sender is invalid. */
  #open(element: number): boolean {
    const words = this.#words;
    const frame = this.#frame;
    const byteLength = words[element + ElementWord.LENGTH]!;
    let offset = (element + ElementWord.DATA) * 4;
    let room = this.#inlineBytesMax;
    frame.slot = this.#head & this.#mask;
    if ((words[element + ElementWord.INFO]! & IN_SEGMENT) !== 0) {
      const index = words[element + ElementWord.SEGMENT]!;
      if (index < 0 || index >= this.#segments) return this.#refuse();
      offset = this.#segmentsAt + index * this.#segmentBytes;
      room = (this.#segments - index) * this.#segmentBytes;
      frame.slot = this.#mask + 1 + index;
      this.#unreleasedBytes += byteLength;
    }
    if (byteLength < 0 || byteLength > room) return this.#refuse();
    frame.offset = offset;
    frame.byteLength = byteLength;
    return true;
  }

  #refuse(): false {
    this.closing = true;
    this.corrupt = true;
    return false;
  }

  /** Publishes the progress of this end; true if the sender sleeps until then. */
  #publish(head: number): boolean {
    this.#published = head;
    this.#unreleasedBytes = 0;
    Atomics.store(this.#words, RingWord.TAIL, head);
    return Atomics.load(this.#words, RingWord.WANT) !== 0 && Atomics.exchange(this.#words, RingWord.WANT, 0) !== 0;
  }
}

/** The memory of a message in a ring. */
export class RingFrame implements AmFrame {
  readonly bytes: Uint8Array;
  readonly words: Int32Array;
  offset = 0;
  byteLength = 0;
  readonly source: string;
  /** The element or segment at which the message begins. */
  slot = 0;
  /** Whether the sender was rejected. */
  isRejected = false;
  /** The cached view of the last message in each slot, and its first byte. */
  readonly #parts: (Uint8Array | undefined)[] = [];
  readonly #starts: number[] = [];

  constructor(bytes: Uint8Array, words: Int32Array, source: string) {
    this.bytes = bytes;
    this.words = words;
    this.source = source;
  }

  reject(): void {
    this.isRejected = true;
  }

  part(start: number, byteLength: number): Uint8Array {
    const { slot } = this;
    const kept = this.#parts[slot];
    if (kept !== undefined && kept.length === byteLength && this.#starts[slot] === start) return kept;
    const made = this.bytes.subarray(start, start + byteLength);
    this.#parts[slot] = made;
    this.#starts[slot] = start;
    return made;
  }
}
