/** Algorithms of allReduce: all reduce in the target, to which the source was copied. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { balancedParts, type Group, type Nodes, part, type Region } from '../schedule/schedule.ts';
import { ringAllGather } from './all-gather.ts';
import { binomialBroadcast } from './broadcast.ts';
import { binomialReduce } from './reduce.ts';

/** Recursive doubling: pairs exchange and reduce everything. Ranks beyond the largest power of two pass their vector to a neighbour, and get the result. */
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

/** Ring: a ring that reduces, then one that gathers; every rank sends about twice the bytes, whatever the number of ranks. */
export function ringAllReduce(
  builder: ScheduleBuilder,
  group: Group,
  source: Region,
  target: Region,
  unit: number,
): void {
  const { rank, size } = group;
  if (size === 1) builder.copy(source, target);
  const blocks = balancedParts(target, size, unit);
  // Block i ends at the member before i, whose next round begins with it.
  ringReduce(builder, group, balancedParts(source, size, unit), blocks);
  const rotated = blocks.map((_, member) => blocks[(member + 1) % size]!);
  if (size > 1) ringAllGather(builder, { ...group, rank }, rotated);
}

/** Reduces blocks along the ring: each member has the result of the block after its own. @param targets blocks, which may be those of the sources */
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
 * Two levels. With as many ranks on every node: reduced by blocks within the nodes, then in one ring for each card between the nodes, then gathered within
 * the nodes. Otherwise by a leader of each node.
 */
export function twoLevelAllReduce(
  builder: ScheduleBuilder,
  { rank, nodes }: { readonly rank: number; readonly nodes: Nodes },
  source: Region,
  target: Region,
  unit: number,
): void {
  const own = nodes.find((ranks) => ranks.includes(rank))!;
  const local: Group = { rank: own.indexOf(rank), size: own.length, ranks: own };
  const isEven = nodes.every(({ length }) => length === own.length);
  if (!isEven) {
    byLeaders(builder, local, nodes, source, target, unit);
    return;
  }
  if (local.size === 1) builder.copy(source, target);
  builder.phase(1);
  const blocks = balancedParts(target, local.size, unit);
  ringReduce(builder, local, balancedParts(source, local.size, unit), blocks);
  const index = (local.rank + 1) % local.size;
  const across = nodes.map((ranks) => ranks[local.rank]!);
  builder.phase(2);
  ringAllReduce(builder, groupOf(rank, across), blocks[index]!, blocks[index]!, unit);
  builder.phase(3);
  const rotated = blocks.map((_, member) => blocks[(member + 1) % local.size]!);
  ringAllGather(builder, local, rotated);
}

function byLeaders(
  builder: ScheduleBuilder,
  local: Group,
  nodes: Nodes,
  source: Region,
  target: Region,
  unit: number,
): void {
  builder.phase(1);
  binomialReduce(builder, local, 0, source, target);
  builder.phase(2);
  if (local.rank === 0) {
    const leaders = nodes.map((ranks) => ranks[0]!);
    ringAllReduce(builder, groupOf(local.ranks[0]!, leaders), target, target, unit);
  }
  builder.phase(3);
  binomialBroadcast(builder, local, 0, target);
}

function groupOf(rank: number, ranks: readonly number[]): Group {
  return { rank: ranks.indexOf(rank), size: ranks.length, ranks };
}
