/** Patterns of `perftest --pattern`: flows of data between ranks. */

/** Bytes that go from one rank to another. */
export interface Flow {
  readonly from: number;
  readonly to: number;
}

/** Names of the patterns: those of nixlbench. */
export const PATTERN_NAMES = ['pairwise', 'one-to-many', 'many-to-one', 'all-to-all'] as const;
/** Name of a pattern. */
export type PatternName = (typeof PATTERN_NAMES)[number];

/** A pattern. */
export interface Pattern {
  /** All flows of a number of ranks. */
  readonly flows: (ranks: number) => readonly Flow[];
  /** Closed formula of their number, and its text. */
  readonly count: (ranks: number) => number;
  readonly formula: string;
  /** True where the number of ranks must be even. */
  readonly isPaired: boolean;
}

/** Ranks except one. */
function others(ranks: number, own: number): number[] {
  return Array.from({ length: ranks }, (_, rank) => rank).filter((rank) => rank !== own);
}

/** The patterns by name. In `pairwise` each rank of the lower half has one of the upper half. */
export const PATTERNS: Readonly<Record<PatternName, Pattern>> = {
  pairwise: {
    flows: (ranks) => Array.from({ length: ranks / 2 }, (_, from) => ({ from, to: from + ranks / 2 })),
    count: (ranks) => ranks / 2,
    formula: 'ranks / 2',
    isPaired: true,
  },
  'one-to-many': {
    flows: (ranks) => others(ranks, 0).map((to) => ({ from: 0, to })),
    count: (ranks) => ranks - 1,
    formula: '(ranks - 1)',
    isPaired: false,
  },
  'many-to-one': {
    flows: (ranks) => others(ranks, 0).map((from) => ({ from, to: 0 })),
    count: (ranks) => ranks - 1,
    formula: '(ranks - 1)',
    isPaired: false,
  },
  'all-to-all': {
    flows: (ranks) =>
      Array.from({ length: ranks }, (_, from) => from).flatMap((from) =>
        // Each rank begins with its neighbour, so that not all of them begin with the same one.
        Array.from({ length: ranks - 1 }, (_, step) => ({ from, to: (from + step + 1) % ranks })),
      ),
    count: (ranks) => ranks * (ranks - 1),
    formula: 'ranks * (ranks - 1)',
    isPaired: false,
  },
};
