/**
 * Layout of a directory, in which the senders to one interface announce their rings, and of a ring, which contains the messages of one sender to one receiver,
 * in a segment that the sender creates.
 *
 * A sender claims a slot of the directory by storing its pid in OWNER, writes the name of its ring and sets STATE to READY; when it closes, to CLOSED. Only
 * the receiver frees slots. It marks a ring that it cannot read as REFUSED until the sender closes. Every change increments CHANGES, which the receiver polls.
 *
 * The receiver polls the rings of a few active senders, and sets POLLED in their slots. Any other sender sets its bit in DOORBELLS after it has published a
 * message, then the bit of that word in DOORBELL_SUMMARY, the one word that the receiver polls for all of them.
 *
 * A ring has a header, elements and segments. An element contains a short message, or the index of the first of the adjacent segments of a longer one. Its
 * sequence word is stored last, with Atomics, and is polled by the receiver: one cache line carries a small message.
 */

import { unpackIdentity } from '../../../sys/index.ts';
import { SEGMENT_NAME_BYTES, type SharedFile, segmentPath } from '../../base/key/segment-name.ts';

/** Maximum number of senders to one interface at a time; further ones get NO_RESOURCE until a slot is free. */
export const SLOTS = 1024;
const SLOT_WORDS = 16;
const HEADER_WORDS = 96;
/** Bytes of a directory. */
export const DIRECTORY_BYTES: number = (HEADER_WORDS + SLOTS * SLOT_WORDS) * 4;
export const DIRECTORY_VERSION = 3;

/** Words of the header, in cache lines by writer. WAKE_FD: descriptor of the wake-up pipe; 0 if it has a path. SCARCE: 1 if a sender has found no free slot. */
export const DirectoryWord = {
  VERSION: 0,
  WAKE_FD: 1,
  CHANGES: 16,
  SCARCE: 17,
  ATTENTION: 32,
  DOORBELL_SUMMARY: 48,
  DOORBELLS: 64,
} as const;

/** Values of ATTENTION, for senders. */
export const Attention = { AWAKE: 0, SLEEPING: 1, CLOSED: 2 } as const;

/** Words of a slot. POLLED: 1 while the receiver polls the ring, and no doorbell is needed. NAME: the packed name of the ring. */
export const SlotWord = { OWNER: 0, STATE: 1, POLLED: 2, NAME: 4 } as const;

/** States of a slot. */
export const SlotState = { EMPTY: 0, READY: 1, CLOSED: 2, REFUSED: 3 } as const;

/** Index of the first word of a slot. */
export function slotAt(slot: number): number {
  return HEADER_WORDS + slot * SLOT_WORDS;
}

/** Rings the doorbell of a slot. */
export function ringDoorbell(words: Int32Array, slot: number): void {
  const group = slot >> 5;
  Atomics.or(words, DirectoryWord.DOORBELLS + group, 1 << (slot & 31));
  Atomics.or(words, DirectoryWord.DOORBELL_SUMMARY, 1 << group);
}

/** Takes the doorbells that have rung, and calls `each` with their slots. */
export function takeDoorbells(words: Int32Array, each: (slot: number) => void): void {
  let groups = Atomics.exchange(words, DirectoryWord.DOORBELL_SUMMARY, 0);
  for (; groups !== 0; groups &= groups - 1) {
    const group = lowestBit(groups);
    let slots = Atomics.exchange(words, DirectoryWord.DOORBELLS + group, 0);
    for (; slots !== 0; slots &= slots - 1) each(group * 32 + lowestBit(slots));
  }
}

function lowestBit(bits: number): number {
  return 31 - Math.clz32(bits & -bits);
}

/**
 * The pipe that wakes the owner of a directory.
 * @param folder folder of the directory
 * @param fd see WAKE_FD
 */
export function wakeFile(directoryName: Uint8Array, folder: string, fd: number): SharedFile {
  return { path: wakePath(segmentPath(directoryName, folder)), pid: unpackIdentity(directoryName, 0).pid, fd };
}

/** Path of the pipe beside a directory. */
export function wakePath(directoryPath: string): string {
  return `${directoryPath}.wake`;
}

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

/** A message takes at most this fraction of the segments (as a shift), so that several of the longest messages fit in a ring. */
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
