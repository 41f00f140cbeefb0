/** Algorithms of reduce and reduceScatter. */

import type { ScheduleBuilder } from '../schedule/builder.ts';
import { type Group, part, type Region } from '../schedule/schedule.ts';

/** Binomial tree. @param target the result, at the root only; other ranks reduce in host memory */
export function binomialReduce(
  builder: ScheduleBuilder,
  group: Group,
  root: number,
  source: Region,
  target: Region,
): void {
  const { rank, size } = group;
  const { byteLength } = source;
  const place = (rank - root + size) % size;
  // A leaf sends what it has.
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

/** Ring: partial results travel once around and end at their owner. @param sources block for each member @param target this rank's block */
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
    // The target may be the source's own block, which received bytes must not overwrite.
    const landing = step === size - 2 ? part(buffers[step % 2]!, 0, block.byteLength) : incoming;
    builder.send(group, next, outgoing);
    builder.receive(group, before, landing);
    builder.reduce(landing, incoming, block);
    outgoing = incoming;
  }
}

/** Pairwise: every rank sends each block to its owner, which reduces; no partial result travels. */
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
