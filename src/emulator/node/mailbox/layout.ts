/**
 * Layout of the memory through which a process runs ioctls of one open file on a node server. The contents of a slot are in request.ts and
 * answer.ts, the words by which both sides notify each other in signals.ts; waiting is implemented in remote-file.ts and served-file.ts.
 *
 *   0        1 while the server sleeps: a client that posts a request then has to ring the doorbell
 *   16       1 while the client sleeps on the answer of slot 0
 *   32       number of requests posted in slots other than 0; wraps
 *   48       number of those that are settled; wraps
 *   64       ring of posted slots: ASYNC_SLOTS words
 *   4160     ring of settled slots: ASYNC_SLOTS words
 *   8256     slot 0: a request of BLOCK_WORDS_MAX words, then its answer
 *   16480    slots 1 to ASYNC_SLOTS, each a request of BLOCK_WORDS_MIN words, then its answer
 *
 * Offsets are in 32-bit words. A slot holds one ioctl at a time. Slot 0 is for calls that block the client: the client writes the request and
 * then its sequence number; the server writes the answer and then the same number. The other slots are for waits that do not block: the client writes the
 * request and then the number of the slot into the ring of posted requests; the server writes the answer and then that number into the ring of settled
 * requests. Request and answer are on separate cache lines.
 */

import { argumentWords } from '../../driver/base/ioctl-request.ts';

/** Version of this layout and of the messages; both sides must have the same, but for those of any-version.ts. */
export const NODE_PROTOCOL_VERSION = 8;

/** Maximum number of transferred words of an argument block: an ioctl has at most 16383 bytes. */
export const BLOCK_WORDS_MAX = 4096;
/** Minimum number of transferred words if the block has as many: the arguments and the chunk behind them. Maximum number for a wait. */
export const BLOCK_WORDS_MIN = 32;
/** Maximum number of unsettled non-blocking calls of one file; a further one returns EAGAIN. A power of two. */
export const ASYNC_SLOTS = 4096;

export const SERVER_SLEEPING = 0;
export const CLIENT_SLEEPING = 16;
export const POSTED = 32;
export const SETTLED = 48;
export const POSTED_RING = 64;
export const SETTLED_RING: number = POSTED_RING + ASYNC_SLOTS;
const FIRST_SLOT: number = SETTLED_RING + ASYNC_SLOTS;

/** Words in front of the argument block, at most: a cache line. */
const HEADER_WORDS_MAX = 16;
const HALF_WORDS: number = HEADER_WORDS_MAX + BLOCK_WORDS_MAX;
const ASYNC_HALF_WORDS: number = HEADER_WORDS_MAX + BLOCK_WORDS_MIN;
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

/** Number of words, out of a block of `blockWords`, that are sent with a request. */
export function travellingWords(request: number, blockWords: number): number {
  return Math.min(blockWords, Math.max(BLOCK_WORDS_MIN, argumentWords(request)));
}
