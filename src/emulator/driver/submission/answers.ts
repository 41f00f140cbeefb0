/**
 * Results of the CS and WAIT_CS ioctls in their argument blocks, and the time-outs of waits and submissions. All CS results except EAGAIN clear the
 * argument block first.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { HL_CS_ARGS, HL_CS_FLAGS, HL_WAIT_CS_ARGS, HL_WAIT_CS_STATUS_FLAG } from '../../../uapi/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import { readNumber } from '../base/numbers.ts';
import type { CardState } from '../card-state.ts';
import type { BufferTable } from '../memory/buffer-table.ts';
import type { UserMemory } from '../memory/user-memory.ts';
import type { CsCounters, SubmissionTable } from './submission.ts';

/** A compute context (struct hl_ctx) as other modules use it. */
export interface ContextPort {
  readonly card: CardState;
  readonly device: GaudiDevice;
  readonly userMemory: UserMemory;
  readonly buffers: BufferTable;
  readonly submissions: SubmissionTable;
  readonly counters: CsCounters;
}

const OUT = HL_CS_ARGS.out.words;
const ARGS_WORDS: number = HL_CS_ARGS.size / 4;
const ALL_ONES = 0xffff_ffff;

/** Accepts a submission: returns the sequence number to wait for. */
export function accept(block: ArgumentBlock, seq: number): number {
  clear(block);
  block.words[OUT.seq] = seq;
  block.words[OUT.seq + 1] = highOf(seq);
  return 0;
}

/** Success without a submission: the sequence number is all ones. */
export function acceptNothing(block: ArgumentBlock): number {
  clear(block);
  block.words[OUT.seq] = ALL_ONES;
  block.words[OUT.seq + 1] = ALL_ONES;
  return 0;
}

/** Rejects a reservation of signals: the block is cleared, the status is the errno. */
export function rejectReservation(block: ArgumentBlock, errno: number): number {
  clear(block);
  block.words[OUT.status] = -errno;
  return -errno;
}

/** Rejects a submission: the block is cleared, the sequence number is all ones, the status is the errno. */
export function reject(block: ArgumentBlock, errno: number): number {
  acceptNothing(block);
  block.words[OUT.status] = -errno;
  return -errno;
}

function clear(block: ArgumentBlock): void {
  const { words } = block;
  for (let i = 0; i < ARGS_WORDS; i++) words[i] = 0;
}

const NS_PER_US = 1000;
const WAIT_OUT = HL_WAIT_CS_ARGS.out.words;
const WAIT_ARGS_WORDS: number = HL_WAIT_CS_ARGS.size / 4;
/** Time-out that stands for an unlimited wait; longer ones are reduced to it. */
const TIMEOUT_NS_MAX = 2 ** 50;

/** Clears the block, then writes the status: the block is copied back whatever the result. */
export function writeStatus(block: ArgumentBlock, result: number, status: number): number {
  const { words } = block;
  for (let i = 0; i < WAIT_ARGS_WORDS; i++) words[i] = 0;
  words[WAIT_OUT.status] = status;
  return result;
}

/** Adds a timestamp to a result, unless it is 0 (none). */
export function writeTimestamp(block: ArgumentBlock, timestampNs: number): void {
  if (timestampNs === 0) return;
  block.words[WAIT_OUT.flags] = block.words[WAIT_OUT.flags]! | HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD;
  block.words[WAIT_OUT.timestamp_nsec] = timestampNs;
  block.words[WAIT_OUT.timestamp_nsec + 1] = highOf(timestampNs);
}

/** The time-out in a word of the block, converted from microseconds to nanoseconds and limited to the range of a timer. */
export function timeoutOf(words: Uint32Array, word: number): number {
  return Math.min(TIMEOUT_NS_MAX, readNumber(words, word) * NS_PER_US);
}

const IN = HL_CS_ARGS.in.words;

/** In seconds: CUSTOM_TIMEOUT, or the default of the driver; if the default is off, there are no time-outs (hl_hw_queue_schedule_cs, Linux 6.12). */
export function timeoutSecondsOf(card: CardState, words: Uint32Array, flags: number): number {
  const isCustom = (flags & HL_CS_FLAGS.CUSTOM_TIMEOUT) !== 0 && card.csTimeoutSeconds !== Number.POSITIVE_INFINITY;
  return isCustom ? words[IN.timeout]! : card.csTimeoutSeconds;
}

/** Adds the flags that the card sets: whether a time-out resets the card is decided at submission (allocate_cs, Linux 6.12). */
export function latchedFlags(card: CardState, flags: number): number {
  return card.skipResetOnTimeout ? flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT : flags;
}
