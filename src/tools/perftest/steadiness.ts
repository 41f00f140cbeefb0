/** When a warm-up has lasted long enough: pure, so that both the rule and its limits can be tested. */

/** What a round shall take. */
export const ROUND_NS = 50e6;
/** A warm-up takes this at least, and as much as this at most. */
export const WARM_UP_NS_MIN = 200e6;
export const WARM_UP_NS_MAX = 2e9;
/** Rounds whose times of an iteration differ by less are equal. */
const TOLERANCE = 0.05;

/** Decides after every round of a warm-up whether there is another one. */
export class Steadiness {
  #totalNs = 0;
  #lastNs = 0;

  /**
   * @param iterationNs time of an iteration in the last round
   * @param iterations of that round
   * @returns iterations of the next round; 0 when the rate is steady, or time is over
   */
  nextRound(iterationNs: number, iterations: number): number {
    this.#totalNs += iterationNs * iterations;
    const isSteady = Math.abs(iterationNs - this.#lastNs) <= this.#lastNs * TOLERANCE;
    this.#lastNs = iterationNs;
    if (this.#totalNs >= WARM_UP_NS_MAX || (isSteady && this.#totalNs >= WARM_UP_NS_MIN)) return 0;
    return Math.max(1, Math.round(ROUND_NS / Math.max(1, iterationNs)));
  }
}
