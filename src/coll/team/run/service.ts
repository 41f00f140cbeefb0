/**
 * The messages of all teams of one worker: one active message handler, which passes each message to its team. Messages for a team that this process has not
 * created yet are queued; the credit of their senders bounds the queue.
 */

import type { ReceivedMessage } from '../../../api/awaited/messages.ts';
import type { AmMessage } from '../../../api/contract/active-message.ts';
import type { Worker } from '../../../api/contract/worker.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { type Header, isCheck, readHeader } from '../layout/header.ts';

/** Default id of the active messages of teams. */
export const COLL_AM_ID = 65_000;
/** Number of closed teams whose ids are remembered, to drop messages that arrive late. */
const CLOSED_MAX = 1024;

/** A message in its handler, or kept after it. */
export type Message = ReceivedMessage;

/** Receives a message of a team: one in its handler, or a kept one, which the listener releases with {@link discard}. */
export type TeamListener = (header: Header, message: Message) => void;

interface EarlyMessage {
  readonly header: Header;
  readonly message: Message;
}

/** The part of a worker that the service uses. */
export type HandlerWorker = Pick<Worker, 'closed' | 'setAmHandler'>;

/** The teams of one worker that use one active message id. */
export class TeamService {
  static readonly #services: WeakMap<object, Map<number, TeamService>> = new WeakMap();

  readonly #worker: HandlerWorker;
  readonly #amId: number;
  readonly #teams: Map<number, TeamListener> = new Map();
  /** Ids of closed teams, the oldest first. */
  readonly #closed: Set<number> = new Set();
  readonly #early: EarlyMessage[] = [];
  #users = 0;

  private constructor(worker: HandlerWorker, amId: number) {
    this.#worker = worker;
    this.#amId = amId;
  }

  /**
   * Finds or creates the service of a worker; {@link leave} must be called once for each call.
   * @throws UcxError ERR_INVALID_PARAM if the active message id is invalid
   */
  static join(worker: HandlerWorker, amId: number): TeamService {
    let services = TeamService.#services.get(worker);
    if (services === undefined) {
      services = new Map();
      TeamService.#services.set(worker, services);
    }
    let service = services.get(amId);
    if (service === undefined) {
      service = new TeamService(worker, amId);
      services.set(amId, service);
    }
    if (service.#users === 0) worker.setAmHandler(amId, (message) => service.#onMessage(message));
    service.#users += 1;
    return service;
  }

  /**
   * Removes a user; the last one removes the handler. The ids of closed teams stay known: ranks that do not know yet that a team has ended still send to it.
   */
  leave(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    for (const { message } of this.#early.splice(0)) discard(message);
    if (!this.#worker.closed) this.#worker.setAmHandler(this.#amId, undefined);
  }

  /**
   * Adds a team, which receives the messages that have already arrived for it.
   * @throws UcxError ERR_INVALID_PARAM if the worker already has a team of this id: two ranks of a team use the same worker
   */
  add(id: number, onMessage: TeamListener): void {
    if (this.#teams.has(id))
      throw invalidParam('worker', 'must not be the worker of another rank of the same team', id);
    this.#teams.set(id, onMessage);
    const own = this.#early.filter(({ header }) => header.team === id);
    for (const early of own) {
      this.#early.splice(this.#early.indexOf(early), 1);
      onMessage(early.header, early.message);
    }
  }

  /** Removes a team, unless its id was reused by another one. */
  remove(id: number, onMessage: TeamListener): void {
    if (this.#teams.get(id) !== onMessage) return;
    this.#teams.delete(id);
    this.#closed.add(id);
    const [oldest] = this.#closed;
    if (this.#closed.size > CLOSED_MAX && oldest !== undefined) this.#closed.delete(oldest);
  }

  #onMessage(view: AmMessage): void {
    const message = view as Message;
    const header = readHeader(message.header);
    if (header === undefined) return;
    const onMessage = this.#teams.get(header.team);
    if (onMessage !== undefined) onMessage(header, message);
    else if (!this.#closed.has(header.team) && !isCheck(header.kind))
      this.#early.push({ header, message: message.enqueue() });
  }
}

/** Keeps a message beyond its handler; no effect on a message that is kept already. */
export function keep(message: Message): Message {
  return message.isView ? message.enqueue() : message;
}

/** Releases a kept message. No effect on a message in its handler. */
export function discard(message: Message): void {
  if (message.isView || !message.isQueued) return;
  message.leaveQueue();
  message.release();
}
