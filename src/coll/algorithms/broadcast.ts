/** Algorithms of the broadcast. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import type { Group, Nodes, Region } from '../schedule/schedule.ts';
import { ringAllGather } from './all-gather.ts';

/** Binomial tree: in every round each rank that has the bytes sends them to one that does not. @param data the bytes, at every rank */
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

/** Scatter of the parts, then a ring: every rank sends about twice the bytes, whatever the number of ranks. */
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

/** Two levels: between one rank of each node, which is the root on its own node, then within the nodes. */
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
