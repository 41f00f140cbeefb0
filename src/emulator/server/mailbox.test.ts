/** Requests and replies of a mailbox: reading returns the written fields in every slot, words of other slots do not change, and the layout is that of this protocol version. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import { DRM_IOCTLS } from '../../uapi/index.ts';
import {
  ASYNC_SLOTS,
  announceReply,
  announceRequest,
  BLOCK_WORDS_MIN,
  isClientSleeping,
  isServerSleeping,
  MAILBOX_BYTES,
  postedCount,
  postedSlot,
  postSlot,
  readReply,
  readRequest,
  readRequestBlock,
  repliedSequence,
  replyWord,
  requestedSequence,
  requestWord,
  setClientSleeping,
  setServerSleeping,
  settledCount,
  settledSlot,
  settleSlot,
  slotWordsMax,
  writeReply,
  writeRequest,
} from './mailbox.ts';

const CANARY = 0x5a5a_5a5a;
const mailbox = new Int32Array(MAILBOX_BYTES / 4);
const slot = fc.oneof(fc.constantFrom(0, 1, ASYNC_SLOTS), fc.integer({ min: 0, max: ASYNC_SLOTS }));
const word = fc.integer({ min: -(2 ** 31), max: 2 ** 31 - 1 });
const address = fc.integer({ min: 0, max: 2 ** 47 });
const block = fc.array(fc.nat({ max: 2 ** 32 - 1 }), { maxLength: 60 }).map((words) => Uint32Array.from(words));
const request = fc.constantFrom(DRM_IOCTLS.INFO, DRM_IOCTLS.CS, DRM_IOCTLS.WAIT_CS, DRM_IOCTLS.MEMORY);

/** Runs `write`, and expects that it changes nothing outside of `[from, end)`. */
function within(from: number, end: number, write: () => void): void {
  const around = [from - 1, end].filter((index) => index >= 0 && index < mailbox.length);
  for (const index of around) mailbox[index] = CANARY;
  write();
  expect(around.map((index) => mailbox[index])).toEqual(around.map(() => CANARY));
}

property(
  'a request is read as it is written',
  [slot, request, address, block, fc.boolean()],
  (at, number, blockAddress, words, isPinned) => {
    const end = replyWord(at);
    within(requestWord(at), end, () => writeRequest(mailbox, at, number, { address: blockAddress, words }, isPinned));
    // Arguments of all requests here are shorter than the minimum.
    const count = Math.min(words.length, BLOCK_WORDS_MIN);
    expect({ ...readRequest(mailbox, at) }).toEqual({ request: number | 0, count, address: blockAddress, isPinned });
    const read = new Uint32Array(count);
    readRequestBlock(mailbox, at, read);
    expect(read).toEqual(words.subarray(0, count));
  },
);

property('an answer is read as it is written', [slot, word, block, fc.nat({ max: 60 })], (at, result, words, room) => {
  const count = Math.min(words.length, slotWordsMax(at));
  const end = at === ASYNC_SLOTS ? mailbox.length : requestWord(at + 1);
  within(replyWord(at), end, () => writeReply(mailbox, at, result, words, count));
  const read = new Uint32Array(room);
  expect(readReply(mailbox, at, read)).toBe(result);
  const changed = Math.min(count, room);
  expect(read.subarray(0, changed)).toEqual(words.subarray(0, changed));
  expect([...read.subarray(changed)]).toEqual(Array.from({ length: room - changed }, () => 0));
});

property(
  'slots are posted and settled in order, also where the counts wrap',
  [word, slot, slot],
  (before, one, two) => {
    const posted = postSlot(mailbox, postSlot(mailbox, before, one), two);
    expect([posted, postedCount(mailbox)]).toEqual([(before + 2) | 0, (before + 2) | 0]);
    expect([postedSlot(mailbox, before), postedSlot(mailbox, (before + 1) | 0)]).toEqual([one, two]);
    const settled = settleSlot(mailbox, settleSlot(mailbox, before, two), one);
    expect([settled, settledCount(mailbox)]).toEqual([(before + 2) | 0, (before + 2) | 0]);
    expect([settledSlot(mailbox, before), settledSlot(mailbox, (before + 1) | 0)]).toEqual([two, one]);
  },
);

property(
  'signals are words of their own',
  [word, word, fc.boolean(), fc.boolean()],
  (asked, answered, server, client) => {
    announceRequest(mailbox, asked);
    announceReply(mailbox, answered);
    setServerSleeping(mailbox, server);
    setClientSleeping(mailbox, client);
    expect([requestedSequence(mailbox), repliedSequence(mailbox)]).toEqual([asked, answered]);
    expect([isServerSleeping(mailbox), isClientSleeping(mailbox)]).toEqual([server, client]);
  },
);

it('has a layout that does not change', () => {
  expect([requestWord(0), replyWord(0), requestWord(1), replyWord(1), requestWord(2)]).toEqual([
    8256, 12_368, 16_480, 16_528, 16_576,
  ]);
  const words = Uint32Array.of(21, 22);
  writeRequest(mailbox, 1, DRM_IOCTLS.INFO, { address: 5 * 2 ** 32 + 6, words }, true);
  announceRequest(mailbox, 9);
  expect([...mailbox.subarray(16_481, 16_486), ...mailbox.subarray(16_488, 16_490), mailbox[8256]]).toEqual([
    DRM_IOCTLS.INFO | 0,
    2,
    6,
    5,
    1,
    21,
    22,
    9,
  ]);
  writeReply(mailbox, 1, -22, words, 2);
  announceReply(mailbox, 9);
  expect([...mailbox.subarray(16_529, 16_531), ...mailbox.subarray(16_532, 16_534), mailbox[12_368]]).toEqual([
    -22, 2, 21, 22, 9,
  ]);
  mailbox.fill(0, 0, 8256);
  setServerSleeping(mailbox, true);
  setClientSleeping(mailbox, true);
  expect([postSlot(mailbox, 4, 7), settleSlot(mailbox, 2, 8)]).toEqual([5, 3]);
  expect([0, 16, 32, 48, 68, 4162].map((at) => mailbox[at])).toEqual([1, 1, 5, 3, 7, 8]);
});
