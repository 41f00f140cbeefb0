/**
 * The active messages of ucp: ids, and what the words of their headers mean. The first word of every header names the endpoint of the
 * receiver; 64-bit values are two words, low first. No behaviour.
 */

import { Status } from '../../ucs/status.ts';

/** Ids of active messages. A change in their meaning is a new version of the worker address. */
export const MessageId = {
  /**
   * endpoint, {@link WireupCode}, endpoint of the sender, number of the connection, window that the sender gives; payload of request, to endpoint 0, and
   * attach: worker address.
   */
  WIREUP: 0,
  /** endpoint, 0, tag; payload: the message. */
  TAG: 1,
  /** endpoint, request to reply to, tag; payload: the message. */
  TAG_SYNC: 2,
  /** endpoint, request of the sender, tag, length; payload: remote key of the data, or nothing. See {@link RTS_OFFSET}. */
  TAG_RTS: 3,
  /**
   * endpoint, request of the sender, request of the receiver, bytes of the key of the target, offset and length of the window, byte of the target at
   * which the message begins; payload: key of the target, or nothing, and key of the fragment that takes the window, or nothing.
   */
  RTR: 4,
  /** endpoint, request of the receiver, offset; payload: bytes of the data. */
  DATA: 5,
  /** endpoint, request, status, 0, result. */
  REPLY: 6,
  /** endpoint, handler | flags, header bytes, 0; payload: header, padded to 8 bytes, and the message. */
  AM: 7,
  /** endpoint, handler | flags, header bytes, key bytes, length, request of the sender, 0, offset behind the key; payload: header, padded, key. */
  AM_RTS: 8,
  /** endpoint, {@link STREAM_ASKED} or 0; payload: bytes of the stream. */
  STREAM: 9,
  /** endpoint, request, offset, length; payload: key of the memory. */
  PUT: 10,
  GET: 11,
  /** endpoint, request of the getter, request of the server, status. */
  GET_READY: 12,
  /** endpoint, request, offset, operation, word bytes, value, compare; payload: key of the memory. */
  ATOMIC: 13,
  /** endpoint, 0: the sender has closed. */
  CLOSE: 14,
  /** endpoint, request of the receiver, offset and length of what has been written, {@link ATP_IN_TARGET} or 0; payload: what carried it, or nothing. */
  ATP: 15,
  /** endpoint, code, bytes, window: see credit/credit-messages.ts. */
  CREDIT: 16,
} as const;

/** Flag of a message of the stream: the receiver has asked for it, and it takes no credit. */
export const STREAM_ASKED = 1;

/** Flag of an ATP: the bytes are in the target, and not in the fragment. */
export const ATP_IN_TARGET = 1;

/** Bytes of the shortest message of each id: its header. */
export const MESSAGE_BYTES_MIN: readonly number[] = [24, 16, 16, 32, 40, 16, 24, 16, 40, 8, 24, 24, 16, 40, 8, 32, 24];

/** What a WIREUP message says. */
export const WireupCode = { REQUEST: 0, REPLY: 1, ATTACH: 2 } as const;

/** Endpoint id of nobody: endpoints count from 1. */
export const NO_ENDPOINT = 0;

/** True for a status that an operation may end with, whoever says so. */
export function isEnding(status: number): status is Status {
  return status <= Status.OK && status >= Status.ENDPOINT_TIMEOUT;
}

/** Words of the longest header. */
export const HEADER_WORDS_MAX = 12;
/** Bytes of the longest header. */
export const HEADER_BYTES_MAX: number = HEADER_WORDS_MAX * 4;
