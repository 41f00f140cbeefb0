/**
 * Ends and losses: endpoints and workers that are closed, hosts that die, are separated, or are slow; and new ones. The loss of a peer is reported
 * once,
 * and in time.
 */

import { Status } from '../../src/ucs/type/status.ts';
import type { End } from './link.ts';
import type { Host, Player } from './player.ts';
import type { World } from './world.ts';

const PLAYERS_MAX = 6;
const ENDS_MAX = 16;
const PAUSE_NS_MAX = 4_000_000;

/** Ends and losses of one schedule. */
export class LossPlay {
  readonly #world: World;
  #pausedUntilNs = 0;

  constructor(world: World) {
    this.#world = world;
  }

  /** Remaining time of the longest pause. */
  get pausedNs(): number {
    return Math.max(0, this.#pausedUntilNs - this.#world.nowNs());
  }

  /** Does one of these actions. */
  act(): void {
    const world = this.#world;
    const { mayLose, mayPause } = world.variation;
    switch (world.random.below(9)) {
      case 0:
      case 1:
        this.#closeEnd();
        break;
      case 2:
        if (world.isOneOf(3)) this.closeWorker(world.find(world.players, (player) => player.isActive));
        break;
      case 3:
        this.#addPlayer();
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
    return this.#world.ends.filter((end) => end.isUsable && end.mayBreak && end.errors.length === 0);
  }

  check(): void {
    const world = this.#world;
    for (const end of world.ends) {
      if (end.isUsable && (end.endpoint.status !== Status.OK) !== end.mayBreak) {
        world.fail(`${end} has status ${end.endpoint.status}`);
      }
      if (end.isUsable && end.open.size > 0) world.fail(`${end} has operations: ${[...end.open].join('; ')}`);
    }
  }

  /** Closes endpoints, in order or by force. */
  closeEnds(): void {
    for (const end of this.#world.ends) if (end.isUsable && this.#world.isOneOf(2)) this.close(end, false);
  }

  closeWorker(player: Player | undefined): void {
    if (player === undefined || !player.isActive) return;
    player.isClosing = true;
    this.#world.note(`${this.#world.nowNs()} close ${player}`);
    this.#watch(
      player.worker.close().then(() => {
        player.isClosed = true;
        player.serving?.abort();
        this.#checkClosed(player);
      }),
      player,
      `${player}`,
    );
  }

  closeHost(host: Host): void {
    this.#watch(host.context.close(), undefined, `host ${host.id}`);
  }

  /** All operations of a closed worker have ended. */
  #checkClosed(player: Player): void {
    this.#world.ledger.poll();
    for (const entry of this.#world.ledger.open) {
      if (entry.options.player === player) this.#world.fail(`${player} is closed, and ${entry} has not ended`);
    }
  }

  #closeEnd(): void {
    const end = this.#world.find(this.#world.ends, (one) => one.isUsable);
    if (end !== undefined) this.close(end, this.#world.isOneOf(2));
  }

  /** Closes an endpoint. */
  close(end: End, force: boolean): void {
    const world = this.#world;
    end.isClosing = true;
    end.isForced = force;
    world.note(`${world.nowNs()} close ${end}${force ? ' by force' : ''}`);
    const closed = end.endpoint.close({ force }).then(() => {
      end.isClosed = true;
      world.ledger.poll();
      if (end.open.size > 0) world.fail(`${end} is closed, and has operations: ${[...end.open].join('; ')}`);
    });
    this.#watch(closed, end.player, `${end}`);
  }

  #watch(closed: Promise<void>, player: Player | undefined, name: string): void {
    const world = this.#world;
    const token = { player };
    this.#closing.add(token);
    world.closing = this.#closing.size;
    const done = (): void => {
      this.#closing.delete(token);
      world.closing = this.#closing.size;
      world.note(`${world.nowNs()} closed ${name}`);
    };
    closed.then(done, (error: unknown) => {
      world.fail(`closing ${name} failed: ${String(error)}`);
      done();
    });
  }

  readonly #closing: Set<{ readonly player: Player | undefined }> = new Set();

  #addPlayer(): void {
    const world = this.#world;
    const host = world.find(world.hosts, (one) => !one.isDead);
    if (host === undefined || world.players.length >= PLAYERS_MAX) return;
    const player = world.addPlayer(host);
    const peer = world.find(world.players, (one) => this.#areInTouch(one, player));
    if (peer !== undefined) world.addLink(player, peer);
  }

  #addLink(): void {
    const world = this.#world;
    if (world.ends.length >= ENDS_MAX) return;
    const one = world.find(world.players, (player) => player.isActive);
    const other = one && world.find(world.players, (player) => this.#areInTouch(one, player));
    if (one !== undefined && other !== undefined) world.addLink(one, other);
  }

  #areInTouch(one: Player, other: Player): boolean {
    if (!one.isActive || !other.isActive) return false;
    return !this.#world.network.isSevered(one.host.id, other.host.id);
  }

  /** A host dies, or two of them are separated for good. */
  #lose(): void {
    const world = this.#world;
    const alive = world.hosts.filter((host) => !host.isDead);
    if (alive.length < 2) return;
    const host = world.pick(alive);
    if (world.isOneOf(3)) {
      const other = world.pick(alive.filter((one) => one !== host));
      world.note(`${world.nowNs()} hosts ${host.id} and ${other.id} are separated`);
      for (const end of world.ends) if (hasBoth(end, host, other)) end.isSevered = true;
      world.network.sever(host.id, other.id);
      return;
    }
    world.note(`${world.nowNs()} host ${host.id} dies`);
    host.die();
    world.network.kill(host.id);
    for (const player of world.players) if (player.host === host) world.ledger.forget(player);
    for (const token of this.#closing) if (token.player?.host === host) this.#closing.delete(token);
    world.closing = this.#closing.size;
  }

  #pause(): void {
    const world = this.#world;
    const [one, other] = [world.pick(world.hosts), world.pick(world.hosts)];
    const ns = world.random.below(PAUSE_NS_MAX);
    world.note(`hosts ${one.id} and ${other.id} pause for ${ns}`);
    world.network.pause(one.id, other.id, ns);
    this.#pausedUntilNs = Math.max(this.#pausedUntilNs, world.nowNs() + ns);
  }

  /** A process is stopped for a while. */
  #stall(): void {
    const world = this.#world;
    const player = world.pick(world.players);
    player.stalledUntil = world.step + world.random.below(30);
    world.note(`${player} stalls until ${player.stalledUntil}`);
  }
}

function hasBoth({ player, peerPlayer }: End, one: Host, other: Host): boolean {
  if (one === other) return false;
  return (player.host === one && peerPlayer.host === other) || (player.host === other && peerPlayer.host === one);
}
