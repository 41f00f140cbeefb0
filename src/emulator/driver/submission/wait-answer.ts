/**
 * Results of the WAIT_CS ioctl, and the time-out of its arguments. The waits are in wait.ts and user-interrupts.ts.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { HL_WAIT_CS_ARGS, HL_WAIT_CS_STATUS_FLAG } from '../../../uapi/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { readNumber } from '../base/words.ts';

const NS_PER_US = 1000;
const OUT = HL_WAIT_CS_ARGS.out.words;
const ARGS_WORDS: number = HL_WAIT_CS_ARGS.size / 4;
/** Time-out that stands for an unlimited wait; longer ones are reduced to it. */
const TIMEOUT_NS_MAX = 2 ** 50;

/** Clears the block, then fills in the status: it is copied back whatever the result. */
export function answer(block: ArgumentBlock, result: number, status: number): number {
  const { words } = block;
  for (let i = 0; i < ARGS_WORDS; i++) words[i] = 0;
  words[OUT.status] = status;
  return result;
}

/** Adds a timestamp to a result, unless it is 0: there is none. */
export function writeTimestamp(block: ArgumentBlock, timestampNs: number): void {
  if (timestampNs === 0) return;
  block.words[OUT.flags] = block.words[OUT.flags]! | HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD;
  block.words[OUT.timestamp_nsec] = timestampNs;
  block.words[OUT.timestamp_nsec + 1] = highOf(timestampNs);
}

/** The time-out at a word of the block, converted from microseconds to nanoseconds and limited to the range of a timer. */
export function timeoutOf(words: Uint32Array, word: number): number {
  return Math.min(TIMEOUT_NS_MAX, readNumber(words, word) * NS_PER_US);
}
