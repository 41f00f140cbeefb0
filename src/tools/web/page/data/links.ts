/** Links between pairs of cards, from the links of each direction. */

import type { TopLink } from '../../../model/top-model.ts';

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
