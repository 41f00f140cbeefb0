/** Combines the results of concurrent threads. */

import type { Measurement } from '../measure/meter.ts';

/** Sums of iterations and rates, means of average times, and of each percentile the one of the slowest thread. */
export function combine(all: readonly Measurement[]): Measurement {
  const sum = (name: keyof Measurement): number => all.reduce((total, each) => total + each[name], 0);
  const mean = (name: keyof Measurement): number => sum(name) / all.length;
  const most = (name: keyof Measurement): number => Math.max(...all.map((each) => each[name]));
  return {
    iterations: sum('iterations'),
    percentileNs: most('percentileNs'),
    medianNs: most('medianNs'),
    lowNs: most('lowNs'),
    highNs: most('highNs'),
    averageNs: mean('averageNs'),
    overallNs: mean('overallNs'),
    averageBytes: sum('averageBytes'),
    overallBytes: sum('overallBytes'),
    averageMessages: sum('averageMessages'),
    overallMessages: sum('overallMessages'),
  };
}
