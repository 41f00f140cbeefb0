/** Measurement on one rank of `gaudi-ucx coll`: memory, warm-up, measured iterations, comparison with the oracle. */

import type { Context } from '../../api/contract/context.ts';
import type { LocalMemory } from '../../api/contract/memory.ts';
import { dtypeBytes } from '../../coll/dtype/dtype.ts';
import type { Team } from '../../coll/team/team.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import {
  expectedAt,
  fillSegment,
  findDifference,
  type KnownOperation,
  recvCount,
  sendCount,
  sentBy,
} from './oracle.ts';
import type { CollSpec } from './spec.ts';

/** The result for one size. */
export interface CollRow {
  readonly bytes: number;
  /** Elements of a block, or of the whole vector. */
  readonly count: number;
  /** Time of one iteration on the slowest rank. */
  readonly timeNs: number;
  /** Bytes per nanosecond: GB/s. */
  readonly algorithmBandwidth: number;
  /** Bus bandwidth as defined by nccl-tests: bytes that one rank has to send, per nanosecond. */
  readonly busBandwidth: number;
  /** Number of ranks whose data differs from the oracle; undefined without a check. */
  readonly wrong: number | undefined;
  readonly protocol: string;
}

/** Factor from algorithm bandwidth to bus bandwidth. */
const BUS_FACTORS: Readonly<Record<string, (size: number) => number>> = {
  allReduce: (size) => (2 * (size - 1)) / size,
  allGather: (size) => (size - 1) / size,
  allToAll: (size) => (size - 1) / size,
  reduceScatter: (size) => (size - 1) / size,
  gather: (size) => (size - 1) / size,
  scatter: (size) => (size - 1) / size,
};
const VECTORS: ReadonlySet<string> = new Set(['broadcast', 'reduce', 'allReduce']);

/** Measures one size. All ranks call this function. */
export async function measureSize(team: Team, context: Context, spec: CollSpec, bytes: number): Promise<CollRow> {
  const { collective, dtype, op, root } = spec;
  const { size, rank } = team;
  const unit = dtypeBytes(dtype);
  const count = Math.floor(bytes / unit / (VECTORS.has(collective) ? 1 : size));
  const known: KnownOperation = { collective, size, dtype, op, root, count, seed: 0 };
  const [sent, received] = [sendCount(known, rank) * unit, recvCount(known, rank) * unit];
  const [send, recv] = [memoryOf(context, spec, sent), memoryOf(context, spec, received)];
  try {
    await write(send, sent, (target) => fillSegment(target, dtype, sentBy(known, rank)));
    if (collective === 'broadcast' && rank === root) {
      await write(recv, received, (target) => fillSegment(target, dtype, sentBy(known, rank, count)));
    }
    const run = (): Promise<void> => runOnce(team, spec, count, { send, recv });
    for (let i = 0; i < spec.warmup; i++) await run();
    await team.barrier();
    const beginNs = systemClock.nowNs();
    for (let i = 0; i < spec.iterations; i++) await run();
    const ownNs = (systemClock.nowNs() - beginNs) / spec.iterations;
    const timeNs = await reduced(team, ownNs, 'max');
    const wrong = spec.checks ? await countWrong({ team, known, spec }, recv, received, run) : undefined;
    const used = count * unit * (VECTORS.has(collective) ? 1 : size);
    const algorithmBandwidth = used / timeNs;
    const busBandwidth = algorithmBandwidth * (BUS_FACTORS[collective]?.(size) ?? 1);
    const at = VECTORS.has(collective) ? used : used / size;
    const protocol = spec.algorithm ?? team.explain(collective).at(at)[0]!.algorithm;
    return { bytes: used, count, timeNs, algorithmBandwidth, busBandwidth, wrong, protocol };
  } finally {
    for (const memory of [send, recv]) if (!(memory instanceof Uint8Array)) context.memUnmap(memory);
  }
}

function memoryOf(context: Context, { memory }: CollSpec, byteLength: number): LocalMemory {
  if (byteLength === 0) return new Uint8Array(0);
  return context.memMap({ allocate: byteLength, memoryType: memory === 'gaudi' ? MemoryType.GAUDI : MemoryType.HOST });
}

async function write(memory: LocalMemory, byteLength: number, fill: (bytes: Uint8Array) => void): Promise<void> {
  if (memory instanceof Uint8Array) return;
  const bytes = memory.bytes ?? new Uint8Array(byteLength);
  fill(bytes);
  if (memory.bytes === undefined) await memory.write(bytes);
}

/** The buffers of one rank. */
interface Vectors {
  readonly send: LocalMemory;
  readonly recv: LocalMemory;
}

function runOnce(team: Team, spec: CollSpec, count: number, { send, recv }: Vectors): Promise<void> {
  const { collective, dtype, op, root, algorithm } = spec;
  const common = { dtype, count, ...(algorithm === undefined ? {} : { algorithm }) };
  switch (collective) {
    case 'barrier':
      return team.barrier();
    case 'broadcast':
      return team.broadcast(recv, { ...common, root });
    case 'gather':
      return team.gather(send, recv, { ...common, root });
    case 'scatter':
      return team.scatter(send, recv, { ...common, root });
    case 'allGather':
      return team.allGather(send, recv, common);
    case 'allToAll':
      return team.allToAll(send, recv, common);
    case 'reduce':
      return team.reduce(send, recv, { ...common, op, root });
    case 'reduceScatter':
      return team.reduceScatter(send, recv, { ...common, op });
    case 'allReduce':
      return team.allReduce(send, recv, { ...common, op });
  }
}

/** Runs the operation once more with cleared buffers and compares the result. @returns the number of ranks whose data differs */
async function countWrong(
  { team, known, spec }: { readonly team: Team; readonly known: KnownOperation; readonly spec: CollSpec },
  recv: LocalMemory,
  received: number,
  run: () => Promise<void>,
): Promise<number> {
  const { collective, root, dtype } = spec;
  const isSource = collective === 'broadcast' && team.rank === root;
  if (!isSource) await write(recv, received, (bytes) => bytes.fill(0xa5));
  await run();
  const bytes = recv instanceof Uint8Array ? recv : (recv.bytes ?? (await recv.read()));
  const difference = findDifference(bytes, dtype, expectedAt(known, team.rank));
  return reduced(team, difference === undefined ? 0 : 1, 'sum');
}

async function reduced(team: Team, value: number, op: 'sum' | 'max'): Promise<number> {
  const numbers = Float64Array.of(value);
  const bytes = new Uint8Array(numbers.buffer);
  await team.allReduce(bytes, bytes, { dtype: 'float64', op });
  return numbers[0]!;
}
