/** Runs cases with both tools in turns, and compares their medians. It knows no targets. */

import { OURS, OVERALL_LATENCY, OVERALL_RATE, type Placement, runPair, THEIRS } from '../perftest-pair.ts';
import { median } from '../timing.ts';
import { type Case, iterationsOf, type Measure, measureOf } from './cases.ts';

/** A case as it was measured. */
export interface Comparison {
  readonly transports: string;
  readonly test: string;
  readonly bytes: number;
  readonly measure: Measure;
  /** Microseconds of one message, or messages per second: medians of the rounds. */
  readonly ours: number;
  readonly theirs: number;
  /** Ours to theirs. */
  readonly ratio: number;
}

/** What ours is compared with. */
export interface Reference {
  readonly tool: readonly string[];
  /** Its name of the test; that of the case if undefined. */
  readonly test?: string;
}

/** How a case is compared. */
export interface CompareOptions {
  /** Default: apart. */
  readonly placement?: Placement;
  /** Default: C UCX. */
  readonly reference?: Reference;
  /** Further arguments of ours. Default none. */
  readonly more?: readonly string[];
}

/**
 * Runs a case.
 * @param rounds runs of each tool
 * @param scale of the iterations
 */
export async function compare(
  each: Case,
  rounds: number,
  scale: number,
  { placement = 'apart', reference = { tool: THEIRS }, more = [] }: CompareOptions = {},
): Promise<Comparison> {
  const { transports, test, bytes } = each;
  const iterations = Math.max(2, Math.ceil(iterationsOf(each) * scale));
  const warmUp = Math.max(1, Math.floor(iterations / 10));
  const argsOf = (name: string): string[] => ['-t', name, '-s', String(bytes), '-n', String(iterations)];
  const env = { UCX_TLS: transports.tls };
  const measure = measureOf(test);
  const column = measure === 'latency' ? OVERALL_LATENCY : OVERALL_RATE;
  const [ours, theirs]: [number[], number[]] = [[], []];
  for (let round = 0; round < rounds; round++) {
    const theirArgs = [...argsOf(reference.test ?? test), '-w', String(warmUp)];
    theirs.push((await runPair(reference.tool, theirArgs, env, placement))[column]!);
    // Without -w: the code is compiled during the warm-up.
    ours.push((await runPair(OURS, [...argsOf(test), ...more], env, placement))[column]!);
  }
  const [own, other] = [median(ours), median(theirs)];
  return { transports: transports.name, test, bytes, measure, ours: own, theirs: other, ratio: own / other };
}

/** The geometric mean of ratios. */
export function geometricMean(ratios: readonly number[]): number {
  return Math.exp(ratios.reduce((sum, ratio) => sum + Math.log(ratio), 0) / ratios.length);
}
