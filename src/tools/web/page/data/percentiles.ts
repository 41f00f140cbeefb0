/** Percentiles of the operations between two readings of a histogram. */

import type { WebLatencies } from '../../../model/web-model.ts';

/** The upper bound of the bucket in which a percentile lies, in microseconds; null without operations between the readings. */
export function percentileUs(earlier: WebLatencies | undefined, now: WebLatencies, rank: number): number | null {
  // Counts decrease when a process ends.
  const counts = now.buckets.map((count, index) => Math.max(0, count - (earlier?.buckets[index] ?? count)));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  // The last bucket has no upper bound: that of the bucket before stands for it.
  const last = now.boundsNs.length - 1;
  let bucket = 0;
  let left = (total * rank) / 100 - counts[0]!;
  while (left > 0 && bucket < last) {
    bucket += 1;
    left -= counts[bucket]!;
  }
  return now.boundsNs[bucket]! / 1000;
}
