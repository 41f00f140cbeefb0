/**
 * Active messages: eager and by rendezvous, with and without headers, read in the handler, retained, received later, released, answered. Each arrives
 * once, in
 * the order of its sender, with its bytes.
 */

import type { AmMessage } from '../../src/api/contract/active-message.ts';
import { Status } from '../../src/ucs/type/status.ts';
import { eagerData } from '../fixtures/messages/eager-data.ts';
import type { Entry } from './ledger.ts';
import type { End } from './link.ts';
import { LocalSpace } from './local-memory.ts';
import { differenceOf, ID_BYTES, idOf, payload } from './payload.ts';
import type { Player } from './player.ts';
import type { World } from './world.ts';

/** Handlers: of messages whose number is in the header, of those whose number is in the data, and of answers. */
const WITH_HEADER = 1;
const PLAIN = 7;
const ANSWER = 300;
/** Longest message whose number is in its data, which the handler must have at once. */
const PLAIN_BYTES_MAX = 64;

/** Memory for unexpected messages that may be exhausted. */
const SCARCE_BYTES = 2 ** 20;

interface Message {
  readonly id: number;
  readonly from: End;
  readonly byteLength: number;
  readonly order: number;
  entry: Entry | undefined;
  status: Status | undefined;
  hasCome: boolean;
}

interface Kept {
  readonly message: Message;
  readonly player: Player;
  readonly view: AmMessage;
}

interface Answer {
  readonly from: End | undefined;
  readonly to: End;
  count: number;
}

/** Active messages of one schedule. */
export class AmPlay {
  readonly #world: World;
  readonly #messages: Map<number, Message> = new Map();
  /** Number of the last message from an end. */
  readonly #lastFrom: Map<End, number> = new Map();
  #kept: Kept[] = [];
  /** Answers by their number, and how often they arrived. */
  readonly #answers: Map<number, Answer> = new Map();

  constructor(world: World) {
    this.#world = world;
    world.onPlayer.push((player) => {
      for (const id of [WITH_HEADER, PLAIN]) {
        player.worker.setAmHandler(id, (view) => this.#guard(() => this.#onMessage(player, id, view)));
      }
      player.worker.setAmHandler(ANSWER, (view) => this.#guard(() => this.#onAnswer(player, view)));
    });
  }

  send(end: End, byteLength: number): void {
    const world = this.#world;
    const id = world.newId();
    const message: Message = {
      id,
      from: end,
      byteLength,
      order: end.sent++,
      entry: undefined,
      status: undefined,
      hasCome: false,
    };
    this.#messages.set(id, message);
    const space = new LocalSpace(world, end.player, byteLength, true);
    space.fill(payload(id, byteLength));
    const { rendezvousThreshold } = world.variation;
    const isShort = rendezvousThreshold === 'auto' || byteLength < rendezvousThreshold;
    const isEager = isShort && this.#hasCredit;
    const isPlain =
      byteLength >= ID_BYTES && byteLength <= PLAIN_BYTES_MAX && isEager && space.isHost && world.isOneOf(2);
    const header = isPlain ? undefined : payload(id, ID_BYTES + world.random.below(30));
    const wish = world.random.below(4);
    const name = `am m${id} ${end} ${byteLength}${space.kind}`;
    const onEnd = (status: Status): void => {
      message.status = status;
      space.spend();
    };
    message.entry = world.start({ name, player: end.player, end, isWithdrawable: true, onEnd }, (params) => {
      const { local, offset, length } = space;
      if (isPlain) return end.endpoint.amSendNbx(PLAIN, undefined, local, offset, length, params);
      const all = wish === 0 && byteLength > 0 ? { ...params, protocol: 'rendezvous' as const } : params;
      const result = end.endpoint.amSendNbx(WITH_HEADER, header, local, offset, length, all);
      header?.fill(0);
      return result;
    });
  }

  /** Does something with a retained message. */
  continueKept(player?: Player): void {
    const world = this.#world;
    this.#kept = this.#kept.filter((kept) => kept.player.isActive);
    const kept = world.find(this.#kept, (one) => player === undefined || one.player === player);
    if (kept === undefined) return;
    this.#kept.splice(this.#kept.indexOf(kept), 1);
    if (world.isOneOf(3)) {
      world.note(`${kept.player} releases m${kept.message.id}`);
      kept.view.release();
    } else this.#receive(kept.player, kept.view, kept.message);
  }

  hasKept(player: Player): boolean {
    return player.isActive && this.#kept.some((kept) => kept.player === player);
  }

  /** Messages and answers that were sent, will certainly arrive, and have not arrived yet. */
  missing(): string[] {
    const missing: string[] = [];
    for (const { id, from, status, hasCome } of this.#messages.values()) {
      const isSure = status === Status.OK && from.isReliable && from.peerPlayer.isActive;
      if (isSure && !hasCome) missing.push(`m${id} of ${from} never came`);
    }
    for (const [id, { count, from, to }] of this.#answers) {
      const isSure = to.isReliable && to.peerPlayer.isActive && from?.isReliable !== false;
      if (isSure && count === 0) missing.push(`answer ${id} never came to ${to}`);
    }
    return missing;
  }

  /** Handlers must not throw: failures are recorded. */
  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#world.fail(`a handler threw ${error instanceof Error ? error.stack : String(error)}`);
    }
  }

  #onMessage(player: Player, handler: number, view: AmMessage): void {
    const world = this.#world;
    if (player.host.isDead) return;
    const id = handler === PLAIN ? idOf(eagerData(view)) : idOf(view.header);
    const message = this.#messages.get(id);
    if (message === undefined) {
      world.fail(`${player} got an active message ${id} that was not sent`);
      return;
    }
    world.note(`${world.nowNs()} ${player} takes m${id}${view.isRendezvous ? ' by rendezvous' : ''}`);
    this.#checkArrival(player, message);
    if (handler === WITH_HEADER) this.#same(`header of m${id}`, view.header, payload(id, view.header.byteLength));
    if (view.byteLength !== message.byteLength) world.fail(`m${id} has ${view.byteLength} bytes`);
    if (!view.isRendezvous) this.#same(`m${id}`, view.data, payload(id, message.byteLength));
    if (world.isOneOf(5)) this.#answer(player, message, view);
    if (!player.isActive) return;
    switch (world.random.below(4)) {
      case 0:
        this.#kept.push({ message, player, view: view.retain() });
        break;
      case 1:
      case 2:
        if (view.isRendezvous || world.isOneOf(2)) this.#receive(player, view, message);
        break;
    }
  }

  #checkArrival(player: Player, message: Message): void {
    const { id, from, order, hasCome } = message;
    const world = this.#world;
    if (hasCome) world.fail(`m${id} came twice`);
    if (from.peerPlayer !== player) world.fail(`m${id} came to ${player}`);
    if (message.status === Status.CANCELED && !from.isForced && !from.player.isClosing) {
      world.fail(`m${id} was taken back, and came`);
    }
    if ((this.#lastFrom.get(from) ?? -1) > order) world.fail(`m${id} of ${from} was overtaken`);
    this.#lastFrom.set(from, order);
    message.hasCome = true;
    world.ledger.lastEndNs = world.nowNs();
  }

  #receive(player: Player, view: AmMessage, message: Message): void {
    const world = this.#world;
    const { id, byteLength, from } = message;
    const space = new LocalSpace(world, player, byteLength + world.random.below(9), true);
    const isRemote = view.isRendezvous;
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      const isGone =
        from.isClosing || !from.player.isActive || from.isSevered || from.peer?.isClosing === true || from.hasStale;
      const isLost = isBreak || status === Status.CANCELED || status === Status.INVALID_ADDR;
      const isWithdrawn = status === Status.CANCELED && message.entry?.mayBeWithdrawn === true;
      return isRemote && ((isGone && isLost) || isWithdrawn);
    };
    const onEnd = (status: Status): void => {
      if (status === Status.OK) {
        this.#same(`received m${id}`, space.read().subarray(0, byteLength), payload(id, byteLength));
        if (space.isTouchedBehind(byteLength)) world.fail(`m${id} was written beyond its end`);
      }
      space.release();
    };
    const name = `am receive m${id} ${space.byteLength}${space.kind}`;
    world.start({ name, player, excuses, onEnd }, (params) =>
      view.receiveNbx(space.local, space.offset, space.length, params),
    );
  }

  #answer(player: Player, { from }: Message, view: AmMessage): void {
    const world = this.#world;
    const endpoint = view.replyEndpoint;
    const end = from.peer;
    if (end !== undefined && !end.isClosed && player.isActive && endpoint !== end.endpoint)
      world.fail(`${player} answers on another endpoint`);
    if (endpoint.closed || endpoint.status !== Status.OK || !player.isActive) return;
    const id = world.newId();
    this.#answers.set(id, { count: 0, from: end, to: from });
    const bytes = payload(id, ID_BYTES);
    const header = this.#hasCredit ? undefined : bytes;
    const onEnd = (status: Status): void => {
      if (status !== Status.OK) this.#answers.delete(id);
    };
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      const isGone = from.isClosing || !from.player.isActive || from.isSevered || end?.isClosing === true;
      return isGone && (isBreak || status === Status.CANCELED);
    };
    world.start({ name: `answer ${id}`, player, excuses, onEnd }, (params) =>
      endpoint.amSendNbx(ANSWER, header, bytes, 0, bytes.byteLength, params),
    );
  }

  /** Whether short messages always arrive with their data: there is more credit than a schedule needs. */
  get #hasCredit(): boolean {
    return this.#world.variation.unexpectedBytesMax > SCARCE_BYTES;
  }

  #onAnswer(player: Player, message: AmMessage): void {
    if (player.host.isDead) return;
    const known = message.isRendezvous ? message.header : message.data;
    const id = idOf(known);
    const answer = this.#answers.get(id);
    this.#same(`answer ${id}`, known, payload(id, ID_BYTES));
    if (answer === undefined) return;
    if (answer.to.player !== player) this.#world.fail(`answer ${id} came to ${player}`);
    answer.count += 1;
    this.#world.ledger.lastEndNs = this.#world.nowNs();
    if (answer.count > 1) this.#world.fail(`answer ${id} came twice`);
  }

  #same(what: string, actual: Uint8Array, expected: Uint8Array): void {
    const difference = differenceOf(actual, expected);
    if (difference !== undefined) this.#world.fail(`${what} is wrong: ${difference}`);
  }
}
