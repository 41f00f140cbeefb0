/** The WAIT_CS ioctl: waits for one or several submissions. */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  HL_CS_FLAGS,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  HL_WAIT_CS_STATUS_FLAG,
  HL_WAIT_MULTI_CS_LIST_MAX_LEN,
} from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { readNumber } from '../base/numbers.ts';
import { NO_INTERRUPT, type ProgressTicket } from '../base/waiters.ts';
import { timeoutOf, writeStatus, writeTimestamp } from '../submission/answers.ts';
import { type Submission, SubmissionState } from '../submission/submission.ts';
import { interruptOf } from '../submission/user-interrupts.ts';
import type { Context } from './context.ts';

const IN = HL_WAIT_CS_ARGS.in.words;
const OUT = HL_WAIT_CS_ARGS.out.words;
const ARGS_WORDS: number = HL_WAIT_CS_ARGS.size / 4;
/** Concurrent multi-waits on one device (MULTI_CS_MAX_USER_CTX). */
const MULTI_WAITS_MAX = 2;

/**
 * Blocks the thread up to the time-out, as the driver does. The arguments do not change if the ioctl is rejected, or if a wait for several submissions
 * ends with an error (hl_multi_cs_wait_ioctl); only an unknown sequence number clears them (hl_cs_wait_ioctl).
 * @param isWaiting true for a repeated poll of a started wait: it ends with the result of the submission, also after a reset
 */
export function waitIoctl(context: Context, block: ArgumentBlock, isWaiting = false): number {
  if (!context.card.permitsWaits && !isWaiting) return -Errno.EBUSY;
  const flags = block.words[IN.flags]!;
  if ((flags & HL_WAIT_CS_FLAGS.INTERRUPT) !== 0) return context.interrupts.waitIoctl(block);
  if ((flags & HL_WAIT_CS_FLAGS.MULTI_CS) !== 0) return waitForMultiple(context, block, isWaiting);
  return waitForOne(context, block);
}

/** The result of a wait whose file was closed. */
export function abortedWait(block: ArgumentBlock): number {
  return writeStatus(block, -Errno.EIO, HL_WAIT_CS_STATUS.ABORTED);
}

/** Ends a wait early, like a signal. */
export class Interruption {
  #ticket: ProgressTicket | undefined;
  #raised = false;

  get raised(): boolean {
    return this.#raised;
  }

  /** Sets the ticket on which the wait sleeps. */
  attach(ticket: ProgressTicket): void {
    this.#ticket = ticket;
    if (this.#raised) ticket.cancel();
  }

  /** Ends the wait. */
  raise(): void {
    this.#raised = true;
    this.#ticket?.cancel();
  }
}

function waitForOne(context: Context, block: ArgumentBlock): number {
  const { words } = block;
  const { submissions } = context;
  const seq = readNumber(words, IN.seq);
  const timeoutNs = timeoutOf(words, IN.timeout_us);
  if (seq >= submissions.nextSeq) return writeStatus(block, -Errno.EINVAL, HL_WAIT_CS_STATUS.COMPLETED);
  const submission = submissions.find(seq);
  if (submission === undefined) return resultFromStore(context, block, seq);
  let state = submissions.poll(submission);
  if (state === SubmissionState.PENDING && timeoutNs > 0) {
    context.card.waiters.block(timeoutNs, () => submissions.poll(submission) !== SubmissionState.PENDING);
    state = submissions.poll(submission);
  }
  submissions.retire();
  return answerState(context, block, submission, state);
}

function answerState(context: Context, block: ArgumentBlock, submission: Submission, state: SubmissionState): number {
  switch (state) {
    case SubmissionState.PENDING:
      return writeStatus(block, 0, HL_WAIT_CS_STATUS.BUSY);
    case SubmissionState.TIMED_OUT:
      return writeStatus(block, fenceError(state), HL_WAIT_CS_STATUS.TIMEDOUT);
    case SubmissionState.ABORTED:
      return writeStatus(block, fenceError(state), HL_WAIT_CS_STATUS.ABORTED);
    default:
      writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
      writeTimestamp(block, stampOf(context, submission));
      return 0;
  }
}

/** The error of a submission as a negative errno, which the driver stores in its fence; 0 for none. */
function fenceError(state: SubmissionState): number {
  if (state === SubmissionState.TIMED_OUT) return -Errno.ETIMEDOUT;
  return state === SubmissionState.ABORTED ? -Errno.EIO : 0;
}

/** The result for a submission before the last max_pending_cs ones, which is complete. Its timestamp, if any, is returned once. */
function resultFromStore(context: Context, block: ArgumentBlock, seq: number): number {
  const outcome = context.submissions.takeOutcome(seq);
  writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
  if (outcome === undefined) block.words[OUT.flags] = HL_WAIT_CS_STATUS_FLAG.GONE;
  else writeTimestamp(block, outcome.timestampNs);
  return 0;
}

/** @param isWaiting true for a repeated poll of a started wait, whose caller has already taken one of the {@link MULTI_WAITS_MAX} */
function waitForMultiple(context: Context, block: ArgumentBlock, isWaiting: boolean): number {
  const { card, submissions } = context;
  const { words } = block;
  const padded = words[IN.seq_arr_len]! >>> 8 !== 0 || words[IN.seq_arr_len + 1] !== 0;
  if (padded) return -Errno.EINVAL;
  if (!card.profile.capabilities.multiCs) return -Errno.EPERM;
  const count = words[IN.seq_arr_len]! & 0xff;
  if (count > HL_WAIT_MULTI_CS_LIST_MAX_LEN) return -Errno.EINVAL;
  const timeoutNs = timeoutOf(words, IN.timeout_us);
  if (!context.userMemory.readWords(block, words[IN.seq]!, words[IN.seq + 1]!, count * 2)) return -Errno.EFAULT;
  const sequences = readSequences(context, count);
  if (!isWaiting && card.multiWaits >= MULTI_WAITS_MAX) return -Errno.ENOMEM;
  if (sequences.some((seq) => seq >= submissions.nextSeq)) return -Errno.EINVAL;
  if (!isWaiting) {
    const map = pollFences(context, sequences);
    if (map !== 0 || timeoutNs === 0) return writeMultiResult(block, map, earliest(stampsOf(context, sequences)));
    card.multiWaits += 1;
    card.waiters.block(timeoutNs, () => isWoken(context, sequences));
    card.multiWaits -= 1;
  }
  if (!isWoken(context, sequences)) return writeMultiResult(block, 0, 0);
  const map = pollFences(context, sequences);
  const stamps = stampsOf(context, sequences).filter((stamp) => stamp > 0);
  return writeMultiResult(block, map, earliest(stamps));
}

/** @param map see {@link pollFences} */
function writeMultiResult(block: ArgumentBlock, map: number, timestampNs: number): number {
  if (map < 0) return map;
  if (map === 0) return writeStatus(block, 0, HL_WAIT_CS_STATUS.BUSY);
  writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
  block.words[OUT.cs_completion_map] = map >>> 0;
  writeTimestamp(block, timestampNs);
  if (timestampNs === 0) block.words[OUT.flags] = HL_WAIT_CS_STATUS_FLAG.GONE;
  return 0;
}

/** Whether a submission has ended the wait: one that used a stream-master queue, or that failed (complete_multi_cs). */
function isWoken({ submissions }: Context, sequences: readonly number[]): boolean {
  return sequences.some((seq) => {
    const submission = submissions.find(seq);
    if (submission === undefined) return true;
    const state = submissions.poll(submission);
    return fenceError(state) !== 0 || (submission.multiWait && state !== SubmissionState.PENDING);
  });
}

/** The timestamps of the complete submissions; 0 for one without a timestamp, and for those before the last max_pending_cs ones. */
function stampsOf(context: Context, sequences: readonly number[]): number[] {
  return sequences
    .map((seq) => context.submissions.find(seq))
    .filter((found) => found?.state !== SubmissionState.PENDING)
    .map((found) => (found === undefined ? 0 : stampOf(context, found)));
}

/** The earliest timestamp, or 0 for none. In the first poll, the driver treats a missing timestamp as the earliest; after waiting it does not. */
function earliest(stamps: readonly number[]): number {
  return stamps.length === 0 ? 0 : Math.min(...stamps);
}

/** The time of completion of a submission with TIMESTAMP, or 0. */
function stampOf({ submissions }: Context, submission: Submission): number {
  return (submission.flags & HL_CS_FLAGS.TIMESTAMP) === 0 ? 0 : submissions.timestampNs(submission);
}

function readSequences(context: Context, count: number): number[] {
  const { words, index } = context.userMemory;
  return Array.from({ length: count }, (_, i) => readNumber(words, index + 2 * i));
}

/**
 * Polls the submissions in the order of the list (hl_cs_poll_fences).
 * @returns a map whose bit n is set if the nth is complete; or the error of the first failed one as a negative errno, even if others are complete
 */
function pollFences({ submissions }: Context, sequences: readonly number[]): number {
  let map = 0;
  for (const [index, seq] of sequences.entries()) {
    const submission = submissions.find(seq);
    // A submission before the last max_pending_cs ones is complete.
    const state = submission === undefined ? SubmissionState.COMPLETED : submissions.poll(submission);
    const error = fenceError(state);
    if (error !== 0) return error;
    if (state !== SubmissionState.PENDING) map |= 1 << index;
  }
  return map >>> 0;
}

/** A wait that is polled instead of blocking. Keeps the arguments, because every poll overwrites them with a result. */
export class PolledWait {
  readonly #arguments: Uint32Array;
  readonly #clock: Clock;
  readonly #deadlineNs: number;
  readonly #timeoutWord: number;
  /** The interrupt to wait for; NO_INTERRUPT for a wait for submissions. */
  readonly interrupt: number;

  constructor(block: ArgumentBlock, clock: Clock) {
    this.#arguments = block.words.slice(0, ARGS_WORDS);
    this.#clock = clock;
    const flags = this.#arguments[IN.flags]!;
    const isInterrupt = (flags & HL_WAIT_CS_FLAGS.INTERRUPT) !== 0;
    this.interrupt = isInterrupt ? interruptOf(flags) : NO_INTERRUPT;
    this.#timeoutWord = isInterrupt ? IN.interrupt_timeout_us : IN.timeout_us;
    this.#deadlineNs = clock.nowNs() + timeoutOf(this.#arguments, this.#timeoutWord);
  }

  /** True for a wait for several submissions, of which a card permits a limited number. */
  get isMulti(): boolean {
    return (this.#arguments[IN.flags]! & HL_WAIT_CS_FLAGS.MULTI_CS) !== 0;
  }

  get remainingNs(): number {
    return Math.max(0, this.#deadlineNs - this.#clock.nowNs());
  }

  /** The result of a wait that a signal has ended: restores the arguments, so that the caller can repeat the ioctl (hl_cs_wait_ioctl, Linux 6.12). */
  interrupted(block: ArgumentBlock): number {
    block.words.set(this.#arguments);
    return -Errno.EINTR;
  }

  /** Writes the arguments with a time-out of 0. */
  writePoll(block: ArgumentBlock): void {
    block.words.set(this.#arguments);
    block.words[this.#timeoutWord] = 0;
    block.words[this.#timeoutWord + 1] = 0;
  }

  /** True if the result of the last poll is that of the wait. If the driver has rejected the poll, restores the arguments of the caller. */
  isOver(result: number, block: ArgumentBlock): boolean {
    if (result < 0 && this.#isUnanswered(block)) block.words.set(this.#arguments);
    if (result !== 0 || block.words[OUT.status] !== HL_WAIT_CS_STATUS.BUSY) return true;
    if (this.remainingNs > 0) return false;
    // A poll may have written a timestamp, which a wait that has timed out does not return.
    if (timeoutOf(this.#arguments, this.#timeoutWord) > 0) writeStatus(block, 0, HL_WAIT_CS_STATUS.BUSY);
    return true;
  }

  #isUnanswered({ words }: ArgumentBlock): boolean {
    return this.#arguments.every(
      (word, i) => words[i] === word || i === this.#timeoutWord || i === this.#timeoutWord + 1,
    );
  }
}
