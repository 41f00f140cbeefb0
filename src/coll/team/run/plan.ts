/** The plan of an operation: into how many slices it is divided, and the schedule of each. Slices overlap, so that copies, messages and reductions do. */

import type { Algorithm } from '../../choice/algorithms.ts';
import { type Collective, type Problem, sliceOf } from '../../choice/problem.ts';
import { ScheduleBuilder } from '../../schedule/builder.ts';
import { part, type Region, type Schedule, Space } from '../../schedule/schedule.ts';

/** Slices of a long vector, or of long blocks: enough that copies, messages and reductions overlap. Each costs messages and wake-ups. */
const SLICES = 4;
/** The same for trees, whose levels overlap too. */
const TREE_SLICES = 8;
/** Limits of the bytes of a slice: a shorter one costs more than it overlaps, a longer one takes more memory. */
const SLICE_BYTES_MIN = 2 ** 20;
const SLICE_BYTES_MAX = 2 ** 24;

const REDUCES: ReadonlySet<Collective> = new Set<Collective>(['reduce', 'reduceScatter', 'allReduce']);

/** Properties of the memories of an operation that change its plan. */
export interface MemoryUse {
  /** The processor cannot access the source. */
  readonly isDeviceSource: boolean;
  /** The processor cannot access the target. */
  readonly isDeviceTarget: boolean;
  /** The result overwrites the source before all of it was sent: it is copied first. */
  readonly overwritesSource: boolean;
}

/** The plan of one operation. */
export class Plan {
  readonly algorithm: Algorithm;
  readonly slices: number;
  /** True if memory of a card is reduced on host fragments. */
  readonly isStaged: boolean;
  readonly #sliceBytes: number;
  readonly #problem: Problem;
  readonly #use: MemoryUse;

  constructor(algorithm: Algorithm, problem: Problem, use: MemoryUse) {
    this.algorithm = algorithm;
    this.#problem = problem;
    this.#use = use;
    const { collective } = problem;
    this.isStaged = REDUCES.has(collective) && (use.isDeviceSource || use.isDeviceTarget);
    this.#sliceBytes = sliceBytesOf(problem);
    this.slices = isSliced(algorithm, problem) ? Math.max(1, Math.ceil(problem.shape.bytes / this.#sliceBytes)) : 1;
  }

  /** The schedule of one slice. */
  schedule(slice: number): Schedule {
    const builder = new ScheduleBuilder();
    let problem = this.#problem;
    if (this.slices > 1) {
      const from = slice * this.#sliceBytes;
      problem = sliceOf(problem, from, Math.min(this.#sliceBytes, problem.shape.bytes - from));
    }
    if (this.isStaged || this.#use.overwritesSource) this.#buildStaged(builder, problem);
    else this.algorithm.build(builder, problem);
    return builder.build();
  }

  /** Copies the source into fragments if it would be overwritten or is reduced from memory of a card, and the result back into memory of a card. */
  #buildStaged(builder: ScheduleBuilder, problem: Problem): void {
    const { collective, group, root } = problem;
    const hasResult = collective !== 'reduce' || group.rank === root;
    const { isDeviceSource, isDeviceTarget, overwritesSource } = this.#use;
    const isCopied = overwritesSource || (isDeviceSource && this.isStaged);
    const sources = isCopied ? fragmentsFor(builder, problem.sources) : problem.sources;
    for (const [index, source] of sources.entries()) {
      if (source.space === Space.SCRATCH) builder.copy(problem.sources[index]!, source);
    }
    const isStagedTarget = this.isStaged && isDeviceTarget && hasResult;
    // The fragment of the source may become the result where nothing else reads it.
    const canShare = collective === 'allReduce' && isDeviceSource;
    const targets = isStagedTarget ? (canShare ? sources : fragmentsFor(builder, problem.targets)) : problem.targets;
    this.algorithm.build(builder, { ...problem, sources, targets });
    if (!isStagedTarget) return;
    for (const [index, target] of targets.entries()) builder.copy(target, problem.targets[index]!);
  }
}

/** Host memory for regions, one after another. */
function fragmentsFor(builder: ScheduleBuilder, regions: readonly Region[]): Region[] {
  const combined = builder.scratch(regions.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let start = 0;
  return regions.map(({ byteLength }) => {
    start += byteLength;
    return part(combined, start - byteLength, byteLength);
  });
}

/** Whether every slice is a problem of the same kind: of equal blocks, which the algorithm does not expect one after another. */
function isSliced({ collective, name }: Algorithm, { shape }: Problem): boolean {
  if (collective === 'reduceScatter') return shape.isEqual && name !== 'recursive halving';
  return collective === 'broadcast' || collective === 'reduce' || collective === 'allReduce';
}

/** Bytes of a slice: a power of two, and so a multiple of every element. */
function sliceBytesOf({ collective, shape: { bytes } }: Problem): number {
  const isTree = collective === 'broadcast' || collective === 'reduce';
  const wanted = 2 ** Math.ceil(Math.log2(bytes / (isTree ? TREE_SLICES : SLICES)));
  return Math.min(SLICE_BYTES_MAX, Math.max(SLICE_BYTES_MIN, wanted));
}
