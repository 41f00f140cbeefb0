/**
 * The fault schedule: endpoints and workers that are closed, hosts that die, are separated, or are slow; and new ones. It checks that the loss of a peer
 * is reported once, and in time.
 */

import { Status } from '../../src/ucs/type/status.ts';
import type { Actor, Host } from './actor.ts';
import type { End } from './link.ts';
import type { Schedule } from './schedule.ts';

const ACTORS_MAX = 6;
const ENDS_MAX = 16;
const PAUSE_NS_MAX = 4_000_000;

/** The faults of one schedule, and the ends and links that it adds. */
export class FaultSchedule {
  readonly #schedule: Schedule;
  #pausedUntilNs = 0;

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
  }

  /** Remaining time of the longest pause. */
  get pausedNs(): number {
    return Math.max(0, this.#pausedUntilNs - this.#schedule.nowNs());
  }

  /** Does one of these actions. */
  act(): void {
    const schedule = this.#schedule;
    const { mayLose, mayPause } = schedule.variation;
    switch (schedule.random.below(9)) {
      case 0:
      case 1:
        this.#closeEnd();
        break;
      case 2:
        if (schedule.isOneOf(3)) this.closeWorker(schedule.find(schedule.actors, (actor) => actor.isActive));
        break;
      case 3:
        this.#addActor();
        break;
      case 4:
      case 5:
        this.#addLink();
        break;
      case 6:
        if (mayLose) this.#lose();
        break;
      case 7:
        if (mayPause) this.#pause();
        break;
      default:
        this.#stall();
    }
  }

  /** Ends whose loss was not reported yet. */
  unnoticed(): End[] {
    return this.#schedule.ends.filter((end) => end.isUsable && end.mayBreak && end.errors.length === 0);
  }

  check(): void {
    const schedule = this.#schedule;
    for (const end of schedule.ends) {
      if (end.isUsable && (end.endpoint.status !== Status.OK) !== end.mayBreak) {
        schedule.fail(`${end} has status ${end.endpoint.status}`);
      }
      if (end.isUsable && end.open.size > 0) schedule.fail(`${end} has operations: ${[...end.open].join('; ')}`);
    }
  }

  /** Closes endpoints, in order or by force. */
  closeEnds(): void {
    for (const end of this.#schedule.ends) if (end.isUsable && this.#schedule.isOneOf(2)) this.close(end, false);
  }

  closeWorker(actor: Actor | undefined): void {
    if (actor === undefined || !actor.isActive) return;
    actor.isClosing = true;
    this.#schedule.note(`${this.#schedule.nowNs()} close ${actor}`);
    this.#watch(
      actor.worker.close().then(() => {
        actor.isClosed = true;
        actor.serving?.abort();
        this.#checkClosed(actor);
      }),
      actor,
      `${actor}`,
    );
  }

  closeHost(host: Host): void {
    this.#watch(host.context.close(), undefined, `host ${host.id}`);
  }

  /** All operations of a closed worker have ended. */
  #checkClosed(actor: Actor): void {
    this.#schedule.checker.poll();
    for (const entry of this.#schedule.checker.open) {
      if (entry.options.actor === actor) this.#schedule.fail(`${actor} is closed, and ${entry} has not ended`);
    }
  }

  #closeEnd(): void {
    const end = this.#schedule.find(this.#schedule.ends, (one) => one.isUsable);
    if (end !== undefined) this.close(end, this.#schedule.isOneOf(2));
  }

  /** Closes an endpoint. */
  close(end: End, force: boolean): void {
    const schedule = this.#schedule;
    end.isClosing = true;
    end.isForced = force;
    schedule.note(`${schedule.nowNs()} close ${end}${force ? ' by force' : ''}`);
    const closed = end.endpoint.close({ force }).then(() => {
      end.isClosed = true;
      schedule.checker.poll();
      if (end.open.size > 0) schedule.fail(`${end} is closed, and has operations: ${[...end.open].join('; ')}`);
    });
    this.#watch(closed, end.actor, `${end}`);
  }

  #watch(closed: Promise<void>, actor: Actor | undefined, name: string): void {
    const schedule = this.#schedule;
    const token = { actor };
    this.#closing.add(token);
    schedule.closing = this.#closing.size;
    const done = (): void => {
      this.#closing.delete(token);
      schedule.closing = this.#closing.size;
      schedule.note(`${schedule.nowNs()} closed ${name}`);
    };
    closed.then(done, (error: unknown) => {
      schedule.fail(`closing ${name} failed: ${String(error)}`);
      done();
    });
  }

  readonly #closing: Set<{ readonly actor: Actor | undefined }> = new Set();

  #addActor(): void {
    const schedule = this.#schedule;
    const host = schedule.find(schedule.hosts, (one) => !one.isDead);
    if (host === undefined || schedule.actors.length >= ACTORS_MAX) return;
    const actor = schedule.addActor(host);
    const peer = schedule.find(schedule.actors, (one) => this.#areInTouch(one, actor));
    if (peer !== undefined) schedule.addLink(actor, peer);
  }

  #addLink(): void {
    const schedule = this.#schedule;
    if (schedule.ends.length >= ENDS_MAX) return;
    const one = schedule.find(schedule.actors, (actor) => actor.isActive);
    const other = one && schedule.find(schedule.actors, (actor) => this.#areInTouch(one, actor));
    if (one !== undefined && other !== undefined) schedule.addLink(one, other);
  }

  #areInTouch(one: Actor, other: Actor): boolean {
    if (!one.isActive || !other.isActive) return false;
    return !this.#schedule.network.isSevered(one.host.id, other.host.id);
  }

  /** A host dies, or two of them are separated for good. */
  #lose(): void {
    const schedule = this.#schedule;
    const alive = schedule.hosts.filter((host) => !host.isDead);
    if (alive.length < 2) return;
    const host = schedule.pick(alive);
    if (schedule.isOneOf(3)) {
      const other = schedule.pick(alive.filter((one) => one !== host));
      schedule.note(`${schedule.nowNs()} hosts ${host.id} and ${other.id} are separated`);
      for (const end of schedule.ends) if (hasBoth(end, host, other)) end.isSevered = true;
      schedule.network.sever(host.id, other.id);
      return;
    }
    schedule.note(`${schedule.nowNs()} host ${host.id} dies`);
    host.die();
    schedule.network.kill(host.id);
    for (const actor of schedule.actors) if (actor.host === host) schedule.checker.forget(actor);
    for (const token of this.#closing) if (token.actor?.host === host) this.#closing.delete(token);
    schedule.closing = this.#closing.size;
  }

  #pause(): void {
    const schedule = this.#schedule;
    const [one, other] = [schedule.pick(schedule.hosts), schedule.pick(schedule.hosts)];
    const ns = schedule.random.below(PAUSE_NS_MAX);
    schedule.note(`hosts ${one.id} and ${other.id} pause for ${ns}`);
    schedule.network.pause(one.id, other.id, ns);
    this.#pausedUntilNs = Math.max(this.#pausedUntilNs, schedule.nowNs() + ns);
  }

  /** A process is stopped for a while. */
  #stall(): void {
    const schedule = this.#schedule;
    const actor = schedule.pick(schedule.actors);
    actor.stalledUntil = schedule.step + schedule.random.below(30);
    schedule.note(`${actor} stalls until ${actor.stalledUntil}`);
  }
}

function hasBoth({ actor, peerActor }: End, one: Host, other: Host): boolean {
  if (one === other) return false;
  return (actor.host === one && peerActor.host === other) || (actor.host === other && peerActor.host === one);
}
