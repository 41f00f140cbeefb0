/**
 * Windows in flight: a message goes through fragments window by window, several at the same time. Its user provides the fragments, and fills and drains them.
 *
 * ```
 * waiting --acquire--> filling --fill--> draining --drain--> ended
 *    |                    |                  |
 *    '---- refused -------'----- failed -----'---> stop: windows in flight end, no more begin
 * ```
 */

import { Status } from '../../ucs/type/status.ts';
import type { CopyDone } from './device-copier.ts';
import type { FragmentUser } from './fragment-pool.ts';

/** A part of a message in its fragment. */
export interface StagedWindow<F> {
  readonly fragment: F;
  /** First byte of the message, and how many. */
  readonly from: number;
  readonly byteLength: number;
}

/** The steps of a window, provided by the user of a pipeline. Every callback is called once, during the call or later. */
export interface WindowSteps<F> {
  /** Gets the fragment of the next window. */
  acquire(run: FragmentUser<F>): void;
  /** Puts the bytes of a window into its fragment. */
  fill(window: StagedWindow<F>, done: CopyDone): void;
  /** Moves them from there to where they belong. */
  drain(window: StagedWindow<F>, done: CopyDone): void;
  /** Gives a fragment back. */
  release(fragment: F): void;
  /** Called once if no more windows begin although there are bytes left, with the later arguments of {@link ended}. */
  stopped?(status: Status, error: unknown): void;
  /** Called once, when nothing is in flight and nothing follows: OK, the first failure, or the status passed to {@link WindowPipeline.stop}. */
  ended(status: Status, error: unknown): void;
}

/** State of a range: windows begin only while it is RUNNING, and are in flight until it has ENDED. */
const RangeState = { RUNNING: 0, STOPPED: 1, ENDED: 2 } as const;
type RangeState = (typeof RangeState)[keyof typeof RangeState];

/** One range of a message in flight. Begin it with {@link advance}. */
export class WindowPipeline<F> {
  /** Windows at most that are in flight or wait for a fragment; {@link advance} uses a new value. */
  depth: number;
  readonly #steps: WindowSteps<F>;
  readonly #windowBytes: number;
  /** First byte of the next window, and the end of the range. */
  #next: number;
  readonly #end: number;
  #waiting = 0;
  #inFlight = 0;
  #state: RangeState = RangeState.RUNNING;
  #outcome: Status = Status.OK;
  #error: unknown;
  #isAdvancing = false;

  constructor(
    steps: WindowSteps<F>,
    [from, byteLength]: readonly [number, number],
    { windowBytes, depth }: { readonly windowBytes: number; readonly depth: number },
  ) {
    this.#steps = steps;
    this.#next = from;
    this.#end = from + byteLength;
    this.#windowBytes = windowBytes;
    this.depth = depth;
  }

  /** Begins windows as long as there are bytes and room. */
  advance(): void {
    // A window that ends during its own start comes back here: the loop below begins the next one, without recursion.
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    while (
      this.#state === RangeState.RUNNING &&
      this.#next + this.#waiting * this.#windowBytes < this.#end &&
      this.#waiting + this.#inFlight < this.depth
    ) {
      this.#waiting += 1;
      this.#steps.acquire((fragment, refusal) => this.#begin(fragment, refusal));
    }
    this.#isAdvancing = false;
    const isOver =
      this.#state === RangeState.STOPPED || (this.#state === RangeState.RUNNING && this.#next === this.#end);
    if (!isOver || this.#inFlight > 0) return;
    this.#state = RangeState.ENDED;
    this.#steps.ended(this.#outcome, this.#error);
  }

  /** Begins no more windows: it ends when those in flight have ended. The first call counts. */
  stop(status: Status, error?: unknown): void {
    if (this.#state === RangeState.RUNNING) {
      this.#state = RangeState.STOPPED;
      this.#outcome = status;
      this.#error = error;
      this.#steps.stopped?.(status, error);
    }
    this.advance();
  }

  #begin(fragment: F | undefined, refusal: Status): void {
    this.#waiting -= 1;
    if (refusal < 0) {
      this.stop(refusal);
      return;
    }
    if (this.#state !== RangeState.RUNNING) {
      this.#steps.release(fragment as F);
      return;
    }
    const from = this.#next;
    const window = { fragment: fragment as F, from, byteLength: Math.min(this.#windowBytes, this.#end - from) };
    this.#next += window.byteLength;
    this.#inFlight += 1;
    this.#steps.fill(window, (filled, error) => {
      if (filled < 0 || this.#state !== RangeState.RUNNING) this.#windowEnded(window, filled, error);
      else this.#steps.drain(window, (drained, cause) => this.#windowEnded(window, drained, cause));
    });
  }

  #windowEnded({ fragment }: StagedWindow<F>, status: Status, error: unknown): void {
    this.#steps.release(fragment);
    this.#inFlight -= 1;
    if (status < 0) this.stop(status, error);
    else this.advance();
  }
}
