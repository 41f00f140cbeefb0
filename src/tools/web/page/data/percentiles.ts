/** Percentiles of the operations between two readings of a histogram. */

import type { WebLatencies } from '../../../model/web-model.ts';

/** The upper bound of the bucket in which a percentile lies, in microseconds; null without operations between the readings. */
export function percentileUs(earlier: WebLatencies | undefined, now: WebLatencies, rank: number): number | null {
  // Counts decrease when a process ends.
  const counts = now.buckets.map((count, index) => Math.max(0, count - (earlier?.buckets[index] ?? count)));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  let left = (total * rank) / 100;
  for (const [index, count] of counts.entries()) {
    left -= count;
    if (left <= 0) return (now.boundsNs[index] ?? now.boundsNs.at(-1)!) / 1000;
  }
  return now.boundsNs.at(-1)! / 1000;
}
