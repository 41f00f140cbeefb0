/**
 * Raw command submission and waiting of hl-thunk: any queue, any flags, and reservations of encapsulated signals. The DMA requests of DeviceDma count against
 * the same limit of submissions per card.
 */

import { allocateScratch, Errno, type ScratchBlock } from '../../sys/index.ts';
import {
  HL_CS_ARGS,
  HL_CS_CHUNK,
  HL_CS_FLAGS,
  HL_MAX_JOBS_PER_CS,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  HL_WAIT_CS_STATUS_FLAG,
  HL_WAIT_MULTI_CS_LIST_MAX_LEN,
  type HlWaitCsStatus,
} from '../../uapi/index.ts';
import { type CardFile, type CardTarget, cardOf } from '../base/card-file.ts';
import { checkInteger, checkObject, checkWord32, checkWord64, invalidArgument } from '../base/gaudi-error.ts';

/** One job: packets for a queue. */
export interface CommandChunk {
  /** Index of the hardware queue. */
  readonly queueIndex: number;
  /** Handle of a kernel command buffer, or with USER_ALLOC_CB the device address of the packets. */
  readonly cbHandle: bigint;
  /** Bytes of packets. */
  readonly cbSize: number;
  /** Bits of HL_CS_CHUNK_FLAGS. Default 0. */
  readonly flags?: number | undefined;
}

/** Options of every submission. */
export interface JobOptions {
  /** Bits of HL_CS_FLAGS. */
  readonly flags?: number | undefined;
  /** Seconds after which the driver times the submission out; sets CUSTOM_TIMEOUT. Default: the driver's. */
  readonly timeoutSeconds?: number | undefined;
}

/** Flags of the first member of a staged submission. */
const STAGED_FIRST: number = HL_CS_FLAGS.STAGED_SUBMISSION | HL_CS_FLAGS.STAGED_SUBMISSION_FIRST;

/** Options and further arguments of a submission. */
export interface SubmissionOptions extends JobOptions {
  /** Chunks that are executed first, with FORCE_RESTORE. */
  readonly restore?: readonly CommandChunk[] | undefined;
  /** Sequence number of the first member of a staged submission. */
  readonly stagedSeq?: bigint | undefined;
  /**
   * Signals of reserveEncapsSignals that the packets raise; then waitForReservedEncapsSignals can wait for them. The submission consumes the reservation.
   * Only for the first member of a staged submission (flags STAGED_SUBMISSION and STAGED_SUBMISSION_FIRST): elsewhere the driver ignores the reservation.
   */
  readonly encapsSignals?: EncapsSignals | undefined;
}

/** The result of a wait. */
export interface WaitResult {
  /** One of HL_WAIT_CS_STATUS: COMPLETED, BUSY (time-out of the wait), TIMEDOUT or ABORTED. */
  readonly status: HlWaitCsStatus;
  /** 0, or the positive errno of the ioctl: ETIMEDOUT with TIMEDOUT, EIO with ABORTED. */
  readonly errno: number;
  /** Time of completion in nanoseconds of CLOCK_MONOTONIC; undefined unless HL_CS_FLAGS.TIMESTAMP was given. For an interrupt: when its target was reached. */
  readonly timestampNs: bigint | undefined;
  /** True if the submission completed so long ago that the driver has dropped its record. */
  readonly gone: boolean;
}

/** The result of a wait for several submissions. */
export interface MultiWaitResult extends WaitResult {
  /** Bit n: entry n is complete. */
  readonly completionMap: number;
}

/**
 * Submits command buffers (CS).
 * @param chunks 1 to 512 jobs
 * @returns the sequence number to wait for; undefined while the driver is out of resources (EAGAIN, NO_RESOURCE): try again after progress
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for chunks that the driver rejects, ERR_GAUDI_PERMISSION_DENIED for packets or flags that are not permitted,
 *   ERR_GAUDI_DEVICE_BUSY in reset
 */
export function commandSubmission(
  target: CardTarget,
  chunks: readonly CommandChunk[],
  options: SubmissionOptions = {},
): bigint | undefined {
  const card = cardOf(target);
  card.checkOpen();
  checkOptions(options);
  const { encapsSignals } = options;
  if (encapsSignals !== undefined) {
    checkReserved('encapsSignals', encapsSignals, card);
    if (((options.flags ?? 0) & STAGED_FIRST) !== STAGED_FIRST) {
      throw invalidArgument(
        'flags',
        'must include STAGED_SUBMISSION and STAGED_SUBMISSION_FIRST if encapsSignals is given',
        options.flags,
      );
    }
    if (options.stagedSeq !== undefined) {
      throw invalidArgument('encapsSignals', 'must not be combined with stagedSeq', encapsSignals.id);
    }
  }
  const restore = options.restore ?? [];
  checkChunks('chunks', chunks);
  checkChunks('restore', restore);
  const count = chunks.length + restore.length;
  if (count > HL_MAX_JOBS_PER_CS)
    throw invalidArgument('chunks', `must have at most ${HL_MAX_JOBS_PER_CS} entries together with restore`, count);
  const block = allocateScratch(HL_CS_ARGS.size + count * HL_CS_CHUNK.size);
  try {
    encodeSubmission(block, chunks, restore, options);
    if (!submit(card, block, 'commandSubmission')) return undefined;
    if (encapsSignals !== undefined) encapsSignals.live = false;
    return HL_CS_ARGS.out.decode(block.view).seq;
  } finally {
    block.free();
  }
}

/**
 * Runs CS with the arguments in a block.
 * @returns false while the driver is out of resources (EAGAIN)
 * @throws UcxError ERR_GAUDI_* by the errno
 */
export function submit(card: CardFile, block: ScratchBlock, what: string): boolean {
  card.submitsCommands = true;
  const result = card.file.ioctl(card.file.numbers.CS, block);
  if (result === -Errno.EAGAIN) return false;
  if (result < 0) throw card.error(result, what);
  return true;
}

/**
 * Waits for a submission, blocking the thread (WAIT_CS).
 * @param timeoutUs microseconds; 0 polls
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a number that was never submitted; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function waitForCs(target: CardTarget, seq: bigint, timeoutUs: number): WaitResult {
  const card = cardOf(target);
  const block = waitBlock(card, seq, timeoutUs);
  try {
    return waitResult(card, card.file.ioctl(card.file.numbers.WAIT_CS, block), block);
  } finally {
    block.free();
  }
}

/** {@link waitForCs} without blocking the event loop. */
export async function waitForCsAsync(target: CardTarget, seq: bigint, timeoutUs: number): Promise<WaitResult> {
  const card = cardOf(target);
  const block = waitBlock(card, seq, timeoutUs);
  try {
    return waitResult(card, await card.file.ioctlAsync(card.file.numbers.WAIT_CS, block), block);
  } finally {
    block.free();
  }
}

/**
 * Waits for the first of several submissions, blocking the thread. Gaudi only: gaudi2 rejects it with ERR_GAUDI_PERMISSION_DENIED.
 * @param sequences 1 to 32
 */
export function waitForMultiCs(target: CardTarget, sequences: readonly bigint[], timeoutUs: number): MultiWaitResult {
  const card = cardOf(target);
  card.checkOpen();
  if (!Array.isArray(sequences)) throw invalidArgument('sequences', 'must be an array', sequences);
  const count = sequences.length;
  if (count < 1 || count > HL_WAIT_MULTI_CS_LIST_MAX_LEN) {
    throw invalidArgument('sequences', `must have 1 to ${HL_WAIT_MULTI_CS_LIST_MAX_LEN} entries`, count);
  }
  for (const seq of sequences) checkWord64('sequences', seq);
  const block = allocateScratch(HL_WAIT_CS_ARGS.size + count * 8);
  try {
    const seq = BigInt(block.address + HL_WAIT_CS_ARGS.size);
    const input = { seq, timeout_us: timeoutOf(timeoutUs), flags: HL_WAIT_CS_FLAGS.MULTI_CS, seq_arr_len: count };
    HL_WAIT_CS_ARGS.in.encode(input, block.view);
    for (let i = 0; i < count; i++) block.view.setBigUint64(HL_WAIT_CS_ARGS.size + i * 8, sequences[i]!, true);
    const result = waitResult(card, card.file.ioctl(card.file.numbers.WAIT_CS, block), block);
    return { ...result, completionMap: HL_WAIT_CS_ARGS.out.decode(block.view).cs_completion_map };
  } finally {
    block.free();
  }
}

function encodeSubmission(
  block: ScratchBlock,
  chunks: readonly CommandChunk[],
  restore: readonly CommandChunk[],
  options: SubmissionOptions,
): void {
  const executeAt = HL_CS_ARGS.size;
  const restoreAt = executeAt + chunks.length * HL_CS_CHUNK.size;
  const timeout = options.timeoutSeconds;
  HL_CS_ARGS.in.encode(
    {
      chunks_execute: BigInt(block.address + executeAt),
      num_chunks_execute: chunks.length,
      chunks_restore: restore.length === 0 ? 0n : BigInt(block.address + restoreAt),
      num_chunks_restore: restore.length,
      // The driver expects the id of a reservation in the low word of the sequence number.
      seq: options.stagedSeq ?? BigInt(options.encapsSignals?.id ?? 0),
      timeout: timeout ?? 0,
      cs_flags: flagsOf(options) | (options.encapsSignals === undefined ? 0 : HL_CS_FLAGS.ENCAP_SIGNALS),
    },
    block.view,
  );
  for (const [index, chunk] of [...chunks, ...restore].entries()) {
    HL_CS_CHUNK.encode(
      {
        cb_handle: chunk.cbHandle,
        queue_index: chunk.queueIndex,
        cb_size: chunk.cbSize,
        cs_chunk_flags: chunk.flags ?? 0,
      },
      block.view,
      executeAt + index * HL_CS_CHUNK.size,
    );
  }
}

/** The flags of a submission, including CUSTOM_TIMEOUT. */
export function flagsOf({ flags = 0, timeoutSeconds }: JobOptions): number {
  return flags | (timeoutSeconds === undefined ? 0 : HL_CS_FLAGS.CUSTOM_TIMEOUT);
}

/**
 * Checks options of a submission.
 * @param others names of the further permitted options
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS
 */
export function checkJobOptions(options: JobOptions, others: readonly string[] = []): void {
  checkObject('options', options, ['flags', 'timeoutSeconds', ...others]);
  const { flags, timeoutSeconds } = options;
  if (flags !== undefined) checkWord32('flags', flags);
  if (timeoutSeconds !== undefined) checkWord32('timeoutSeconds', timeoutSeconds);
}

function checkOptions(options: SubmissionOptions): void {
  checkJobOptions(options, ['restore', 'stagedSeq', 'encapsSignals']);
  const { stagedSeq } = options;
  if (stagedSeq !== undefined) checkWord64('stagedSeq', stagedSeq);
}

function checkChunks(argument: string, chunks: readonly CommandChunk[]): void {
  if (!Array.isArray(chunks)) throw invalidArgument(argument, 'must be an array', chunks);
  for (const chunk of chunks) {
    checkObject(argument, chunk);
    checkWord32('queueIndex', chunk.queueIndex);
    checkWord64('cbHandle', chunk.cbHandle);
    checkWord32('cbSize', chunk.cbSize);
    if (chunk.flags !== undefined) checkWord32('flags', chunk.flags);
  }
}

/** The time-out of a wait in the driver's encoding. */
export function timeoutOf(timeoutUs: number): bigint {
  checkInteger('timeoutUs', timeoutUs);
  return BigInt(timeoutUs);
}

function waitBlock(card: CardFile, seq: bigint, timeoutUs: number): ScratchBlock {
  card.checkOpen();
  checkWord64('seq', seq);
  const timeout = timeoutOf(timeoutUs);
  const block = allocateScratch(HL_WAIT_CS_ARGS.size);
  HL_WAIT_CS_ARGS.in.encode({ seq, timeout_us: timeout }, block.view);
  return block;
}

/** The result of a wait. The driver writes the status even if the ioctl fails with ETIMEDOUT or EIO. */
export function waitResult(card: CardFile, result: number, block: ScratchBlock, what = 'waitForCs'): WaitResult {
  const out = HL_WAIT_CS_ARGS.out.decode(block.view);
  const status = out.status as HlWaitCsStatus;
  const isOutcome =
    (result === -Errno.ETIMEDOUT && status === HL_WAIT_CS_STATUS.TIMEDOUT) ||
    (result === -Errno.EIO && status === HL_WAIT_CS_STATUS.ABORTED);
  if (result < 0 && !isOutcome) throw card.error(result, what);
  const stamped = (out.flags & HL_WAIT_CS_STATUS_FLAG.TIMESTAMP_VLD) !== 0;
  return {
    status,
    errno: result < 0 ? -result : 0,
    timestampNs: stamped ? out.timestamp_nsec : undefined,
    gone: (out.flags & HL_WAIT_CS_STATUS_FLAG.GONE) !== 0,
  };
}

/** Reserved signals of a queue, which packets of the program raise. */
export class EncapsSignals {
  readonly #card: CardFile;
  /** The driver's id of the reservation. */
  readonly id: number;
  /** Offset of the sync object from the base of the card's registers (cfg.start of its profile): the packets increment it. */
  readonly sobBaseAddrOffset: number;
  /** Value of the sync object after the first signal that follows the reservation. At `count - 1`, all reserved signals have been raised. */
  readonly count: number;
  /** False after a submission has consumed the reservation, or it was released. */
  live = true;

  constructor(card: CardFile, id: number, sobBaseAddrOffset: number, count: number) {
    this.#card = card;
    this.id = id;
    this.sobBaseAddrOffset = sobBaseAddrOffset;
    this.count = count;
  }

  /** Whether a value is a reservation made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is EncapsSignals {
    return typeof value === 'object' && value !== null && #card in value;
  }

  /** The open file of the card. */
  get card(): CardFile {
    return this.#card;
  }
}

/** Throws ERR_GAUDI_INVALID_PARAMS unless it is a live reservation of the card. */
export function checkReserved(argument: string, signals: EncapsSignals, card: CardFile): void {
  if (!EncapsSignals.isGenuine(signals) || signals.card !== card) {
    const shown = EncapsSignals.isGenuine(signals) ? signals.card.name : signals;
    throw invalidArgument(argument, `must be signals reserved on ${card.name}`, shown);
  }
  if (!signals.live) throw invalidArgument(argument, 'has been used or released', signals.id);
}
