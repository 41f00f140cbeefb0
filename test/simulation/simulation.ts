/**
 * Runs one schedule: random choices determine which operations the workloads start, which actors make progress, when time passes and what the fault
 * schedule does; then all operations are brought to their end, and nothing may be left.
 */

import type { Actor } from './actor.ts';
import { AmWorkload } from './am-workload.ts';
import { AtomicWorkload } from './atomic-workload.ts';
import { FaultSchedule } from './fault-schedule.ts';
import type { End } from './link.ts';
import { ListWorkload } from './list-workload.ts';
import { RmaWorkload } from './rma-workload.ts';
import { Schedule } from './schedule.ts';
import { StreamWorkload } from './stream-workload.ts';
import { TagWorkload } from './tag-workload.ts';

/** The result of a schedule. */
export interface Outcome {
  readonly seed: number;
  /** Equal for equal schedules. */
  readonly digest: string;
  /** The first failure; undefined if there is none. */
  readonly failure: string | undefined;
  /** The last events. */
  readonly events: readonly string[];
}

/** Turns without the end of an operation after which operations that others wait for, and time, are needed. */
const QUIET_TURNS = 24;
/** The most times that such operations are started. */
const UNBLOCKS_MAX = 250;
/** Turns between two checks whether everything has ended. */
const LOOK_TURNS = 6;
const QUIET_NS = 1e6;
/** Longer than the delay of a message. */
const LONG_NS = 100_000;
/** The most rounds of progress without time, and the rounds of workers that drive themselves. */
const ROUNDS_MAX = 200;
const SERVED_TURNS = 3;
/** The most turns of one close, beyond which it counts as hanging. */
const TURNS_MAX = 20_000;
/** Time in which all unblocked operations end. Shorter than any periodic check for lost work. */
const SETTLE_NS = 30e6;
/** The longest timer. */
const LONGEST_TIMER_NS = 2e9;

/** Runs the schedule of a seed. */
export async function simulate(seed: number): Promise<Outcome> {
  const simulation = new Simulation(seed);
  try {
    await simulation.run();
  } catch (error) {
    simulation.schedule.fail(String(error), error instanceof Error ? error.stack : undefined);
  }
  const { failures, trace } = simulation.schedule;
  return { seed, digest: trace.digest, failure: failures[0], events: [...trace.last] };
}

class Simulation {
  readonly schedule: Schedule;
  readonly #tag: TagWorkload;
  readonly #am: AmWorkload;
  readonly #stream: StreamWorkload;
  readonly #rma: RmaWorkload;
  readonly #list: ListWorkload;
  readonly #atomic: AtomicWorkload;
  readonly #faults: FaultSchedule;
  readonly #actions: readonly (readonly [number, () => void])[];

  constructor(seed: number) {
    const schedule = new Schedule(seed);
    this.schedule = schedule;
    this.#tag = new TagWorkload(schedule);
    this.#am = new AmWorkload(schedule);
    this.#stream = new StreamWorkload(schedule);
    this.#rma = new RmaWorkload(schedule);
    this.#list = new ListWorkload(schedule, this.#rma);
    this.#atomic = new AtomicWorkload(schedule);
    this.#faults = new FaultSchedule(schedule);
    this.#actions = this.#weighted();
  }

  async run(): Promise<void> {
    const { schedule } = this;
    const { hosts, steps } = schedule.variation;
    for (let i = 0; i < hosts; i++) schedule.addActor(schedule.addHost());
    for (let i = 1; i < hosts; i++) schedule.addLink(schedule.actors[i - 1]!, schedule.actors[i]!);
    for (schedule.step = 0; schedule.step < steps; schedule.step++) {
      this.#act();
      if (schedule.random.below(3) > 0) this.#pass();
      if (this.#needsTurns) await turn();
      if (schedule.failures.length > 0) return;
    }
    await this.#finish();
    if (schedule.failures.length > 0) return;
    for (const workload of [this.#tag, this.#rma, this.#list, this.#atomic, this.#faults]) workload.check();
    if (schedule.failures.length > 0) return;
    await this.#close();
  }

  get #needsTurns(): boolean {
    return this.schedule.variation.isServed || this.schedule.closing > 0;
  }

  /** Starts an operation. */
  #act(): void {
    const total = this.#actions.reduce((sum, [weight]) => sum + weight, 0);
    let choice = this.schedule.random.below(total);
    for (const [weight, act] of this.#actions) {
      choice -= weight;
      if (choice < 0) {
        act();
        return;
      }
    }
  }

  #weighted(): (readonly [number, () => void])[] {
    const onEnd = (run: (end: End) => void, fits: (end: End) => boolean = () => true): (() => void) => {
      return () => {
        const end = this.schedule.find(this.schedule.ends, (one) => one.isUsable && fits(one));
        if (end !== undefined) run(end);
      };
    };
    const onActor = (run: (actor: Actor) => void): (() => void) => {
      return () => {
        const actor = this.schedule.find(this.schedule.actors, (one) => one.isActive);
        if (actor !== undefined) run(actor);
      };
    };
    const { hasLists, isRewritten } = this.schedule.variation;
    const both = (end: End): boolean => this.#stream.canSend(end);
    return [
      [14, onEnd((end) => this.#tag.send(end, this.#length()))],
      [12, onActor((actor) => this.#tag.receive(actor))],
      [2, onActor((actor) => this.#tag.probe(actor))],
      [8, onEnd((end) => this.#am.send(end, this.#length()))],
      [3, () => this.#am.continueKept()],
      [5, onEnd((end) => this.#stream.send(end, this.#length() + 1), both)],
      [4, onEnd((end) => this.#stream.receive(end, this.#length() + 1), both)],
      [1, onEnd((end) => this.#stream.take(end), both)],
      [8, onEnd((end) => this.#rma.put(end))],
      [isRewritten ? 20 : 0, onEnd((end) => this.#rma.overwrite(end))],
      [isRewritten ? 2 : 0, onEnd((end) => this.#rma.unmap(end))],
      [5, onEnd((end) => this.#rma.get(end))],
      [2, onEnd((end) => this.#rma.fence(end, this.schedule.isOneOf(3)))],
      [4, onEnd((end) => this.#rma.flush(end, this.schedule.isOneOf(4)))],
      [4, onEnd((end) => this.#atomic.add(end))],
      [2, () => this.#cancelAny()],
      [1, onEnd((end) => this.schedule.isOneOf(3) && this.#rma.unmap(end))],
      [2, () => this.#faults.act()],
      [hasLists ? 10 : 0, onEnd((end) => this.#list.put(end))],
    ];
  }

  #length(): number {
    const { random, variation } = this.schedule;
    const { bytesMax, lanes } = variation;
    const main = lanes[0]!;
    const around = this.schedule.pick([
      0,
      8,
      16,
      64,
      main.amShortMax,
      main.amBcopyMax,
      variation.fragmentBytes,
      bytesMax,
    ]);
    const length = random.below(2) === 0 ? random.below(100) : around + random.below(40) - 30;
    return length < 8 ? 0 : Math.min(length, bytesMax);
  }

  #cancelAny(): void {
    const entry = this.schedule.find([...this.schedule.checker.open], ({ options }) => options.actor.isActive);
    if (entry !== undefined) this.schedule.checker.cancel(entry);
  }

  /** Makes progress for one worker, or lets time pass. */
  #pass(): void {
    const { schedule } = this;
    const { random, clock } = schedule;
    const choice = random.below(8);
    if (choice === 0) schedule.find(schedule.actors, (actor) => actor.isRunning && schedule.isOneOf(2));
    if (choice < 4) this.#progress(schedule.find(schedule.actors, (actor) => actor.isRunning));
    else if (choice < 6) clock.advance(random.below(10_000));
    else this.#toNextEvent(random.below(50_000));
    if (choice === 7) this.#progressAll();
    schedule.checker.poll();
    this.#rma.checkFlushed();
  }

  /** @returns the result of progress, 0 if the worker is not driven */
  #progress(actor: Actor | undefined): number {
    if (actor?.isRunning !== true || this.schedule.variation.isServed) return 0;
    if (actor.stalledUntil > this.schedule.step) return 0;
    return actor.worker.progress();
  }

  #progressAll(): number {
    return this.schedule.actors.reduce((sum, actor) => sum + this.#progress(actor), 0);
  }

  #toNextEvent(atLeastNs = 0): void {
    const { clock } = this.schedule;
    const next = clock.nextDeadlineNs;
    clock.advance(Math.max(atLeastNs, next === undefined ? 0 : Math.max(0, next - clock.nowNs())));
  }

  /** Makes progress for all workers. */
  async #turnAll(): Promise<void> {
    const { clock, checker } = this.schedule;
    const nextNs = (): number => (clock.nextDeadlineNs ?? Number.POSITIVE_INFINITY) - clock.nowNs();
    // No long time passes before all immediate work is done: transports deliver only a part of the arrivals at a time.
    for (let rounds = 0; rounds < ROUNDS_MAX && nextNs() > LONG_NS; rounds++) {
      const count = this.#progressAll();
      if (this.#needsTurns) await turn();
      checker.poll();
      if (count === 0 && rounds >= SERVED_TURNS) break;
    }
    this.#toNextEvent(nextNs() === Number.POSITIVE_INFINITY ? QUIET_NS : 0);
    this.#progressAll();
    if (this.#needsTurns) await turn();
    checker.poll();
    this.#rma.checkFlushed();
  }

  /** Brings everything to its end that can end: receives sent messages, and waits. */
  async #finish(): Promise<void> {
    const { schedule } = this;
    schedule.step = Number.MAX_SAFE_INTEGER;
    schedule.note(`${schedule.nowNs()} finish`);
    let sinceNs = schedule.nowNs();
    let open = -1;
    let quietTurns = 0;
    let unblocks = 0;
    for (;;) {
      await this.#turnAll();
      if (schedule.failures.length > 0) return;
      const quietNs = schedule.nowNs() - sinceNs;
      quietTurns += 1;
      const isQuiet = this.#open === open;
      if (!isQuiet) {
        // No event occurred so late: an operation that ends then was overlooked.
        if (open >= 0 && schedule.checker.lastEndNs - sinceNs > this.#limitNs)
          schedule.fail(`ended late, of ${open} operations`);
      } else if (quietTurns % LOOK_TURNS > 0) continue;
      else {
        const unfinished = this.#unfinished();
        if (unfinished.length === 0) return;
        if (quietTurns < QUIET_TURNS || quietNs < QUIET_NS) continue;
        // Time may pass in one step: only operations that no other one can end are stuck.
        unblocks += 1;
        if (unblocks > UNBLOCKS_MAX || !this.#unblock()) {
          const isHopeless = quietNs > this.#limitNs && quietTurns > QUIET_TURNS * 4;
          if (!isHopeless && unblocks <= UNBLOCKS_MAX) continue;
          schedule.fail(`not ended: ${unfinished.join('; ')}`);
          return;
        }
      }
      open = this.#open;
      sinceNs = schedule.nowNs();
      quietTurns = 0;
    }
  }

  /** Operations that have not ended, and messages in flight. */
  get #open(): number {
    return this.schedule.checker.open.size + this.#inFlight().length;
  }

  /** Messages that arrive after their operations have ended: an eager send ends before its message arrives. */
  #inFlight(): string[] {
    return [...this.#am.missing(), ...this.#list.missing()];
  }

  /** Time without the end of an operation, after which none ends any more. */
  get #limitNs(): number {
    const { network, keepaliveNs } = this.schedule.variation;
    return SETTLE_NS + network.detectionNsMax + keepaliveNs + this.#faults.pausedNs;
  }

  /** Unfinished operations, as text. Receives without a message are cancelled when nothing else is left. */
  #unfinished(): string[] {
    const { actors, ends, checker, closing } = this.schedule;
    const isReceive = (name: string): boolean => name.startsWith('tag receive');
    const left = [...checker.open].filter(({ options }) => !isReceive(options.name)).map(String);
    if (closing > 0) left.push(`${closing} closes`);
    left.push(...this.#faults.unnoticed().map((end) => `${end} was not told`));
    left.push(...this.#inFlight());
    for (const actor of actors) {
      if (this.#am.hasKept(actor)) left.push(`${actor} keeps messages`);
      if (this.#tag.expects(actor)) left.push(`${actor} expects messages`);
    }
    for (const end of ends) if (end.isUsable && this.#stream.missing(end) > 0) left.push(`${end} expects its stream`);
    if (left.length > 0) return left;
    for (const actor of actors) if (actor.isActive) this.#tag.cancelReceives(actor);
    checker.poll();
    return [...checker.open].map(String);
  }

  /** Starts operations that others wait for; true if there were any. */
  #unblock(): boolean {
    const { schedule } = this;
    const before = schedule.trace.digest;
    for (const actor of schedule.actors) {
      if (!actor.isActive) continue;
      if (this.#tag.expects(actor)) this.#tag.receive(actor, true);
      while (this.#am.hasKept(actor)) this.#am.continueKept(actor);
    }
    for (const end of schedule.ends) {
      if (!end.isUsable || end.peer === undefined) continue;
      const isWanted = this.#stream.missing(end) > 0 || this.#stream.isHeldUp(end.peer);
      if (isWanted && !this.#stream.isWaiting(end)) this.#stream.receive(end, schedule.variation.bytesMax * 2, false);
      else if (this.#stream.isWaiting(end) && end.isReliable) {
        if (!this.#stream.isWhole(end.peer)) this.#faults.close(end, true);
        else if (this.#stream.isStarved(end)) this.#stream.send(end.peer, schedule.variation.bytesMax);
      }
    }
    return schedule.trace.digest !== before;
  }

  /** Closes everything; nothing may be left. */
  async #close(): Promise<void> {
    const { schedule } = this;
    for (const actor of schedule.actors) {
      if (!actor.isRunning) continue;
      const { requestsInUse } = actor.worker;
      if (requestsInUse > 0) schedule.fail(`${requestsInUse} requests are in use at the end`);
    }
    // Transports may work for a lost peer until they detect the loss, with fragments and with memory of which the peer had a key.
    const fragments = (): number =>
      schedule.actors.reduce(
        (sum, { isRunning, worker }) => sum + (isRunning ? worker.protocols.rendezvous.staging.inUse : 0),
        0,
      );
    await this.#until(() => fragments() === 0, 'the use of fragments');
    await this.#until(() => this.#rma.release() && this.#atomic.release(), 'the use of memory');
    schedule.checker.poll();
    if (schedule.isOneOf(2)) this.#faults.closeEnds();
    for (const actor of schedule.actors) this.#faults.closeWorker(actor);
    await this.#until(() => schedule.closing === 0, 'close');
    for (const actor of schedule.actors) {
      const { all } = actor.worker.connections;
      if (!actor.host.isDead && all.length > 0) schedule.fail(`${actor} has ${all.length} connections at the end`);
    }
    for (const host of schedule.hosts) {
      if (host.isDead) continue;
      const live = host.mds.reduce((sum, md) => sum + md.live.size, 0);
      if (live > 0) schedule.fail(`${live} registrations of host ${host.id} are left`);
      this.#faults.closeHost(host);
    }
    await this.#until(() => schedule.closing === 0, 'close hosts');
    schedule.clock.advance(LONGEST_TIMER_NS);
    await turn();
    await turn();
    if (schedule.clock.pendingTimers > 0) schedule.fail(`${schedule.clock.pendingTimers} timers are left`);
    for (const complaint of schedule.network.complaints) schedule.fail(complaint);
  }

  async #until(isDone: () => boolean, what: string): Promise<void> {
    const startedNs = this.schedule.nowNs();
    await turn();
    for (let turns = 0; !isDone(); turns++) {
      await this.#turnAll();
      if (this.schedule.failures.length > 0) return;
      if (turns > TURNS_MAX || this.schedule.nowNs() - startedNs > this.#limitNs) {
        this.schedule.fail(`${what} does not end`);
        return;
      }
    }
  }
}

/** One turn of the event loop, for promises. */
function turn(): Promise<void> {
  return new Promise((resolve) => {
    setImmediate(resolve);
  });
}
