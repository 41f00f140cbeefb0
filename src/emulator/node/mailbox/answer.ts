/**
 * The answer of a slot of a mailbox: the result of an ioctl and what it has changed in its argument block. Nothing is announced here.
 *
 *   0     sequence number of the request, of slot 0: written last (signals.ts)
 *   1     result: 0 or a negative errno
 *   2     number of words of the argument block: those that the ioctl may have changed
 *   4     words of the argument block
 */

import { answerWord } from './layout.ts';

const RESULT = 1;
const COUNT = 2;
const BLOCK = 4;

/** Writes an answer with the first `count` words of the argument block. */
export function writeAnswer(
  mailbox: Int32Array,
  slot: number,
  result: number,
  words: Uint32Array,
  count: number,
): void {
  const at = answerWord(slot);
  const to = at + BLOCK;
  for (let i = 0; i < count; i++) mailbox[to + i] = words[i]! | 0;
  mailbox[at + COUNT] = count;
  mailbox[at + RESULT] = result;
}

/** Copies the words of an answer to the argument block, and returns the result. */
export function readAnswer(mailbox: Int32Array, slot: number, words: Uint32Array): number {
  const at = answerWord(slot);
  const count = Math.min(mailbox[at + COUNT]!, words.length);
  const from = at + BLOCK;
  for (let i = 0; i < count; i++) words[i] = mailbox[from + i]!;
  return mailbox[at + RESULT]!;
}
