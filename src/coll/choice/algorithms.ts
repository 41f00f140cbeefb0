/** The table of all algorithms: for each the collective operation, restrictions, an estimate, and the function that builds its schedule. */

import {
  binomialBroadcast,
  bruckAllToAll,
  disseminate,
  pairwiseAllToAll,
  scatteredBroadcast,
  twoLevelBroadcast,
} from '../algorithms/broadcast.ts';
import {
  binomialGather,
  binomialScatter,
  bruckAllGather,
  directAllGather,
  doublingAllGather,
  linearGather,
  linearScatter,
  ringAllGather,
} from '../algorithms/gather.ts';
import {
  binomialReduce,
  doublingAllReduce,
  halvingReduceScatter,
  pairwiseReduceScatter,
  ringAllReduce,
  ringReduceScatter,
  twoLevelAllReduce,
} from '../algorithms/reduce.ts';
import type { ScheduleBuilder } from '../schedule/builder.ts';
import { balancedParts, type Region } from '../schedule/schedule.ts';
import {
  atOnce,
  type Collective,
  type CostModel,
  type Problem,
  roundsOf,
  type Shape,
  sequential,
  sharing,
  slowest,
} from './problem.ts';

export interface Algorithm {
  readonly collective: Collective;
  /** Such as `ring`. */
  readonly name: string;
  /** The reason why the algorithm cannot be used; undefined if it can. */
  readonly unfit?: (shape: Shape) => string | undefined;
  /** Estimated time in nanoseconds. */
  readonly estimateNs: (shape: Shape, costs: CostModel) => number;
  readonly build: (builder: ScheduleBuilder, problem: Problem) => void;
}

const needsEqual = ({ isEqual }: Shape): string | undefined => (isEqual ? undefined : 'the blocks differ in length');
const needsPower = (shape: Shape): string | undefined => {
  if ((shape.size & (shape.size - 1)) !== 0) return 'the number of ranks is not a power of two';
  return needsEqual(shape);
};
const needsNodes = ({ size, nodeSizes }: Shape): string | undefined => {
  if (nodeSizes.length === 1) return 'all ranks are on one node';
  return nodeSizes.length === size ? 'every rank is on a different node' : undefined;
};

/** Bytes that cross the connection of one node if every pair of ranks exchanges a block. */
const crossing = ({ size, bytes, nodeSizes }: Shape): number => {
  const most = Math.max(...nodeSizes);
  return nodeSizes.length > 1 ? most * (size - most) * bytes : (size - 1) * bytes;
};

/** Estimate if every pair of ranks exchanges a block. */
const crossingNs = (shape: Shape, costs: CostModel): number =>
  atOnce(slowest(shape, costs), shape.size - 1, crossing(shape));
/** Estimate if the root exchanges a block with every other rank: gather and scatter. */
const linearNs = (shape: Shape, costs: CostModel): number =>
  atOnce(slowest(shape, costs), shape.size - 1, (shape.size - 1) * shape.bytes);
/** Estimate for blocks of subtrees in host memory: gather and scatter. */
const treeNs = (shape: Shape, costs: CostModel): number => {
  const bytes = (shape.size - 1) * shape.bytes;
  return sequential(slowest(shape, costs), roundsOf(shape.size), bytes * 1.5) + 2 * bytes * costs.copyNsPerByte;
};

/** Copies this rank's block of allGather to its position in the target; returns the blocks of all ranks. */
function placedBlocks(builder: ScheduleBuilder, { group, sources, targets }: Problem): readonly Region[] {
  builder.copy(sources[0]!, targets[group.rank]!);
  return targets;
}

export const ALGORITHMS: readonly Algorithm[] = [
  {
    collective: 'barrier',
    name: 'dissemination',
    estimateNs: (shape, costs) => sequential(slowest(shape, costs), roundsOf(shape.size), 0),
    build: (builder, { group }) => disseminate(builder, group),
  },
  {
    collective: 'broadcast',
    name: 'binomial',
    estimateNs: (shape, costs) => {
      const rounds = roundsOf(shape.size);
      return sequential(slowest(shape, costs), rounds, rounds * shape.bytes);
    },
    build: (builder, { group, root, targets }) => binomialBroadcast(builder, group, root, targets[0]!),
  },
  {
    collective: 'broadcast',
    name: 'scatter and ring',
    estimateNs: (shape, costs) => {
      const bytes = (2 * (shape.size - 1) * shape.bytes) / shape.size;
      return sequential(slowest(shape, costs), 2 * (shape.size - 1), bytes);
    },
    build: (builder, { group, root, targets, unit }) => {
      scatteredBroadcast(builder, group, root, balancedParts(targets[0]!, group.size, unit));
    },
  },
  {
    collective: 'broadcast',
    name: 'two-level',
    unfit: needsNodes,
    estimateNs: ({ bytes, nodeSizes }, { within, between }) => {
      const [outer, inner] = [roundsOf(nodeSizes.length), roundsOf(Math.max(...nodeSizes))];
      return sequential(between, outer, outer * bytes) + sequential(within, inner, inner * bytes);
    },
    build: (builder, { places, root, targets }) => twoLevelBroadcast(builder, places, root, targets[0]!),
  },
  {
    collective: 'gather',
    name: 'linear',
    estimateNs: linearNs,
    build: (builder, { sources, targets, ...rooted }) => linearGather(builder, rooted, sources[0]!, targets),
  },
  {
    collective: 'gather',
    name: 'binomial',
    unfit: needsEqual,
    estimateNs: treeNs,
    build: (builder, { sources, targets, ...rooted }) => binomialGather(builder, rooted, sources[0]!, targets),
  },
  {
    collective: 'scatter',
    name: 'linear',
    estimateNs: linearNs,
    build: (builder, { sources, targets, ...rooted }) => linearScatter(builder, rooted, targets[0]!, sources),
  },
  {
    collective: 'scatter',
    name: 'binomial',
    unfit: needsEqual,
    estimateNs: treeNs,
    build: (builder, { sources, targets, ...rooted }) => binomialScatter(builder, rooted, targets[0]!, sources),
  },
  {
    collective: 'allGather',
    name: 'direct',
    estimateNs: crossingNs,
    build: (builder, problem) => directAllGather(builder, problem.group, placedBlocks(builder, problem)),
  },
  {
    collective: 'allGather',
    name: 'ring',
    estimateNs: (shape, costs) => sequential(slowest(shape, costs), shape.size - 1, (shape.size - 1) * shape.bytes),
    build: (builder, problem) => ringAllGather(builder, problem.group, placedBlocks(builder, problem)),
  },
  {
    collective: 'allGather',
    name: 'recursive doubling',
    unfit: needsPower,
    estimateNs: (shape, costs) => {
      const bytes = (shape.size - 1) * shape.bytes * sharing(shape);
      return sequential(slowest(shape, costs), roundsOf(shape.size), bytes);
    },
    build: (builder, problem) => doublingAllGather(builder, problem.group, placedBlocks(builder, problem)),
  },
  {
    collective: 'allGather',
    name: 'bruck',
    unfit: needsEqual,
    estimateNs: (shape, costs) => {
      const bytes = (shape.size - 1) * shape.bytes;
      const link = slowest(shape, costs);
      return sequential(link, roundsOf(shape.size), bytes * sharing(shape)) + 2 * bytes * costs.copyNsPerByte;
    },
    build: (builder, { group, sources, targets }) => bruckAllGather(builder, group, sources[0]!, targets),
  },
  {
    collective: 'allToAll',
    name: 'pairwise',
    estimateNs: crossingNs,
    build: (builder, { group, sources, targets }) => pairwiseAllToAll(builder, group, sources, targets),
  },
  {
    collective: 'allToAll',
    name: 'bruck',
    unfit: needsEqual,
    estimateNs: (shape, costs) => {
      const rounds = roundsOf(shape.size);
      const bytes = (rounds * shape.size * shape.bytes) / 2;
      return sequential(slowest(shape, costs), rounds, bytes * sharing(shape)) + 3 * bytes * costs.copyNsPerByte;
    },
    build: (builder, { group, sources, targets }) => bruckAllToAll(builder, group, sources, targets),
  },
  {
    collective: 'reduce',
    name: 'binomial',
    estimateNs: (shape, costs) => {
      const rounds = roundsOf(shape.size);
      const bytes = rounds * shape.bytes;
      return sequential(slowest(shape, costs), rounds, bytes) + bytes * costs.reduceNsPerByte;
    },
    build: (builder, { group, root, sources, targets }) =>
      binomialReduce(builder, { group, root }, sources[0]!, targets[0]!),
  },
  {
    collective: 'reduceScatter',
    name: 'ring',
    estimateNs: (shape, costs) => {
      const bytes = (shape.size - 1) * shape.bytes;
      return sequential(slowest(shape, costs), shape.size - 1, bytes) + bytes * costs.reduceNsPerByte;
    },
    build: (builder, { group, sources, targets }) => ringReduceScatter(builder, group, sources, targets[0]!),
  },
  {
    collective: 'reduceScatter',
    name: 'pairwise',
    estimateNs: (shape, costs) => {
      const { latencyNs, nsPerByte } = slowest(shape, costs);
      const reducing = (shape.size - 1) * shape.bytes * costs.reduceNsPerByte;
      return (shape.size - 1) * latencyNs * 0.9 + crossing(shape) * nsPerByte + reducing;
    },
    build: (builder, { group, sources, targets }) => pairwiseReduceScatter(builder, group, sources, targets[0]!),
  },
  {
    collective: 'reduceScatter',
    name: 'recursive halving',
    unfit: needsPower,
    estimateNs: (shape, costs) => {
      const bytes = (shape.size - 1) * shape.bytes;
      const inHost = bytes * (costs.reduceNsPerByte + costs.copyNsPerByte);
      return sequential(slowest(shape, costs), roundsOf(shape.size), bytes * sharing(shape)) + inHost;
    },
    build: (builder, { group, sources, targets }) => {
      const first = sources[0]!;
      const vector: Region = { ...first, byteLength: first.byteLength * group.size };
      halvingReduceScatter(builder, group, vector, targets[0]!);
    },
  },
  {
    collective: 'allReduce',
    name: 'recursive doubling',
    estimateNs: (shape, costs) => {
      const isPower = (shape.size & (shape.size - 1)) === 0;
      const rounds = Math.floor(Math.log2(shape.size)) + (isPower ? 0 : 2);
      const bytes = rounds * shape.bytes;
      return sequential(slowest(shape, costs), rounds, bytes * sharing(shape)) + bytes * costs.reduceNsPerByte;
    },
    build: (builder, { group, sources, targets }) => doublingAllReduce(builder, group, sources[0]!, targets[0]!),
  },
  {
    collective: 'allReduce',
    name: 'ring',
    estimateNs: (shape, costs) => {
      const bytes = ((shape.size - 1) * shape.bytes) / shape.size;
      return sequential(slowest(shape, costs), 2 * (shape.size - 1), 2 * bytes) + bytes * costs.reduceNsPerByte;
    },
    build: (builder, { group, sources, targets, unit }) => {
      ringAllReduce(builder, group, { source: sources[0]!, target: targets[0]!, unit });
    },
  },
  {
    collective: 'allReduce',
    name: 'two-level',
    unfit: needsNodes,
    estimateNs: ({ bytes, nodeSizes }, costs) => {
      const { within, between, reduceNsPerByte } = costs;
      const [nodes, ranks] = [nodeSizes.length, Math.max(...nodeSizes)];
      const inner = ((ranks - 1) * bytes) / ranks;
      // Nodes of different size have one ring of leaders, which carries all data.
      const isEven = nodeSizes.every((size) => size === ranks);
      const outer = ((nodes - 1) * bytes) / nodes;
      const ring = sequential(between, 2 * (nodes - 1), 2 * outer);
      if (isEven)
        return sequential(within, 2 * (ranks - 1), 2 * inner) + ring + (inner + outer / ranks) * reduceNsPerByte;
      const tree = roundsOf(ranks);
      return sequential(within, 2 * tree, 2 * tree * bytes) + ring + (tree * bytes + outer) * reduceNsPerByte;
    },
    build: (builder, { places, sources, targets, unit }) => {
      twoLevelAllReduce(builder, places, { source: sources[0]!, target: targets[0]!, unit });
    },
  },
];
