/**
 * Signals between queues, which the driver submits: one queue signals a sync object, another one waits for it without the host. Encapsulated signals are
 * raised by packets of the program. Submitting those is command-submission.ts.
 *
 * Source: hl-thunk 1.10, src/libhlthunk.c (hlthunk_signal_submission and what follows it); cs_ioctl_signal_wait of Linux 6.12. Collective waits are absent: no
 * upstream driver accepts one.
 */

import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK, HL_CS_FLAGS } from '../../uapi/index.ts';
import { checkWord32, checkWord64, invalidArgument } from '../base/argument-error.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import { checkJobOptions, flagsOf, type JobOptions, submit } from './command-submission.ts';
import { checkReserved, EncapsSignals } from './encaps-signals.ts';

/** What waitForSignal returns when the signal has been raised already: nothing was submitted (ULLONG_MAX). */
export const ALREADY_SIGNALED: bigint = 2n ** 64n - 1n;
/** A sync object counts to here (HL_MAX_SOB_VAL of the driver). */
const SIGNALS_END = 0x8000;

const EXECUTE_AT: number = HL_CS_ARGS.size;
const SEQUENCE_AT: number = EXECUTE_AT + HL_CS_CHUNK.size;
const BLOCK_BYTES: number = SEQUENCE_AT + 8;

/** A submission that signals. */
export interface SignalSubmission {
  /** Names it in waitForCs and waitForSignal. */
  readonly seq: bigint;
  /** Offset of the sync object from the base of the card's registers. */
  readonly sobBaseAddrOffset: number;
  /** Value of the sync object before. */
  readonly sobCountBeforeSubmission: number;
}

type Chunk = Parameters<typeof HL_CS_CHUNK.encode>[0];
type Input = Parameters<typeof HL_CS_ARGS.in.encode>[0];
type Output = ReturnType<typeof HL_CS_ARGS.out.decode>;

/**
 * Has a queue raise a signal behind everything that it has (hlthunk_signal_submission, and its form with a time-out).
 * @param queueIndex a queue of the sync stream: 0 to 7 of gaudi, those of gaudi2 but NICs and CPU
 * @returns undefined when the driver has no room now (EAGAIN): try again after progress
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for another queue, and while both sync objects of the queue are in use; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function signalSubmission(
  target: CardTarget,
  queueIndex: number,
  options: JobOptions = {},
): SignalSubmission | undefined {
  checkWord32('queueIndex', queueIndex);
  const out = submitChunk(target, { queue_index: queueIndex }, HL_CS_FLAGS.SIGNAL, options, 'signalSubmission');
  if (out === undefined) return undefined;
  const { seq, sob_base_addr_offset, sob_count_before_submission } = out;
  return { seq, sobBaseAddrOffset: sob_base_addr_offset, sobCountBeforeSubmission: sob_count_before_submission };
}

/**
 * Has a queue wait for a signal before what is submitted to it next (hlthunk_wait_for_signal, and its form with a time-out).
 * @param signalSeq of signalSubmission
 * @returns the sequence number of the wait; {@link ALREADY_SIGNALED}; undefined when the driver has no room now
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a number that is no signal's, and for a queue of no sync stream
 */
export function waitForSignal(
  target: CardTarget,
  signalSeq: bigint,
  queueIndex: number,
  options: JobOptions = {},
): bigint | undefined {
  checkWord64('signalSeq', signalSeq);
  checkWord32('queueIndex', queueIndex);
  const chunk: Chunk = { queue_index: queueIndex, num_signal_seq_arr: 1 };
  return submitChunk(target, chunk, HL_CS_FLAGS.WAIT, options, 'waitForSignal', signalSeq)?.seq;
}

/**
 * Reserves signals that packets of the program will raise (hlthunk_reserve_encaps_signals). Give them to commandSubmission, or back.
 * @param count 1 to 32767
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS, also while both sync objects of the queue are in use
 */
export function reserveEncapsSignals(target: CardTarget, queueIndex: number, count: number): EncapsSignals | undefined {
  checkWord32('queueIndex', queueIndex);
  if (!Number.isInteger(count) || count < 1 || count >= SIGNALS_END) {
    throw invalidArgument('count', `must be an integer from 1 to ${SIGNALS_END - 1}`, count);
  }
  const input = { encaps_signals_count: count, encaps_signals_q_idx: queueIndex };
  const out = run(target, input, HL_CS_FLAGS.RESERVE_SIGNALS_ONLY, 'reserveEncapsSignals');
  return out && new EncapsSignals(cardOf(target), out.handle_id, out.sob_base_addr_offset, out.count);
}

/**
 * Gives a reservation back that no submission has used (hlthunk_unreserve_encaps_signals).
 * @returns false when the driver has no room now: try again
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for one of another card, one that was used or given back, and one that is not the last of its queue
 */
export function unreserveEncapsSignals(target: CardTarget, signals: EncapsSignals): boolean {
  checkReserved('signals', signals, cardOf(target));
  const input = { encaps_sig_handle_id: signals.id };
  const out = run(target, input, HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY, 'unreserveEncapsSignals');
  if (out !== undefined) signals.live = false;
  return out !== undefined;
}

/**
 * Has a queue wait until a submission has raised some of its encapsulated signals (hlthunk_wait_for_reserved_encaps_signals).
 * @param encapsSeq of the submission that was given the reservation
 * @param offset how many of its signals: 1 for the first
 * @returns like waitForSignal
 */
export function waitForReservedEncapsSignals(
  target: CardTarget,
  encapsSeq: bigint,
  offset: number,
  queueIndex: number,
  options: JobOptions = {},
): bigint | undefined {
  checkWord64('encapsSeq', encapsSeq);
  checkWord32('offset', offset);
  checkWord32('queueIndex', queueIndex);
  const chunk: Chunk = { queue_index: queueIndex, encaps_signal_seq: encapsSeq, encaps_signal_offset: offset };
  const flags = HL_CS_FLAGS.WAIT | HL_CS_FLAGS.ENCAP_SIGNALS;
  return submitChunk(target, chunk, flags, options, 'waitForReservedEncapsSignals')?.seq;
}

/** Submits one chunk; a sequence number to wait for lies behind it. */
function submitChunk(
  target: CardTarget,
  chunk: Chunk,
  flags: number,
  options: JobOptions,
  what: string,
  signalSeq?: bigint,
): Output | undefined {
  checkJobOptions(options);
  return run(target, { timeout: options.timeoutSeconds ?? 0 }, flags | flagsOf(options), what, (block) => {
    block.view.setBigUint64(SEQUENCE_AT, signalSeq ?? 0n, true);
    const sequences = signalSeq === undefined ? {} : { signal_seq_arr: BigInt(block.address + SEQUENCE_AT) };
    HL_CS_CHUNK.encode({ ...chunk, ...sequences }, block.view, EXECUTE_AT);
  });
}

/** Runs CS with one chunk, which the reservations have without contents, as hl-thunk does. */
function run(
  target: CardTarget,
  input: Input,
  flags: number,
  what: string,
  write?: (block: ScratchBlock) => void,
): Output | undefined {
  const card = cardOf(target);
  card.checkOpen();
  const block = allocateScratch(BLOCK_BYTES);
  try {
    write?.(block);
    const chunks = write === undefined ? {} : { chunks_execute: BigInt(block.address + EXECUTE_AT) };
    HL_CS_ARGS.in.encode({ ...input, ...chunks, num_chunks_execute: 1, cs_flags: flags }, block.view);
    return submit(card, block, what) ? HL_CS_ARGS.out.decode(block.view) : undefined;
  } finally {
    block.free();
  }
}
