/**
 * The workload of active messages: eager and by rendezvous, with and without headers, read in the handler, retained, received later, released,
 * answered. It checks that each arrives once, in the order of its sender, with its bytes.
 */

import type { AmMessage } from '../../src/api/contract/active-message.ts';
import { Status } from '../../src/ucs/type/status.ts';
import { eagerData } from '../fixtures/messages/eager-data.ts';
import type { Actor } from './actor.ts';
import type { End } from './link.ts';
import { LocalSpace } from './local-memory.ts';
import type { Entry } from './operation-checker.ts';
import { differenceOf, ID_BYTES, idOf, payload } from './payload.ts';
import type { Schedule } from './schedule.ts';

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
  readonly actor: Actor;
  readonly view: AmMessage;
}

interface Answer {
  readonly from: End | undefined;
  readonly to: End;
  count: number;
}

/** Active messages of one schedule. */
export class AmWorkload {
  readonly #schedule: Schedule;
  readonly #messages: Map<number, Message> = new Map();
  /** Number of the last message from an end. */
  readonly #lastFrom: Map<End, number> = new Map();
  #kept: Kept[] = [];
  /** Answers by their number, and how often they arrived. */
  readonly #answers: Map<number, Answer> = new Map();

  constructor(schedule: Schedule) {
    this.#schedule = schedule;
    schedule.onActor.push((actor) => {
      for (const id of [WITH_HEADER, PLAIN]) {
        actor.worker.setAmHandler(id, (view) => this.#guard(() => this.#onMessage(actor, id, view)));
      }
      actor.worker.setAmHandler(ANSWER, (view) => this.#guard(() => this.#onAnswer(actor, view)));
    });
  }

  send(end: End, byteLength: number): void {
    const schedule = this.#schedule;
    const id = schedule.newId();
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
    const space = new LocalSpace(schedule, end.actor, byteLength, true);
    space.fill(payload(id, byteLength));
    const { rendezvousThreshold } = schedule.variation;
    const isShort = rendezvousThreshold === 'auto' || byteLength < rendezvousThreshold;
    const isEager = isShort && this.#hasCredit;
    const isPlain =
      byteLength >= ID_BYTES && byteLength <= PLAIN_BYTES_MAX && isEager && space.isHost && schedule.isOneOf(2);
    const header = isPlain ? undefined : payload(id, ID_BYTES + schedule.random.below(30));
    const choice = schedule.random.below(4);
    const name = `am m${id} ${end} ${byteLength}${space.kind}`;
    const onEnd = (status: Status): void => {
      message.status = status;
      space.spend();
    };
    message.entry = schedule.start({ name, actor: end.actor, end, isWithdrawable: true, onEnd }, (params) => {
      const { local, offset, length } = space;
      if (isPlain) return end.endpoint.amSendNbx(PLAIN, undefined, local, offset, length, params);
      const all = choice === 0 && byteLength > 0 ? { ...params, protocol: 'rendezvous' as const } : params;
      const result = end.endpoint.amSendNbx(WITH_HEADER, header, local, offset, length, all);
      header?.fill(0);
      return result;
    });
  }

  /** Does something with a retained message. */
  continueKept(actor?: Actor): void {
    const schedule = this.#schedule;
    this.#kept = this.#kept.filter((kept) => kept.actor.isActive);
    const kept = schedule.find(this.#kept, (one) => actor === undefined || one.actor === actor);
    if (kept === undefined) return;
    this.#kept.splice(this.#kept.indexOf(kept), 1);
    if (schedule.isOneOf(3)) {
      schedule.note(`${kept.actor} releases m${kept.message.id}`);
      kept.view.release();
    } else this.#receive(kept.actor, kept.view, kept.message);
  }

  hasKept(actor: Actor): boolean {
    return actor.isActive && this.#kept.some((kept) => kept.actor === actor);
  }

  /** Messages and answers that were sent, will certainly arrive, and have not arrived yet. */
  missing(): string[] {
    const missing: string[] = [];
    for (const { id, from, status, hasCome } of this.#messages.values()) {
      const isSure = status === Status.OK && from.isReliable && from.peerActor.isActive;
      if (isSure && !hasCome) missing.push(`m${id} of ${from} never came`);
    }
    for (const [id, { count, from, to }] of this.#answers) {
      const isSure = to.isReliable && to.peerActor.isActive && from?.isReliable !== false;
      if (isSure && count === 0) missing.push(`answer ${id} never came to ${to}`);
    }
    return missing;
  }

  /** Handlers must not throw: failures are recorded. */
  #guard(run: () => void): void {
    try {
      run();
    } catch (error) {
      this.#schedule.fail(`a handler threw ${error instanceof Error ? error.stack : String(error)}`);
    }
  }

  #onMessage(actor: Actor, handler: number, view: AmMessage): void {
    const schedule = this.#schedule;
    if (actor.host.isDead) return;
    const id = handler === PLAIN ? idOf(eagerData(view)) : idOf(view.header);
    const message = this.#messages.get(id);
    if (message === undefined) {
      schedule.fail(`${actor} got an active message ${id} that was not sent`);
      return;
    }
    schedule.note(`${schedule.nowNs()} ${actor} takes m${id}${view.isRendezvous ? ' by rendezvous' : ''}`);
    this.#checkArrival(actor, message);
    if (handler === WITH_HEADER) this.#same(`header of m${id}`, view.header, payload(id, view.header.byteLength));
    if (view.byteLength !== message.byteLength) schedule.fail(`m${id} has ${view.byteLength} bytes`);
    if (!view.isRendezvous) this.#same(`m${id}`, view.data, payload(id, message.byteLength));
    if (schedule.isOneOf(5)) this.#answer(actor, message, view);
    if (!actor.isActive) return;
    switch (schedule.random.below(4)) {
      case 0:
        this.#kept.push({ message, actor, view: view.retain() });
        break;
      case 1:
      case 2:
        if (view.isRendezvous || schedule.isOneOf(2)) this.#receive(actor, view, message);
        break;
    }
  }

  #checkArrival(actor: Actor, message: Message): void {
    const { id, from, order, hasCome } = message;
    const schedule = this.#schedule;
    if (hasCome) schedule.fail(`m${id} came twice`);
    if (from.peerActor !== actor) schedule.fail(`m${id} came to ${actor}`);
    if (message.status === Status.CANCELED && !from.isForced && !from.actor.isClosing) {
      schedule.fail(`m${id} was taken back, and came`);
    }
    if ((this.#lastFrom.get(from) ?? -1) > order) schedule.fail(`m${id} of ${from} was overtaken`);
    this.#lastFrom.set(from, order);
    message.hasCome = true;
    schedule.checker.lastEndNs = schedule.nowNs();
  }

  #receive(actor: Actor, view: AmMessage, message: Message): void {
    const schedule = this.#schedule;
    const { id, byteLength, from } = message;
    const space = new LocalSpace(schedule, actor, byteLength + schedule.random.below(9), true);
    const isRemote = view.isRendezvous;
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      const isGone =
        from.isClosing || !from.actor.isActive || from.isSevered || from.peer?.isClosing === true || from.hasStale;
      const isLost = isBreak || status === Status.CANCELED || status === Status.INVALID_ADDR;
      const isWithdrawn = status === Status.CANCELED && message.entry?.mayBeWithdrawn === true;
      return isRemote && ((isGone && isLost) || isWithdrawn);
    };
    const onEnd = (status: Status): void => {
      if (status === Status.OK) {
        this.#same(`received m${id}`, space.read().subarray(0, byteLength), payload(id, byteLength));
        if (space.isTouchedBehind(byteLength)) schedule.fail(`m${id} was written beyond its end`);
      }
      space.release();
    };
    const name = `am receive m${id} ${space.byteLength}${space.kind}`;
    schedule.start({ name, actor, excuses, onEnd }, (params) =>
      view.receiveNbx(space.local, space.offset, space.length, params),
    );
  }

  #answer(actor: Actor, { from }: Message, view: AmMessage): void {
    const schedule = this.#schedule;
    const endpoint = view.replyEndpoint;
    const end = from.peer;
    if (end !== undefined && !end.isClosed && actor.isActive && endpoint !== end.endpoint)
      schedule.fail(`${actor} answers on another endpoint`);
    if (endpoint.closed || endpoint.status !== Status.OK || !actor.isActive) return;
    const id = schedule.newId();
    this.#answers.set(id, { count: 0, from: end, to: from });
    const bytes = payload(id, ID_BYTES);
    const header = this.#hasCredit ? undefined : bytes;
    const onEnd = (status: Status): void => {
      if (status !== Status.OK) this.#answers.delete(id);
    };
    const excuses = (status: Status): boolean => {
      const isBreak = status === Status.CONNECTION_RESET || status === Status.ENDPOINT_TIMEOUT;
      const isGone = from.isClosing || !from.actor.isActive || from.isSevered || end?.isClosing === true;
      return isGone && (isBreak || status === Status.CANCELED);
    };
    schedule.start({ name: `answer ${id}`, actor, excuses, onEnd }, (params) =>
      endpoint.amSendNbx(ANSWER, header, bytes, 0, bytes.byteLength, params),
    );
  }

  /** Whether short messages always arrive with their data: there is more credit than a schedule needs. */
  get #hasCredit(): boolean {
    return this.#schedule.variation.unexpectedBytesMax > SCARCE_BYTES;
  }

  #onAnswer(actor: Actor, message: AmMessage): void {
    if (actor.host.isDead) return;
    const known = message.isRendezvous ? message.header : message.data;
    const id = idOf(known);
    const answer = this.#answers.get(id);
    this.#same(`answer ${id}`, known, payload(id, ID_BYTES));
    if (answer === undefined) return;
    if (answer.to.actor !== actor) this.#schedule.fail(`answer ${id} came to ${actor}`);
    answer.count += 1;
    this.#schedule.checker.lastEndNs = this.#schedule.nowNs();
    if (answer.count > 1) this.#schedule.fail(`answer ${id} came twice`);
  }

  #same(what: string, actual: Uint8Array, expected: Uint8Array): void {
    const difference = differenceOf(actual, expected);
    if (difference !== undefined) this.#schedule.fail(`${what} is wrong: ${difference}`);
  }
}
