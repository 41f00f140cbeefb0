/**
 * Layout of a ring: messages of one sender to one receiver, in a segment that the sender creates. Written by ring-writer.ts, read by ring-reader.ts.
 *
 * Header, elements, segments. An element contains a short message, or names the first of the adjacent segments of a longer one. Its sequence word is stored
 * last, with Atomics, and is polled by the receiver: one cache line carries a small message.
 */

import { SEGMENT_NAME_BYTES } from '../../../base/key/segment-name.ts';

/** The geometry of a ring. */
export interface RingGeometry {
  /** A power of two. */
  readonly elements: number;
  /** A multiple of 64. */
  readonly elementBytes: number;
  /** Bytes of a segment; a multiple of 64. */
  readonly segmentBytes: number;
  /** A power of two, at most as many as elements. */
  readonly segments: number;
}

/**
 * Words of the header, in cache lines by writer. WAKE_FD: descriptor of the sender's wake-up pipe; 0 if the pipe has a path. SENDER: packed name of the
 * sender's directory. TAIL: messages that the receiver has processed. WANT: 1 while the sender sleeps until TAIL changes.
 */
export const RingWord = {
  VERSION: 0,
  ELEMENTS: 1,
  ELEMENT_BYTES: 2,
  SEGMENTS: 3,
  SEGMENT_BYTES: 4,
  WAKE_FD: 5,
  SENDER: 8,
  TAIL: 16,
  WANT: 32,
} as const;

/** The sender of the messages in a ring. */
export interface RingSender {
  /** Packed name of its directory. */
  readonly directoryName: Uint8Array;
  /** Descriptor of its wake-up pipe; 0 if the pipe has a path. */
  readonly wakeFd: number;
}

/** Words of an element. INFO: the id of the message in bits 0 to 7, then {@link IN_SEGMENT}. */
export const ElementWord = { SEQUENCE: 0, INFO: 1, LENGTH: 2, SEGMENT: 3, DATA: 4 } as const;

/** The message is in the segments from the one that the element names on. */
export const IN_SEGMENT = 0x100;
export const ID_MASK = 0x1f;
/** Bytes of an element before its message. */
export const ELEMENT_HEADER_BYTES = 16;
export const RING_HEADER_BYTES = 256;
export const RING_VERSION = 3;

/** A message takes at most this part of the segments, so that a ring has room for several of the longest. */
const SEGMENTS_PER_MESSAGE_SHIFT = 3;

/** Adjacent segments of the longest message. */
export function messageSegmentsMax({ segments }: RingGeometry): number {
  return Math.max(1, segments >> SEGMENTS_PER_MESSAGE_SHIFT);
}

/** Longest message. */
export function messageBytesMax(geometry: RingGeometry): number {
  return messageSegmentsMax(geometry) * geometry.segmentBytes;
}

/** Offset of the segments. */
export function segmentsAt({ elements, elementBytes }: RingGeometry): number {
  return RING_HEADER_BYTES + elements * elementBytes;
}

/** Bytes of a whole ring. */
export function ringBytes(geometry: RingGeometry): number {
  return segmentsAt(geometry) + geometry.segments * geometry.segmentBytes;
}

/** Writes the header of a new ring. */
export function writeRingHeader(
  words: Int32Array,
  bytes: Uint8Array,
  geometry: RingGeometry,
  { directoryName, wakeFd }: RingSender,
): void {
  words[RingWord.VERSION] = RING_VERSION;
  words[RingWord.ELEMENTS] = geometry.elements;
  words[RingWord.ELEMENT_BYTES] = geometry.elementBytes;
  words[RingWord.SEGMENTS] = geometry.segments;
  words[RingWord.SEGMENT_BYTES] = geometry.segmentBytes;
  words[RingWord.WAKE_FD] = wakeFd;
  bytes.set(directoryName, RingWord.SENDER * 4);
}

/** The geometry of a ring that another process created; undefined if it is invalid, or does not fit into the segment. */
export function readRingGeometry(words: Int32Array, byteLength: number): RingGeometry | undefined {
  if (words[RingWord.VERSION] !== RING_VERSION) return undefined;
  const geometry = {
    elements: words[RingWord.ELEMENTS]!,
    elementBytes: words[RingWord.ELEMENT_BYTES]!,
    segments: words[RingWord.SEGMENTS]!,
    segmentBytes: words[RingWord.SEGMENT_BYTES]!,
  };
  const { elements, elementBytes, segments, segmentBytes } = geometry;
  const isGood =
    isPower(elements) && isPower(segments) && isLines(elementBytes) && isLines(segmentBytes) && segments <= elements;
  return isGood && ringBytes(geometry) <= byteLength ? geometry : undefined;
}

/** The sender in the header of a ring that another process created: any values. */
export function senderOf(words: Int32Array, bytes: Uint8Array): RingSender {
  const directoryName = bytes.slice(RingWord.SENDER * 4, RingWord.SENDER * 4 + SEGMENT_NAME_BYTES);
  return { directoryName, wakeFd: words[RingWord.WAKE_FD]! };
}

function isPower(value: number): boolean {
  return value > 0 && (value & (value - 1)) === 0;
}

function isLines(value: number): boolean {
  return value > 0 && value % 64 === 0;
}
