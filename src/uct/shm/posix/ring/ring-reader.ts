/** The receiving end of a ring: delivers the messages of one sender in order. Data of the sender is checked before it is used. */

import type { AmHandler } from '../../../api/iface.ts';
import { identityText } from '../../../base/iface-address.ts';
import type { Segment } from '../../../base/key/segment.ts';
import type { TransferCounters } from '../../../base/transfer-counters.ts';
import { RingFrame } from './ring-frame.ts';
import {
  ELEMENT_HEADER_BYTES,
  ElementWord,
  ID_MASK,
  IN_SEGMENT,
  RING_HEADER_BYTES,
  type RingGeometry,
  RingWord,
  segmentsAt,
  senderOf,
} from './ring-layout.ts';

/** Maximum number of messages of one ring in one call of progress, so that no sender delays the others. */
const MESSAGES_PER_POLL = 32;

/** The receiving end. */
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
  /** The same for bytes in segments. */
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
   * @returns how many; negative, -1 minus the number, if the sender sleeps until there is room and must be woken
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
      // Before the handler is called, so that no message is delivered twice.
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

  /** Publishes the progress of this end; true if the sender sleeps until that. */
  #publish(head: number): boolean {
    this.#published = head;
    this.#unreleasedBytes = 0;
    Atomics.store(this.#words, RingWord.TAIL, head);
    return Atomics.load(this.#words, RingWord.WANT) !== 0 && Atomics.exchange(this.#words, RingWord.WANT, 0) !== 0;
  }
}
