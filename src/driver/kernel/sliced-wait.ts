/**
 * A long WAIT_CS as a sequence of short ones, so that no call occupies a thread of the libuv pool for long: a process cannot exit while
 * one of its threads blocks in a system call. Writes arguments and evaluates results; makes no call.
 *
 * The driver overwrites the argument block with its result, also on failure, so the input is kept here and written again.
 */

import { HL_WAIT_CS_ARGS, HL_WAIT_CS_FLAGS, HL_WAIT_CS_STATUS } from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import type { ArgumentBlock } from '../port.ts';

/** Longest single wait in the driver: limits the delay of the process's exit. */
export const SLICE_US_MAX = 100_000;

const IN = HL_WAIT_CS_ARGS.in.words;
const OUT = HL_WAIT_CS_ARGS.out.words;
const ARGUMENT_WORDS: number = HL_WAIT_CS_ARGS.size / 4;
const NS_PER_US = 1000;
/** 104 days: treated as an unlimited time-out. */
const TIMEOUT_US_MAX = 2 ** 43;

/** One WAIT_CS of the caller. */
export class SlicedWait {
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

  /** Whether the result in the block is final: anything but "still busy" before the time-out. */
  isOver(result: number, block: ArgumentBlock): boolean {
    if (result !== 0 || this.#timeoutWord < 0) return true;
    return block.words[OUT.status] !== HL_WAIT_CS_STATUS.BUSY || this.#clock.nowNs() >= this.#deadlineNs;
  }
}

function timeoutWordOf(flags: number): number {
  if ((flags & HL_WAIT_CS_FLAGS.INTERRUPT) === 0) return IN.timeout_us;
  return (flags & HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT) === 0 ? IN.interrupt_timeout_us : -1;
}
