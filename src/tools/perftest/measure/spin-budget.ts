/**
 * Number of polls of a side before it yields its processor: few if the other side needs the processor to continue, otherwise increasingly many.
 */

/**
 * Polls before a yield: initial, minimum and maximum number. A poll takes 30 to 50 ns; most waits with a processor for each side are shorter than the
 * initial number.
 */
const TURNS_FIRST = 1024;
const TURNS_MIN = 16;
const TURNS_MAX = 8192;
/** Polls after a yield that process what has arrived during it: a message passes through several layers. */
const TURNS_OF_ARRIVAL = 2;

/** The budget of one side. */
export class SpinBudget {
  readonly #yieldProcessor: () => void;
  #turnsMax = TURNS_FIRST;
  #turns = 0;
  #hasYielded = false;

  /** @param yieldProcessor yields this processor to another program (sched_yield) */
  constructor(yieldProcessor: () => void) {
    this.#yieldProcessor = yieldProcessor;
  }

  /** Counts one poll without a result. */
  spend(): void {
    this.#turns += 1;
    if (this.#turns < this.#turnsMax) return;
    this.#turns = 0;
    this.#hasYielded = true;
    this.#turnsMax = Math.min(TURNS_MAX, this.#turnsMax * 2);
    this.#yieldProcessor();
  }

  /** Ends a wait. A result immediately after a yield is attributed to the yield. */
  renew(): void {
    if (this.#hasYielded && this.#turns <= TURNS_OF_ARRIVAL) this.#turnsMax = Math.max(TURNS_MIN, this.#turnsMax >> 2);
    this.#turns = 0;
    this.#hasYielded = false;
  }
}
