/**
 * The plan of an operation: how many slices it is divided into, and the schedule of each; slices overlap, so that copies, messages and reductions run at the
 * same time. Also the scratch memory that the teams of a worker reuse; it is mapped, so that peers can write to it.
 */

import type { Context } from '../../../api/contract/context.ts';
import type { LocalMemory, MemoryHandle } from '../../../api/contract/memory.ts';
import { OPEN } from '../../../ucs/debug/diagnostics.ts';
import type { Algorithm } from '../../choice/algorithms.ts';
import { type Collective, type Problem, sliceOf } from '../../choice/problem.ts';
import { ScheduleBuilder } from '../../schedule/builder.ts';
import { part, type Region, type Schedule, Space } from '../../schedule/schedule.ts';

/** Slices of a long vector or of long blocks: enough to overlap copies, messages and reductions. Each slice costs messages and wake-ups. */
const SLICES = 4;
/** Slices for trees, whose levels overlap too. */
const TREE_SLICES = 8;
/** Limits of the bytes of a slice: a shorter one costs more than the overlap saves, a longer one takes more memory. */
const SLICE_BYTES_MIN = 2 ** 20;
const SLICE_BYTES_MAX = 2 ** 24;

const REDUCES: ReadonlySet<Collective> = new Set<Collective>(['reduce', 'reduceScatter', 'allReduce']);

/** Properties of the memories of an operation that affect its plan. */
export interface MemoryUse {
  /** True if the CPU cannot access the source. */
  readonly isDeviceSource: boolean;
  /** True if the CPU cannot access the target. */
  readonly isDeviceTarget: boolean;
  /** True if the result overwrites the source before all of it was sent: the source is copied first. */
  readonly overwritesSource: boolean;
}

/** The plan of one operation. */
export class Plan {
  readonly algorithm: Algorithm;
  readonly slices: number;
  /** True if device memory is reduced in host fragments. */
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

  /**
   * Builds a schedule that copies the source into host fragments, if it is device memory or would be overwritten, and copies the result back to device memory.
   */
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
    // The fragment of the source can hold the result too if nothing else reads it.
    const canShare = collective === 'allReduce' && isDeviceSource;
    const targets = isStagedTarget ? (canShare ? sources : fragmentsFor(builder, problem.targets)) : problem.targets;
    this.algorithm.build(builder, { ...problem, sources, targets });
    if (!isStagedTarget) return;
    for (const [index, target] of targets.entries()) builder.copy(target, problem.targets[index]!);
  }
}

/** Allocates host memory for each region, one after another. */
function fragmentsFor(builder: ScheduleBuilder, regions: readonly Region[]): Region[] {
  const combined = builder.scratch(regions.reduce((sum, { byteLength }) => sum + byteLength, 0));
  let start = 0;
  return regions.map(({ byteLength }) => {
    start += byteLength;
    return part(combined, start - byteLength, byteLength);
  });
}

/**
 * Whether the operation can be divided into slices that are problems of the same kind: blocks are equal, and the algorithm does not expect them to be
 * contiguous.
 */
function isSliced({ collective, name }: Algorithm, { shape }: Problem): boolean {
  if (collective === 'reduceScatter') return shape.isEqual && name !== 'recursive halving';
  return collective === 'broadcast' || collective === 'reduce' || collective === 'allReduce';
}

/** Bytes of a slice: a power of two, hence a multiple of every element size. */
function sliceBytesOf({ collective, shape: { bytes } }: Problem): number {
  const isTree = collective === 'broadcast' || collective === 'reduce';
  const wanted = 2 ** Math.ceil(Math.log2(bytes / (isTree ? TREE_SLICES : SLICES)));
  return Math.min(SLICE_BYTES_MAX, Math.max(SLICE_BYTES_MIN, wanted));
}

/** Scratch memory of at least this length is mapped; shorter parts are sent in active messages anyway. */
const MAPPED_MIN = 64 * 1024;
/** Maximum bytes that are kept while no operation uses them. */
const KEPT_MAX = 64 * 2 ** 20;
const LENGTH_MIN = 1024;

export type Mapper = Pick<Context, 'memMap' | 'memUnmap'>;

/** Scratch memory of the teams of one worker, kept for reuse. */
export class Scratch {
  readonly #mapper: Mapper;
  /** Free memory by its length, which is a power of two. */
  readonly #free: Map<number, LocalMemory[]> = new Map();
  #keptBytes = 0;

  constructor(mapper: Mapper) {
    this.#mapper = mapper;
  }

  /**
   * Takes host memory of at least some bytes.
   * @throws UcxError ERR_NO_MEMORY
   */
  take(byteLength: number): LocalMemory {
    const length = lengthFor(byteLength);
    const kept = this.#free.get(length)?.pop();
    if (kept !== undefined) this.#keptBytes -= length;
    const taken = kept ?? this.#allocate(length);
    OPEN.scratchBuffers += 1;
    return taken;
  }

  /** Gives back memory that {@link take} returned. */
  give(memory: LocalMemory): void {
    OPEN.scratchBuffers -= 1;
    const length = memory.byteLength;
    if (this.#keptBytes + length > KEPT_MAX) {
      this.#release(memory);
      return;
    }
    this.#keptBytes += length;
    const free = this.#free.get(length);
    if (free === undefined) this.#free.set(length, [memory]);
    else free.push(memory);
  }

  /** Releases all free memory. */
  close(): void {
    for (const free of this.#free.values()) for (const memory of free) this.#release(memory);
    this.#free.clear();
    this.#keptBytes = 0;
  }

  #allocate(length: number): LocalMemory {
    return length < MAPPED_MIN ? new Uint8Array(length) : this.#mapper.memMap({ allocate: length });
  }

  #release(memory: LocalMemory): void {
    if (!(memory instanceof Uint8Array) && memory.mapped) this.#mapper.memUnmap(memory as MemoryHandle);
  }
}

function lengthFor(byteLength: number): number {
  return Math.max(LENGTH_MIN, 2 ** Math.ceil(Math.log2(Math.max(1, byteLength))));
}
