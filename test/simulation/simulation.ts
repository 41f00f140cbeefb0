/**
 * Runs one schedule: random choices determine which operations are started, which workers make progress, when time passes and what is lost; then all
 * operations
 * are brought to their end, and nothing may be left.
 */

import { AmPlay } from './am-play.ts';
import { AtomicPlay } from './atomic-play.ts';
import type { End } from './link.ts';
import { ListPlay } from './list-play.ts';
import { LossPlay } from './loss-play.ts';
import type { Player } from './player.ts';
import { RmaPlay } from './rma-play.ts';
import { StreamPlay } from './stream-play.ts';
import { TagPlay } from './tag-play.ts';
import { World } from './world.ts';

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

/** Turns without the end of an operation after which help, and time, is needed. */
const QUIET_TURNS = 24;
/** The most helps. */
const HELPS_MAX = 250;
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
    simulation.world.fail(String(error), error instanceof Error ? error.stack : undefined);
  }
  const { failures, trace } = simulation.world;
  return { seed, digest: trace.digest, failure: failures[0], events: [...trace.last] };
}

class Simulation {
  readonly world: World;
  readonly #tag: TagPlay;
  readonly #am: AmPlay;
  readonly #stream: StreamPlay;
  readonly #rma: RmaPlay;
  readonly #list: ListPlay;
  readonly #atomic: AtomicPlay;
  readonly #loss: LossPlay;
  readonly #actions: readonly (readonly [number, () => void])[];

  constructor(seed: number) {
    const world = new World(seed);
    this.world = world;
    this.#tag = new TagPlay(world);
    this.#am = new AmPlay(world);
    this.#stream = new StreamPlay(world);
    this.#rma = new RmaPlay(world);
    this.#list = new ListPlay(world, this.#rma);
    this.#atomic = new AtomicPlay(world);
    this.#loss = new LossPlay(world);
    this.#actions = this.#weighted();
  }

  async run(): Promise<void> {
    const { world } = this;
    const { hosts, steps } = world.variation;
    for (let i = 0; i < hosts; i++) world.addPlayer(world.addHost());
    for (let i = 1; i < hosts; i++) world.addLink(world.players[i - 1]!, world.players[i]!);
    for (world.step = 0; world.step < steps; world.step++) {
      this.#act();
      if (world.random.below(3) > 0) this.#pass();
      if (this.#needsTurns) await turn();
      if (world.failures.length > 0) return;
    }
    await this.#finish();
    if (world.failures.length > 0) return;
    for (const play of [this.#tag, this.#rma, this.#list, this.#atomic, this.#loss]) play.check();
    if (world.failures.length > 0) return;
    await this.#close();
  }

  get #needsTurns(): boolean {
    return this.world.variation.isServed || this.world.closing > 0;
  }

  /** Starts an operation. */
  #act(): void {
    const total = this.#actions.reduce((sum, [weight]) => sum + weight, 0);
    let choice = this.world.random.below(total);
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
        const end = this.world.find(this.world.ends, (one) => one.isUsable && fits(one));
        if (end !== undefined) run(end);
      };
    };
    const onPlayer = (run: (player: Player) => void): (() => void) => {
      return () => {
        const player = this.world.find(this.world.players, (one) => one.isActive);
        if (player !== undefined) run(player);
      };
    };
    const both = (end: End): boolean => this.#stream.canSend(end);
    return [
      [14, onEnd((end) => this.#tag.send(end, this.#length()))],
      [12, onPlayer((player) => this.#tag.receive(player))],
      [2, onPlayer((player) => this.#tag.probe(player))],
      [8, onEnd((end) => this.#am.send(end, this.#length()))],
      [3, () => this.#am.continueKept()],
      [5, onEnd((end) => this.#stream.send(end, this.#length() + 1), both)],
      [4, onEnd((end) => this.#stream.receive(end, this.#length() + 1), both)],
      [1, onEnd((end) => this.#stream.take(end), both)],
      [8, onEnd((end) => this.#rma.put(end))],
      [5, onEnd((end) => this.#rma.get(end))],
      [2, onEnd((end) => this.#rma.fence(end, this.world.isOneOf(3)))],
      [4, onEnd((end) => this.#rma.flush(end, this.world.isOneOf(4)))],
      [4, onEnd((end) => this.#atomic.add(end))],
      [2, () => this.#cancelAny()],
      [1, onEnd((end) => this.world.isOneOf(3) && this.#rma.unmap(end))],
      [2, () => this.#loss.act()],
      [this.world.variation.hasLists ? 10 : 0, onEnd((end) => this.#list.put(end))],
    ];
  }

  #length(): number {
    const { random, variation } = this.world;
    const { bytesMax, lanes } = variation;
    const main = lanes[0]!;
    const around = this.world.pick([0, 8, 16, 64, main.amShortMax, main.amBcopyMax, variation.fragmentBytes, bytesMax]);
    const length = random.below(2) === 0 ? random.below(100) : around + random.below(40) - 30;
    return length < 8 ? 0 : Math.min(length, bytesMax);
  }

  #cancelAny(): void {
    const entry = this.world.find([...this.world.ledger.open], ({ options }) => options.player.isActive);
    if (entry !== undefined) this.world.ledger.cancel(entry);
  }

  /** Makes progress for one worker, or lets time pass. */
  #pass(): void {
    const { world } = this;
    const { random, clock } = world;
    const choice = random.below(8);
    if (choice === 0) world.find(world.players, (player) => player.isRunning && world.isOneOf(2));
    if (choice < 4) this.#progress(world.find(world.players, (player) => player.isRunning));
    else if (choice < 6) clock.advance(random.below(10_000));
    else this.#toNextEvent(random.below(50_000));
    if (choice === 7) this.#progressAll();
    world.ledger.poll();
    this.#rma.checkFlushed();
  }

  /** @returns the result of progress, 0 if the worker is not driven */
  #progress(player: Player | undefined): number {
    if (player?.isRunning !== true || this.world.variation.isServed) return 0;
    if (player.stalledUntil > this.world.step) return 0;
    return player.worker.progress();
  }

  #progressAll(): number {
    return this.world.players.reduce((sum, player) => sum + this.#progress(player), 0);
  }

  #toNextEvent(atLeastNs = 0): void {
    const { clock } = this.world;
    const next = clock.nextDeadlineNs;
    clock.advance(Math.max(atLeastNs, next === undefined ? 0 : Math.max(0, next - clock.nowNs())));
  }

  /** Makes progress for all workers. */
  async #turnAll(): Promise<void> {
    const { clock, ledger } = this.world;
    const nextNs = (): number => (clock.nextDeadlineNs ?? Number.POSITIVE_INFINITY) - clock.nowNs();
    // No long time passes before all immediate work is done: transports deliver only a part of the arrivals at a time.
    for (let rounds = 0; rounds < ROUNDS_MAX && nextNs() > LONG_NS; rounds++) {
      const count = this.#progressAll();
      if (this.#needsTurns) await turn();
      ledger.poll();
      if (count === 0 && rounds >= SERVED_TURNS) break;
    }
    this.#toNextEvent(nextNs() === Number.POSITIVE_INFINITY ? QUIET_NS : 0);
    this.#progressAll();
    if (this.#needsTurns) await turn();
    ledger.poll();
    this.#rma.checkFlushed();
  }

  /** Brings everything to its end that can end: receives sent messages, and waits. */
  async #finish(): Promise<void> {
    const { world } = this;
    world.step = Number.MAX_SAFE_INTEGER;
    world.note(`${world.nowNs()} finish`);
    let sinceNs = world.nowNs();
    let open = -1;
    let quietTurns = 0;
    let helps = 0;
    for (;;) {
      await this.#turnAll();
      if (world.failures.length > 0) return;
      const quietNs = world.nowNs() - sinceNs;
      quietTurns += 1;
      const isQuiet = this.#open === open;
      if (!isQuiet) {
        // No event occurred so late: an operation that ends then was overlooked.
        if (open >= 0 && world.ledger.lastEndNs - sinceNs > this.#limitNs)
          world.fail(`ended late, of ${open} operations`);
      } else if (quietTurns % LOOK_TURNS > 0) continue;
      else {
        const unfinished = this.#unfinished();
        if (unfinished.length === 0) return;
        if (quietTurns < QUIET_TURNS || quietNs < QUIET_NS) continue;
        // Time may pass in one step: only operations that no help can end are stuck.
        helps += 1;
        if (helps > HELPS_MAX || !this.#help()) {
          const isHopeless = quietNs > this.#limitNs && quietTurns > QUIET_TURNS * 4;
          if (!isHopeless && helps <= HELPS_MAX) continue;
          world.fail(`not ended: ${unfinished.join('; ')}`);
          return;
        }
      }
      open = this.#open;
      sinceNs = world.nowNs();
      quietTurns = 0;
    }
  }

  /** Operations that have not ended, and messages in flight. */
  get #open(): number {
    return this.world.ledger.open.size + this.#inFlight().length;
  }

  /** Messages that arrive after their operations have ended: an eager send ends before its message arrives. */
  #inFlight(): string[] {
    return [...this.#am.missing(), ...this.#list.missing()];
  }

  /** Time without the end of an operation, after which none ends any more. */
  get #limitNs(): number {
    const { network, keepaliveNs } = this.world.variation;
    return SETTLE_NS + network.detectionNsMax + keepaliveNs + this.#loss.pausedNs;
  }

  /** Unfinished operations, as text. Receives without a message are cancelled when nothing else is left. */
  #unfinished(): string[] {
    const { players, ends, ledger, closing } = this.world;
    const isReceive = (name: string): boolean => name.startsWith('tag receive');
    const left = [...ledger.open].filter(({ options }) => !isReceive(options.name)).map(String);
    if (closing > 0) left.push(`${closing} closes`);
    left.push(...this.#loss.unnoticed().map((end) => `${end} was not told`));
    left.push(...this.#inFlight());
    for (const player of players) {
      if (this.#am.hasKept(player)) left.push(`${player} keeps messages`);
      if (this.#tag.expects(player)) left.push(`${player} expects messages`);
    }
    for (const end of ends) if (end.isUsable && this.#stream.missing(end) > 0) left.push(`${end} expects its stream`);
    if (left.length > 0) return left;
    for (const player of players) if (player.isActive) this.#tag.cancelReceives(player);
    ledger.poll();
    return [...ledger.open].map(String);
  }

  /** Starts operations that others wait for; true if there were any. */
  #help(): boolean {
    const { world } = this;
    const before = world.trace.digest;
    for (const player of world.players) {
      if (!player.isActive) continue;
      if (this.#tag.expects(player)) this.#tag.receive(player, true);
      while (this.#am.hasKept(player)) this.#am.continueKept(player);
    }
    for (const end of world.ends) {
      if (!end.isUsable || end.peer === undefined) continue;
      const isWanted = this.#stream.missing(end) > 0 || this.#stream.isHeldUp(end.peer);
      if (isWanted && !this.#stream.isWaiting(end)) this.#stream.receive(end, world.variation.bytesMax * 2, false);
      else if (this.#stream.isWaiting(end) && end.isReliable) {
        if (!this.#stream.isWhole(end.peer)) this.#loss.close(end, true);
        else if (this.#stream.isStarved(end)) this.#stream.send(end.peer, world.variation.bytesMax);
      }
    }
    return world.trace.digest !== before;
  }

  /** Closes everything; nothing may be left. */
  async #close(): Promise<void> {
    const { world } = this;
    for (const player of world.players) {
      if (!player.isRunning) continue;
      const { requestsInUse } = player.worker;
      if (requestsInUse > 0) world.fail(`${requestsInUse} requests are in use at the end`);
    }
    // Transports may work for a lost peer until they detect the loss, with fragments and with memory of which the peer had a key.
    const fragments = (): number =>
      world.players.reduce(
        (sum, { isRunning, worker }) => sum + (isRunning ? worker.protocols.rendezvous.staging.inUse : 0),
        0,
      );
    await this.#until(() => fragments() === 0, 'the use of fragments');
    await this.#until(() => this.#rma.release() && this.#atomic.release(), 'the use of memory');
    world.ledger.poll();
    if (world.isOneOf(2)) this.#loss.closeEnds();
    for (const player of world.players) this.#loss.closeWorker(player);
    await this.#until(() => world.closing === 0, 'close');
    for (const player of world.players) {
      const { all } = player.worker.connections;
      if (!player.host.isDead && all.length > 0) world.fail(`${player} has ${all.length} connections at the end`);
    }
    for (const host of world.hosts) {
      if (host.isDead) continue;
      const live = host.mds.reduce((sum, md) => sum + md.live.size, 0);
      if (live > 0) world.fail(`${live} registrations of host ${host.id} are left`);
      this.#loss.closeHost(host);
    }
    await this.#until(() => world.closing === 0, 'close hosts');
    world.clock.advance(LONGEST_TIMER_NS);
    await turn();
    await turn();
    if (world.clock.pendingTimers > 0) world.fail(`${world.clock.pendingTimers} timers are left`);
    for (const complaint of world.network.complaints) world.fail(complaint);
  }

  async #until(isDone: () => boolean, what: string): Promise<void> {
    const startedNs = this.world.nowNs();
    await turn();
    for (let turns = 0; !isDone(); turns++) {
      await this.#turnAll();
      if (this.world.failures.length > 0) return;
      if (turns > TURNS_MAX || this.world.nowNs() - startedNs > this.#limitNs) {
        this.world.fail(`${what} does not end`);
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
