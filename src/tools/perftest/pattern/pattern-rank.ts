/** One rank of `perftest --pattern`: its memory, its transfers, the measured iterations, and the summary of all ranks. */

import { setImmediate as afterEvents } from 'node:timers/promises';
import type { Worker } from '../../../api/contract/worker.ts';
import { Context } from '../../../assembly/context.ts';
import type { LaunchedRank } from '../../../coll/exchange/listener.ts';
import { createTeam } from '../../../coll/team/create.ts';
import type { Team } from '../../../coll/team/team.ts';
import { schedYield } from '../../../sys/index.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import { percentileOf, SpinBudget } from '../measure.ts';
import { bytesOf, hexOf } from '../side/test-context.ts';
import { type Flow, PATTERNS, type PatternSpec, type Shape } from './pattern-spec.ts';
import { RankMemory } from './rank-memory.ts';
import { Latencies, Transfer } from './transfer.ts';

/** Time between two turns of the event loop, which detects the end of other ranks. */
const SLICE_NS = 50e6;
const PASSES_MASK = 255;

/** The result for one shape, of all ranks. */
export interface PatternRow extends Shape {
  readonly iterations: number;
  readonly transfers: number;
  /** Bytes of the completed transfers, counted by the ranks. */
  readonly bytes: number;
  /** Time of all iterations on the slowest rank. */
  readonly elapsedNs: number;
  /** Percentiles of the time of one transfer, from its start until the arrival of every byte. */
  readonly p50Ns: number;
  readonly p90Ns: number;
  readonly p99Ns: number;
  readonly bytesPerSecond: number;
  readonly transfersPerSecond: number;
  /** Number of blocks with wrong contents; undefined without a check. */
  readonly wrong: number | undefined;
  /** Transport and device of the lists, such as `gaudi_ipc/gaudi0`. */
  readonly carrier: string;
}

/** Reports of rank 0: its environment once, then one row for each shape. The first rank that starts transfers reports the measured iterations of all shapes. */
export type PatternResult =
  | { readonly kind: 'progress'; readonly iterations: number }
  | { readonly kind: 'begin'; readonly emulated: boolean }
  | { readonly kind: 'row'; readonly row: PatternRow };

/**
 * Runs all shapes.
 * @throws UcxError of Context.create, of creating the team, of mapping memory, and of the transfers
 */
export async function runPatternRank(
  spec: PatternSpec,
  launched: LaunchedRank,
  report: (result: PatternResult) => void,
): Promise<void> {
  await using context = await Context.create();
  const worker = context.worker({ progress: 'manual' });
  await using team = await createTeam(worker, launched);
  const hasCards = spec.sendMemory === 'gaudi' || spec.recvMemory === 'gaudi';
  if (team.rank === 0) report({ kind: 'begin', emulated: hasCards && context.emulated });
  for (const [index, shape] of spec.shapes.entries()) {
    const onProgress = (iterations: number): void =>
      report({ kind: 'progress', iterations: index * spec.iterations + iterations });
    const row = await runShape({ context, worker, team, spec, onProgress }, shape);
    if (team.rank === 0) report({ kind: 'row', row });
  }
  await team.barrier();
}

/** State of a rank for all shapes. */
interface RankSide {
  readonly context: Context;
  readonly worker: Worker;
  readonly team: Team;
  readonly spec: PatternSpec;
  /** Called with the number of completed measured iterations of a shape. */
  readonly onProgress: (iterations: number) => void;
}

async function runShape(side: RankSide, shape: Shape): Promise<PatternRow> {
  const { context, worker, team, spec, onProgress } = side;
  const flows = PATTERNS[spec.pattern].flows(team.size);
  const memory = new RankMemory(context, spec, { flows, shape }, team.rank);
  try {
    const latencies = new Latencies();
    await memory.fill();
    const transfers = await openTransfers({ ...side, shape, flows, memory }, latencies);
    const run = new RankRun(worker, transfers);
    await run.repeat(spec.warmUp);
    latencies.reset();
    for (const transfer of transfers) transfer.reset();
    await team.barrier();
    const beginNs = systemClock.nowNs();
    const isTelling = starterOf(flows[0]!, spec) === team.rank;
    await run.repeat(spec.iterations, isTelling ? onProgress : undefined);
    const elapsedNs = systemClock.nowNs() - beginNs;
    const bytes = transfers.reduce((sum, transfer) => sum + transfer.bytes, 0);
    const count = transfers.length * spec.iterations;
    // The check runs the transfers once more.
    const samples = [...latencies.samples];
    const wrong = spec.verify ? await verify(team, memory, run) : undefined;
    const carrier = transfers[0]?.carrier ?? '';
    const own: RankSummary = { elapsedNs, bytes, count, wrong, carrier, samples };
    return rowOf(spec, shape, await gatherJson(team, own));
  } finally {
    // Peers may still read or write this memory.
    await team.barrier();
    memory.close();
  }
}

interface RankSetUp extends RankSide {
  readonly shape: Shape;
  readonly flows: readonly Flow[];
  readonly memory: RankMemory;
}

/** Description of the memory of a rank for the other ranks. */
interface RankAddress {
  readonly address: string;
  /** Key of the memory for puts or gets of peers. */
  readonly key: string | undefined;
}

/** The transfers that this rank starts: puts of its send memory, or gets into its receive memory. */
async function openTransfers(setUp: RankSetUp, latencies: Latencies): Promise<Transfer[]> {
  const { context, worker, team, spec, shape, flows, memory } = setUp;
  const { operation } = spec;
  const isPut = operation === 'put';
  const shared = isPut ? memory.target : memory.source;
  const own: RankAddress = {
    address: hexOf(worker.address()),
    key: shared === undefined ? undefined : hexOf(context.packRkey(shared)),
  };
  const all = await gatherJson(team, own);
  const local = isPut ? memory.source : memory.target;
  // A rank without local memory starts none.
  if (local === undefined) return [];
  return flows
    .filter((flow) => starterOf(flow, spec) === team.rank)
    .map(({ from, to }) => {
      const { address, key } = all[isPut ? to : from]!;
      const endpoint = worker.endpoint(bytesOf('address of the peer', address));
      const rkey = endpoint.unpackRkey(bytesOf('key of the peer', key));
      const senders = flows.filter((flow) => flow.to === to).map((flow) => flow.from);
      const recvOffset = senders.indexOf(from) * shape.blocks * shape.blockBytes;
      return new Transfer({ operation, endpoint, local, rkey, recvOffset }, shape, systemClock, latencies);
    });
}

/** The rank that starts the transfers of a flow. */
function starterOf({ from, to }: Flow, { operation }: PatternSpec): number {
  return operation === 'put' ? from : to;
}

/** Runs iterations of all transfers of this rank. */
class RankRun {
  readonly #worker: Worker;
  readonly #transfers: readonly Transfer[];
  readonly #spin = new SpinBudget(schedYield);
  #passes = 0;
  #sliceEndNs = 0;

  constructor(worker: Worker, transfers: readonly Transfer[]) {
    this.#worker = worker;
    this.#transfers = transfers;
  }

  /** @param onProgress called with the number of completed iterations, once per slice */
  async repeat(iterations: number, onProgress?: (iterations: number) => void): Promise<void> {
    this.#sliceEndNs = systemClock.nowNs() + SLICE_NS;
    for (let i = 0; i < iterations; i++) {
      for (const transfer of this.#transfers) transfer.start();
      while (!this.#isOver()) await this.#endSlice(i, onProgress);
      // Transfers that end in their calls do not yield to the event loop.
      if (this.#isSliceOver()) await this.#endSlice(i + 1, onProgress);
    }
  }

  /** Drives the transfers; false when the slice is over. @throws UcxError of a transfer */
  #isOver(): boolean {
    for (;;) {
      let isRunning = false;
      for (const transfer of this.#transfers) {
        transfer.advance();
        if (transfer.error !== undefined) throw transfer.error;
        isRunning ||= transfer.isRunning;
      }
      if (!isRunning) return true;
      if (this.#worker.progress() > 0) this.#spin.renew();
      else this.#spin.spend();
      if (this.#isSliceOver()) return false;
    }
  }

  #isSliceOver(): boolean {
    this.#passes = (this.#passes + 1) & PASSES_MASK;
    return this.#passes === 0 && systemClock.nowNs() >= this.#sliceEndNs;
  }

  async #endSlice(iterations: number, onProgress?: (iterations: number) => void): Promise<void> {
    onProgress?.(iterations);
    await afterEvents();
    this.#sliceEndNs = systemClock.nowNs() + SLICE_NS;
  }
}

/** Runs one more iteration into cleared memory and compares the contents. @returns blocks of this rank that differ */
async function verify(team: Team, memory: RankMemory, run: RankRun): Promise<number> {
  await team.barrier();
  await memory.fill();
  await team.barrier();
  await run.repeat(1);
  await team.barrier();
  return memory.countWrong();
}

/** Measurements of a rank. */
interface RankSummary {
  readonly elapsedNs: number;
  readonly bytes: number;
  readonly count: number;
  readonly wrong: number | undefined;
  readonly carrier: string;
  readonly samples: readonly number[];
}

function rowOf(
  { iterations, verify: isVerified }: PatternSpec,
  shape: Shape,
  ranks: readonly RankSummary[],
): PatternRow {
  const sum = (partOf: (rank: RankSummary) => number): number => ranks.reduce((total, rank) => total + partOf(rank), 0);
  const samples = Float64Array.from(ranks.flatMap((rank) => rank.samples));
  const elapsedNs = Math.max(...ranks.map((rank) => rank.elapsedNs));
  const [transfers, bytes] = [sum(({ count }) => count), sum((rank) => rank.bytes)];
  return {
    ...shape,
    iterations,
    transfers,
    bytes,
    elapsedNs,
    p50Ns: percentileOf(samples, 50),
    p90Ns: percentileOf(samples, 90),
    p99Ns: percentileOf(samples, 99),
    bytesPerSecond: (bytes * 1e9) / elapsedNs,
    transfersPerSecond: (transfers * 1e9) / elapsedNs,
    wrong: isVerified ? sum((rank) => rank.wrong ?? 0) : undefined,
    carrier: ranks.find(({ carrier }) => carrier !== '')?.carrier ?? '',
  };
}

/** Gathers the data of every rank as JSON, in the order of the ranks. @throws UcxError of the team's operations */
async function gatherJson<T>(team: Team, own: T): Promise<T[]> {
  const all = await gatherBytes(team, Buffer.from(JSON.stringify(own)));
  return all.map((bytes): T => JSON.parse(Buffer.from(bytes).toString()));
}

/** Gathers the bytes of every rank, in the order of the ranks. @throws UcxError of the team's operations */
async function gatherBytes(team: Team, own: Uint8Array): Promise<Uint8Array[]> {
  const lengths = new Float64Array(team.size);
  await team.allGather(viewOf(Float64Array.of(own.length)), viewOf(lengths), { dtype: 'float64', count: 1 });
  const recvCounts = [...lengths];
  const all = new Uint8Array(recvCounts.reduce((sum, length) => sum + length, 0));
  await team.allGather(own, all, { recvCounts });
  let offset = 0;
  return recvCounts.map((length) => {
    offset += length;
    return all.subarray(offset - length, offset);
  });
}

function viewOf(numbers: Float64Array): Uint8Array {
  return new Uint8Array(numbers.buffer);
}
