/** Figures of the page from the model: links between pairs of cards, combined from both directions, and percentiles of latencies. */

import type { TopLink } from '../../../model/top-model.ts';
import type { WebLatencies } from '../../../model/web-model.ts';

/** All links between two cards. */
export interface Pair {
  readonly a: number;
  readonly b: number;
  readonly up: number;
  readonly total: number;
  /** Bytes per second in both directions. */
  readonly bytesPerSecond: number;
}

/** The pairs, each once. */
export function pairsOf(links: readonly TopLink[]): Pair[] {
  return links
    .filter(({ from, to }) => from < to)
    .map(({ from, to, up, total, bytesPerSecond = 0 }) => {
      const back = links.find((link) => link.from === to && link.to === from);
      return {
        a: from,
        b: to,
        up: Math.min(up, back?.up ?? up),
        total,
        bytesPerSecond: bytesPerSecond + (back?.bytesPerSecond ?? 0),
      };
    });
}

/** Whether all links of a pair are down. */
export function isDown({ up, total }: Pick<Pair, 'up' | 'total'>): boolean {
  return total > 0 && up === 0;
}

/** The upper bound of the bucket with a percentile, in microseconds; null without operations between the readings. */
export function percentileUs(earlier: WebLatencies | undefined, now: WebLatencies, rank: number): number | null {
  // Counts decrease when a process ends.
  const counts = now.buckets.map((count, index) => Math.max(0, count - (earlier?.buckets[index] ?? count)));
  const total = counts.reduce((sum, count) => sum + count, 0);
  if (total === 0) return null;
  // The last bucket has no upper bound: the bound of the previous bucket is used.
  const last = now.boundsNs.length - 1;
  let bucket = 0;
  let left = (total * rank) / 100 - counts[0]!;
  while (left > 0 && bucket < last) {
    bucket += 1;
    left -= counts[bucket]!;
  }
  return now.boundsNs[bucket]! / 1000;
}
