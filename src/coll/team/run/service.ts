/**
 * The messages of all teams of one worker: one handler of active messages, which gives each message to its team. Messages for a team that this process
 * has not made yet are kept; the credit of their senders bounds them.
 */

import type { AmMessage } from '../../../ucp/api/active-message.ts';
import type { ReceivedMessage } from '../../../ucp/api/awaited/received-message.ts';
import type { RequestParams } from '../../../ucp/api/operation/request.ts';
import type { Worker } from '../../../ucp/api/worker.ts';
import { invalidParam } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { HEADER_BYTES, type Header, isCheck, Kind, readHeader, writeHeader } from '../wire/header.ts';

/** The id of active messages that teams use unless told otherwise. */
export const COLL_AM_ID = 65_000;
/** Ids of closed teams that are remembered, for messages that arrive late. */
const CLOSED_MAX = 1024;
const NO_BYTES = new Uint8Array(0);
/** Parameters of answers, which have no caller: their requests go back when they have ended. */
const ANSWER: RequestParams = { callback: (request) => request.free() };

/** Receives the messages of a team. */
export interface TeamMessages {
  readonly id: number;
  /** This rank. */
  readonly rank: number;
  /** Receives a message: that of a handler, or a kept one, which it gives back with {@link discard}. */
  onMessage(header: Header, message: Message): void;
}

/** A message in its handler, or kept. */
export type Message = ReceivedMessage;

interface EarlyMessage {
  readonly header: Header;
  readonly message: Message;
}

/** A worker, as the service uses it. */
export type HandlerWorker = Pick<Worker, 'closed' | 'setAmHandler'>;

/** The teams of one worker and one id of active messages. */
export class TeamService {
  static readonly #services: WeakMap<object, Map<number, TeamService>> = new WeakMap();

  readonly #worker: HandlerWorker;
  readonly #amId: number;
  readonly #teams: Map<number, TeamMessages> = new Map();
  /** Rank of this process in each. */
  readonly #closed: Map<number, number> = new Map();
  readonly #early: EarlyMessage[] = [];
  #users = 0;

  private constructor(worker: HandlerWorker, amId: number) {
    this.#worker = worker;
    this.#amId = amId;
    worker.setAmHandler(amId, (message) => this.#onMessage(message));
  }

  /**
   * The service of a worker; {@link leave} once for each call.
   * @throws UcxError ERR_INVALID_PARAM if the id is none
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
    service.#users += 1;
    return service;
  }

  /** Removes a user; the last one removes the handler. */
  leave(): void {
    this.#users -= 1;
    if (this.#users > 0) return;
    for (const { message } of this.#early.splice(0)) discard(message);
    TeamService.#services.get(this.#worker)?.delete(this.#amId);
    if (!this.#worker.closed) this.#worker.setAmHandler(this.#amId, undefined);
  }

  /**
   * Adds a team, which receives the messages that have already arrived for it.
   * @throws UcxError ERR_INVALID_PARAM if the worker has a team of this id: two ranks of a team have one worker
   */
  add(team: TeamMessages): void {
    if (this.#teams.has(team.id)) throw invalidParam('worker', 'must be the worker of one rank of a team', team.id);
    this.#teams.set(team.id, team);
    const own = this.#early.filter(({ header }) => header.team === team.id);
    for (const early of own) {
      this.#early.splice(this.#early.indexOf(early), 1);
      team.onMessage(early.header, early.message);
    }
  }

  remove(team: TeamMessages): void {
    this.#teams.delete(team.id);
    this.#closed.set(team.id, team.rank);
    const [oldest] = this.#closed.keys();
    if (this.#closed.size > CLOSED_MAX && oldest !== undefined) this.#closed.delete(oldest);
  }

  #onMessage(view: AmMessage): void {
    const message = view as Message;
    const header = readHeader(message.header);
    if (header === undefined) return;
    const team = this.#teams.get(header.team);
    const closedBy = this.#closed.get(header.team);
    if (team !== undefined) team.onMessage(header, message);
    else if (closedBy !== undefined) this.#answer(header, message, closedBy);
    else if (!isCheck(header.kind)) this.#early.push({ header, message: message.enqueue() });
  }

  /** Answers a rank that waits for one that has closed the team. */
  #answer(header: Header, message: Message, rank: number): void {
    const { kind } = header;
    if (kind !== Kind.READY && !isCheck(kind)) return;
    const { replyEndpoint } = message;
    // While it closes, the sender learns from the end of the connection that this rank has gone.
    if (replyEndpoint.closed) return;
    const text = new TextEncoder().encode(`rank ${rank} has closed the team`);
    const failure = { ...header, kind: Kind.FAILURE, from: rank, offset: rank, status: Status.CONNECTION_RESET };
    const packed = writeHeader(new Uint8Array(HEADER_BYTES + text.byteLength), failure, text);
    replyEndpoint.amSendNbx(this.#amId, packed, NO_BYTES, 0, 0, ANSWER);
    if (kind !== Kind.READY) return;
    const refusal = { ...failure, kind: Kind.NOTICE };
    replyEndpoint.amSendNbx(this.#amId, writeHeader(packed, refusal, text), NO_BYTES, 0, 0, ANSWER);
  }
}

/** Keeps a message beyond its handler; one that is kept already stays so. */
export function keep(message: Message): Message {
  return message.isView ? message.enqueue() : message;
}

/** Gives back a kept message whose data was received, or is not wanted. No effect on the message of a handler. */
export function discard(message: Message): void {
  if (message.isView || !message.isQueued) return;
  message.leaveQueue();
  message.release();
}
