/** Algorithms of allReduce, reduce and reduceScatter. Those of allReduce work in the receive buffer, to which the caller has copied the send buffer. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { balancedParts, type Group, type Nodes, part, type Region, type Rooted } from '../schedule/schedule.ts';
import { binomialBroadcast } from './broadcast.ts';
import { ringAllGather } from './gather.ts';

/** Source and target of a reduction, and the bytes of an element: no block ends inside an element. */
export interface Vectors {
  readonly source: Region;
  readonly target: Region;
  readonly unit: number;
}

/**
 * Recursive doubling: pairs exchange and reduce whole vectors. Ranks beyond the largest power of two send their vector to a neighbour first, and receive the
 * result at the end.
 */
export function doublingAllReduce(builder: ScheduleBuilder, group: Group, source: Region, target: Region): void {
  const { rank, size } = group;
  const incoming = builder.scratch(target.byteLength);
  builder.copy(source, target);
  let power = 1;
  while (power * 2 <= size) power *= 2;
  const rest = size - power;
  const isPaired = rank < 2 * rest;
  const isIdle = isPaired && rank % 2 === 0;
  builder.round();
  if (isIdle) builder.send(group, rank + 1, target);
  else if (isPaired) {
    builder.receive(group, rank - 1, incoming);
    builder.reduce(incoming, target);
  }
  const place = isPaired ? (rank - 1) / 2 : rank - rest;
  const memberAt = (other: number): number => (other < rest ? other * 2 + 1 : other + rest);
  for (let distance = 1; distance < power; distance *= 2) {
    builder.round();
    if (isIdle) continue;
    const partner = memberAt(place ^ distance);
    builder.send(group, partner, target);
    builder.receive(group, partner, incoming);
    builder.reduce(incoming, target);
  }
  builder.round();
  if (isIdle) builder.receive(group, rank + 1, target);
  else if (isPaired) builder.send(group, rank - 1, target);
}

/** Ring: reduceScatter, then allGather; every rank sends about twice the data, whatever the number of ranks. */
export function ringAllReduce(builder: ScheduleBuilder, group: Group, { source, target, unit }: Vectors): void {
  const { rank, size } = group;
  if (size === 1) builder.copy(source, target);
  const blocks = balancedParts(target, size, unit);
  // Block i ends at the member before i, which begins the next phase with it.
  ringReduce(builder, group, balancedParts(source, size, unit), blocks);
  const rotated = blocks.map((_, member) => blocks[(member + 1) % size]!);
  if (size > 1) ringAllGather(builder, { ...group, rank }, rotated);
}

/** Reduces blocks along the ring: each member ends with the result of the block after its own. @param targets blocks, may be those of the sources */
function ringReduce(
  builder: ScheduleBuilder,
  group: Group,
  sources: readonly Region[],
  targets: readonly Region[],
): void {
  const { rank, size } = group;
  const incoming = builder.scratch(Math.max(...targets.map(({ byteLength }) => byteLength)));
  for (let step = 0; step < size - 1; step++) {
    builder.round();
    const [sent, index] = [(rank - step + size) % size, (rank - step - 1 + size) % size];
    const target = targets[index]!;
    const landing = part(incoming, 0, target.byteLength);
    builder.send(group, (rank + 1) % size, (step === 0 ? sources : targets)[sent]!);
    builder.receive(group, (rank - 1 + size) % size, landing);
    builder.reduce(landing, target, sources[index]!);
  }
}

/**
 * Two levels. If all nodes have the same number of ranks: reduceScatter within the nodes, one ring between the nodes for each card, then allGather within the
 * nodes. Otherwise a leader of each node reduces for its node.
 */
export function twoLevelAllReduce(
  builder: ScheduleBuilder,
  { rank, nodes }: { readonly rank: number; readonly nodes: Nodes },
  vectors: Vectors,
): void {
  const { source, target, unit } = vectors;
  const own = nodes.find((ranks) => ranks.includes(rank))!;
  const local: Group = { rank: own.indexOf(rank), size: own.length, ranks: own };
  const isEven = nodes.every(({ length }) => length === own.length);
  if (!isEven) {
    byLeaders(builder, local, nodes, vectors);
    return;
  }
  if (local.size === 1) builder.copy(source, target);
  builder.phase(1);
  const blocks = balancedParts(target, local.size, unit);
  ringReduce(builder, local, balancedParts(source, local.size, unit), blocks);
  const index = (local.rank + 1) % local.size;
  const across = nodes.map((ranks) => ranks[local.rank]!);
  builder.phase(2);
  const block = blocks[index]!;
  ringAllReduce(builder, groupOf(rank, across), { source: block, target: block, unit });
  builder.phase(3);
  const rotated = blocks.map((_, member) => blocks[(member + 1) % local.size]!);
  ringAllGather(builder, local, rotated);
}

function byLeaders(builder: ScheduleBuilder, local: Group, nodes: Nodes, { source, target, unit }: Vectors): void {
  builder.phase(1);
  binomialReduce(builder, { group: local, root: 0 }, source, target);
  builder.phase(2);
  if (local.rank === 0) {
    const leaders = nodes.map((ranks) => ranks[0]!);
    ringAllReduce(builder, groupOf(local.ranks[0]!, leaders), { source: target, target, unit });
  }
  builder.phase(3);
  binomialBroadcast(builder, local, 0, target);
}

function groupOf(rank: number, ranks: readonly number[]): Group {
  return { rank: ranks.indexOf(rank), size: ranks.length, ranks };
}

/** Binomial tree. @param target the result, at the root only; the other ranks reduce in host memory */
export function binomialReduce(
  builder: ScheduleBuilder,
  { group, root }: Rooted,
  source: Region,
  target: Region,
): void {
  const { rank, size } = group;
  const { byteLength } = source;
  const place = (rank - root + size) % size;
  // A leaf has nothing to reduce: it sends its vector directly.
  const isLeaf = place % 2 === 1 || place + 1 >= size;
  const sum = rank === root ? target : isLeaf ? source : builder.scratch(byteLength);
  const incoming = builder.scratch(isLeaf ? 0 : byteLength);
  if (sum !== source) builder.copy(source, sum);
  for (let distance = 1; distance < size; distance *= 2) {
    builder.round();
    if (place % (distance * 2) === distance) builder.send(group, (rank - distance + size) % size, sum);
    else if (place % (distance * 2) === 0 && place + distance < size) {
      builder.receive(group, (rank + distance) % size, incoming);
      builder.reduce(incoming, sum);
    }
  }
}

/** Ring: partial results travel once around the ring and end at their owner. @param sources one block for each member @param target this rank's block */
export function ringReduceScatter(
  builder: ScheduleBuilder,
  group: Group,
  sources: readonly Region[],
  target: Region,
): void {
  const { rank, size } = group;
  const blockBytes = Math.max(...sources.map(({ byteLength }) => byteLength));
  const buffers = [builder.scratch(blockBytes), builder.scratch(blockBytes)];
  const [next, before] = [(rank + 1) % size, (rank - 1 + size) % size];
  let outgoing = sources[before]!;
  if (size === 1) builder.copy(sources[0]!, target);
  for (let step = 0; step < size - 1; step++) {
    builder.round();
    const block = sources[(rank - step - 2 + 2 * size) % size]!;
    const incoming = step === size - 2 ? target : part(buffers[step % 2]!, 0, block.byteLength);
    // The target may be the source's own block, which the received data must not overwrite.
    const landing = step === size - 2 ? part(buffers[step % 2]!, 0, block.byteLength) : incoming;
    builder.send(group, next, outgoing);
    builder.receive(group, before, landing);
    builder.reduce(landing, incoming, block);
    outgoing = incoming;
  }
}

/** Pairwise: every rank sends each block to the block's owner, which reduces; partial results are not sent. */
export function pairwiseReduceScatter(
  builder: ScheduleBuilder,
  group: Group,
  sources: readonly Region[],
  target: Region,
): void {
  const { rank, size } = group;
  const incoming = builder.scratch(target.byteLength);
  if (size === 1) builder.copy(sources[0]!, target);
  for (let step = 1; step < size; step++) {
    builder.round();
    const [to, from] = [(rank + step) % size, (rank - step + size) % size];
    builder.send(group, to, sources[to]!);
    builder.receive(group, from, incoming);
    builder.reduce(incoming, target, step === 1 ? sources[rank]! : target);
  }
}

/** Recursive halving, for a power of two of ranks. @param source equal blocks, one after another */
export function halvingReduceScatter(builder: ScheduleBuilder, group: Group, source: Region, target: Region): void {
  const { rank, size } = group;
  const blockBytes = target.byteLength;
  const work = builder.scratch(source.byteLength);
  const incoming = builder.scratch(source.byteLength / 2);
  builder.copy(source, work);
  for (let distance = size / 2; distance >= 1; distance = Math.floor(distance / 2)) {
    builder.round();
    const halfOf = (member: number): Region =>
      part(work, (member - (member % distance)) * blockBytes, distance * blockBytes);
    const partner = rank ^ distance;
    const landing = part(incoming, 0, distance * blockBytes);
    builder.send(group, partner, halfOf(partner));
    builder.receive(group, partner, landing);
    builder.reduce(landing, halfOf(rank));
  }
  builder.copy(part(work, rank * blockBytes, blockBytes), target);
}
