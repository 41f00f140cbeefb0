/** A team of ranks, and its collective operations in both tiers. */

import type { AwaitedWorker } from '../../api/awaited/worker.ts';
import type { LocalMemory } from '../../api/contract/memory.ts';
import { checkParams, type Request, type RequestParams } from '../../api/contract/request.ts';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { AbortError, isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import { type CollectiveExplanation, explainCollective } from '../choice/choice.ts';
import type { Collective } from '../choice/problem.ts';
import { rankFailed, TEAM_FAILED } from './layout/errors.ts';
import type {
  AllGatherOptions,
  AllToAllOptions,
  ReduceOptions,
  ReduceToRootOptions,
  RootOptions,
  SignalOption,
  SplitOptions,
} from './options.ts';
import { type CallOptions, type CallTeam, planCall } from './run/call.ts';
import { splitTeam } from './split.ts';
import type { TeamCore } from './team-core.ts';

type Send = LocalMemory | undefined;

/**
 * A team of ranks. Every rank calls the same operations in the same order, with the same element types, counts and roots. `send` and `recv` are host bytes or
 * mapped memory of any type, which may differ between ranks. They must be disjoint, or in place: the same bytes, or this rank's block at its position in the
 * other memory. Memory must not be changed until the operation has ended.
 * Operations throw before any data moves: ERR_INVALID_PARAM for their arguments, ERR_CLOSED, ERR_COLL_TEAM_FAILED once the team has failed. They fail with
 * ERR_COLL_MISMATCH if ranks call different operations, ERR_COLL_RANK_FAILED if a rank is lost or has failed, ERR_COLL_TIMED_OUT; `details.rank` is the rank.
 * If one operation fails, the team fails, on all ranks. The nbx forms return OK, a request in progress, or the failure.
 */
export class Team implements AsyncDisposable {
  readonly #core: TeamCore;
  readonly #call: CallTeam;
  #closing: Promise<void> | undefined;

  /** @internal Made by createTeam and {@link split}. */
  constructor(core: TeamCore, call: CallTeam) {
    this.#core = core;
    this.#call = call;
  }

  /** This rank. */
  get rank(): number {
    return this.#core.state.rank;
  }

  /** Number of ranks. */
  get size(): number {
    return this.#call.group.size;
  }

  /** The ranks of every node. */
  get nodes(): readonly (readonly number[])[] {
    return this.#call.places.nodes;
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.#core.state.isClosed;
  }

  /** Why the team has failed and cannot be used any more; undefined if it has not failed. */
  get failure(): UcxError | undefined {
    return this.#core.failure;
  }

  /** Ranks whose connection has ended, or that closed the team before it failed: the others can make a new team without them. */
  get lostRanks(): readonly number[] {
    return this.#core.lostRanks;
  }

  /** Operations that have not ended. */
  get operationsInProgress(): number {
    return this.#core.inProgress;
  }

  /** Waits until all ranks have called barrier. */
  barrier(options: SignalOption = {}): Promise<void> {
    return this.#run('barrier', undefined, undefined, options);
  }

  /** See {@link barrier}. */
  barrierNbx(params?: RequestParams): Status | Request {
    return this.#start('barrier', { send: undefined, recv: undefined }, {}, params);
  }

  /** Copies data from the root to all ranks. */
  broadcast(buffer: LocalMemory, options: RootOptions & SignalOption = {}): Promise<void> {
    return this.#run('broadcast', undefined, buffer, options);
  }

  /** See {@link broadcast}. */
  broadcastNbx(buffer: LocalMemory, options: RootOptions = {}, params?: RequestParams): Status | Request {
    return this.#start('broadcast', { send: undefined, recv: buffer }, options, params);
  }

  /** Collects a block from every rank at the root. @param recv at the root: the blocks in the order of the ranks */
  gather(send: LocalMemory, recv: Send, options: RootOptions & SignalOption = {}): Promise<void> {
    return this.#run('gather', send, recv, options);
  }

  /** See {@link gather}. */
  gatherNbx(send: LocalMemory, recv: Send, options: RootOptions = {}, params?: RequestParams): Status | Request {
    return this.#start('gather', { send, recv }, options, params);
  }

  /** Sends every rank its block from the root. @param send at the root: the blocks in the order of the ranks */
  scatter(send: Send, recv: LocalMemory, options: RootOptions & SignalOption = {}): Promise<void> {
    return this.#run('scatter', send, recv, options);
  }

  /** See {@link scatter}. */
  scatterNbx(send: Send, recv: LocalMemory, options: RootOptions = {}, params?: RequestParams): Status | Request {
    return this.#start('scatter', { send, recv }, options, params);
  }

  /** Collects a block from every rank on all ranks, in the order of the ranks; with `recvCounts` the blocks may differ in length. */
  allGather(send: LocalMemory, recv: LocalMemory, options: AllGatherOptions & SignalOption = {}): Promise<void> {
    return this.#run('allGather', send, recv, options);
  }

  /** See {@link allGather}. */
  allGatherNbx(
    send: LocalMemory,
    recv: LocalMemory,
    options: AllGatherOptions = {},
    params?: RequestParams,
  ): Status | Request {
    return this.#start('allGather', { send, recv }, options, params);
  }

  /** Exchanges a block between all pairs of ranks; with `sendCounts` and `recvCounts` the blocks may differ in length. */
  allToAll(send: LocalMemory, recv: LocalMemory, options: AllToAllOptions & SignalOption = {}): Promise<void> {
    return this.#run('allToAll', send, recv, options);
  }

  /** See {@link allToAll}. */
  allToAllNbx(
    send: LocalMemory,
    recv: LocalMemory,
    options: AllToAllOptions = {},
    params?: RequestParams,
  ): Status | Request {
    return this.#start('allToAll', { send, recv }, options, params);
  }

  /** Reduces the vectors of all ranks to one at the root. @param recv at the root: the result */
  reduce(send: LocalMemory, recv: Send, options: ReduceToRootOptions & SignalOption = {}): Promise<void> {
    return this.#run('reduce', send, recv, options);
  }

  /** See {@link reduce}. */
  reduceNbx(
    send: LocalMemory,
    recv: Send,
    options: ReduceToRootOptions = {},
    params?: RequestParams,
  ): Status | Request {
    return this.#start('reduce', { send, recv }, options, params);
  }

  /** Reduces the vectors of all ranks; every rank gets one block of the result. @param send a block for each rank, in the order of the ranks */
  reduceScatter(send: LocalMemory, recv: LocalMemory, options: ReduceOptions & SignalOption = {}): Promise<void> {
    return this.#run('reduceScatter', send, recv, options);
  }

  /** See {@link reduceScatter}. */
  reduceScatterNbx(
    send: LocalMemory,
    recv: LocalMemory,
    options: ReduceOptions = {},
    params?: RequestParams,
  ): Status | Request {
    return this.#start('reduceScatter', { send, recv }, options, params);
  }

  /** Reduces the vectors of all ranks; every rank gets the same bits, except those of a NaN. */
  allReduce(send: LocalMemory, recv: LocalMemory, options: ReduceOptions & SignalOption = {}): Promise<void> {
    return this.#run('allReduce', send, recv, options);
  }

  /** See {@link allReduce}. */
  allReduceNbx(
    send: LocalMemory,
    recv: LocalMemory,
    options: ReduceOptions = {},
    params?: RequestParams,
  ): Status | Request {
    return this.#start('allReduce', { send, recv }, options, params);
  }

  /**
   * Creates sub-teams; all ranks call it. They use the connections of this team, which can be closed before them.
   * @returns the sub-team of this rank's color; undefined without a color
   * @throws UcxError ERR_INVALID_PARAM; failures of operations
   */
  async split(options: SplitOptions): Promise<Team | undefined> {
    const parts = await splitTeam((send, recv) => this.allGather(send, recv), this.#core, this.#call, options);
    return parts === undefined ? undefined : new Team(...parts);
  }

  /**
   * Lists the algorithms of an operation by size, with their estimates, and why the others are not used.
   * @throws UcxError ERR_INVALID_PARAM
   */
  explain(collective: Collective): CollectiveExplanation {
    return explainCollective(collective, this.#call.places, this.#call.costs);
  }

  /**
   * Closes the team on this rank. Operations in progress fail, on all ranks; ranks whose operations still need this one are notified that it has left.
   * Idempotent, never fails.
   */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    const core = this.#core;
    const { worker, service, scratch } = core.state.parts;
    core.shutDown(rankFailed(core.state.rank, Status.CANCELED, 'has closed the team'));
    await worker.promises.until(() => core.inProgress === 0);
    await core.leave();
    scratch.close();
    service.leave();
  }

  #start(
    collective: Collective,
    memories: { readonly send: Send; readonly recv: Send },
    options: CallOptions,
    params: RequestParams | undefined,
  ): Status | Request {
    this.#core.checkUsable();
    checkParams(params);
    return this.#core.begin(planCall(this.#call, collective, memories, options), params);
  }

  /** Handles an operation that is aborted before it has begun. Throws the same errors as {@link #start}. */
  #abort(collective: Collective, send: Send, recv: Send, options: CallOptions): void {
    if (this.#core.failure !== undefined) return;
    this.#core.checkUsable();
    this.#core.cancelled(planCall(this.#call, collective, { send, recv }, options).signature);
  }

  async #run(collective: Collective, send: Send, recv: Send, options: CallOptions & SignalOption): Promise<void> {
    checkOptions(options);
    const worker: AwaitedWorker = this.#core.state.parts.worker;
    const { signal } = options;
    let hasStarted = false;
    // Abort it synchronously: otherwise the caller's next operation would take its sequence number on this rank only.
    if (signal instanceof AbortSignal && signal.aborted) this.#abort(collective, send, recv, options);
    try {
      await worker.promises.run(collective, signal, (params) => {
        hasStarted = true;
        return this.#start(collective, { send, recv }, options, params);
      });
    } catch (error) {
      // Aborted while it waited for a free request.
      if (!hasStarted && error instanceof AbortError) this.#abort(collective, send, recv, options);
      // The error of the team names the rank; that of the promise has it as its cause.
      const { failure } = this.#core;
      if (isUcxError(error) && failure !== undefined && error.cause === failure && error.code !== TEAM_FAILED)
        throw failure;
      throw error;
    }
  }
}

showAs(Team, 'Team', (team) => ({
  rank: `${team.rank} of ${team.size}`,
  nodes: team.nodes.length,
  state: team.closed ? 'closed' : team.failure === undefined ? 'open' : 'failed',
}));
