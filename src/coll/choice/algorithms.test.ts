/** Every algorithm against a serial oracle, without any transport: schedules of all ranks run on arrays, in random order. */

import { describe, expect, it } from 'vitest';
import { createRandom, type Random } from '../../ucs/sys/random.ts';
import type { ReduceOp } from '../dtype/dtype.ts';
import { reduceBytes } from '../dtype/reduce.ts';
import { ScheduleBuilder } from '../schedule/builder.ts';
import { type Region, type Round, type Schedule, Space } from '../schedule/schedule.ts';
import { ALGORITHMS, type Algorithm } from './algorithms.ts';
import { type Collective, type Problem, shapeOf } from './problem.ts';

const UNIT = 4;
const OP: ReduceOp = 'sum';

/** Memory of one rank, and its place in its schedule. */
interface Machine {
  readonly schedule: Schedule;
  readonly spaces: readonly Uint8Array[];
  next: number;
  isStarted: boolean;
}

interface Case {
  readonly algorithm: Algorithm;
  readonly size: number;
  readonly root: number;
  /** Elements of each rank's block, or of the whole vector in all entries. */
  readonly counts: readonly number[];
  readonly nodes: readonly (readonly number[])[];
  readonly inPlace: boolean;
}

const isVector = (collective: Collective): boolean => ['broadcast', 'reduce', 'allReduce'].includes(collective);

/** The regions of blocks one after another. */
function blocksOf(space: Space, counts: readonly number[]): Region[] {
  let offset = 0;
  return counts.map((count) => {
    const region = { space, offset, byteLength: count * UNIT };
    offset += region.byteLength;
    return region;
  });
}

function problemOf({ algorithm, size, root, counts, nodes }: Case, rank: number): Problem {
  const { collective } = algorithm;
  const own = { offset: 0, byteLength: counts[rank]! * UNIT };
  const ranks = Array.from({ length: size }, (_, index) => index);
  const blocks = (space: Space): Region[] => {
    if (collective === 'allToAll')
      return blocksOf(
        space,
        ranks.map(() => counts[0]!),
      );
    return isVector(collective) ? [{ space, ...own }] : blocksOf(space, counts);
  };
  const isMany = (space: Space): boolean => {
    if (space === Space.SOURCE) return ['scatter', 'allToAll', 'reduceScatter'].includes(collective);
    return ['gather', 'allGather', 'allToAll'].includes(collective);
  };
  const regions = (space: Space): Region[] =>
    isMany(space) || isVector(collective) ? blocks(space) : [{ space, ...own }];
  const places = { rank, size, nodes };
  const isEqual = counts.every((count) => count === counts[0]);
  return {
    collective,
    places,
    group: { rank, size, ranks },
    root,
    unit: UNIT,
    sources: regions(Space.SOURCE),
    targets: regions(Space.TARGET),
    shape: shapeOf(places, counts[0]! * UNIT, isEqual),
  };
}

function lengthOf(regions: readonly Region[]): number {
  return regions.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

function machineOf(one: Case, rank: number): Machine {
  const problem = problemOf(one, rank);
  const builder = new ScheduleBuilder();
  one.algorithm.build(builder, problem);
  const schedule = builder.build();
  const source = new Uint8Array(lengthOf(problem.sources));
  const target = new Uint8Array(lengthOf(problem.targets));
  const words = new Int32Array(source.buffer);
  for (let i = 0; i < words.length; i++) words[i] = rank * 1000 + i + 1;
  if (one.algorithm.collective === 'broadcast' && rank === one.root) {
    new Int32Array(target.buffer).forEach((_, i, all) => {
      all[i] = 7000 + i;
    });
  }
  let spaces: Uint8Array[] = [source, target, new Uint8Array(schedule.scratchBytes)];
  if (one.inPlace) spaces = inPlace(one, rank, spaces);
  return { schedule, spaces, next: 0, isStarted: false };
}

/** The source inside the target, or the target inside the source, as NCCL defines it. */
function inPlace({ algorithm, root, counts }: Case, rank: number, spaces: Uint8Array[]): Uint8Array[] {
  const [source, target, scratch] = spaces as [Uint8Array, Uint8Array, Uint8Array];
  const before = counts.slice(0, rank).reduce((sum, count) => sum + count, 0) * UNIT;
  switch (algorithm.collective) {
    case 'allReduce':
      return [source, source, scratch];
    case 'reduce':
      return rank === root ? [source, source, scratch] : spaces;
    case 'reduceScatter':
      return [source, source.subarray(before, before + target.byteLength), scratch];
    case 'allGather':
      target.set(source, before);
      return [target.subarray(before, before + source.byteLength), target, scratch];
    case 'gather':
      if (rank !== root) return spaces;
      target.set(source, before);
      return [target.subarray(before, before + source.byteLength), target, scratch];
    case 'scatter':
      return rank === root ? [source, source.subarray(before, before + target.byteLength), scratch] : spaces;
    default:
      return spaces;
  }
}

function bytesOf({ spaces }: Machine, { space, offset, byteLength }: Region): Uint8Array {
  const bytes = spaces[space]!;
  if (offset < 0 || offset + byteLength > bytes.byteLength) expect.fail(`a region ends behind its memory: ${offset}`);
  return bytes.subarray(offset, offset + byteLength);
}

function overlap(one: Uint8Array, other: Uint8Array): boolean {
  if (one.buffer !== other.buffer || one.byteLength === 0 || other.byteLength === 0) return false;
  return one.byteOffset < other.byteOffset + other.byteLength && other.byteOffset < one.byteOffset + one.byteLength;
}

/** Messages land while others of the round are read: they must not share bytes, and two ranks have one message in a direction. */
function checkRound(machine: Machine, { id, sends, receives }: Round): void {
  for (const [index, { peer, region }] of receives.entries()) {
    const landing = bytesOf(machine, region);
    for (const other of [...sends, ...receives.slice(index + 1)]) {
      if (overlap(landing, bytesOf(machine, other.region))) expect.fail(`round ${id} overwrites what it uses`);
    }
    if (receives.slice(index + 1).some((other) => other.peer === peer)) expect.fail(`round ${id} has two from ${peer}`);
  }
  const peers = sends.map(({ peer }) => peer);
  if (new Set(peers).size < peers.length) expect.fail(`round ${id} sends twice to one rank`);
}

/** Runs the schedules: in every step a random rank advances as far as it can. */
function run(machines: readonly Machine[], random: Random): void {
  const messages = new Map<string, Uint8Array>();
  const unfinished = (): number[] =>
    machines.flatMap(({ next, schedule }, rank) => (next < schedule.rounds.length ? [rank] : []));
  for (let idle = 0; unfinished().length > 0; ) {
    const ranks = unfinished();
    const rank = ranks[random.below(ranks.length)]!;
    const machine = machines[rank]!;
    const round = machine.schedule.rounds[machine.next]!;
    if (!machine.isStarted) {
      checkRound(machine, round);
      for (const { peer, region } of round.sends) {
        messages.set(`${rank} ${peer} ${round.id}`, bytesOf(machine, region).slice());
      }
      machine.isStarted = true;
      idle = 0;
    }
    const arrived = round.receives.map(({ peer }) => messages.get(`${peer} ${rank} ${round.id}`));
    idle += 1;
    if (idle > 10_000) expect.fail(`ranks ${ranks} wait for ever`);
    if (arrived.includes(undefined)) continue;
    for (const [index, { peer, region }] of round.receives.entries()) {
      const bytes = arrived[index]!;
      expect(bytes.byteLength).toBe(region.byteLength);
      bytesOf(machine, region).set(bytes);
      messages.delete(`${peer} ${rank} ${round.id}`);
    }
    for (const { from, to, operand } of round.steps) {
      const [bytes, into] = [bytesOf(machine, from), bytesOf(machine, to)];
      expect(bytes.byteLength).toBe(into.byteLength);
      if (operand !== undefined) reduceBytes('int32', OP, into, bytes, bytesOf(machine, operand));
      else into.set(bytes);
    }
    machine.next += 1;
    machine.isStarted = false;
    idle = 0;
  }
  expect(messages.size).toBe(0);
}

/** The result of a rank by the definition of the operation; undefined if it has none. */
function oracle({ algorithm, size, root, counts }: Case, rank: number): number[] | undefined {
  const ranks = Array.from({ length: size }, (_, index) => index);
  const startOf = (member: number): number => counts.slice(0, member).reduce((sum, count) => sum + count, 0);
  const run = (from: number, start: number, count: number): number[] =>
    Array.from({ length: count }, (_, i) => from * 1000 + start + i + 1);
  const sums = (start: number, count: number): number[] =>
    Array.from({ length: count }, (_, i) => ranks.reduce((sum, from) => sum + from * 1000 + start + i + 1, 0));
  switch (algorithm.collective) {
    case 'barrier':
      return undefined;
    case 'broadcast':
      return Array.from({ length: counts[0]! }, (_, i) => 7000 + i);
    case 'gather':
      return rank === root ? ranks.flatMap((from) => run(from, 0, counts[from]!)) : undefined;
    case 'scatter':
      return run(root, startOf(rank), counts[rank]!);
    case 'allGather':
      return ranks.flatMap((from) => run(from, 0, counts[from]!));
    case 'allToAll':
      return ranks.flatMap((from) => run(from, rank * counts[0]!, counts[0]!));
    case 'reduce':
      return rank === root ? sums(0, counts[0]!) : undefined;
    case 'reduceScatter':
      return sums(startOf(rank), counts[rank]!);
    case 'allReduce':
      return sums(0, counts[0]!);
  }
}

function check(one: Case, random: Random): void {
  const machines = Array.from({ length: one.size }, (_, rank) => machineOf(one, rank));
  const before = machines.map(({ spaces }) => spaces[Space.SOURCE]!.slice());
  run(machines, random);
  for (const [rank, machine] of machines.entries()) {
    const wanted = oracle(one, rank);
    const target = machine.spaces[Space.TARGET]!;
    if (wanted !== undefined) expect(target).toEqual(new Uint8Array(Int32Array.from(wanted).buffer));
    if (!one.inPlace) expect(machine.spaces[Space.SOURCE]).toEqual(before[rank]);
  }
}

/** Ranks spread over nodes in turn, so that the ranks of a node are not neighbours. */
function nodesOf(size: number, count: number): number[][] {
  const nodes: number[][] = Array.from({ length: Math.min(count, size) }, () => []);
  for (let rank = 0; rank < size; rank++) nodes[rank % nodes.length]!.push(rank);
  return nodes;
}

const VARIABLE: ReadonlySet<Collective> = new Set<Collective>(['gather', 'scatter', 'allGather', 'reduceScatter']);

describe.each(ALGORITHMS.map((one) => [`${one.collective}, ${one.name}`, one] as const))('%s', (_name, algorithm) => {
  it('has the result of the oracle for 1 to 9 ranks, every root, and any length', () => {
    const random = createRandom(4711);
    let cases = 0;
    for (let size = 1; size <= 9; size++) {
      for (const nodeCount of [1, 2, 3]) {
        for (const inPlace of [false, true]) {
          const equal = Array.from({ length: size }, () => 1 + random.below(20));
          const counts = equal.map(() => equal[0]!);
          const few = equal.map(() => 1);
          const various = VARIABLE.has(algorithm.collective) ? [equal.map(() => random.below(9))] : [];
          for (const lengths of [counts, few, ...various]) {
            const nodes = nodesOf(size, nodeCount);
            for (let root = 0; root < size; root += 1 + random.below(3)) {
              const one: Case = { algorithm, size, root, counts: lengths, nodes, inPlace };
              if (algorithm.unfit?.(problemOf(one, 0).shape) !== undefined) continue;
              check(one, random);
              cases += 1;
            }
          }
        }
      }
    }
    expect(cases).toBeGreaterThan(10);
  });
});
