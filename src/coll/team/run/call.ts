/** Checks the arguments of a collective operation before any data moves, and plans it. */

import { GET_ACCESSES, type LocalMemory, PUT_ACCESSES } from '../../../api/contract/memory.ts';
import { OwnedMemory } from '../../../api/memory/owned.ts';
import { isBytes } from '../../../ucs/memory/bytes.ts';
import { checkNoNulls, checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam, outsideOf } from '../../../ucs/type/error.ts';
import { ALGORITHMS } from '../../choice/algorithms.ts';
import { checkAlgorithm, chooseAlgorithm } from '../../choice/choice.ts';
import { type Collective, type CostModel, type Places, type Problem, shapeOf } from '../../choice/problem.ts';
import { checkDtype, checkReduceOp, type Dtype, dtypeBytes, type ReduceOp } from '../../dtype/dtype.ts';
import { type Group, type Region, Space } from '../../schedule/schedule.ts';
import { areSame, type Bound, bind, doOverlap, placeOf } from './memory.ts';
import type { OperationCall } from './operation.ts';
import { type Mapper, Plan } from './plan.ts';

/** Options of all collective operations; each operation has some of them. */
export interface CallOptions {
  readonly dtype?: Dtype | undefined;
  readonly op?: ReduceOp | undefined;
  readonly root?: number | undefined;
  readonly count?: number | undefined;
  readonly sendOffset?: number | undefined;
  readonly recvOffset?: number | undefined;
  readonly sendCounts?: readonly number[] | undefined;
  readonly recvCounts?: readonly number[] | undefined;
  readonly algorithm?: string | undefined;
}

/** The properties of a team that the checks need. */
export interface CallTeam {
  readonly places: Places;
  readonly group: Group;
  readonly costs: CostModel;
  /** The context in which the memory must be mapped. */
  readonly owner: Mapper;
}

/** The blocks of both memories of an operation, in elements: one for each rank, or one. */
interface Layout {
  readonly sources: readonly number[];
  readonly targets: readonly number[];
  /** Whether this rank sends data, and whether it receives a result. */
  readonly sends: boolean;
  readonly receives: boolean;
  /** Elements on which all ranks must agree; -1 if counts differ between ranks. */
  readonly count: number;
}

const ROOTED: ReadonlySet<Collective> = new Set<Collective>(['broadcast', 'gather', 'scatter', 'reduce']);
const REDUCES: ReadonlySet<Collective> = new Set<Collective>(['reduce', 'reduceScatter', 'allReduce']);

/** How an operation accesses its memories. Data that is forwarded is also read from the memory of the result. */
const SEND_ACCESS: number = PUT_ACCESSES.ownAccess;
const RECV_ACCESS: number = PUT_ACCESSES.ownAccess | GET_ACCESSES.ownAccess;

/** Maximum bytes of one memory of an operation: lengths and offsets stay exact as Numbers. */
const BYTES_MAX = 2 ** 44;

/**
 * Checks the arguments of an operation and plans it.
 * @param send memory that is read; undefined for broadcast
 * @param recv memory of the result; the only memory for broadcast
 * @throws UcxError ERR_INVALID_PARAM that names the argument and the rule; ERR_CLOSED for unmapped memory
 */
export function planCall(
  team: CallTeam,
  collective: Collective,
  memories: { readonly send: LocalMemory | undefined; readonly recv: LocalMemory | undefined },
  options: CallOptions,
): OperationCall {
  checkOptions(options, 'options', optionsOf(collective));
  checkNoNulls(options);
  for (const name of OFFSETS) checkOffset(name, options[name]);
  const dtype = checkDtype(options.dtype ?? 'uint8');
  const op = REDUCES.has(collective) ? checkReduceOp(options.op ?? 'sum') : undefined;
  const root = rankOf('root', ROOTED.has(collective) ? (options.root ?? 0) : 0, team.group.size);
  const unit = dtypeBytes(dtype);
  const layout = layoutOf(collective, memories, options, { ...team.group, unit, root });
  const sources = regionsOf(Space.SOURCE, layout.sources, unit);
  const targets = regionsOf(Space.TARGET, layout.targets, unit);
  const source = layout.sends
    ? bound(
        team.owner,
        { name: 'send', memory: memories.send, offset: options.sendOffset },
        SEND_ACCESS,
        lengthOf(sources),
      )
    : undefined;
  const target = layout.receives
    ? bound(
        team.owner,
        { name: 'recv', memory: memories.recv, offset: options.recvOffset },
        RECV_ACCESS,
        lengthOf(targets),
      )
    : undefined;
  const sides = { source: spread(source, sources), target: spread(target, targets) };
  const overwritesSource = checkOverlap(collective, team.group.rank, sides);
  const bytes = meanBytes(layout, collective === 'reduceScatter' || collective === 'scatter', unit);
  const shape = shapeOf(team.places, bytes, layout.count >= 0);
  const { places, group } = team;
  const problem: Problem = { collective, places, group, root, unit, sources, targets, shape };
  const forced = options.algorithm === undefined ? undefined : checkAlgorithm(collective, options.algorithm);
  const algorithm = chooseAlgorithm(collective, shape, team.costs, forced);
  const use = {
    isDeviceSource: source !== undefined && source.bytes === undefined,
    isDeviceTarget: target !== undefined && target.bytes === undefined,
    overwritesSource,
  };
  const signature = { collective, dtype, op, root, count: layout.count, algorithm: ALGORITHMS.indexOf(algorithm) };
  return { signature, plan: new Plan(algorithm, problem, use), source, target };
}

const OFFSETS = ['sendOffset', 'recvOffset'] as const;

/** Checks an offset, which must be valid even if this rank does not use the memory. */
function checkOffset(name: string, offset: number | undefined): void {
  if (offset !== undefined && !(Number.isSafeInteger(offset) && offset >= 0)) {
    throw invalidParam(name, 'must be an integer of 0 or more', offset);
  }
}

function optionsOf(collective: Collective): readonly string[] {
  if (collective === 'barrier') return ['signal', 'algorithm'];
  const common = ['dtype', 'count', 'sendOffset', 'recvOffset', 'signal', 'algorithm'];
  if (REDUCES.has(collective)) common.push('op');
  if (ROOTED.has(collective)) common.push('root');
  if (collective === 'allGather') common.push('recvCounts');
  if (collective === 'allToAll') common.push('sendCounts', 'recvCounts');
  return common;
}

function layoutOf(
  collective: Collective,
  { send, recv }: { readonly send: LocalMemory | undefined; readonly recv: LocalMemory | undefined },
  options: CallOptions,
  { rank, size, unit, root }: Pick<Problem, 'root' | 'unit'> & Pick<Group, 'rank' | 'size'>,
): Layout {
  const { sendCounts, recvCounts } = options;
  const all = (count: number): number[] => Array.from({ length: size }, () => count);
  const countOf = (name: string, memory: LocalMemory | undefined, offset: number | undefined, parts: number): number =>
    options.count === undefined
      ? elementsOf({ name, memory, offset }, parts, unit)
      : countIn('count', options.count, unit);
  const isRoot = rank === root;
  switch (collective) {
    case 'barrier':
      return { sources: [0], targets: [0], sends: false, receives: false, count: 0 };
    case 'broadcast': {
      const count = countOf('buffer', recv, options.recvOffset, 1);
      return { sources: [], targets: [count], sends: false, receives: true, count };
    }
    case 'gather': {
      const count = countOf('send', send, options.sendOffset, 1);
      return { sources: [count], targets: all(count), sends: true, receives: isRoot, count };
    }
    case 'scatter': {
      const count = countOf('recv', recv, options.recvOffset, 1);
      return { sources: all(count), targets: [count], sends: isRoot, receives: true, count };
    }
    case 'allGather': {
      if (recvCounts !== undefined) {
        const counts = countsOf('recvCounts', recvCounts, size, unit);
        return { sources: [counts[rank]!], targets: counts, sends: true, receives: true, count: -1 };
      }
      const count = countOf('send', send, options.sendOffset, 1);
      return { sources: [count], targets: all(count), sends: true, receives: true, count };
    }
    case 'allToAll': {
      if (sendCounts !== undefined || recvCounts !== undefined) {
        const sources = countsOf('sendCounts', sendCounts, size, unit);
        const targets = countsOf('recvCounts', recvCounts, size, unit);
        if (sources[rank] !== targets[rank]) {
          throw invalidParam('recvCounts', `must be equal to sendCounts for rank ${rank}`, targets[rank]);
        }
        return { sources, targets, sends: true, receives: true, count: -1 };
      }
      const count = countOf('send', send, options.sendOffset, size);
      return { sources: all(count), targets: all(count), sends: true, receives: true, count };
    }
    case 'reduce': {
      const count = countOf('send', send, options.sendOffset, 1);
      return { sources: [count], targets: [count], sends: true, receives: isRoot, count };
    }
    case 'reduceScatter': {
      const count = countOf('recv', recv, options.recvOffset, 1);
      return { sources: all(count), targets: [count], sends: true, receives: true, count };
    }
    case 'allReduce': {
      const count = countOf('send', send, options.sendOffset, 1);
      return { sources: [count], targets: [count], sends: true, receives: true, count };
    }
  }
}

/** A memory argument of a call. */
interface MemoryArgument {
  readonly name: string;
  readonly memory: LocalMemory | undefined;
  readonly offset: number | undefined;
}

/** The default count: the elements that fit in the memory. */
function elementsOf({ name, memory, offset }: MemoryArgument, parts: number, unit: number): number {
  checkIsMemory(name, memory);
  const byteLength = memory.byteLength - offsetIn(`${name}Offset`, offset, memory);
  if (byteLength % (unit * parts) !== 0) {
    const rule = `must have a multiple of ${unit * parts} bytes if count is not given`;
    throw invalidParam(name, rule, byteLength);
  }
  return byteLength / unit / parts;
}

function countIn(name: string, count: number, unit: number): number {
  if (!Number.isSafeInteger(count) || count < 0 || count * unit > BYTES_MAX) {
    throw invalidParam(name, `must be an integer from 0 to ${BYTES_MAX / unit}`, count);
  }
  return count;
}

function countsOf(name: string, counts: readonly number[] | undefined, size: number, unit: number): readonly number[] {
  if (!Array.isArray(counts) || counts.length !== size) {
    throw invalidParam(name, `must be a list of ${size} counts, one for each rank`, counts?.length);
  }
  // Not map, which skips the holes of a sparse array.
  return Array.from(counts, (count: number, index) => countIn(`${name}[${index}]`, count, unit));
}

/** Checks a rank. @throws UcxError ERR_INVALID_PARAM */
function rankOf(name: string, rank: number, size: number): number {
  if (!Number.isInteger(rank) || rank < 0 || rank >= size) {
    throw invalidParam(name, `must be a rank of the team, 0 to ${size - 1}`, rank);
  }
  return rank;
}

function offsetIn(name: string, offset: number | undefined, { byteLength }: LocalMemory): number {
  const start = offset ?? 0;
  if (!Number.isSafeInteger(start) || start < 0 || start > byteLength) {
    throw invalidParam(name, `must be an integer from 0 to the ${byteLength} bytes of the memory`, start);
  }
  return start;
}

function checkIsMemory(name: string, memory: LocalMemory | undefined): asserts memory is LocalMemory {
  if (isBytes(memory) || OwnedMemory.isGenuine(memory)) return;
  throw invalidParam(name, 'must be a Uint8Array or a memory handle', memory);
}

/** Checks memory and binds it to an operation, from the offset on. */
function bound(owner: object, { name, memory, offset }: MemoryArgument, access: number, byteLength: number): Bound {
  checkIsMemory(name, memory);
  if (OwnedMemory.isGenuine(memory)) {
    if (!memory.mapped) throw memory.unmappedError(`memory ${name}`);
    if (memory.owner !== owner) throw invalidParam(name, 'must be mapped by the context of the worker', memory);
    memory.requireAccess(access, name);
  }
  const start = offsetIn(`${name}Offset`, offset, memory);
  if (start + byteLength > memory.byteLength) {
    throw outsideOf(name, name, { offset: start, byteLength, size: memory.byteLength });
  }
  return bind(memory, start, byteLength);
}

function regionsOf(space: Space, counts: readonly number[], unit: number): Region[] {
  let offset = 0;
  return counts.map((count) => {
    const region = { space, offset, byteLength: count * unit };
    offset += region.byteLength;
    return region;
  });
}

function lengthOf(regions: readonly Region[]): number {
  return regions.reduce((sum, { byteLength }) => sum + byteLength, 0);
}

/** The size by which the algorithm is chosen. */
function meanBytes({ sources, targets, count }: Layout, isByTarget: boolean, unit: number): number {
  if (count >= 0) return count * unit;
  const counts = isByTarget ? sources : targets;
  // The counts of allToAll differ between ranks, but the choice must not.
  return sources.length === 1 ? (counts.reduce((sum, one) => sum + one, 0) / counts.length) * unit : 0;
}

/** A memory of an operation, and its blocks. */
interface Spread {
  readonly memory: Bound;
  readonly blocks: readonly Region[];
}

function spread(memory: Bound | undefined, blocks: readonly Region[]): Spread | undefined {
  return memory && { memory, blocks };
}

/**
 * Checks that send and receive memory are disjoint, or in place as NCCL defines it.
 * @returns true if the source must be copied first
 * @throws UcxError ERR_INVALID_PARAM
 */
function checkOverlap(
  collective: Collective,
  rank: number,
  { source, target }: { readonly source: Spread | undefined; readonly target: Spread | undefined },
): boolean {
  if (source === undefined || target === undefined) return false;
  const wholeOf = ({ memory, blocks }: Spread): ReturnType<typeof placeOf> =>
    placeOf(memory, { space: blocks[0]!.space, offset: 0, byteLength: lengthOf(blocks) });
  const [from, to] = [wholeOf(source), wholeOf(target)];
  if (!doOverlap(from, to)) return false;
  // The block of this rank, in the memory that has a block for each rank.
  const ownOf = ({ memory, blocks }: Spread): ReturnType<typeof placeOf> =>
    placeOf(memory, blocks[blocks.length > 1 ? rank : 0]!);
  const isInPlace =
    collective === 'allToAll'
      ? areSame(from, to) && haveEqual(source.blocks, target.blocks)
      : areSame(ownOf(source), ownOf(target));
  if (!isInPlace) {
    throw invalidParam(
      'recv',
      'must not overlap send, unless the operation is in place: send is the block of this rank in recv, or the reverse',
      rank,
    );
  }
  return collective === 'allToAll';
}

function haveEqual(sources: readonly Region[], targets: readonly Region[]): boolean {
  return sources.every(({ byteLength }, index) => byteLength === targets[index]!.byteLength);
}
