/** Creates teams: checks the options, runs the exchange, makes the connections and estimates their costs. */

import { hostname } from 'node:os';
import { AwaitedWorker } from '../../api/awaited/worker.ts';
import { checkAmId } from '../../api/contract/active-message.ts';
import type { Context } from '../../api/contract/context.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import type { Worker } from '../../api/contract/worker.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { awaitedHere, closedError, invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { DEFAULT_BETWEEN, DEFAULT_WITHIN, type LinkCost } from '../choice/problem.ts';
import { checkRank, checkTimeoutMs, type Exchange } from '../exchange/exchange.ts';
import { type Hello, packHello, readHellos } from './layout/hello.ts';
import { COST_NUMBERS, costNumbers, costsOf, DEFAULT_COSTS, Links, linkCost } from './links.ts';
import { Members } from './members.ts';
import type { CallTeam } from './run/call.ts';
import { Scratch } from './run/plan.ts';
import { COLL_AM_ID, TeamService } from './run/service.ts';
import { Issuer } from './run/slice-run.ts';
import { Team } from './team.ts';
import { TeamCore } from './team-core.ts';

/** Options of a team. */
export interface TeamOptions {
  /** This rank, 0 to size - 1. */
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** The exchange by which the ranks find each other; called once. */
  readonly exchange: Exchange;
  /** Name of the node; ranks with the same name, of at most 1024 characters, are on one node. Default: the host name. */
  readonly node?: string | undefined;
  /** Id of the active messages of teams, equal on all ranks; the program must not use it for other messages. Default 65000. */
  readonly amId?: number | undefined;
  /**
   * Time in milliseconds after which an operation that waits for ranks fails with ERR_COLL_TIMED_OUT. Its request ends when all ranks that may still write to
   * its memory have replied, or are lost. Default 0, no limit: then only the loss of a rank ends such an operation, within UCX_KEEPALIVE_INTERVAL.
   */
  readonly timeoutMs?: number | undefined;
}

const NAMES = ['rank', 'size', 'exchange', 'node', 'amId', 'timeoutMs'] as const;
const KEY_MEMORY_BYTES = 4096;
/** Maximum length of a node name in characters: every rank sends its own to all others. */
const NODE_MAX = 1024;

/**
 * Creates a team; all ranks call it. It connects to all other ranks and waits until they have created it too.
 * @param worker one for each rank; the program can use it for other communication at the same time
 * @throws UcxError ERR_INVALID_PARAM for invalid options, duplicate ranks, or sizes that differ between ranks; ERR_CLOSED if the worker is closed meanwhile;
 * errors of the exchange, of connecting, and of the first operation
 * @example
 * ```ts
 * const exchange = localExchange(2); // ranks of one process; see listenerExchange and launchedRank
 * const workers = [context.worker(), context.worker()];
 * const teams = await Promise.all(workers.map((worker, rank) => createTeam(worker, { rank, size: 2, exchange })));
 * await Promise.all(teams.map((team) => team.barrier()));
 * ```
 */
export function createTeam(worker: Worker, options: TeamOptions): Promise<Team> {
  return createTeamAt(worker, options, systemClock);
}

/** Like {@link createTeam}, with a clock, for simulations. */
export async function createTeamAt(worker: Worker, options: TeamOptions, clock: Clock): Promise<Team> {
  const { rank, size, exchange, amId = COLL_AM_ID, timeoutMs = 0 } = checkTeamOptions(worker, options);
  const awaited = worker as AwaitedWorker & Worker & { readonly context: Context };
  const { context } = awaited;
  // Join before the other ranks know the address: their messages may arrive before the exchange has ended here.
  const service = TeamService.join(worker, amId);
  const local = context.memMap({ allocate: KEY_MEMORY_BYTES });
  let team: Team | undefined;
  try {
    const own = introduce(worker, context, local, options);
    const all = readHellos(await awaitedHere(inProgress(worker, () => exchange(packHello(own)))), own);
    const addresses = all.map(({ address }) => address);
    const members: Members = new Members(Links.of(worker), addresses, rank, (...greeting) => core.greet(...greeting));
    const places = { rank, size, nodes: nodesOf(all) };
    const core: TeamCore = new TeamCore({
      id: all[0]!.team,
      rank,
      size,
      worker: awaited,
      amId,
      service,
      members,
      memberOf: all.map((_, index) => index),
      scratch: new Scratch(context),
      issuer: new Issuer(clock),
      clock,
      timeoutNs: timeoutMs * 1e6,
    });
    const call: CallTeam = {
      places,
      group: { rank, size, ranks: all.map((_, index) => index) },
      costs: DEFAULT_COSTS,
      owner: context,
    };
    team = new Team(core, call);
    core.open();
    members.connect();
    await core.connected();
    const numbers = ownCosts(members, all, places, local);
    const costs = new Float64Array(size * COST_NUMBERS);
    await team.allGather(bytesOf(numbers), bytesOf(costs));
    return new Team(core, { ...call, costs: costsOf(costs) });
  } catch (error) {
    if (team !== undefined) await team.close();
    else service.leave();
    throw error;
  } finally {
    if (local.mapped) context.memUnmap(local);
  }
}

function checkTeamOptions(worker: Worker, options: TeamOptions): TeamOptions {
  if (!AwaitedWorker.isGenuine(worker)) throw invalidParam('worker', 'must be a worker', worker);
  checkOptions(options, 'options', NAMES);
  const { rank, size, exchange, node, amId = COLL_AM_ID, timeoutMs = 0 } = options;
  checkRank(rank, size);
  if (typeof exchange !== 'function') throw invalidParam('exchange', 'must be a function', exchange);
  if (node !== undefined && (typeof node !== 'string' || node.length > NODE_MAX)) {
    throw invalidParam('node', `must be a string of at most ${NODE_MAX} characters`, node);
  }
  checkAmId(amId, 'amId');
  checkTimeoutMs(timeoutMs, 0);
  if (worker.closed) throw statusError(Status.INVALID_PARAM, 'cannot create a team of a closed worker');
  return options;
}

/**
 * Runs the exchange while the worker makes progress: a rank that has not called it yet may still wait for a message of this rank in an earlier, failed team.
 */
async function inProgress<T>(worker: Worker, run: () => Promise<T>): Promise<T> {
  const ended = new AbortController();
  const served = worker.serve(ended.signal);
  const closed = served.then((): never => {
    throw closedError('worker of the team');
  });
  try {
    // An exchange cannot be cancelled; if the worker is closed meanwhile, its result is dropped.
    return await Promise.race([closed, startOf(run)]);
  } finally {
    ended.abort();
    await served;
  }
}

/** The result of a function as a promise, which rejects if the function throws. */
async function startOf<T>(run: () => Promise<T>): Promise<T> {
  return await run();
}

function introduce(
  worker: Worker,
  context: Context,
  local: MemoryHandle,
  { rank, size, node = hostname() }: TeamOptions,
): Hello {
  const random = new DataView(systemRandomBytes(8).buffer);
  const team = (random.getUint32(0, true) >>> 12) * 2 ** 32 + random.getUint32(4, true);
  return { rank, size, team, node, address: worker.address(), key: context.packRkey(local) };
}

/** The ranks of every node; nodes in the order of their first ranks. */
function nodesOf(all: readonly Hello[]): number[][] {
  const byName = new Map<string, number[]>();
  for (const { node, rank } of all) {
    const ranks = byName.get(node);
    if (ranks === undefined) byName.set(node, [rank]);
    else ranks.push(rank);
  }
  return [...byName.values()];
}

/** This rank's cost estimates, for one connection within its node and one to another node. */
function ownCosts(
  members: Members,
  all: readonly Hello[],
  { rank, nodes }: CallTeam['places'],
  local: MemoryHandle,
): Float64Array {
  const home = nodes.find((ranks) => ranks.includes(rank))!;
  const costTo = (peer: number | undefined, otherwise: LinkCost): LinkCost | undefined =>
    peer === undefined ? undefined : linkCost(members.endpoint(peer)!, local, all[peer]!.key, otherwise);
  const near = home.find((one) => one !== rank);
  const far = nodes.find((ranks) => ranks !== home)?.[0];
  return costNumbers(costTo(near, DEFAULT_WITHIN), costTo(far, DEFAULT_BETWEEN));
}

function bytesOf(numbers: Float64Array): Uint8Array {
  return new Uint8Array(numbers.buffer);
}
