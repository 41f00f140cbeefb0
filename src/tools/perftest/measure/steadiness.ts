/** Decides when a warm-up ends: after the minimum time, as soon as the rate is steady. */

/** Duration of a round of the warm-up. */
export const ROUND_NS = 50e6;
/** Minimum and maximum duration of a warm-up. */
export const WARM_UP_NS_MIN = 200e6;
export const WARM_UP_NS_MAX = 2e9;
/** Relative difference in the time of an iteration below which two rounds count as equal. */
const TOLERANCE = 0.05;

/** Decides after every round of a warm-up whether another round follows. */
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
