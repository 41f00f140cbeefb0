/**
 * The request of a slot of a mailbox: an ioctl and its argument block. Nothing is checked or announced here.
 *
 *   0     sequence number, of slot 0: written last (signals.ts)
 *   1     request number of the ioctl
 *   2     number of words of the argument block
 *   3, 4  address of the argument block in the client
 *   5     1 if the client has populated the memory to be pinned
 *   8     words of the argument block
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { highOf, joinWords } from '../../../ucs/type/int64.ts';
import { requestWord, slotWordsMax, travellingWords } from './layout.ts';

/** Word of a request with the number of words of its block, which the server checks. */
export const REQUEST_COUNT = 2;
const NUMBER = 1;
const ADDRESS = 3;
const PINNED = 5;
const BLOCK = 8;

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
  const to = at + BLOCK;
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
  const from = requestWord(slot) + BLOCK;
  for (let i = 0; i < words.length; i++) words[i] = mailbox[from + i]!;
}
