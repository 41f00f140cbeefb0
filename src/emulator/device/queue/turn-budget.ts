/**
 * Limit of the work that command processors repeat in one turn: chained buffers, loops, rows of strided transfers. Commands may repeat them
 * endlessly, until the submission times out; between the turns, the thread of the command processors serves other requests.
 */

/** Units of one turn: about a millisecond. */
const TURN_UNITS = 1024;

/** A budget. */
export class TurnBudget {
  #left = TURN_UNITS;
  #exhausted = false;

  /** Whether {@link take} has refused since the turn began: there is work for another turn. */
  get exhausted(): boolean {
    return this.#exhausted;
  }

  /** Begins a turn. */
  begin(): void {
    this.#left = TURN_UNITS;
    this.#exhausted = false;
  }

  /** Takes units; returns false if the turn has none left. */
  take(units: number): boolean {
    if (this.#left <= 0) {
      this.#exhausted = true;
      return false;
    }
    this.#left -= units;
    return true;
  }
}
