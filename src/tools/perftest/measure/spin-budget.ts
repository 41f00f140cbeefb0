/**
 * How long a side of a test polls before it yields its processor: briefly where the other side needs it to go on, ever longer where it does not. It does not
 * sleep.
 */

/** Turns of polling before a yield: at the start, at least, and at most. A turn takes 30 to 50 ns; most waits on processors of their own are shorter than the first. */
const TURNS_FIRST = 1024;
const TURNS_MIN = 16;
const TURNS_MAX = 8192;
/** Turns after a yield that take in what came during it: a message passes through several layers. */
const TURNS_OF_ARRIVAL = 2;

/** The budget of one side. */
export class SpinBudget {
  readonly #yieldProcessor: () => void;
  #turnsMax = TURNS_FIRST;
  #turns = 0;
  #hasYielded = false;

  /** @param yieldProcessor lets another program run on this processor (sched_yield) */
  constructor(yieldProcessor: () => void) {
    this.#yieldProcessor = yieldProcessor;
  }

  /** One turn of polling that has found nothing. */
  spend(): void {
    this.#turns += 1;
    if (this.#turns < this.#turnsMax) return;
    this.#turns = 0;
    this.#hasYielded = true;
    this.#turnsMax = Math.min(TURNS_MAX, this.#turnsMax * 2);
    this.#yieldProcessor();
  }

  /** The wait is over. What came right after a yield came by it. */
  renew(): void {
    if (this.#hasYielded && this.#turns <= TURNS_OF_ARRIVAL) this.#turnsMax = Math.max(TURNS_MIN, this.#turnsMax >> 2);
    this.#turns = 0;
    this.#hasYielded = false;
  }
}
