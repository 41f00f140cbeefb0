/**
 * Algorithms of allGather, gather and scatter. Those of allGather, except {@link bruckAllGather}, expect that the caller has copied this rank's block to
 * `blocks`.
 */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { equalParts, type Group, part, type Region, type Rooted } from '../schedule/schedule.ts';

/**
 * Ring: in every round each rank forwards the block that it received in the round before.
 * @param blocks where each member's block goes
 * @param complete a member that has all blocks already and receives none
 */
export function ringAllGather(builder: ScheduleBuilder, group: Group, blocks: readonly Region[], complete = -1): void {
  const { rank, size } = group;
  const [next, before] = [(rank + 1) % size, (rank - 1 + size) % size];
  for (let step = 0; step < size - 1; step++) {
    builder.round();
    if (next !== complete) builder.send(group, next, blocks[(rank - step + size) % size]!);
    if (rank !== complete) builder.receive(group, before, blocks[(rank - step - 1 + size) % size]!);
  }
}

/** Direct: every rank sends its block to all others at once. For teams in which every pair of ranks has a link. */
export function directAllGather(builder: ScheduleBuilder, group: Group, blocks: readonly Region[]): void {
  const { rank, size } = group;
  builder.round();
  for (let step = 1; step < size; step++) {
    builder.send(group, (rank + step) % size, blocks[rank]!);
    const from = (rank - step + size) % size;
    builder.receive(group, from, blocks[from]!);
  }
}

/**
 * Recursive doubling, for a power of two of ranks: in every round pairs of ranks exchange all blocks that they have. @param blocks equal blocks, one after
 * another
 */
export function doublingAllGather(builder: ScheduleBuilder, group: Group, blocks: readonly Region[]): void {
  const { rank, size } = group;
  const { byteLength } = blocks[0]!;
  for (let distance = 1; distance < size; distance *= 2) {
    builder.round();
    const partner = rank ^ distance;
    const groupOf = (member: number): Region => part(blocks[member - (member % distance)]!, 0, byteLength * distance);
    builder.send(group, partner, groupOf(rank));
    builder.receive(group, partner, groupOf(partner));
  }
}

/**
 * Bruck: as few rounds as recursive doubling, but for any number of ranks; needs copies in host memory.
 * @param own this rank's block
 * @param blocks where the equal blocks go
 */
export function bruckAllGather(builder: ScheduleBuilder, group: Group, own: Region, blocks: readonly Region[]): void {
  const { rank, size } = group;
  const { byteLength } = own;
  const work = builder.scratch(byteLength * size);
  builder.copy(own, part(work, 0, byteLength));
  for (let distance = 1; distance < size; distance *= 2) {
    builder.round();
    const count = Math.min(distance, size - distance);
    builder.send(group, (rank - distance + size) % size, part(work, 0, count * byteLength));
    builder.receive(group, (rank + distance) % size, part(work, distance * byteLength, count * byteLength));
  }
  for (const [index, block] of equalParts(work, size).entries()) builder.copy(block, blocks[(rank + index) % size]!);
}

/** Every rank sends its block to the root. @param blocks where the blocks go, at the root */
export function linearGather(
  builder: ScheduleBuilder,
  { group, root }: Rooted,
  own: Region,
  blocks: readonly Region[],
): void {
  builder.round();
  if (group.rank !== root) {
    builder.send(group, root, own);
    return;
  }
  for (const [member, block] of blocks.entries()) if (member !== root) builder.receive(group, member, block);
  builder.copy(own, blocks[root]!);
}

/** The root sends every rank its block. @param blocks the blocks at the root */
export function linearScatter(
  builder: ScheduleBuilder,
  { group, root }: Rooted,
  own: Region,
  blocks: readonly Region[],
): void {
  builder.round();
  if (group.rank !== root) {
    builder.receive(group, root, own);
    return;
  }
  for (const [member, block] of blocks.entries()) if (member !== root) builder.send(group, member, block);
  builder.copy(blocks[root]!, own);
}

/** Binomial tree: ranks collect the equal blocks of their subtrees in host memory. */
export function binomialGather(
  builder: ScheduleBuilder,
  { group, root }: Rooted,
  own: Region,
  blocks: readonly Region[],
): void {
  const { rank, size } = group;
  const { byteLength } = own;
  const place = (rank - root + size) % size;
  const work = builder.scratch(byteLength * subtreeSize(place, size));
  builder.copy(own, part(work, 0, byteLength));
  for (let distance = 1; distance < size; distance *= 2) {
    builder.round();
    if (place % (distance * 2) === distance) builder.send(group, (rank - distance + size) % size, work);
    else if (place % (distance * 2) === 0 && place + distance < size) {
      const count = subtreeSize(place + distance, size);
      builder.receive(group, (rank + distance) % size, part(work, distance * byteLength, count * byteLength));
    }
  }
  if (place !== 0) return;
  for (const [index, block] of equalParts(work, size).entries()) builder.copy(block, blocks[(root + index) % size]!);
}

/** Binomial tree: ranks receive the equal blocks of their subtrees in host memory and forward those of other ranks. */
export function binomialScatter(
  builder: ScheduleBuilder,
  { group, root }: Rooted,
  own: Region,
  blocks: readonly Region[],
): void {
  const { rank, size } = group;
  const { byteLength } = own;
  const place = (rank - root + size) % size;
  const work = builder.scratch(byteLength * subtreeSize(place, size));
  if (place === 0) {
    for (const [index, block] of equalParts(work, size).entries()) builder.copy(blocks[(root + index) % size]!, block);
  }
  let top = 1;
  while (top < size) top *= 2;
  for (let distance = top / 2; distance >= 1; distance /= 2) {
    builder.round();
    if (place % (distance * 2) === distance) builder.receive(group, (rank - distance + size) % size, work);
    else if (place % (distance * 2) === 0 && place + distance < size) {
      const count = subtreeSize(place + distance, size);
      builder.send(group, (rank + distance) % size, part(work, distance * byteLength, count * byteLength));
    }
  }
  builder.copy(part(work, 0, byteLength), own);
}

/** Ranks in the subtree below a member, itself included. @param place the member, counted from the root */
function subtreeSize(place: number, size: number): number {
  if (place === 0) return size;
  let lowBit = 1;
  while (place % (lowBit * 2) === 0) lowBit *= 2;
  return Math.min(lowBit, size - place);
}
