/**
 * An open card of the kernel driver: its file descriptor behind the driver port. Forwards argument blocks byte for byte and interprets
 * only the time-out of WAIT_CS. Opening is in kernel-node.ts.
 */

import { Errno, PAGE_SIZE, SyscallError } from '../../sys/index.ts';
import { type IoctlNumbers, ioctlSize } from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { ArgumentBlock, DriverFile, DriverMapping } from '../port.ts';
import { RetryBudget } from './retry-budget.ts';
import { SlicedWait } from './sliced-wait.ts';
import type { SystemCalls } from './system-calls.ts';

/** The size field of a request has 14 bits. */
const ARGUMENT_WORDS_MAX = 4096;

/** Parts of a file. */
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
  /** The input of the running call: the driver overwrites the block with its result, and a retry needs the input again. */
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
   * See the port. WAIT_CS occupies a thread of the libuv pool for at most 100 ms at a time; if the file is closed meanwhile, it
   * settles with EBADF at the end of that time. The event loop runs between retries.
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

  /** See the port. The mapping outlives the file, as in the kernel. Throws ERR_INVALID_PARAM unless the length is a positive integer. */
  mmap(byteLength: number, offset: bigint): DriverMapping {
    if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
      throw invalidParam('byteLength', 'must be a positive integer', byteLength);
    }
    if (this.#closed) throw new SyscallError('mmap', Errno.EBADF, `${this.path} is closed`);
    return this.#calls.mapFile(this.#fd, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE, offset);
  }

  /**
   * See the port. While an asynchronous call runs in the pool, the descriptor stays open until it returns (100 ms at most for
   * WAIT_CS): its number could otherwise belong to another file when the pool thread uses it.
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
