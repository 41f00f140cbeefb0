/**
 * Number of polls of a side before it yields its processor: few if the other side needs the processor to continue, otherwise increasingly many.
 */

/**
 * Polls before a yield: initial, minimum and maximum number. A poll takes 30 to 50 ns; most waits with a processor for each side are shorter than the
 * initial number.
 */
const POLLS_FIRST = 1024;
const POLLS_MIN = 16;
const POLLS_MAX = 8192;
/** Polls after a yield that process what has arrived during it: a message passes through several layers. */
const POLLS_OF_ARRIVAL = 2;

/** The budget of one side. */
export class SpinBudget {
  readonly #yieldProcessor: () => void;
  #pollsMax = POLLS_FIRST;
  #polls = 0;
  #hasYielded = false;

  /** @param yieldProcessor yields this processor to another program (sched_yield) */
  constructor(yieldProcessor: () => void) {
    this.#yieldProcessor = yieldProcessor;
  }

  /** Counts one poll without a result. */
  spend(): void {
    this.#polls += 1;
    if (this.#polls < this.#pollsMax) return;
    this.#polls = 0;
    this.#hasYielded = true;
    this.#pollsMax = Math.min(POLLS_MAX, this.#pollsMax * 2);
    this.#yieldProcessor();
  }

  /** Ends a wait. A result immediately after a yield is attributed to the yield. */
  renew(): void {
    if (this.#hasYielded && this.#polls <= POLLS_OF_ARRIVAL) this.#pollsMax = Math.max(POLLS_MIN, this.#pollsMax >> 2);
    this.#polls = 0;
    this.#hasYielded = false;
  }
}
