import { describe, expect, it } from 'vitest';
import { ROUND_NS, Steadiness, WARM_UP_NS_MAX, WARM_UP_NS_MIN } from './measure.ts';

/** The time of a warm-up, in rounds whose times of an iteration are given; the last one repeats. */
function warmUp(times: readonly number[], first: number): number {
  const steadiness = new Steadiness();
  let totalNs = 0;
  let iterations = first;
  for (let round = 0; iterations > 0; round++) {
    const time = times[Math.min(round, times.length - 1)]!;
    totalNs += time * iterations;
    iterations = steadiness.nextRound(time, iterations);
  }
  return totalNs;
}

describe('a warm-up', () => {
  it('lasts a while even if the rate is steady at once', () => {
    const totalNs = warmUp([1000], 100);
    expect(totalNs).toBeGreaterThanOrEqual(WARM_UP_NS_MIN);
    expect(totalNs).toBeLessThanOrEqual(WARM_UP_NS_MIN + 2 * ROUND_NS);
  });

  it('continues while code still gets faster', () => {
    expect(warmUp([9000, 8000, 7000, 6000, 5000, 4000, 3000, 2000, 1000], 100)).toBeGreaterThanOrEqual(7 * ROUND_NS);
  });

  it('ends where the rate is never steady', () => {
    const times = Array.from({ length: 1000 }, (_, index) => (index % 2 === 0 ? 1000 : 2000));
    const totalNs = warmUp(times, 100);
    expect(totalNs).toBeGreaterThanOrEqual(WARM_UP_NS_MAX);
    expect(totalNs).toBeLessThanOrEqual(WARM_UP_NS_MAX + ROUND_NS);
  });

  it('has rounds of one iteration where that takes long', () => {
    expect(new Steadiness().nextRound(1e9, 1)).toBe(1);
  });
});
