/**
 * WAIT_CS for one queue: the arguments, and one asynchronous call that all sleepers share. Sleeping is in sleep.ts, handling
 * completions in queue.ts.
 */

import type { ArgumentBlock, DriverFile } from '../../driver/port.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { HL_WAIT_CS_ARGS } from '../../uapi/index.ts';
import { highOf } from '../../ucs/type/int64.ts';

const WAIT = HL_WAIT_CS_ARGS.in.words;
const NS_PER_US = 1000;

/** Allocates a block for the arguments of WAIT_CS. */
export function allocateWaitArguments(): ScratchBlock {
  return allocateScratch(HL_WAIT_CS_ARGS.size);
}

/**
 * Writes the arguments of WAIT_CS for one submission.
 * @param seq the driver's number of the submission
 * @param timeoutUs microseconds; 0 only polls
 */
export function writeWaitArguments(block: ArgumentBlock, seq: number, timeoutUs: number): void {
  const { words } = block;
  words.fill(0);
  words[WAIT.seq] = seq;
  words[WAIT.seq + 1] = highOf(seq);
  words[WAIT.timeout_us] = timeoutUs;
  words[WAIT.timeout_us + 1] = highOf(timeoutUs);
}

/** The asynchronous wait of a queue: one block and at most one call in progress, for any number of waiters. */
export class CompletionWait {
  readonly #file: DriverFile;
  readonly #request: number;
  readonly #block: ScratchBlock;
  readonly #onEnd: (result: number) => void;
  #pending = false;
  #closed = false;

  /** @param onEnd receives 0 or a negative errno when a wait has ended; not called after {@link close} */
  constructor(file: DriverFile, onEnd: (result: number) => void) {
    this.#file = file;
    this.#request = file.numbers.WAIT_CS | 0;
    this.#block = allocateWaitArguments();
    this.#onEnd = onEnd;
  }

  /**
   * Waits for a submission up to `timeoutNs`. Has no effect while a wait is in progress: that wait ends no later than its own time-out,
   * and a caller that is still sleeping then starts the next one. Has no effect after {@link close}.
   */
  start(seq: number, timeoutNs: number): void {
    if (this.#pending || this.#closed) return;
    this.#pending = true;
    writeWaitArguments(this.#block, seq, Math.ceil(timeoutNs / NS_PER_US));
    void this.#file.ioctlAsync(this.#request, this.#block).then((result) => this.#end(result));
  }

  /** Releases the block, which a call in progress keeps until it settles. Idempotent. */
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
