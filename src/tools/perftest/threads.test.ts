import { expect, it } from 'vitest';
import type { Measurement } from './measure.ts';
import { combine } from './threads.ts';

it('combines threads: sums of rates, means of times, percentiles of the slowest', () => {
  const of = (factor: number): Measurement => ({
    iterations: 100 * factor,
    percentileNs: 10 * factor,
    medianNs: 11 * factor,
    lowNs: factor,
    highNs: 20 * factor,
    averageNs: 12 * factor,
    overallNs: 14 * factor,
    averageBytes: 1000 * factor,
    overallBytes: 2000 * factor,
    averageMessages: 3 * factor,
    overallMessages: 4 * factor,
  });
  expect(combine([of(1)])).toEqual(of(1));
  expect(combine([of(1), of(3)])).toEqual({
    iterations: 400,
    percentileNs: 30,
    medianNs: 33,
    lowNs: 3,
    highNs: 60,
    averageNs: 24,
    overallNs: 28,
    averageBytes: 4000,
    overallBytes: 8000,
    averageMessages: 12,
    overallMessages: 16,
  });
});
