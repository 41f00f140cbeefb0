/**
 * The batches of one queue and its ioctls: submits a batch, queries its status, and waits for it in a single asynchronous call that all sleepers share, with
 * argument blocks that are allocated once. Also counts transient rejections of the first waiting batch.
 */

import type { ArgumentBlock, DriverFile } from '../../driver/port.ts';
import { allocateScratch, Errno, type ScratchBlock } from '../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK, HL_WAIT_CS_ARGS } from '../../uapi/index.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import type { CommandRing } from './command-ring.ts';

const WAIT = HL_WAIT_CS_ARGS.in.words;
const NS_PER_US = 1000;

/** Allocates a block for the arguments of WAIT_CS. */
function allocateWaitArguments(): ScratchBlock {
  return allocateScratch(HL_WAIT_CS_ARGS.size);
}

/**
 * Writes the arguments of WAIT_CS for one submission.
 * @param seq the driver's number of the submission
 * @param timeoutUs microseconds; 0 only polls
 */
function writeWaitArguments(block: ArgumentBlock, seq: number, timeoutUs: number): void {
  const { words } = block;
  words.fill(0);
  words[WAIT.seq] = seq;
  words[WAIT.seq + 1] = highOf(seq);
  words[WAIT.timeout_us] = timeoutUs;
  words[WAIT.timeout_us + 1] = highOf(timeoutUs);
}

/** Writes the arguments of a wait for the number `seq`, up to `timeoutUs`. */
export type WaitWriter = (block: ArgumentBlock, seq: number, timeoutUs: number) => void;

/** The asynchronous wait of a queue: one block and at most one call in progress, for any number of waiters. */
export class CompletionWait {
  readonly #file: DriverFile;
  readonly #request: number;
  readonly #block: ScratchBlock;
  readonly #onEnd: (result: number) => void;
  readonly #write: WaitWriter;
  #pending = false;
  #closed = false;

  /**
   * @param onEnd receives 0 or a negative errno when a wait has ended; not called after {@link close}
   * @param write writes the arguments of a wait; default: for a submission
   */
  constructor(file: DriverFile, onEnd: (result: number) => void, write: WaitWriter = writeWaitArguments) {
    this.#file = file;
    this.#request = file.numbers.WAIT_CS | 0;
    this.#block = allocateWaitArguments();
    this.#onEnd = onEnd;
    this.#write = write;
  }

  /**
   * Waits for a submission up to `timeoutNs`. Has no effect while a wait is in progress: that wait ends no later than its own time-out, and callers that still
   * sleep then start the next one. Has no effect after {@link close}.
   */
  start(seq: number, timeoutNs: number): void {
    if (this.#pending || this.#closed) return;
    this.#pending = true;
    this.#write(this.#block, seq, Math.ceil(timeoutNs / NS_PER_US));
    void this.#file.ioctlAsync(this.#request, this.#block).then((result) => this.#end(result));
  }

  /** Releases the block; a call in progress keeps it until it settles. Idempotent. */
  close(): void {
    this.#closed = true;
    if (!this.#pending) this.#block.free();
  }

  #end(result: number): void {
    this.#pending = false;
    if (this.#closed) this.#block.free();
    else this.#onEnd(result);
  }
}

/** The batches of one queue by their numbers, which count modulo 2^32. Batch n is in slot n - 1 modulo the number of slots. */
export class Batches {
  /** The last submitted batch, and the last retired one, which the card has executed and whose requests have ended. */
  submitted: number;
  retired: number;
  /** The last batch that was complete when faults were last read, so that its faults were included. */
  completed: number;
  readonly #slots: number;

  /**
   * @param slots maximum number of batches in flight, a power of two
   * @param before number of the batch before the first
   */
  constructor(slots: number, before = 0) {
    this.#slots = slots;
    this.submitted = before;
    this.retired = before;
    this.completed = before;
  }

  get inFlight(): number {
    return (this.submitted - this.retired) | 0;
  }

  /** The number of the next batch. */
  get next(): number {
    return (this.submitted + 1) | 0;
  }

  /** The slot of the next batch. */
  get nextSlot(): number {
    return this.submitted & (this.#slots - 1);
  }

  get isSlotFree(): boolean {
    return this.inFlight < this.#slots;
  }

  /** The slot of the oldest batch in flight. */
  get oldestSlot(): number {
    return this.slotInFlight(0);
  }

  /** The slot of a batch in flight: 0 for the oldest. */
  slotInFlight(index: number): number {
    return (this.retired + index) & (this.#slots - 1);
  }

  /** Retires the oldest batch in flight. */
  retire(): void {
    this.retired = (this.retired + 1) | 0;
  }
}

const CS = HL_CS_ARGS.in.words;
const CS_OUT = HL_CS_ARGS.out.words;
const CHUNK = HL_CS_CHUNK.words;
/** Offset of the submission's only chunk, which follows the arguments in the block. */
const CHUNK_BYTE = 64;
const CHUNK_WORD: number = CHUNK_BYTE / 4;

/** The ioctls of one queue. */
export class BatchIoctls {
  readonly #file: DriverFile;
  readonly #ring: CommandRing;
  readonly #queueIndex: number;
  readonly #csRequest: number;
  readonly #waitRequest: number;
  readonly #block: ScratchBlock;
  readonly #waitBlock: ScratchBlock;
  /** Sequence number of the driver for each slot. */
  readonly #slotSeq: Float64Array;

  constructor(file: DriverFile, ring: CommandRing, queueIndex: number) {
    this.#file = file;
    this.#ring = ring;
    this.#queueIndex = queueIndex;
    // Signed, so that it is a small integer of V8; the kernel uses only 32 bits.
    this.#csRequest = file.numbers.CS | 0;
    this.#waitRequest = file.numbers.WAIT_CS | 0;
    this.#block = allocateScratch(CHUNK_BYTE + HL_CS_CHUNK.size);
    this.#waitBlock = allocateWaitArguments();
    this.#slotSeq = new Float64Array(ring.slots);
  }

  /** Runs the CS ioctl for the packets in an area; returns 0 or a negative errno. */
  submit(slot: number, area: number, packetBytes: number): number {
    const { words, address } = this.#block;
    for (let i = 0; i < CHUNK_WORD; i++) words[i] = 0;
    words[CS.chunks_execute] = address + CHUNK_BYTE;
    words[CS.chunks_execute + 1] = highOf(address + CHUNK_BYTE);
    words[CS.num_chunks_execute] = 1;
    words[CHUNK_WORD + CHUNK.cb_handle] = this.#ring.handleLow(area);
    words[CHUNK_WORD + CHUNK.cb_handle + 1] = this.#ring.handleHigh(area);
    words[CHUNK_WORD + CHUNK.queue_index] = this.#queueIndex;
    words[CHUNK_WORD + CHUNK.cb_size] = packetBytes;
    words[CHUNK_WORD + CHUNK.cs_chunk_flags] = this.#ring.chunkFlags;
    const result = this.#file.ioctl(this.#csRequest, this.#block);
    if (result === 0) this.#slotSeq[slot] = joinWords(words[CS_OUT.seq]!, words[CS_OUT.seq + 1]!);
    return result;
  }

  /** The driver's number of the last batch submitted in a slot. */
  seqOf(slot: number): number {
    return this.#slotSeq[slot]!;
  }

  /** Polls a submission with WAIT_CS, without waiting: a negative errno if it has failed. */
  poll(seq: number): number {
    writeWaitArguments(this.#waitBlock, seq, 0);
    return this.#file.ioctl(this.#waitRequest, this.#waitBlock);
  }

  close(): void {
    this.#block.free();
    this.#waitBlock.free();
  }
}

/**
 * Maximum number of transient rejections of a batch while no batch is in flight whose completion could free resources; beyond it the requests of the batch
 * fail.
 */
export const TRANSIENT_ERRORS_MAX = 1024;

/** Whether a rejection is transient: a full queue, a signal, lack of memory. Any other fails the batch. */
export function isTransient(result: number): boolean {
  return result === -Errno.EAGAIN || result === -Errno.EINTR || result === -Errno.ENOMEM;
}

/**
 * Whether a rejection means that the open file is lost: the card is not operational (EBUSY), in reset (EPERM) or removed (ENODEV). Any other concerns one
 * submission.
 */
export function isLoss(result: number): boolean {
  return result === -Errno.EBUSY || result === -Errno.EPERM || result === -Errno.ENODEV;
}

/** The transient rejections of one queue. */
export class TransientErrors {
  /** Number of requests in the rejected batch. */
  requests = 0;
  #count = 0;
  #result = 0;

  /**
   * Counts a rejection for lack of resources, unless resources will become free: from batches in flight, or, for EAGAIN, from the driver.
   * @param hasFlights whether batches are in flight
   */
  add(result: number, requests: number, hasFlights: boolean): void {
    this.#result = result;
    this.requests = requests;
    if (result === -Errno.EAGAIN || hasFlights) this.#count = 0;
    else this.#count += 1;
  }

  /** Resets the count: a batch was accepted or has failed. */
  clear(): void {
    this.#count = 0;
  }

  /** Whether the batch has been rejected too often. */
  get isExhausted(): boolean {
    return this.#count > TRANSIENT_ERRORS_MAX;
  }

  /** The status of the requests of a batch that was rejected too often. */
  get status(): Status {
    return this.#result === -Errno.ENOMEM ? Status.NO_MEMORY : Status.IO_ERROR;
  }
}
