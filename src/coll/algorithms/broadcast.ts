/** Algorithms of broadcast, barrier and allToAll. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { equalParts, type Group, type Nodes, part, type Region } from '../schedule/schedule.ts';
import { ringAllGather } from './gather.ts';

/** Binomial tree: in every round each rank that has the data sends it to one that does not. @param data the data, at the same place on every rank */
export function binomialBroadcast(builder: ScheduleBuilder, group: Group, root: number, data: Region): void {
  const { rank, size } = group;
  const place = (rank - root + size) % size;
  let top = 1;
  while (top < size) top *= 2;
  for (let distance = top / 2; distance >= 1; distance /= 2) {
    builder.round();
    if (place % (distance * 2) === 0 && place + distance < size) {
      builder.send(group, (rank + distance) % size, data);
    } else if (place % (distance * 2) === distance) {
      builder.receive(group, (rank - distance + size) % size, data);
    }
  }
}

/** Scatter, then allGather by a ring: every rank sends about twice the data, whatever the number of ranks. */
export function scatteredBroadcast(
  builder: ScheduleBuilder,
  group: Group,
  root: number,
  parts: readonly Region[],
): void {
  builder.round();
  if (group.rank === root) {
    for (const [member, data] of parts.entries()) if (member !== root) builder.send(group, member, data);
  } else builder.receive(group, root, parts[group.rank]!);
  ringAllGather(builder, group, parts, root);
}

/** Two levels: from the root to one rank of every other node, then within each node. */
export function twoLevelBroadcast(
  builder: ScheduleBuilder,
  { rank, nodes }: { readonly rank: number; readonly nodes: Nodes },
  root: number,
  data: Region,
): void {
  const leaders = nodes.map((ranks) => (ranks.includes(root) ? root : ranks[0]!));
  const home = nodes.findIndex((ranks) => ranks.includes(rank));
  const own = nodes[home]!;
  const leader = leaders[home]!;
  builder.phase(1);
  if (leader === rank) {
    const group: Group = { rank: home, size: leaders.length, ranks: leaders };
    binomialBroadcast(builder, group, leaders.indexOf(root), data);
  }
  builder.phase(2);
  binomialBroadcast(builder, { rank: own.indexOf(rank), size: own.length, ranks: own }, own.indexOf(leader), data);
}

/** Dissemination: in round k every rank sends a message to the one at distance 2^k. */
export function disseminate(builder: ScheduleBuilder, group: Group): void {
  const { rank, size } = group;
  const nothing: Region = builder.scratch(0);
  for (let distance = 1; distance < size; distance *= 2) {
    builder.round();
    builder.send(group, (rank + distance) % size, nothing);
    builder.receive(group, (rank - distance + size) % size, nothing);
  }
}

/** Steps of {@link pairwiseAllToAll} that are in flight at the same time. */
const PAIRS_AT_ONCE = 8;

/**
 * Pairwise exchange: in step k every rank sends to the rank at distance k and receives from the rank at distance -k. Up to {@link PAIRS_AT_ONCE} steps
 * overlap.
 * @param sources one block for each member
 * @param targets where the block of each member goes
 */
export function pairwiseAllToAll(
  builder: ScheduleBuilder,
  group: Group,
  sources: readonly Region[],
  targets: readonly Region[],
): void {
  const { rank, size } = group;
  builder.copy(sources[rank]!, targets[rank]!);
  for (let step = 1; step < size; step++) {
    if (step % PAIRS_AT_ONCE === 1) builder.round();
    const [to, from] = [(rank + step) % size, (rank - step + size) % size];
    builder.send(group, to, sources[to]!);
    builder.receive(group, from, targets[from]!);
  }
}

/** Bruck: log2(ranks) rounds; in round k every rank forwards the blocks whose distance to their target has bit k set. @param sources equal blocks */
export function bruckAllToAll(
  builder: ScheduleBuilder,
  group: Group,
  sources: readonly Region[],
  targets: readonly Region[],
): void {
  const { rank, size } = group;
  const { byteLength } = sources[0]!;
  const work = equalParts(builder.scratch(byteLength * size), size);
  const half = Math.ceil(size / 2);
  const [outgoing, incoming] = [builder.scratch(byteLength * half), builder.scratch(byteLength * half)];
  for (const [index, block] of work.entries()) builder.copy(sources[(rank + index) % size]!, block);
  for (let distance = 1; distance < size; distance *= 2) {
    const moved = work.filter((_, index) => Math.floor(index / distance) % 2 === 1);
    for (const [index, block] of moved.entries()) {
      builder.copy(block, part(outgoing, index * byteLength, byteLength));
    }
    builder.round();
    builder.send(group, (rank + distance) % size, part(outgoing, 0, moved.length * byteLength));
    builder.receive(group, (rank - distance + size) % size, part(incoming, 0, moved.length * byteLength));
    for (const [index, block] of moved.entries()) builder.copy(part(incoming, index * byteLength, byteLength), block);
  }
  for (const [index, block] of work.entries()) builder.copy(block, targets[(rank - index + size) % size]!);
}
