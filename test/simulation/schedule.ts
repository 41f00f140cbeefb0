/**
 * One schedule: its randomness, its time, its hosts, actors and links, and its failures. The events are decided in simulation.ts, the workloads and the
 * fault schedule.
 */

import { ManualClock } from '../../src/ucs/sys/clock.ts';
import { createRandom, type Random } from '../../src/ucs/sys/random.ts';
import { statusName } from '../../src/ucs/type/status.ts';
import { Actor, Host } from './actor.ts';
import { End } from './link.ts';
import { Network } from './network.ts';
import { type CheckerOwner, type Entry, type EntryOptions, OperationChecker, type Start } from './operation-checker.ts';
import { Trace } from './trace.ts';
import { chooseVariation, type Variation } from './variation.ts';

/** A clock that has run for a while. */
const START_NS = 5e9;

/** Separates the second generator from the first. */
const OTHER_CHANCE = 0x5eed;
/** One schedule of so many has lists. */
const WITH_LISTS = 5;
/** Two of so many, those with the numbers 9 and 10, write cells twice. */
const WITH_REWRITES = 10;

/** One schedule. */
export class Schedule implements CheckerOwner {
  readonly random: Random;
  readonly clock: ManualClock = new ManualClock(START_NS);
  readonly trace: Trace = new Trace();
  readonly variation: Variation;
  readonly network: Network;
  readonly checker: OperationChecker = new OperationChecker(this);
  readonly hosts: Host[] = [];
  readonly actors: Actor[] = [];
  readonly ends: End[] = [];
  /** Failures, the first one first. */
  readonly failures: string[] = [];
  /** Called for every new end. */
  readonly onEnd: ((end: End) => void)[] = [];
  /** Called for every new worker. */
  readonly onActor: ((actor: Actor) => void)[] = [];
  step = 0;
  /** Closes in progress: promises need turns of the event loop. */
  closing = 0;
  #nextId = 1;

  constructor(seed: number) {
    this.random = createRandom(seed);
    this.variation = chooseVariation(this.random, createRandom(seed ^ OTHER_CHANCE), {
      hasLists: seed % WITH_LISTS === 1,
      isRewritten: (seed + 1) % WITH_REWRITES < 2,
    });
    this.network = new Network(this.clock, this.random, this.variation.network);
    this.note(JSON.stringify(this.variation));
  }

  nowNs(): number {
    return this.clock.nowNs();
  }

  note(event: string): void {
    this.trace.note(event);
  }

  /** @param stack where the error was thrown: shown, but not part of the digest, because it depends on the compiler */
  fail(reason: string, stack?: string): void {
    this.note(`WRONG: ${reason}`);
    this.failures.push(stack ?? reason);
  }

  /** A unique number. */
  newId(): number {
    return this.#nextId++;
  }

  /** True once in `count` times. */
  isOneOf(count: number): boolean {
    return this.random.below(count) === 0;
  }

  pick<T>(choices: readonly T[]): T {
    return choices[this.random.below(choices.length)]!;
  }

  /** A random choice that fits; undefined if there is none. */
  find<T>(choices: readonly T[], fits: (choice: T) => boolean): T | undefined {
    const fitting = choices.filter(fits);
    return fitting.length === 0 ? undefined : this.pick(fitting);
  }

  start(options: EntryOptions, run: Start): Entry {
    return this.checker.start(options, run);
  }

  addHost(): Host {
    const id = this.hosts.length;
    const host = new Host(id, this.network, this.variation, (message) => this.fail(`warning of ${message}`));
    this.hosts.push(host);
    return host;
  }

  addActor(host: Host): Actor {
    const actor = new Actor(this.actors.length, host, this.variation.isServed);
    this.actors.push(actor);
    this.note(`${actor} on host ${host.id}`);
    for (const run of this.onActor) run(actor);
    return actor;
  }

  /** Whether a pair of workers creates endpoints on one side only. Constant, because endpoints are paired by their number. */
  isOneSided(from: Actor, to: Actor): boolean {
    return (from.id + to.id) % 3 === 2;
  }

  /** Creates an endpoint at both ends, or at one. */
  addLink(one: Actor, other: Actor): void {
    const [from, to] = this.isOneSided(one, other) && one.id > other.id ? [other, one] : [one, other];
    const first = this.#addEnd(from, to);
    if (from === to) first.peer = first;
    else if (!this.isOneSided(from, to)) {
      const second = this.#addEnd(to, from);
      first.peer = second;
      second.peer = first;
    }
    for (const end of new Set([first, first.peer])) {
      if (end !== undefined) for (const run of this.onEnd) run(end);
    }
  }

  #addEnd(actor: Actor, peer: Actor): End {
    const id = this.ends.length;
    const onError = (_endpoint: unknown, status: number): void => {
      if (actor.host.isDead) return;
      this.note(`${this.nowNs()} ${actor} ${end} broke: ${statusName(status)}`);
      end.errors.push(end.endpoint.status);
      if (end.endpoint.status !== status) this.fail(`${end} broke with ${status}, and has ${end.endpoint.status}`);
      if (end.errors.length > 1) this.fail(`${end} broke twice`);
      if (!end.mayBreak) this.fail(`${end} broke without a reason`);
      if (end.isClosed) this.fail(`${end} broke after it was closed`);
    };
    const end: End = new End(id, actor, peer, actor.worker.endpoint(peer.worker.packedAddress.slice(), { onError }));
    this.ends.push(end);
    this.note(`${actor} ${end} to ${peer}`);
    return end;
  }
}
