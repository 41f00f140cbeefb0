/**
 * State of one command processor besides its buffers: predicates, scalars, loops, and the progress of packets that take several passes. Also a limit for
 * the work of one pass: chained buffers, loops and strided transfers could otherwise keep the thread busy until the submission times out. Between two passes
 * the thread serves other requests.
 */

import type { StridedTransfer } from './strided-transfer.ts';

/** 32-bit scalar registers (hl-thunk: R0 to R3). */
const SCALARS = 4;
const NO_LOOP = -1;

export class CpState {
  /** Bit n is predicate n. Predicate 0 is always set. */
  predicates = 1;
  readonly scalars: Int32Array = new Int32Array(SCALARS);
  /** Offset of the first packet in the inner and in the outer loop of the current buffer; negative without such a loop. */
  readonly loops: [number, number] = [NO_LOOP, NO_LOOP];
  /** Progress of LOAD_AND_EXE: 0 before the load, 1 after it, 2 after the first of two packets. */
  step = 0;
  /** Remaining 64-bit values of the current WREG_BULK, whether the lower half of the next value has been written, and its register. */
  bulkLeft = 0;
  bulkHalf = false;
  bulkRegister = 0;
  /** The transfer of the DMA core that a write to its COMMIT register has started, until its last row is in the channel. */
  transfer: StridedTransfer | undefined = undefined;
  /** A completion message of the engine waits until the transfer has ended. */
  completing = false;

  /** Whether a packet with this predicate executes. */
  holds(predicate: number): boolean {
    return ((this.predicates >>> predicate) & 1) !== 0;
  }

  /** Whether the current buffer has the start of a loop. */
  get hasLoops(): boolean {
    return this.loops[0] >= 0 || this.loops[1] >= 0;
  }

  /** Called at the first packet of a buffer. */
  begin(): void {
    this.loops[0] = NO_LOOP;
    this.loops[1] = NO_LOOP;
  }

  /** Forgets the packet in progress. */
  abandon(): void {
    this.begin();
    this.step = 0;
    this.bulkLeft = 0;
    this.bulkHalf = false;
    this.transfer = undefined;
    this.completing = false;
  }

  /** Returns to the state after a reset. */
  reset(): void {
    this.abandon();
    this.predicates = 1;
    this.scalars.fill(0);
  }
}

/** Units of one pass: about a millisecond. */
const PASS_UNITS = 1024;

export class WorkBudget {
  #left = PASS_UNITS;
  #exhausted = false;

  /** Whether {@link take} has failed since the pass began, so that there is work for another one. */
  get exhausted(): boolean {
    return this.#exhausted;
  }

  /** Begins a pass. */
  begin(): void {
    this.#left = PASS_UNITS;
    this.#exhausted = false;
  }

  /** Takes units; returns false if the pass has none left. */
  take(units: number): boolean {
    if (this.#left <= 0) {
      this.#exhausted = true;
      return false;
    }
    this.#left -= units;
    return true;
  }
}
