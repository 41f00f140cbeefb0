/** The sending end of a ring: copies messages into it, unless the ring is full. The endpoint wakes the receiver. */

import { copyBytes, storeWords } from '../../../../ucs/memory/copy-bytes.ts';
import { Status } from '../../../../ucs/type/status.ts';
import type { AmPacker } from '../../../api/iface.ts';
import { Segment } from '../../../base/key/segment.ts';
import { SEGMENT_FOLDER } from '../../../base/key/segment-name.ts';
import { isInside } from '../../../base/range.ts';
import { RingFrame } from './ring-frame.ts';
import {
  ELEMENT_HEADER_BYTES,
  ElementWord,
  IN_SEGMENT,
  messageSegmentsMax,
  RING_HEADER_BYTES,
  type RingGeometry,
  type RingSender,
  RingWord,
  ringBytes,
  segmentsAt,
  writeRingHeader,
} from './ring-layout.ts';

/** The sending end. */
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
   * Requests to be woken when there is room again.
   * @returns false if there is room already
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

  /** Number of the first of `count` adjacent segments: those at the end of the ring that are too few are left out. */
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

  /** Whether there is room for another message; reads the progress of the receiver. */
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

  /** Whether there is room for a message in `count` adjacent segments. */
  #hasSegments(count: number): boolean {
    const last = (this.#firstOf(count) + count - 1) | 0;
    const isKnown =
      ((this.#head - this.#tail) | 0) <= this.#mask && ((last - this.#segmentTail) | 0) <= this.#segmentMask;
    if (isKnown) return true;
    return this.#hasRoom() && ((last - this.#segmentTail) | 0) <= this.#segmentMask;
  }
}
