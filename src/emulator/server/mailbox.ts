/**
 * Mailbox: memory through which a process runs ioctls of one open file on a node server. Contains the layout, the requests and replies in its slots, and
 * the words by which both sides notify each other.
 *
 * 0        1 while the server sleeps: a client that posts a request must ring the doorbell
 * 16       1 while the client sleeps until the reply in slot 0
 * 32       number of requests posted in slots other than 0; wraps
 * 48       number of settled requests in slots other than 0; wraps
 * 64       ring of posted slots: ASYNC_SLOTS words
 * 4160     ring of settled slots: ASYNC_SLOTS words
 * 8256     slot 0: a request of BLOCK_WORDS_MAX words, then its reply
 * 16480    slots 1 to ASYNC_SLOTS, each a request of BLOCK_WORDS_MIN words, then its reply
 *
 * Offsets are in 32-bit words. A slot holds one ioctl at a time. Slot 0 is for blocking calls: the client writes the request, then its sequence number;
 * the server writes the reply, then the same number. The other slots are for non-blocking waits: the client writes the request, then the slot number into
 * the ring of posted slots; the server writes the reply, then that number into the ring of settled slots. Request and reply are on separate cache lines.
 */

import type { ArgumentBlock } from '../../driver/port.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import { argumentWords } from '../driver/base/ioctl-request.ts';

/** Version of this layout and of the messages. Both sides must have the same version, except for the requests in any-version.ts. */
export const NODE_PROTOCOL_VERSION = 10;

/**
 * Request number of an access to a mapped register, which no ioctl has. Its block: id of the mapping, offset, value, 1 for a write. The reply to a read has the
 * value.
 */
export const REGISTER_ACCESS = 1;
/** Words of such a block. */
export const REGISTER_ACCESS_WORDS = 4;
/** Its word with the value. */
export const REGISTER_VALUE = 2;

/** Maximum number of words of an argument block that are transferred: an ioctl has at most 16383 bytes. */
export const BLOCK_WORDS_MAX = 4096;
/** Minimum number of words that are transferred, if the block has as many: the arguments and the chunk behind them. Slots for waits have space for no more. */
export const BLOCK_WORDS_MIN = 32;
/** Limit of pending non-blocking calls per file; the next one returns EAGAIN. A power of two. */
export const ASYNC_SLOTS = 4096;

export const SERVER_SLEEPING = 0;
const CLIENT_SLEEPING = 16;
export const POSTED = 32;
const SETTLED = 48;
const POSTED_RING = 64;
const SETTLED_RING: number = POSTED_RING + ASYNC_SLOTS;
const FIRST_SLOT: number = SETTLED_RING + ASYNC_SLOTS;

/** Space before the argument block: one cache line. */
const HEADER_WORDS_MAX = 16;
const HALF_WORDS: number = HEADER_WORDS_MAX + BLOCK_WORDS_MAX;
const ASYNC_HALF_WORDS: number = HEADER_WORDS_MAX + BLOCK_WORDS_MIN;
const FIRST_ASYNC_SLOT: number = FIRST_SLOT + 2 * HALF_WORDS;

/** Bytes of a mailbox, in whole pages. */
export const MAILBOX_BYTES: number =
  Math.ceil(((FIRST_ASYNC_SLOT + ASYNC_SLOTS * 2 * ASYNC_HALF_WORDS) * 4) / 4096) * 4096;

export function requestWord(slot: number): number {
  return slot === 0 ? FIRST_SLOT : FIRST_ASYNC_SLOT + (slot - 1) * 2 * ASYNC_HALF_WORDS;
}

export function replyWord(slot: number): number {
  return requestWord(slot) + (slot === 0 ? HALF_WORDS : ASYNC_HALF_WORDS);
}

export function slotWordsMax(slot: number): number {
  return slot === 0 ? BLOCK_WORDS_MAX : BLOCK_WORDS_MIN;
}

/** Number of words of a block of `blockWords` that are transferred with a request. */
export function transferredWords(request: number, blockWords: number): number {
  return Math.min(blockWords, Math.max(BLOCK_WORDS_MIN, argumentWords(request)));
}

/**
 * Request in a slot: an ioctl and its argument block. These functions neither check nor announce requests.
 *
 * 0     sequence number, slot 0 only: written last (announceRequest)
 * 1     request number of the ioctl
 * 2     number of words of the argument block
 * 3, 4  address of the argument block in the client
 * 5     1 if the client has populated the memory to be pinned
 * 8     words of the argument block
 */

/** Word with the number of words of the block, which the server checks. */
export const REQUEST_COUNT = 2;
const NUMBER = 1;
const ADDRESS = 3;
const PINNED = 5;
const REQUEST_BLOCK = 8;

const fields = { request: 0, count: 0, address: 0, isPinned: false };

/** Fields of a request, not checked; its block has `count` words. */
export type RequestFields = Readonly<typeof fields>;

/** Writes a request with the words of the block that its ioctl can use and the slot can hold. */
export function writeRequest(
  mailbox: Int32Array,
  slot: number,
  request: number,
  { address, words }: ArgumentBlock,
  isPinned: boolean,
): void {
  const at = requestWord(slot);
  const count = Math.min(slotWordsMax(slot), transferredWords(request, words.length));
  mailbox[at + NUMBER] = request;
  mailbox[at + REQUEST_COUNT] = count;
  mailbox[at + ADDRESS] = address | 0;
  mailbox[at + ADDRESS + 1] = highOf(address);
  mailbox[at + PINNED] = isPinned ? 1 : 0;
  const to = at + REQUEST_BLOCK;
  for (let i = 0; i < count; i++) mailbox[to + i] = words[i]! | 0;
}

/** Reads a request, each word once. The fields are valid until the next call, so that an ioctl allocates nothing. */
export function readRequest(mailbox: Int32Array, slot: number): RequestFields {
  const at = requestWord(slot);
  fields.request = mailbox[at + NUMBER]!;
  fields.count = mailbox[at + REQUEST_COUNT]!;
  fields.address = joinWords(mailbox[at + ADDRESS]!, mailbox[at + ADDRESS + 1]!);
  fields.isPinned = mailbox[at + PINNED] === 1;
  return fields;
}

/** Copies the argument block of a request into `words`, up to its length. */
export function readRequestBlock(mailbox: Int32Array, slot: number, words: Uint32Array): void {
  const from = requestWord(slot) + REQUEST_BLOCK;
  for (let i = 0; i < words.length; i++) words[i] = mailbox[from + i]!;
}

/**
 * Reply in a slot: the result of an ioctl and the words of its argument block that it has changed. These functions do not announce replies.
 *
 * 0     sequence number of the request, slot 0 only: written last (announceReply)
 * 1     result: 0 or a negative errno
 * 2     number of words of the argument block that the ioctl may have changed
 * 4     words of the argument block
 */

const RESULT = 1;
const COUNT = 2;
const ANSWER_BLOCK = 4;

/** Writes a reply with the first `count` words of the argument block. */
export function writeReply(mailbox: Int32Array, slot: number, result: number, words: Uint32Array, count: number): void {
  const at = replyWord(slot);
  const to = at + ANSWER_BLOCK;
  for (let i = 0; i < count; i++) mailbox[to + i] = words[i]! | 0;
  mailbox[at + COUNT] = count;
  mailbox[at + RESULT] = result;
}

/** Copies the words of a reply to the argument block, and returns the result. */
export function readReply(mailbox: Int32Array, slot: number, words: Uint32Array): number {
  const at = replyWord(slot);
  const count = Math.min(mailbox[at + COUNT]!, words.length);
  const from = at + ANSWER_BLOCK;
  for (let i = 0; i < count; i++) words[i] = mailbox[from + i]!;
  return mailbox[at + RESULT]!;
}

/**
 * Words by which client and server notify each other: sequence numbers of slot 0, rings of the other slots, flags of sleeping sides. Write the announced
 * data before.
 */

const REQUESTED: number = requestWord(0);
const REPLIED: number = replyWord(0);

/** Offset in bytes of the word that a sleeping client waits on: the sequence number of the reply in slot 0. */
export const REPLIED_OFFSET: number = REPLIED * 4;

/** Makes the request in slot 0 visible to the server. */
export function announceRequest(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, REQUESTED, sequence);
}

/** Sequence number of the last request in slot 0. */
export function requestedSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, REQUESTED);
}

/** Makes the reply in slot 0 visible to the client. */
export function announceReply(mailbox: Int32Array, sequence: number): void {
  Atomics.store(mailbox, REPLIED, sequence);
}

/** Sequence number of the last reply in slot 0. */
export function repliedSequence(mailbox: Int32Array): number {
  return Atomics.load(mailbox, REPLIED);
}

/** Makes the request in another slot visible to the server. @param posted number of requests posted before @returns the new number */
export function postSlot(mailbox: Int32Array, posted: number, slot: number): number {
  mailbox[POSTED_RING + (posted & (ASYNC_SLOTS - 1))] = slot;
  const count = (posted + 1) | 0;
  Atomics.store(mailbox, POSTED, count);
  return count;
}

/** Wraps. */
export function postedCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, POSTED);
}

/** Slot of the nth posted request. */
export function postedSlot(mailbox: Int32Array, n: number): number {
  return mailbox[POSTED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Makes the reply in another slot visible to the client. @param settled number of requests settled before @returns the new number */
export function settleSlot(mailbox: Int32Array, settled: number, slot: number): number {
  mailbox[SETTLED_RING + (settled & (ASYNC_SLOTS - 1))] = slot;
  const count = (settled + 1) | 0;
  Atomics.store(mailbox, SETTLED, count);
  return count;
}

/** Wraps. */
export function settledCount(mailbox: Int32Array): number {
  return Atomics.load(mailbox, SETTLED);
}

/** Slot of the nth settled request. */
export function settledSlot(mailbox: Int32Array, n: number): number {
  return mailbox[SETTLED_RING + (n & (ASYNC_SLOTS - 1))]!;
}

/** Sets the flag that makes clients ring the doorbell. */
export function setServerSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, SERVER_SLEEPING, sleeping ? 1 : 0);
}

export function isServerSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, SERVER_SLEEPING) !== 0;
}

/** Sets the flag that makes the server wake the client after a reply in slot 0. */
export function setClientSleeping(mailbox: Int32Array, sleeping: boolean): void {
  Atomics.store(mailbox, CLIENT_SLEEPING, sleeping ? 1 : 0);
}

export function isClientSleeping(mailbox: Int32Array): boolean {
  return Atomics.load(mailbox, CLIENT_SLEEPING) !== 0;
}
