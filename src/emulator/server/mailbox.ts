/**
 * Layout of the memory through which a process runs ioctls of one open file on a node server. Below are the contents of a slot, and the words by which
 * both sides notify each other.
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

import type { ArgumentBlock } from '../../driver/port.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import { argumentWords } from '../driver/base/ioctl-request.ts';

/** Version of this layout and of the messages; both sides must have the same, but for those of any-version.ts. */
export const NODE_PROTOCOL_VERSION = 8;

/** Maximum number of transferred words of an argument block: an ioctl has at most 16383 bytes. */
export const BLOCK_WORDS_MAX = 4096;
/** Minimum number of transferred words if the block has as many: the arguments and the chunk behind them. Maximum number for a wait. */
export const BLOCK_WORDS_MIN = 32;
/** Maximum number of unsettled non-blocking calls of one file; a further one returns EAGAIN. A power of two. */
export const ASYNC_SLOTS = 4096;

export const SERVER_SLEEPING = 0;
const CLIENT_SLEEPING = 16;
export const POSTED = 32;
const SETTLED = 48;
const POSTED_RING = 64;
const SETTLED_RING: number = POSTED_RING + ASYNC_SLOTS;
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

/*
 * The request of a slot of a mailbox: an ioctl and its argument block. Nothing is checked or announced here.
 *
 *   0     sequence number, of slot 0: written last (announceRequest)
 *   1     request number of the ioctl
 *   2     number of words of the argument block
 *   3, 4  address of the argument block in the client
 *   5     1 if the client has populated the memory to be pinned
 *   8     words of the argument block
 */

/** Word of a request with the number of words of its block, which the server checks. */
export const REQUEST_COUNT = 2;
const NUMBER = 1;
const ADDRESS = 3;
const PINNED = 5;
const REQUEST_BLOCK = 8;

const fields = { request: 0, count: 0, address: 0, isPinned: false };

/** The fields of a request, unchecked; its block has `count` words. */
export type RequestFields = Readonly<typeof fields>;

/** Writes a request: the words of the block that its ioctl can use and the slot can hold. */
export function writeRequest(
  mailbox: Int32Array,
  slot: number,
  request: number,
  { address, words }: ArgumentBlock,
  isPinned: boolean,
): void {
  const at = requestWord(slot);
  const count = Math.min(slotWordsMax(slot), travellingWords(request, words.length));
  mailbox[at + NUMBER] = request;
  mailbox[at + REQUEST_COUNT] = count;
  mailbox[at + ADDRESS] = address | 0;
  mailbox[at + ADDRESS + 1] = highOf(address);
  mailbox[at + PINNED] = isPinned ? 1 : 0;
  const to = at + REQUEST_BLOCK;
  for (let i = 0; i < count; i++) mailbox[to + i] = words[i]! | 0;
}

/** Reads a request, each word once. The fields are valid until the next one is read: for every ioctl, so nothing is allocated. */
export function readRequest(mailbox: Int32Array, slot: number): RequestFields {
  const at = requestWord(slot);
  fields.request = mailbox[at + NUMBER]!;
  fields.count = mailbox[at + REQUEST_COUNT]!;
  fields.address = joinWords(mailbox[at + ADDRESS]!, mailbox[at + ADDRESS + 1]!);
  fields.isPinned = mailbox[at + PINNED] === 1;
  return fields;
}

/** Copies the argument block of a request into `words`, as many as they are. */
export function readRequestBlock(mailbox: Int32Array, slot: number, words: Uint32Array): void {
  const from = requestWord(slot) + REQUEST_BLOCK;
  for (let i = 0; i < words.length; i++) words[i] = mailbox[from + i]!;
}

/*
 * The answer of a slot of a mailbox: the result of an ioctl and what it has changed in its argument block. Nothing is announced here.
 *
 *   0     sequence number of the request, of slot 0: written last (announceAnswer)
 *   1     result: 0 or a negative errno
 *   2     number of words of the argument block: those that the ioctl may have changed
 *   4     words of the argument block
 */

const RESULT = 1;
const COUNT = 2;
const ANSWER_BLOCK = 4;

/** Writes an answer with the first `count` words of the argument block. */
export function writeAnswer(
  mailbox: Int32Array,
  slot: number,
  result: number,
  words: Uint32Array,
  count: number,
): void {
  const at = answerWord(slot);
  const to = at + ANSWER_BLOCK;
  for (let i = 0; i < count; i++) mailbox[to + i] = words[i]! | 0;
  mailbox[at + COUNT] = count;
  mailbox[at + RESULT] = result;
}

/** Copies the words of an answer to the argument block, and returns the result. */
export function readAnswer(mailbox: Int32Array, slot: number, words: Uint32Array): number {
  const at = answerWord(slot);
  const count = Math.min(mailbox[at + COUNT]!, words.length);
  const from = at + ANSWER_BLOCK;
  for (let i = 0; i < count; i++) words[i] = mailbox[from + i]!;
  return mailbox[at + RESULT]!;
}

/*
 * The words by which client and server of a mailbox notify each other: sequence numbers of slot 0, rings of the other slots, flags of a side that
 * sleeps. What they announce must be written before.
 */

const REQUESTED: number = requestWord(0);
const ANSWERED: number = answerWord(0);

/** Offset in bytes of the word on which a client sleeps: the sequence number of the answer in slot 0. */
export const ANSWERED_OFFSET: number = ANSWERED * 4;

/** Makes the request in slot 0 visible to the server. */
export function announceRequest(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, REQUESTED, sequence);
}

/** Sequence number of the last request in slot 0. */
export function requestedSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, REQUESTED);
}

/** Makes the answer in slot 0 visible to the client. */
export function announceAnswer(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, ANSWERED, sequence);
}

/** Sequence number of the last answer in slot 0. */
export function answeredSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, ANSWERED);
}

/** Makes the request in another slot visible to the server. @returns the number of posted requests, `posted` of which were before it */
export function postSlot(mailbox: Int32Array, posted: number, slot: number): number {
  mailbox[POSTED_RING + (posted & (ASYNC_SLOTS - 1))] = slot;
  const count = (posted + 1) | 0;
  Atomics.store(mailbox, POSTED, count);
  return count;
}

/** Number of posted requests; wraps. */
export function postedCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, POSTED);
}

/** Slot of the nth posted request. */
export function postedSlot(mailbox: Int32Array, n: number): number {
  return mailbox[POSTED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Makes the answer in another slot visible to the client. @returns the number of settled requests, `settled` of which were before it */
export function settleSlot(mailbox: Int32Array, settled: number, slot: number): number {
  mailbox[SETTLED_RING + (settled & (ASYNC_SLOTS - 1))] = slot;
  const count = (settled + 1) | 0;
  Atomics.store(mailbox, SETTLED, count);
  return count;
}

/** Number of settled requests; wraps. */
export function settledCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, SETTLED);
}

/** Slot of the nth settled request. */
export function settledSlot(mailbox: Int32Array, n: number): number {
  return mailbox[SETTLED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Sets the flag that requires the client to ring the doorbell. */
export function setServerSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, SERVER_SLEEPING, sleeping ? 1 : 0);
}

/** Whether the server has to be woken. */
export function isServerSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, SERVER_SLEEPING) !== 0;
}

/** Sets the flag that requires the server to wake the client after an answer in slot 0. */
export function setClientSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, CLIENT_SLEEPING, sleeping ? 1 : 0);
}

/** Whether the client has to be woken. */
export function isClientSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, CLIENT_SLEEPING) !== 0;
}
