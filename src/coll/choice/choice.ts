/** Chooses the algorithm of a collective operation by estimates, and explains the choice. */

import { checkPositive } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { ALGORITHMS, type Algorithm } from './algorithms.ts';
import { COLLECTIVES, type Collective, type CostModel, type Places, type Shape, shapeOf } from './problem.ts';

/** An algorithm that {@link CollectiveExplanation.at} compares for one size. */
export interface CollectiveCandidate {
  /** Such as `ring`. */
  readonly algorithm: string;
  /** From the cost model, not measured; undefined for an algorithm that cannot be used. */
  readonly estimatedNs: number | undefined;
  /** Why it was not chosen; undefined for the chosen one. */
  readonly reason: string | undefined;
}

/** A range of sizes, and the algorithm that is chosen in it. */
export interface CollectiveRange {
  /** First size of the range in bytes, inclusive. */
  readonly bytesMin: number;
  /** Last size of the range in bytes, inclusive; Infinity for no limit. */
  readonly bytesMax: number;
  /** Such as `ring`. */
  readonly algorithm: string;
  /** Estimated time at the smallest size, in nanoseconds. */
  readonly estimatedNs: number;
}

/** Explains which algorithm a team uses for a collective operation, and why. */
export class CollectiveExplanation {
  /** The operation. */
  readonly collective: Collective;
  /** The algorithms by size, where size means one block, or the whole vector for broadcast, reduce and allReduce. */
  readonly chosen: readonly CollectiveRange[];
  /** All candidates for a size of at least 1 byte, the chosen one first. Works without its object, as a callback does. @throws UcxError ERR_INVALID_PARAM */
  readonly at: (bytes: number) => readonly CollectiveCandidate[];
  readonly #places: Places;

  /** @internal Made by Team.explain. */
  constructor(collective: Collective, places: Places, costs: CostModel) {
    this.collective = collective;
    this.#places = places;
    this.at = (bytes) => {
      checkPositive('bytes', bytes);
      return candidatesAt(collective, shapeOf(places, bytes, true), costs);
    };
    this.chosen = rangesOf((bytes) => bestAt(collective, shapeOf(places, bytes, true), costs));
  }

  /** The table of sizes, the algorithms that are not used, and how device memory is reduced. */
  toString(): string {
    return textOf(this, this.#places);
  }
}

/** The largest size that is examined: 1 TiB. */
const EXAMINED_MAX = 2 ** 40;

const REDUCES: ReadonlySet<Collective> = new Set<Collective>(['reduce', 'reduceScatter', 'allReduce']);

/** The algorithm with the lowest estimate; the first one of equal estimates. @param forced name of an algorithm to use if it is usable */
export function chooseAlgorithm(collective: Collective, shape: Shape, costs: CostModel, forced?: string): Algorithm {
  const fitting = ALGORITHMS.filter((one) => one.collective === collective && one.unfit?.(shape) === undefined);
  const wanted = fitting.find(({ name }) => name === forced);
  if (wanted !== undefined) return wanted;
  return fitting.reduce((best, one) => (one.estimateNs(shape, costs) < best.estimateNs(shape, costs) ? one : best));
}

/**
 * Checks the name of an algorithm.
 * @param argument the argument or option that contains the name
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkAlgorithm(collective: Collective, name: string, argument: string = 'algorithm'): string {
  const names = ALGORITHMS.filter((one) => one.collective === collective).map((one) => one.name);
  if (!names.includes(name)) throw invalidParam(argument, `must be one of ${names.join(', ')}`, name);
  return name;
}

/**
 * Explains a collective operation.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function explainCollective(collective: Collective, places: Places, costs: CostModel): CollectiveExplanation {
  if (!COLLECTIVES.includes(collective)) {
    throw invalidParam('collective', `must be one of ${COLLECTIVES.join(', ')}`, collective);
  }
  return new CollectiveExplanation(collective, places, costs);
}

function candidatesAt(collective: Collective, shape: Shape, costs: CostModel): readonly CollectiveCandidate[] {
  const best = chooseAlgorithm(collective, shape, costs);
  const bestNs = best.estimateNs(shape, costs);
  const all = ALGORITHMS.filter((one) => one.collective === collective);
  return [best, ...all.filter((one) => one !== best)].map((one) => {
    const unfit = one.unfit?.(shape);
    if (unfit !== undefined) return { algorithm: one.name, estimatedNs: undefined, reason: unfit };
    const estimatedNs = Math.round(one.estimateNs(shape, costs));
    const reason = one === best ? undefined : `${Math.round(estimatedNs - bestNs)} ns slower by estimate`;
    return { algorithm: one.name, estimatedNs, reason };
  });
}

type Best = Pick<CollectiveRange, 'algorithm' | 'estimatedNs'>;

function bestAt(collective: Collective, shape: Shape, costs: CostModel): Best {
  const best = chooseAlgorithm(collective, shape, costs);
  return { algorithm: best.name, estimatedNs: Math.round(best.estimateNs(shape, costs)) };
}

function rangesOf(bestOf: (bytes: number) => Best): CollectiveRange[] {
  const ranges: CollectiveRange[] = [];
  let bytesMin = 1;
  let best = bestOf(1);
  for (let bytes = 2; bytes <= EXAMINED_MAX; bytes *= 2) {
    if (bestOf(bytes).algorithm === best.algorithm) continue;
    const first = firstOther(bestOf, best.algorithm, bytes / 2, bytes);
    ranges.push({ bytesMin, bytesMax: first - 1, ...best });
    bytesMin = first;
    best = bestOf(first);
  }
  ranges.push({ bytesMin, bytesMax: Number.POSITIVE_INFINITY, ...best });
  return ranges;
}

/** The first size in `(low, high]` at which another algorithm is best. */
function firstOther(bestOf: (bytes: number) => Best, name: string, low: number, high: number): number {
  let [same, other] = [low, high];
  while (other - same > 1) {
    const middle = Math.floor((same + other) / 2);
    if (bestOf(middle).algorithm === name) same = middle;
    else other = middle;
  }
  return other;
}

function textOf(explanation: CollectiveExplanation, { size, nodes }: Places): string {
  const { collective, chosen } = explanation;
  const where = nodes.length === 1 ? 'one node' : `${nodes.length} nodes`;
  const lines = [`${collective}: ${size} ranks on ${where}`];
  for (const { bytesMin, bytesMax, algorithm, estimatedNs } of chosen) {
    const range = `${bytesMin}..${bytesMax === Number.POSITIVE_INFINITY ? 'inf' : bytesMax}`;
    lines.push(`  ${range.padEnd(24)} ${algorithm.padEnd(20)} about ${Math.round(estimatedNs)} ns (estimate)`);
  }
  for (const { algorithm, reason } of explanation.at(1)) {
    if (!chosen.some((range) => range.algorithm === algorithm)) lines.push(`  not used: ${algorithm}: ${reason}`);
  }
  if (REDUCES.has(collective)) {
    lines.push(
      '  device memory is reduced by the CPU, on host fragments: the driver does not offer a reduction engine to programs',
    );
  }
  return lines.join('\n');
}
