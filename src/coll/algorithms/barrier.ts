/** Algorithms of the barrier. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import type { Group, Region } from '../schedule/schedule.ts';

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
