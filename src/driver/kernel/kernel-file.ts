/**
 * An open card of the kernel driver: its file descriptor, as an implementation of the driver port. Forwards argument blocks byte for byte and interprets only
 * the time-out of WAIT_CS. Limits the retries of an ioctl after a signal (EINTR) or a transient rejection (EAGAIN), which hl-thunk retries endlessly, so that a
 * driver that never recovers cannot hang the process.
 */

import { Errno, PAGE_SIZE, SyscallError } from '../../sys/index.ts';
import {
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  type IoctlNumbers,
  ioctlSize,
} from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import type { ArgumentBlock, DriverFile, DriverMapping, RegisterMapping } from '../port.ts';
import type { SystemCalls } from './system-calls.ts';

/** The size field of an ioctl number has 14 bits. */
const ARGUMENT_WORDS_MAX = 4096;

/** Dependencies of a file. */
export interface KernelFileInit {
  readonly calls: SystemCalls;
  readonly clock: Clock;
  /** Descriptor; the file takes ownership. */
  readonly fd: number;
  readonly path: string;
  readonly numbers: IoctlNumbers;
  /** Called once, when the file is closed. */
  readonly onClose: (file: KernelFile) => void;
}

/** One open file description of a card. */
export class KernelFile implements DriverFile {
  readonly numbers: IoctlNumbers;
  /** Path of the device node. */
  readonly path: string;
  readonly #calls: SystemCalls;
  readonly #clock: Clock;
  readonly #fd: number;
  readonly #waitRequest: number;
  readonly #onClose: (file: KernelFile) => void;
  /** The input of the running call. A retry needs it, because the driver overwrites the block with its result. */
  readonly #input: Uint32Array = new Uint32Array(ARGUMENT_WORDS_MAX);
  #callsInFlight = 0;
  #closed = false;
  #released: Promise<void> | undefined = undefined;
  #resolveReleased: (() => void) | undefined = undefined;

  constructor(init: KernelFileInit) {
    this.numbers = init.numbers;
    this.path = init.path;
    this.#calls = init.calls;
    this.#clock = init.clock;
    this.#fd = init.fd;
    this.#waitRequest = init.numbers.WAIT_CS >>> 0;
    this.#onClose = init.onClose;
  }

  /** See the port. EFAULT if the request is larger than the block, EBADF after close, EAGAIN after a limited number of retries. */
  ioctl(request: number, block: ArgumentBlock): number {
    const { words } = block;
    const wordCount = (ioctlSize(request) + 3) >> 2;
    if (this.#closed) return -Errno.EBADF;
    if (wordCount > words.length) return -Errno.EFAULT;
    const input = this.#input;
    for (let i = 0; i < wordCount; i++) input[i] = words[i]!;
    const unsigned = request >>> 0;
    const result = this.#calls.ioctl(this.#fd, unsigned, block.address);
    if (result !== -Errno.EINTR && result !== -Errno.EAGAIN) return result;
    return this.#retry(unsigned, block, input.subarray(0, wordCount), result);
  }

  #retry(request: number, block: ArgumentBlock, input: Uint32Array, firstResult: number): number {
    const budget = new RetryBudget();
    let result = firstResult;
    while (budget.allows(result)) {
      if (result === -Errno.EAGAIN) this.#calls.schedYield();
      block.words.set(input);
      result = this.#calls.ioctl(this.#fd, request, block.address);
    }
    return result;
  }

  /**
   * See the port. WAIT_CS occupies a thread of the libuv pool for at most 100 ms at a time; if the file is closed meanwhile, it settles with EBADF at the end
   * of that time. The event loop runs between retries.
   */
  async ioctlAsync(request: number, block: ArgumentBlock): Promise<number> {
    if (this.#closed) return -Errno.EBADF;
    if (ioctlSize(request) > block.words.byteLength) return -Errno.EFAULT;
    this.#callsInFlight++;
    try {
      const unsigned = request >>> 0;
      if (unsigned === this.#waitRequest) return await this.#wait(unsigned, block);
      return await this.#callWithRetries(unsigned, block);
    } finally {
      this.#callsInFlight--;
      this.#releaseWhenIdle();
    }
  }

  async #callWithRetries(request: number, block: ArgumentBlock): Promise<number> {
    const input = block.words.slice(0, (ioctlSize(request) + 3) >> 2);
    const budget = new RetryBudget();
    for (;;) {
      const result = await this.#calls.ioctlAsync(this.#fd, request, block.address);
      if (!budget.allows(result)) return result;
      await this.#calls.yieldToEventLoop();
      if (this.#closed) return -Errno.EBADF;
      block.words.set(input);
    }
  }

  async #wait(request: number, block: ArgumentBlock): Promise<number> {
    const wait = new SlicedWait(block, this.#clock);
    for (;;) {
      wait.writeSlice(block);
      const result = await this.#callWithRetries(request, block);
      if (wait.isOver(result, block)) return result;
      if (this.#closed) return -Errno.EBADF;
      await this.#calls.yieldToEventLoop();
    }
  }

  /** See the port. As in the kernel, the mapping outlives the file. Throws ERR_INVALID_PARAM unless the length is a positive integer. */
  mmap(byteLength: number, offset: bigint): DriverMapping {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
      throw invalidParam('byteLength', 'must be a positive integer', byteLength);
    }
    if (this.#closed) throw new SyscallError('mmap', Errno.EBADF, `${this.path} is closed`);
    return this.#calls.mapFile(this.#fd, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE, offset);
  }

  /** See the port. Throws ERR_INVALID_PARAM like {@link mmap}. */
  mapRegisters(byteLength: number, offset: bigint): RegisterMapping {
    return new MappedRegisters(this.mmap(byteLength, offset));
  }

  /**
   * See the port. While an asynchronous call runs in the pool, the descriptor stays open until the call returns (100 ms at most for WAIT_CS): its number could
   * otherwise belong to another file when the pool thread uses it.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose(this);
    if (this.#callsInFlight > 0) {
      this.#released = new Promise((resolve) => {
        this.#resolveReleased = resolve;
      });
    }
    this.#releaseWhenIdle();
  }

  get released(): Promise<void> | undefined {
    return this.#released;
  }

  #releaseWhenIdle(): void {
    if (!this.#closed || this.#callsInFlight > 0) return;
    this.#calls.close(this.#fd);
    this.#resolveReleased?.();
    this.#released = undefined;
    this.#resolveReleased = undefined;
  }
}

/** A word whose only purpose is the full fence of an atomic operation on it. */
const fence: Int32Array<SharedArrayBuffer> = new Int32Array(new SharedArrayBuffer(4));

/**
 * Registers of a card, mapped into this process. A plain access to an Int32Array is one load or store of 32 bits. An atomic access would lock the bus, which
 * not all platforms support for device memory.
 */
class MappedRegisters implements RegisterMapping {
  readonly byteLength: number;
  readonly #mapping: DriverMapping;
  readonly #words: Int32Array;
  #closed = false;

  constructor(mapping: DriverMapping) {
    this.byteLength = mapping.byteLength;
    this.#mapping = mapping;
    this.#words = new Int32Array(mapping.buffer);
  }

  read(offset: number): number {
    return this.#closed ? 0 : (this.#words[offset >>> 2] ?? 0);
  }

  write(offset: number, value: number): void {
    if (this.#closed) return;
    // Makes earlier stores to memory visible to the card before this one (wmb).
    Atomics.add(fence, 0, 0);
    this.#words[offset >>> 2] = value;
  }

  close(): void {
    this.#closed = true;
    this.#mapping.close();
  }
}

/*
 * A long WAIT_CS as a sequence of short ones, so that a call does not occupy a thread of the libuv pool for long: a process cannot exit while one of its
 * threads blocks in a system call. Writes arguments and evaluates results; the caller makes the calls.
 *
 * The driver overwrites the argument block with its result, even after a failure, so the input is kept here and written again.
 */

/** Longest single wait in the driver, which limits the delay of the process's exit. */
export const SLICE_US_MAX = 100_000;

const IN = HL_WAIT_CS_ARGS.in.words;
const OUT = HL_WAIT_CS_ARGS.out.words;
const ARGUMENT_WORDS: number = HL_WAIT_CS_ARGS.size / 4;
const NS_PER_US = 1000;
/** 104 days: treated as an unlimited time-out. */
const TIMEOUT_US_MAX = 2 ** 43;

/** One WAIT_CS of the caller. */
class SlicedWait {
  readonly #clock: Clock;
  readonly #input: Uint32Array;
  /** Low word of the time-out; -1 for a call that never waits. */
  readonly #timeoutWord: number;
  readonly #deadlineNs: number;

  /** @param block the caller's arguments, which are copied */
  constructor(block: ArgumentBlock, clock: Clock) {
    this.#clock = clock;
    this.#input = block.words.slice(0, ARGUMENT_WORDS);
    this.#timeoutWord = timeoutWordOf(this.#input[IN.flags]!);
    const timeoutUs =
      this.#timeoutWord < 0 ? 0 : joinWords(this.#input[this.#timeoutWord]!, this.#input[this.#timeoutWord + 1]!);
    this.#deadlineNs = clock.nowNs() + Math.min(timeoutUs, TIMEOUT_US_MAX) * NS_PER_US;
  }

  /** Writes the arguments of the next call: the caller's, with the remaining time-out, at most {@link SLICE_US_MAX}. */
  writeSlice(block: ArgumentBlock): void {
    block.words.set(this.#input);
    if (this.#timeoutWord < 0) return;
    const leftUs = Math.ceil((this.#deadlineNs - this.#clock.nowNs()) / NS_PER_US);
    block.words[this.#timeoutWord] = Math.max(0, Math.min(leftUs, SLICE_US_MAX));
    block.words[this.#timeoutWord + 1] = 0;
  }

  /** Whether the result in the block is final: any result except "still busy" before the time-out. */
  isOver(result: number, block: ArgumentBlock): boolean {
    if (result !== 0 || this.#timeoutWord < 0) return true;
    return block.words[OUT.status] !== HL_WAIT_CS_STATUS.BUSY || this.#clock.nowNs() >= this.#deadlineNs;
  }
}

function timeoutWordOf(flags: number): number {
  if ((flags & HL_WAIT_CS_FLAGS.INTERRUPT) === 0) return IN.timeout_us;
  return (flags & HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT) === 0 ? IN.interrupt_timeout_us : -1;
}

/** Maximum number of retries after a signal; a profiler sends one each millisecond. */
export const EINTR_RETRIES_MAX = 100;

/** Maximum number of retries after EAGAIN, each after a yield; then EAGAIN is returned to the caller, which can do other work meanwhile. */
export const EAGAIN_RETRIES_MAX = 64;

/** The remaining retries of one call. */
export class RetryBudget {
  #interrupted = 0;
  #eagainCount = 0;

  /** Whether a call with this result must be repeated; counts the retry. */
  allows(result: number): boolean {
    if (result === -Errno.EINTR) return ++this.#interrupted <= EINTR_RETRIES_MAX;
    return result === -Errno.EAGAIN && ++this.#eagainCount <= EAGAIN_RETRIES_MAX;
  }
}
