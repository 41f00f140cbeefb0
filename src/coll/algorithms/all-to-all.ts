/** Algorithms of allToAll. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { equalParts, type Group, part, type Region } from '../schedule/schedule.ts';

/** Exchanges of a rank with a pair of other ranks that are in flight at the same time. */
const PAIRS_AT_ONCE = 8;

/**
 * Pairwise: in step k every rank sends to the one at distance k and receives from the other side; several steps at once.
 * @param sources block for each member
 * @param targets place of the block of each member
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

/** Bruck: as many rounds as the number of ranks has bits; every block travels by the bits of its distance. @param sources equal blocks */
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
