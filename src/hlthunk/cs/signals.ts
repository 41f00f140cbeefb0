/**
 * Signals between queues, submitted by the driver: one queue signals a sync object, and another one waits for it without the host. Packets of the program raise
 * encapsulated signals.
 *
 * Source: hl-thunk 1.10, src/libhlthunk.c (hlthunk_signal_submission and the functions after it); cs_ioctl_signal_wait of Linux 6.12. There are no collective
 * waits, because upstream drivers reject them.
 */

import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK, HL_CS_FLAGS } from '../../uapi/index.ts';
import { type CardTarget, cardOf } from '../base/card-file.ts';
import { checkWord32, checkWord64, invalidArgument } from '../base/gaudi-error.ts';
import {
  checkJobOptions,
  checkReserved,
  EncapsSignals,
  flagsOf,
  type JobOptions,
  submit,
} from './command-submission.ts';

/** Result of waitForSignal if the signal has already been raised: nothing was submitted (ULLONG_MAX). */
export const ALREADY_SIGNALED: bigint = 2n ** 64n - 1n;
/** Values of a sync object are below this number (HL_MAX_SOB_VAL of the driver). */
const SIGNALS_END = 0x8000;

const EXECUTE_AT: number = HL_CS_ARGS.size;
const SEQUENCE_AT: number = EXECUTE_AT + HL_CS_CHUNK.size;
const BLOCK_BYTES: number = SEQUENCE_AT + 8;

/** A submission that raises a signal. */
export interface SignalSubmission {
  /** Sequence number for waitForCs and waitForSignal. */
  readonly seq: bigint;
  /** Offset of the sync object from the base of the card's registers. For the last value of a sync object, the driver reports the next one. */
  readonly sobBaseAddrOffset: number;
  /**
   * In spite of its name, which is that of the driver, the value of the sync object after the signal: 1 for the first signal, 0 if the next sync object is
   * reported.
   */
  readonly sobCountBeforeSubmission: number;
}

type Chunk = Parameters<typeof HL_CS_CHUNK.encode>[0];
type Input = Parameters<typeof HL_CS_ARGS.in.encode>[0];
type Output = ReturnType<typeof HL_CS_ARGS.out.decode>;

/**
 * Makes a queue raise a signal after its earlier work (hlthunk_signal_submission, and its variant with a time-out).
 * @param queueIndex a queue of the sync stream: 0 to 7 of gaudi, all of gaudi2 except NICs and CPU
 * @returns undefined while the driver is out of resources (EAGAIN): try again after progress
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for another queue, and if both sync objects of the queue are in use; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function signalSubmission(
  target: CardTarget,
  queueIndex: number,
  options: JobOptions = {},
): SignalSubmission | undefined {
  checkWord32('queueIndex', queueIndex);
  const out = submitChunk(
    target,
    { queue_index: queueIndex },
    { flags: HL_CS_FLAGS.SIGNAL, what: 'signalSubmission' },
    options,
  );
  if (out === undefined) return undefined;
  const { seq, sob_base_addr_offset, sob_count_before_submission } = out;
  return { seq, sobBaseAddrOffset: sob_base_addr_offset, sobCountBeforeSubmission: sob_count_before_submission };
}

/**
 * Makes a queue wait for a signal before its later work (hlthunk_wait_for_signal, and its variant with a time-out).
 * @param signalSeq of signalSubmission
 * @returns the sequence number of the wait; {@link ALREADY_SIGNALED}; undefined while the driver is out of resources
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a number that does not belong to a signal, and for a queue outside the sync streams
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
  return submitChunk(target, chunk, { flags: HL_CS_FLAGS.WAIT, what: 'waitForSignal', signalSeq }, options)?.seq;
}

/**
 * Reserves signals that packets of the program raise (hlthunk_reserve_encaps_signals). Pass the reservation to commandSubmission, or release it.
 * @param count 1 to 32767
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS, also if both sync objects of the queue are in use
 */
export function reserveEncapsSignals(target: CardTarget, queueIndex: number, count: number): EncapsSignals | undefined {
  checkWord32('queueIndex', queueIndex);
  if (!Number.isInteger(count) || count < 1 || count >= SIGNALS_END) {
    throw invalidArgument('count', `must be an integer from 1 to ${SIGNALS_END - 1}`, count);
  }
  const cs_flags = HL_CS_FLAGS.RESERVE_SIGNALS_ONLY;
  const input = { encaps_signals_count: count, encaps_signals_q_idx: queueIndex, cs_flags };
  const out = run(target, input, 'reserveEncapsSignals');
  return out && new EncapsSignals(cardOf(target), out.handle_id, out.sob_base_addr_offset, out.count);
}

/**
 * Releases a reservation that no submission has consumed (hlthunk_unreserve_encaps_signals).
 * @returns false while the driver is out of resources: try again
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a reservation of another card, one that was consumed or released, and one that is not the last of its queue
 */
export function unreserveEncapsSignals(target: CardTarget, signals: EncapsSignals): boolean {
  checkReserved('signals', signals, cardOf(target));
  const input = { encaps_sig_handle_id: signals.id, cs_flags: HL_CS_FLAGS.UNRESERVE_SIGNALS_ONLY };
  const out = run(target, input, 'unreserveEncapsSignals');
  if (out !== undefined) signals.live = false;
  return out !== undefined;
}

/**
 * Makes a queue wait until a submission has raised some of its encapsulated signals (hlthunk_wait_for_reserved_encaps_signals).
 * @param encapsSeq of the submission that consumed the reservation
 * @param offset number of signals to wait for: 1 for the first
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
  return submitChunk(target, chunk, { flags, what: 'waitForReservedEncapsSignals' }, options)?.seq;
}

/** A submission of one chunk. */
interface ChunkCall {
  readonly flags: number;
  /** The call, for errors. */
  readonly what: string;
  /** The sequence number to wait for. */
  readonly signalSeq?: bigint;
}

/** Submits one chunk. `signalSeq`, the sequence number to wait for, is stored after it in the argument block. */
function submitChunk(
  target: CardTarget,
  chunk: Chunk,
  { flags, what, signalSeq }: ChunkCall,
  options: JobOptions,
): Output | undefined {
  checkJobOptions(options);
  const input = { timeout: options.timeoutSeconds ?? 0, cs_flags: flags | flagsOf(options) };
  return run(target, input, what, (block) => {
    block.view.setBigUint64(SEQUENCE_AT, signalSeq ?? 0n, true);
    const sequences = signalSeq === undefined ? {} : { signal_seq_arr: BigInt(block.address + SEQUENCE_AT) };
    HL_CS_CHUNK.encode({ ...chunk, ...sequences }, block.view, EXECUTE_AT);
  });
}

/** Runs CS with one chunk; for reservations the chunk is empty, as in hl-thunk. */
function run(
  target: CardTarget,
  input: Input,
  what: string,
  write?: (block: ScratchBlock) => void,
): Output | undefined {
  const card = cardOf(target);
  card.checkOpen();
  const block = allocateScratch(BLOCK_BYTES);
  try {
    write?.(block);
    const chunks = write === undefined ? {} : { chunks_execute: BigInt(block.address + EXECUTE_AT) };
    HL_CS_ARGS.in.encode({ ...input, ...chunks, num_chunks_execute: 1 }, block.view);
    return submit(card, block, what) ? HL_CS_ARGS.out.decode(block.view) : undefined;
  } finally {
    block.free();
  }
}
