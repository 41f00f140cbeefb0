/**
 * Layout of the memory through which a process runs ioctls of one open file on a node server. No behaviour: waiting
 * is implemented in remote-file.ts and served-file.ts.
 *
 * A mailbox is a header and slots. A slot holds one ioctl at a time: the client writes the request and then its sequence number, the server
 * the answer and then the same number. Slot 0 is for calls that block the client, the others for calls that do not. Request and answer
 * are on separate cache lines. Offsets are in 32-bit words.
 */

import { argumentWords } from '../driver/base/ioctl-request.ts';

/** Version of this layout and of the messages; both sides must have the same. */
export const NODE_PROTOCOL_VERSION = 6;

/** Maximum number of transferred words of an argument block: an ioctl has at most 16383 bytes. */
export const BLOCK_WORDS_MAX = 4096;
/** Minimum number of transferred words, for smaller ioctls: arguments and the chunk behind them. */
export const BLOCK_WORDS_MIN = 32;
/** Maximum number of unsettled non-blocking calls of one file; a further one returns EAGAIN. */
export const ASYNC_SLOTS = 16;
const SLOTS: number = 1 + ASYNC_SLOTS;

/** 1 while the server sleeps: a client that posts a request then has to ring the doorbell. */
export const SERVER_SLEEPING = 0;
/** 1 while the client sleeps on the answer of slot 0. */
export const CLIENT_SLEEPING = 16;
/** Incremented by every request in a slot other than 0. */
export const ASYNC_BELL = 32;
const HEADER_WORDS = 64;

/** The request of a slot: its sequence number is stored last. */
export const REQUEST_SEQUENCE = 0;
export const REQUEST_NUMBER = 1;
/** Number of words of the argument block that follow, and the address of the block in the client. */
export const REQUEST_WORDS = 2;
export const REQUEST_ADDRESS_LOW = 3;
export const REQUEST_ADDRESS_HIGH = 4;
/** 1 if the client has populated the memory to be pinned. */
export const REQUEST_PINNED = 5;
export const REQUEST_BLOCK = 8;
/** The answer of a slot: its sequence number is stored last. */
export const ANSWER_SEQUENCE = 4112;
export const ANSWER_RESULT = 4113;
/** Number of words of the argument block that follow: those that the ioctl may have changed. */
export const ANSWER_WORDS = 4114;
export const ANSWER_BLOCK = 4116;
const SLOT_WORDS = 8224;

/** Bytes of a mailbox, whole pages. */
export const MAILBOX_BYTES: number = Math.ceil(((HEADER_WORDS + SLOTS * SLOT_WORDS) * 4) / 4096) * 4096;

/** First word of a slot. */
export function slotWord(slot: number): number {
  return HEADER_WORDS + slot * SLOT_WORDS;
}

/** Number of words, out of a block of `blockWords`, that are sent with a request. */
export function travellingWords(request: number, blockWords: number): number {
  return Math.min(blockWords, Math.max(BLOCK_WORDS_MIN, argumentWords(request)));
}
