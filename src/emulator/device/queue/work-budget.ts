/**
 * Limit of the work that command processors repeat in one pass: chained buffers, loops, rows of strided transfers. Commands may repeat them
 * endlessly, until the submission times out; between the passes, the thread of the command processors serves other requests.
 */

/** Units of one pass: about a millisecond. */
const PASS_UNITS = 1024;

/** A budget. */
export class WorkBudget {
  #left = PASS_UNITS;
  #exhausted = false;

  /** Whether {@link take} has refused since the pass began: there is work for another one. */
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
