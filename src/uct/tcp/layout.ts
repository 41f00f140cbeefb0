/**
 * The frames of tcp on an established connection: the meaning of their words. Little-endian, padded to 8 bytes, so that every frame begins at a
 * multiple of 8 of the stream.
 *
 * Word 0: type in the low 8 bits, id of the active message in the next 8. Word 1: bytes of the body behind the header, without padding. 64-bit values
 * are two words, low first. Acknowledgements and replies have the order of their requests.
 *
 * GET_DATA and AM_ZCOPY are sent from memory of the program, which it can detach after a part has been sent. Two words follow the padding, the
 * end: a status, which says whether the body is valid, and 0.
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';

/** Types. A change in their meaning requires a new {@link TCP_VERSION}. */
export const FrameType = {
  /** Body: the message. */
  AM: 1,
  /** Words 2 to 7 key, 8 and 9 offset; body: the bytes. */
  PUT: 2,
  /** Word 1: number of puts that have arrived, with their bytes in memory. */
  ACK: 3,
  /** Word 1: the failure of the next put. */
  NACK: 4,
  /** Words 2 to 7 key, 8 and 9 offset, 10 and 11 length. */
  GET: 5,
  /** Body: the bytes of the next get, or empty if it fails; end. */
  GET_DATA: 6,
  /** Word 1: interval of the sender's heartbeats in milliseconds. */
  HEARTBEAT: 7,
  /** The sender has no more endpoints on this connection, and will not create any on it. */
  BYE: 8,
  /** Body: the message; end. A failure in the end means that the receiver must ignore the message. */
  AM_ZCOPY: 9,
  /** An AM after puts. Word 2: number of preceding puts that must have arrived, 3: its id if one of them failed. */
  AM_AFTER_PUTS: 10,
  /** Word 1: number of PUT headers that follow, at most {@link PUT_RUN_MAX}; their bodies, each padded, follow the last header in the same order. */
  PUT_RUN: 11,
} as const;

/** Version of frames and hellos. */
export const TCP_VERSION = 5;

/** Bytes of the header without further words. */
export const HEADER_BYTES = 8;
export const PUT_HEADER_BYTES = 40;
export const GET_HEADER_BYTES = 48;
export const AFTER_PUTS_HEADER_BYTES = 16;
/** Bytes of the end of a GET_DATA or AM_ZCOPY. */
export const END_BYTES = 8;
/** Bytes of the longest header. */
export const HEADER_BYTES_MAX = 48;

/** Indices of words. */
const INFO = 0;
const VALUE = 1;
const BODY = 2;
const KEY = 2;
const PUTS = 2;
const FAILED_ID = 3;
const OFFSET = 8;
const GET_LENGTH = 10;

/** Ids of messages have 5 bits. */
export const AM_ID_MASK = 31;

/** Words of a key in a frame: slot, generation, secret. */
export const KEY_WORDS = 6;

/** Maximum number of puts of a PUT_RUN: a receiver reads all of their bodies with one system call. */
export const PUT_RUN_MAX = 30;
const PUT_WORDS: number = PUT_HEADER_BYTES / 4;
/** Words of the headers of all puts of the longest PUT_RUN. */
export const PUT_RUN_WORDS: number = PUT_RUN_MAX * PUT_WORDS;
/** Bytes of the headers of the longest PUT_RUN. */
export const PUT_RUN_HEADER_BYTES: number = HEADER_BYTES + PUT_RUN_WORDS * 4;

/** Maximum bytes of the body of one put or get; longer operations are split. */
export const FRAME_BODY_BYTES_MAX: number = 2 ** 30;

/** Maximum number of pending gets of one end; more are a violation. */
export const GETS_MAX = 64;
/** Maximum number of unacknowledged puts of one end; more wait. */
export const PUTS_MAX = 4096;

/** A length with its padding. */
export function padded(byteLength: number): number {
  return (byteLength + 7) & ~7;
}

/** The padding of a body of this length. */
export function paddingOf(byteLength: number): number {
  return -byteLength & 7;
}

/** Bytes of the header of a type; 0 for an unknown type. */
export function headerBytesOf(type: number): number {
  switch (type) {
    case FrameType.PUT:
      return PUT_HEADER_BYTES;
    case FrameType.GET:
      return GET_HEADER_BYTES;
    case FrameType.AM_AFTER_PUTS:
      return AFTER_PUTS_HEADER_BYTES;
    case FrameType.PUT_RUN:
      return HEADER_BYTES;
    default:
      return type >= FrameType.AM && type <= FrameType.AM_ZCOPY ? HEADER_BYTES : 0;
  }
}

/** Writes a header with one value: ACK, NACK, HEARTBEAT, BYE, GET_DATA or PUT_RUN. */
export function writeSignal(words: Int32Array, at: number, type: number, value: number): void {
  words[at + INFO] = type;
  words[at + VALUE] = value;
}

/** Writes the header of a message. @param id at most 255 */
export function writeAm(words: Int32Array, at: number, type: number, id: number, byteLength: number): void {
  words[at + INFO] = type | (id << 8);
  words[at + VALUE] = byteLength;
}

/** Writes the first words of the message of an AM or AM_ZCOPY: those of the caller's header. */
export function writeAmWords(words: Int32Array, at: number, header: Int32Array, headerWords: number): void {
  const to = at + BODY;
  for (let i = 0; i < headerWords; i++) words[to + i] = header[i]!;
}

/**
 * Turns the header that {@link writeAm} has written into that of an AM_AFTER_PUTS.
 * @param puts number of puts that must have arrived
 * @param failedId id of the message otherwise, at most 31
 */
export function setAfterPuts(words: Int32Array, at: number, puts: number, failedId: number): void {
  words[at + PUTS] = puts;
  words[at + FAILED_ID] = failedId;
}

/** Writes the header of a PUT. @param key {@link KEY_WORDS} words */
export function writePut(words: Int32Array, at: number, key: Int32Array, offset: number, byteLength: number): void {
  words[at + INFO] = FrameType.PUT;
  words[at + VALUE] = byteLength;
  for (let i = 0; i < KEY_WORDS; i++) words[at + KEY + i] = key[i]!;
  words[at + OFFSET] = offset | 0;
  words[at + OFFSET + 1] = highOf(offset);
}

/** First word of the header of a put of a PUT_RUN, among the headers of the run. */
export function putWordInRun(index: number): number {
  return index * PUT_WORDS;
}

/** Copies the header of a PUT to its position among the headers of a run. */
export function copyPutToRun(run: Int32Array, index: number, words: Int32Array, at: number): void {
  const to = putWordInRun(index);
  for (let i = 0; i < PUT_WORDS; i++) run[to + i] = words[at + i]!;
}

/** Writes a GET. @param key {@link KEY_WORDS} words */
export function writeGet(words: Int32Array, at: number, key: Int32Array, offset: number, byteLength: number): void {
  writePut(words, at, key, offset, 0);
  words[at + INFO] = FrameType.GET;
  words[at + GET_LENGTH] = byteLength | 0;
  words[at + GET_LENGTH + 1] = highOf(byteLength);
}

/** Writes the end of a GET_DATA or AM_ZCOPY. */
export function writeEnd(words: Int32Array, at: number, status: number): void {
  words[at] = status;
  words[at + 1] = 0;
}

/** The type of a frame, which may be unknown. */
export function typeOf(words: Int32Array, at: number): number {
  return words[at + INFO]! & 0xff;
}

/** The id of an AM. */
export function messageIdOf(words: Int32Array, at: number): number {
  return (words[at + INFO]! >> 8) & 0xff;
}

/** The id with which an AM_AFTER_PUTS is delivered. @param putsInRow number of preceding puts since the last one that failed */
export function idAfterPuts(words: Int32Array, at: number, putsInRow: number): number {
  const puts = words[at + PUTS]!;
  return puts >= 0 && puts <= putsInRow ? messageIdOf(words, at) : words[at + FAILED_ID]! & AM_ID_MASK;
}

/** Bytes of the body, or the value of a frame without a body. */
export function valueIn(words: Int32Array, at: number): number {
  return words[at + VALUE]!;
}

/** Index of the first word of the key of a PUT or GET. */
export function keyWordOf(at: number): number {
  return at + KEY;
}

/** The offset of a PUT or GET. If it is not a safe integer, it is outside of any memory. */
export function offsetOf(words: Int32Array, at: number): number {
  return joinWords(words[at + OFFSET]!, words[at + OFFSET + 1]!);
}

/** The length of a GET. */
export function getLengthOf(words: Int32Array, at: number): number {
  return joinWords(words[at + GET_LENGTH]!, words[at + GET_LENGTH + 1]!);
}

/** The status of an end, as a word. */
export function statusOf(words: Int32Array, at: number): number {
  return words[at]!;
}
