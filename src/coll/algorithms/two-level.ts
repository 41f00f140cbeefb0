/** Two levels: an algorithm between the leaders of the nodes, and one within each node. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import type { Group, Region } from '../schedule/schedule.ts';
import type { Nodes } from './all-reduce.ts';
import { binomialBroadcast } from './broadcast.ts';

/** Broadcast between one rank of each node, which is the root on its own node, then within the nodes. */
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
