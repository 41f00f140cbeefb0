/**
 * Layout of the memory through which a process runs ioctls of one open file on a node server. No behaviour: waiting
 * is implemented in remote-file.ts and served-file.ts.
 *
 * A mailbox is a header, two rings and slots. A slot holds one ioctl at a time. Slot 0 is for calls that block the client: the client writes the request and
 * then its sequence number; the server writes the answer and then the same number. The other slots are for waits that do not block: the client writes the
 * request and then the number of the slot into the ring of posted requests; the server writes the answer and then that number into the ring of settled
 * requests. Request and answer are on separate cache lines. Offsets are in 32-bit words.
 */

import { argumentWords } from '../driver/base/ioctl-request.ts';

/** Version of this layout and of the messages; both sides must have the same. */
export const NODE_PROTOCOL_VERSION = 7;

/** Maximum number of transferred words of an argument block: an ioctl has at most 16383 bytes. */
export const BLOCK_WORDS_MAX = 4096;
/** Minimum number of transferred words if the block has as many: the arguments and the chunk behind them. Maximum number for a wait. */
export const BLOCK_WORDS_MIN = 32;
/** Maximum number of unsettled non-blocking calls of one file; a further one returns EAGAIN. A power of two. */
export const ASYNC_SLOTS = 4096;

/** 1 while the server sleeps: a client that posts a request then has to ring the doorbell. */
export const SERVER_SLEEPING = 0;
/** 1 while the client sleeps on the answer of slot 0. */
export const CLIENT_SLEEPING = 16;
/** Numbers of requests posted in slots other than 0, and of those that are settled; both wrap. */
export const POSTED = 32;
export const SETTLED_CALLS = 48;
const POSTED_RING = 64;
const SETTLED_RING: number = POSTED_RING + ASYNC_SLOTS;
const FIRST_SLOT: number = SETTLED_RING + ASYNC_SLOTS;

/** The request of a slot: the sequence number is stored last. */
export const REQUEST_SEQUENCE = 0;
export const REQUEST_NUMBER = 1;
/** Number of words of the argument block in the request, and the address of the block in the client. */
export const REQUEST_WORDS = 2;
export const REQUEST_ADDRESS_LOW = 3;
export const REQUEST_ADDRESS_HIGH = 4;
/** 1 if the client has populated the memory to be pinned. */
export const REQUEST_PINNED = 5;
export const REQUEST_BLOCK = 8;
/** The answer of a slot: the sequence number is stored last. */
export const ANSWER_SEQUENCE = 0;
export const ANSWER_RESULT = 1;
/** Number of words of the argument block in the answer: those that the ioctl may have changed. */
export const ANSWER_WORDS = 2;
export const ANSWER_BLOCK = 4;
const HALF_WORDS: number = 16 + BLOCK_WORDS_MAX;
const ASYNC_HALF_WORDS: number = 16 + BLOCK_WORDS_MIN;
const FIRST_ASYNC_SLOT: number = FIRST_SLOT + 2 * HALF_WORDS;

/** Bytes of a mailbox, whole pages. */
export const MAILBOX_BYTES: number =
  Math.ceil(((FIRST_ASYNC_SLOT + ASYNC_SLOTS * 2 * ASYNC_HALF_WORDS) * 4) / 4096) * 4096;

/** First word of the request of a slot. */
export function requestWord(slot: number): number {
  return slot === 0 ? FIRST_SLOT : FIRST_ASYNC_SLOT + (slot - 1) * 2 * ASYNC_HALF_WORDS;
}

/** First word of the answer of a slot. */
export function answerWord(slot: number): number {
  return requestWord(slot) + (slot === 0 ? HALF_WORDS : ASYNC_HALF_WORDS);
}

/** Maximum number of words of the block of a slot. */
export function slotWordsMax(slot: number): number {
  return slot === 0 ? BLOCK_WORDS_MAX : BLOCK_WORDS_MIN;
}

/** Word of the nth posted request in its ring. */
export function postedWord(count: number): number {
  return POSTED_RING + (count & (ASYNC_SLOTS - 1));
}

/** Word of the nth settled request in its ring. */
export function settledWord(count: number): number {
  return SETTLED_RING + (count & (ASYNC_SLOTS - 1));
}

/** Number of words, out of a block of `blockWords`, that are sent with a request. */
export function travellingWords(request: number, blockWords: number): number {
  return Math.min(blockWords, Math.max(BLOCK_WORDS_MIN, argumentWords(request)));
}
