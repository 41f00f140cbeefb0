/**
 * One schedule of a team: ranks on hosts over simulated transports, which reorder and delay. Every rank runs the same random collective operations, several at
 * once, in host memory and in that of cards; a rank may die at any step. Every operation ends, with the data of the oracle or with an error that names the
 * dead rank; the survivors make a new team; nothing is left.
 */

import { COLLECTIVES, type Collective } from '../../src/coll/choice/problem.ts';
import { DTYPES, dtypeBytes, REDUCE_OPS } from '../../src/coll/dtype/dtype.ts';
import { localExchange } from '../../src/coll/exchange/exchange.ts';
import { createTeamAt } from '../../src/coll/team/create.ts';
import type { Team } from '../../src/coll/team/team.ts';
import {
  expectedAt,
  fillSegment,
  findDifference,
  type KnownOperation,
  recvCount,
  sendCount,
  sentBy,
} from '../../src/tools/coll/oracle.ts';
import type { LocalMemory } from '../../src/ucp/mem/memory-handle.ts';
import { MemoryType } from '../../src/ucs/memory/memory-type.ts';
import { isUcxError } from '../../src/ucs/type/error.ts';
import type { Actor } from './actor.ts';
import { storageOf } from './local-memory.ts';
import { Schedule } from './schedule.ts';

/** What a schedule does. */
export interface CollOptions {
  readonly seed: number;
  readonly size: number;
  readonly operations: number;
  /** Turn in which a rank dies; undefined for none. */
  readonly deathTurn?: number;
}

/** The result of a schedule. */
export interface CollOutcome {
  /** The first failure; undefined if there is none. */
  readonly failure: string | undefined;
  /** Turns of the schedule: when a rank can die. */
  readonly turns: number;
  /** Equal for equal schedules. */
  readonly digest: string;
  readonly events: readonly string[];
}

/** Operations of a rank at once. */
const AT_ONCE = 3;
const TURNS_MAX = 400_000;
const LONGEST_TIMER_NS = 2e9;
const LONG_NS = 100_000;

/** Memory of an operation. */
interface Space {
  readonly memory: LocalMemory;
  readonly storage: Uint8Array;
  readonly offset: number;
}

interface RankRun {
  readonly rank: number;
  readonly actor: Actor;
  isDone: boolean;
}

/** Runs a schedule. */
export async function simulateTeam(options: CollOptions): Promise<CollOutcome> {
  const simulation = new CollSimulation(options);
  const { schedule } = simulation;
  try {
    await simulation.run();
  } catch (error) {
    schedule.fail(String(error), error instanceof Error ? error.stack : undefined);
  }
  const { failures, trace } = schedule;
  return { failure: failures[0], turns: simulation.turns, digest: trace.digest, events: [...trace.last] };
}

class CollSimulation {
  readonly schedule: Schedule;
  turns = 0;
  readonly #options: CollOptions;
  readonly #runs: RankRun[] = [];
  readonly #known: readonly KnownOperation[];
  #dead = -1;
  /** Ranks that have done everything that they can before one dies. */
  #waiting = 0;
  #onDeath: () => void = () => {};
  readonly #death: Promise<void>;

  constructor(options: CollOptions) {
    this.#options = options;
    this.schedule = new Schedule(options.seed);
    this.#death = new Promise((resolve) => {
      this.#onDeath = resolve;
    });
    this.#known = Array.from({ length: options.operations }, (_, seed) => this.#choose(seed));
  }

  async run(): Promise<void> {
    const { schedule } = this;
    const { size } = this.#options;
    const exchange = localExchange(size);
    // Each host has one rank: some share a node by name.
    const nodes = 1 + schedule.random.below(3);
    for (let rank = 0; rank < size; rank++) {
      const actor = schedule.addActor(schedule.addHost());
      this.#runs.push({ rank, actor, isDone: false });
    }
    const all = this.#runs.map(async (run) => {
      const { rank, actor } = run;
      const options = { rank, size, exchange, node: `node${rank % nodes}` };
      let team: Team | undefined;
      try {
        team = await createTeamAt(actor.worker, options, actor.host.clock);
        schedule.note(`rank ${rank} has the team`);
        await this.#runAll(team, run);
        if (this.#options.deathTurn === undefined) await team.barrier();
      } catch (error) {
        if (!this.#isExcused(error) && !actor.host.isDead)
          schedule.fail(`rank ${rank}: ${String(error)}`, stackOf(error));
        schedule.note(`rank ${rank} gave up`);
      }
      if (this.#options.deathTurn !== undefined) {
        this.#waiting += 1;
        await this.#death;
        if (actor.host.isDead) return;
        await this.#renew(run);
        const living = team?.lostRanks.filter((lost) => lost !== this.#dead) ?? [];
        if (team?.failure !== undefined && living.length > 0)
          schedule.fail(`rank ${rank}: the ranks ${living} live, and count as lost`);
      }
      await team?.close();
      run.isDone = true;
    });
    void Promise.all(all);
    await this.#drive(() => this.#runs.every(({ isDone, actor }) => isDone || actor.host.isDead), 'the operations');
    if (schedule.failures.length === 0) await this.#close();
  }

  /** Chooses an operation: the same on all ranks. */
  #choose(seed: number): KnownOperation {
    const { schedule } = this;
    const { size } = this.#options;
    const collective = schedule.pick<Collective>(COLLECTIVES);
    const longest = schedule.isOneOf(6) ? 12_000 : 300;
    const known = {
      collective,
      size,
      dtype: schedule.pick(DTYPES),
      op: schedule.pick(REDUCE_OPS),
      root: schedule.random.below(size),
      count: schedule.random.below(longest),
      seed,
    };
    if (collective !== 'allGather' || !schedule.isOneOf(2)) return known;
    return { ...known, recvCounts: Array.from({ length: size }, () => schedule.random.below(200)) };
  }

  async #runAll(team: Team, run: RankRun): Promise<void> {
    const pending = new Set<Promise<void>>();
    for (const known of this.#known) {
      const one = this.#runOne(team, run, known).finally(() => pending.delete(one));
      pending.add(one);
      one.catch(() => {});
      if (pending.size >= AT_ONCE) await Promise.race(pending);
    }
    await Promise.all(pending);
  }

  async #runOne(team: Team, { rank, actor }: RankRun, known: KnownOperation): Promise<void> {
    const { collective, dtype, op, root, count, recvCounts } = known;
    const unit = dtypeBytes(dtype);
    const send = this.#space(actor, sendCount(known, rank) * unit);
    const recv = this.#space(actor, recvCount(known, rank) * unit);
    fillSegment(send.storage.subarray(send.offset), dtype, sentBy(known, rank));
    if (collective === 'broadcast' && rank === root) {
      fillSegment(recv.storage.subarray(recv.offset), dtype, sentBy(known, rank, count));
    }
    const common = { dtype, count, sendOffset: send.offset, recvOffset: recv.offset };
    const run = (): Promise<void> => {
      switch (collective) {
        case 'barrier':
          return team.barrier();
        case 'broadcast':
          return team.broadcast(recv.memory, { ...common, root });
        case 'gather':
          return team.gather(send.memory, recv.memory, { ...common, root });
        case 'scatter':
          return team.scatter(send.memory, recv.memory, { ...common, root });
        case 'allGather':
          return team.allGather(
            send.memory,
            recv.memory,
            recvCounts === undefined ? common : { ...common, recvCounts },
          );
        case 'allToAll':
          return team.allToAll(send.memory, recv.memory, common);
        case 'reduce':
          return team.reduce(send.memory, recv.memory, { ...common, op, root });
        case 'reduceScatter':
          return team.reduceScatter(send.memory, recv.memory, { ...common, op });
        case 'allReduce':
          return team.allReduce(send.memory, recv.memory, { ...common, op });
      }
    };
    this.schedule.note(`rank ${rank} begins ${collective} ${known.seed}`);
    await run();
    this.schedule.note(`rank ${rank} ends ${collective} ${known.seed}`);
    const found = findDifference(recv.storage.subarray(recv.offset), dtype, expectedAt(known, rank));
    if (found !== undefined) {
      this.schedule.fail(`rank ${rank}: ${JSON.stringify(known)}: element ${JSON.stringify(found)}`);
    }
    for (const { memory } of [send, recv]) {
      if (!(memory instanceof Uint8Array)) actor.host.context.memUnmap(memory);
    }
  }

  /** Memory for an operation, with some bytes before it. */
  #space(actor: Actor, byteLength: number): Space {
    const { schedule } = this;
    const { context } = actor.host;
    const offset = schedule.isOneOf(2) ? 0 : schedule.random.below(20);
    const total = byteLength + offset + 1;
    const choice = schedule.random.below(3);
    if (choice === 0) {
      const storage = new Uint8Array(total);
      return { memory: storage, storage, offset };
    }
    const isCard = choice === 1 && schedule.variation.hasCard;
    const memory = context.memMap(
      isCard ? { allocate: total, memoryType: MemoryType.GAUDI, sysDevice: 0 } : { allocate: total },
    );
    return { memory, storage: storageOf(memory), offset };
  }

  /** The survivors make a new team, and use it. */
  async #renew(run: RankRun): Promise<void> {
    const { schedule } = this;
    const survivors = this.#runs.filter(({ actor }) => !actor.host.isDead);
    const size = survivors.length;
    const rank = survivors.indexOf(run);
    this.#newExchange ??= localExchange(size);
    const exchange = this.#newExchange;
    try {
      const team = await createTeamAt(run.actor.worker, { rank, size, exchange, node: 'node' }, run.actor.host.clock);
      const known: KnownOperation = {
        collective: 'allReduce',
        size,
        dtype: 'int32',
        op: 'sum',
        root: 0,
        count: 5,
        seed: 1,
      };
      await this.#runOne(team, { ...run, rank }, known);
      await team.barrier();
      await team.close();
    } catch (error) {
      schedule.fail(`rank ${run.rank} in the new team: ${String(error)}`, stackOf(error));
    }
  }

  #newExchange: ReturnType<typeof localExchange> | undefined;

  /** Whether an error names the rank that died. */
  #isExcused(error: unknown): boolean {
    if (this.#dead < 0 || !isUcxError(error)) return false;
    const failure = error.code === 'ERR_COLL_TEAM_FAILED' && isUcxError(error.cause) ? error.cause : error;
    return failure.code === 'ERR_COLL_RANK_FAILED' && failure.details['rank'] === this.#dead;
  }

  #kill(): void {
    const { schedule } = this;
    const { rank, actor } = schedule.pick(this.#runs);
    this.#dead = rank;
    schedule.note(`${schedule.nowNs()} rank ${rank} dies`);
    actor.host.die();
    schedule.network.kill(actor.host.id);
    this.#onDeath();
  }

  /** Lets ranks make progress in random order, and time pass, until something is true. */
  async #drive(isDone: () => boolean, what: string): Promise<void> {
    const { schedule } = this;
    const { deathTurn } = this.#options;
    for (let turns = 0; !isDone(); turns++) {
      const isDue = deathTurn !== undefined && (this.turns >= deathTurn || this.#waiting === this.#options.size);
      if (isDue && this.#dead < 0) this.#kill();
      this.turns += 1;
      if (turns > TURNS_MAX) {
        schedule.fail(`${what} do not end`);
        return;
      }
      const running = this.#runs.filter(({ actor }) => actor.isRunning);
      for (let i = 0; i <= schedule.random.below(running.length * 2); i++)
        schedule.pick(running).actor.worker.progress();
      const next = schedule.clock.nextDeadlineNs;
      const nextNs = next === undefined ? LONG_NS : Math.max(0, next - schedule.nowNs());
      await turn();
      if (schedule.isOneOf(2) || nextNs > LONG_NS) schedule.clock.advance(nextNs);
      await turn();
      if (schedule.failures.length > 0) return;
    }
  }

  async #close(): Promise<void> {
    const { schedule } = this;
    let closing = 0;
    for (const { actor } of this.#runs) {
      if (actor.host.isDead) continue;
      const { requestsInUse } = actor.worker;
      if (requestsInUse > 0) schedule.fail(`${actor} has ${requestsInUse} requests in use at the end`);
      closing += 1;
      const close = async (): Promise<void> => {
        await actor.worker.close();
        actor.isClosed = true;
        if (this.#dead < 0) {
          const live = actor.host.mds.reduce((sum, md) => sum + md.live.size, 0);
          if (live > 0) schedule.fail(`${live} registrations of ${actor} are left`);
        }
        await actor.host.context.close();
      };
      void close().then(() => {
        closing -= 1;
      });
    }
    await this.#drive(() => closing === 0, 'the closes');
    schedule.clock.advance(LONGEST_TIMER_NS);
    await turn();
    await turn();
    if (schedule.clock.pendingTimers > 0) schedule.fail(`${schedule.clock.pendingTimers} timers are left`);
    for (const complaint of schedule.network.complaints) schedule.fail(complaint);
  }
}

function stackOf(error: unknown): string | undefined {
  return error instanceof Error ? error.stack : undefined;
}

/** One turn of the event loop, for promises. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
