/**
 * User interrupts: a card increments a counter and raises an interrupt; a program that waits for the interrupt compares the counter with a target, or the
 * driver writes a timestamp when the counter reaches it. Gaudi2; gaudi does not have user interrupts.
 *
 * Source: hl-thunk 1.10, src/libhlthunk.c (hlthunk_wait_for_interrupt and its variants, hlthunk_register_timestamp_interrupt).
 */

import type { DriverMapping } from '../../driver/port.ts';
import { allocateScratch, Errno, type ScratchBlock } from '../../sys/index.ts';
import {
  HL_MEM_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  TS_MAX_ELEMENTS_NUM,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../uapi/index.ts';
import { type CardFile, type CardTarget, cardOf } from '../base/card-file.ts';
import { checkHostAddress, checkInteger, checkWord64, invalidArgument } from '../base/gaudi-error.ts';
import { CommandBuffer } from './command-buffer.ts';
import { timeoutOf, type WaitResult, waitResult } from './command-submission.ts';

/** Interrupt id for all completion queues of the user. */
export const ANY_CQ_INTERRUPT = 0xfff;
/** Interrupt id for all decoders. */
export const ANY_DECODER_INTERRUPT = 0xffe;

const COUNTER_BYTES = 8;
/** Any time-out except 0, as in hl-thunk: registration does not wait. */
const REGISTER_TIMEOUT_US = 255n;

type Input = Parameters<typeof HL_WAIT_CS_ARGS.in.encode>[0];

/** Location of a counter: the address of 8 bytes of host memory, or a command buffer and the index of a 64-bit word in it. */
export type InterruptCounter =
  | number
  | {
      /** The command buffer that holds the counter. */
      readonly buffer: CommandBuffer;
      /** Index of the 64-bit word. */
      readonly index: number;
    };

/** Timestamps written by the driver. Made by {@link allocateTimestampElements}. */
export class TimestampBuffer implements Disposable {
  /** Handle of the driver. */
  readonly handle: bigint;
  /** Nanoseconds of CLOCK_MONOTONIC; 0n before the interrupt. */
  readonly values: BigUint64Array;
  readonly #card: CardFile;
  readonly #mapping: DriverMapping;
  #closed = false;

  constructor(card: CardFile, handle: bigint, count: number, mapping: DriverMapping) {
    this.handle = handle;
    this.values = new BigUint64Array(mapping.buffer, 0, count);
    this.#card = card;
    this.#mapping = mapping;
  }

  /** Whether a value is a buffer made by this class, not an object that imitates one. */
  static isGenuine(value: unknown): value is TimestampBuffer {
    return typeof value === 'object' && value !== null && #closed in value;
  }

  /** The open file of the card. */
  get card(): CardFile {
    return this.#card;
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.#closed || this.#card.closed;
  }

  /** Removes the mapping; the driver keeps the memory until the device is closed. Idempotent. */
  close(): void {
    if (this.closed) return;
    this.#closed = true;
    this.#card.unmap(this.#mapping);
  }

  /** Like {@link close}. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Waits until a counter has reached a target, blocking the thread (hlthunk_wait_for_interrupt, _by_handle, and both _with_timestamp: the result has the
 * timestamp).
 * @param counter location of the counter
 * @param interruptId 0 to 4095: of a decoder, a user interrupt, {@link ANY_CQ_INTERRUPT} or {@link ANY_DECODER_INTERRUPT}
 * @param target unsigned 64 bits: the wait ends when the counter is at least this large
 * @param timeoutUs microseconds; 0 polls once
 * @returns BUSY on time-out of the wait; ABORTED if the card was reset, with EIO for a counter in a command buffer
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an invalid interrupt, unmapped memory, a buffer of another card or an index outside of it;
 *   ERR_GAUDI_PERMISSION_DENIED on gaudi; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function waitForInterrupt(
  card: CardTarget,
  counter: InterruptCounter,
  target: bigint,
  interruptId: number,
  timeoutUs: number,
): WaitResult {
  const file = cardOf(card);
  const block = waitBlock(file, { counter, target, interruptId, timeoutUs });
  try {
    return interruptResult(file, file.file.ioctl(file.file.numbers.WAIT_CS, block), block);
  } finally {
    block.free();
  }
}

/** {@link waitForInterrupt} without blocking the event loop. */
export async function waitForInterruptAsync(
  card: CardTarget,
  counter: InterruptCounter,
  target: bigint,
  interruptId: number,
  timeoutUs: number,
): Promise<WaitResult> {
  const file = cardOf(card);
  const block = waitBlock(file, { counter, target, interruptId, timeoutUs });
  try {
    const result = await file.file.ioctlAsync(file.file.numbers.WAIT_CS, block);
    return interruptResult(file, result, block);
  } finally {
    block.free();
  }
}

/**
 * Allocates memory for timestamps and maps it (hlthunk_allocate_timestamp_elements and mmap).
 * @param count 1 to 1048576
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS, ERR_GAUDI_OUT_OF_MEMORY, ERR_GAUDI_DEVICE_BUSY
 */
export function allocateTimestampElements(card: CardTarget, count: number): TimestampBuffer {
  if (!Number.isInteger(count) || count < 1 || count > TS_MAX_ELEMENTS_NUM) {
    throw invalidArgument('count', `must be an integer from 1 to ${TS_MAX_ELEMENTS_NUM}`, count);
  }
  const file = cardOf(card);
  const what = `allocateTimestampElements of ${count}`;
  const { handle } = file.memory({ op: HL_MEM_OP.TS_ALLOC, num_of_elements: count }, what);
  return new TimestampBuffer(file, handle, count, file.mmap(count * COUNTER_BYTES, handle, what));
}

/**
 * Registers a timestamp that the driver writes when a counter has reached a target (hlthunk_register_timestamp_interrupt). Does not wait. Registering an
 * element again replaces its registration.
 * @param counter in a command buffer
 * @param timestampIndex element of `timestamps`
 * @throws UcxError like {@link waitForInterrupt}; ERR_GAUDI_OUT_OF_MEMORY if there are too many
 */
export function registerTimestampInterrupt(
  card: CardTarget,
  interruptId: number,
  counter: Exclude<InterruptCounter, number>,
  target: bigint,
  timestamps: TimestampBuffer,
  timestampIndex: number,
): void {
  const file = cardOf(card);
  if (typeof counter === 'number') throw invalidArgument('counter', 'must be in a command buffer', counter);
  checkTimestamps(file, timestamps, timestampIndex);
  const block = waitBlock(
    file,
    { counter, target, interruptId, timeoutUs: 0 },
    {
      interrupt_timeout_us: REGISTER_TIMEOUT_US,
      timestamp_handle: timestamps.handle,
      timestamp_offset: BigInt(timestampIndex),
    },
  );
  try {
    const result = file.file.ioctl(file.file.numbers.WAIT_CS, block);
    if (result < 0) throw file.error(result, 'registerTimestampInterrupt');
  } finally {
    block.free();
  }
}

/** The result of a wait. If the card was reset, the driver does not write a result for a counter in a command buffer (_hl_interrupt_wait_ioctl). */
function interruptResult(card: CardFile, result: number, block: ScratchBlock): WaitResult {
  if (result !== -Errno.EIO) return waitResult(card, result, block, 'waitForInterrupt');
  return { status: HL_WAIT_CS_STATUS.ABORTED, errno: Errno.EIO, timestampNs: undefined, gone: false };
}

interface InterruptWait {
  readonly counter: InterruptCounter;
  readonly target: bigint;
  readonly interruptId: number;
  readonly timeoutUs: number;
}

/** Writes the arguments of WAIT_CS for an interrupt. @param record the timestamp to register instead of waiting */
function waitBlock(
  file: CardFile,
  { counter, target, interruptId, timeoutUs }: InterruptWait,
  record?: Input,
): ScratchBlock {
  file.checkOpen();
  checkWord64('target', target);
  if (!Number.isInteger(interruptId) || interruptId < 0 || interruptId > ANY_CQ_INTERRUPT) {
    throw invalidArgument('interruptId', `must be an integer from 0 to ${ANY_CQ_INTERRUPT}`, interruptId);
  }
  const { input, flags } = counterInput(file, counter);
  const more = record === undefined ? 0 : HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT;
  const all = HL_WAIT_CS_FLAGS.INTERRUPT | flags | more | (interruptId << WAIT_CS_INTERRUPT_SHIFT);
  const timeout = record ?? { interrupt_timeout_us: timeoutOf(timeoutUs) };
  const block = allocateScratch(HL_WAIT_CS_ARGS.size);
  HL_WAIT_CS_ARGS.in.encode({ ...input, ...timeout, target, flags: all >>> 0 }, block.view);
  return block;
}

function counterInput(file: CardFile, counter: InterruptCounter): { readonly input: Input; readonly flags: number } {
  if (typeof counter === 'number') {
    checkHostAddress('counter', counter);
    if (counter % COUNTER_BYTES !== 0)
      throw invalidArgument('counter', `must be a multiple of ${COUNTER_BYTES}`, counter);
    return { input: { addr: BigInt(counter) }, flags: 0 };
  }
  if (typeof counter !== 'object' || counter === null) {
    throw invalidArgument('counter', 'must be an address, or a command buffer and an index', counter);
  }
  const { buffer, index } = counter;
  if (!CommandBuffer.isGenuine(buffer) || buffer.card !== file) {
    const shown = CommandBuffer.isGenuine(buffer) ? buffer.card.name : buffer;
    throw invalidArgument('counter.buffer', `must be a command buffer of ${file.name}`, shown);
  }
  if (buffer.destroyed) throw invalidArgument('counter.buffer', 'has been destroyed', buffer.handle);
  checkIndex('counter.index', index, buffer.words.byteLength / COUNTER_BYTES);
  const input = { cq_counters_handle: buffer.handle, cq_counters_offset: BigInt(index) };
  return { input, flags: HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ };
}

function checkTimestamps(file: CardFile, timestamps: TimestampBuffer, index: number): void {
  if (!TimestampBuffer.isGenuine(timestamps) || timestamps.card !== file) {
    const shown = TimestampBuffer.isGenuine(timestamps) ? timestamps.card.name : timestamps;
    throw invalidArgument('timestamps', `must be timestamps of ${file.name}`, shown);
  }
  if (timestamps.closed) throw invalidArgument('timestamps', 'must not be closed', timestamps.handle);
  checkIndex('timestampIndex', index, timestamps.values.length);
}

function checkIndex(argument: string, index: number, count: number): void {
  checkInteger(argument, index);
  if (index >= count) throw invalidArgument(argument, `must be below ${count}`, index);
}
