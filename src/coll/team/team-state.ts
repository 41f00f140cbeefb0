/** The state that a team shares with its operations and messages: its parts, its failure, its lost ranks, and how it sends messages. */

import type { AwaitedWorker } from '../../api/awaited/worker.ts';
import { AM_HEADER_BYTES_MAX } from '../../api/contract/active-message.ts';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { RemoteKey } from '../../api/contract/memory.ts';
import type { Request } from '../../api/contract/request.ts';
import { KeyCache } from '../../api/memory/key-cache.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import type { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { rankFailed, reasonOf, textOf } from './layout/errors.ts';
import { type Header, Kind, NO_OPERATION, type Signature, writeHeader } from './layout/header.ts';
import type { Loss, Members } from './members.ts';
import type { Scratch } from './run/plan.ts';
import type { HandlerWorker, TeamService } from './run/service.ts';
import type { EndNbx, IssueOwner, Issuer, Part, PartKey, StartNbx } from './run/slice-run.ts';

/** Time between the loss of a rank and the failure of operations that still need it: messages that the rank sent before may be unread. */
const LOSS_GRACE_NS = 20e6;
/** Maximum number of peers' remote keys that are cached. */
const KEYS_MAX = 128;
const NO_BYTES = new Uint8Array(0);

/** What a team consists of. */
export interface TeamParts {
  readonly id: number;
  readonly rank: number;
  readonly size: number;
  readonly worker: AwaitedWorker & HandlerWorker;
  readonly amId: number;
  readonly service: TeamService;
  readonly members: Members;
  /** Member of each rank: its index in {@link Members}. */
  readonly memberOf: readonly number[];
  readonly scratch: Scratch;
  readonly issuer: Issuer;
  readonly clock: Clock;
  /** Time after which an operation that waits for ranks fails; 0 for no limit. */
  readonly timeoutNs: number;
}

export class TeamState implements IssueOwner {
  readonly id: number;
  readonly rank: number;
  readonly amId: number;
  readonly parts: TeamParts;
  readonly departures: Departures;
  readonly keys: KeyCache<RemoteKey> = new KeyCache({ keysMax: KEYS_MAX });
  readonly requests: Set<Request> = new Set();
  /** See {@link IssueOwner}: true once this rank has left, so that blocked messages of the team end. A failure of the team is in {@link failure}. */
  hasFailed = false;
  /** Why the team has failed; undefined if it has not. */
  failure: UcxError | undefined = undefined;
  isClosed = false;
  /** Sequence number of the next operation. */
  next = 0;
  readonly #packed: Uint8Array = new Uint8Array(AM_HEADER_BYTES_MAX);
  readonly #graces: Set<Timer> = new Set();
  readonly #onFailure: (error: UcxError) => void;

  /** @param onFailure called once when the team fails */
  constructor(parts: TeamParts, onFailure: (error: UcxError) => void) {
    this.parts = parts;
    this.id = parts.id;
    this.rank = parts.rank;
    this.amId = parts.amId;
    this.departures = new Departures(parts.members, parts.memberOf);
    this.#onFailure = onFailure;
  }

  get scratch(): Scratch {
    return this.parts.scratch;
  }

  /** The endpoint to a rank; undefined until both have agreed on one. */
  endpointTo(rank: number): Endpoint | undefined {
    return this.parts.members.endpoint(this.parts.memberOf[rank]!);
  }

  /** The endpoint to a rank, for operations: they begin after the ranks have agreed on endpoints. */
  endpoint(rank: number): Endpoint {
    return this.endpointTo(rank)!;
  }

  /** An endpoint of the worker to itself. */
  toItself(): Endpoint {
    return this.parts.members.toItself();
  }

  isLost(rank: number): boolean {
    return this.departures.loss(rank) !== undefined;
  }

  /** Starts a UCP operation for the team, or for an operation of the team. */
  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void {
    this.parts.issuer.issue(owner, start, end);
  }

  /** Encodes a message of an operation; the bytes are valid until the next call. */
  pack(
    kind: Kind,
    { sequence, signature }: Pick<Header, 'sequence' | 'signature'>,
    part: Part,
    key?: PartKey,
  ): Uint8Array {
    const { run, round, place } = part;
    const moved = { slice: run.slice, round, offset: key?.offset ?? 0, byteLength: place.byteLength };
    return writeHeader(this.#packed, { ...this.header(kind, sequence, signature), ...moved }, key?.packed);
  }

  header(kind: Kind, sequence: number = this.next, signature: Signature = NO_OPERATION): Header {
    const { id: team, rank: from } = this;
    return { kind, team, sequence, from, slice: 0, round: 0, signature, status: Status.OK, byteLength: 0, offset: 0 };
  }

  /** Sends a message of the team itself. If the rank cannot be reached, it detects the failure otherwise. */
  send(rank: number, header: Header, rest?: Uint8Array): void {
    const endpoint = this.endpointTo(rank);
    if (endpoint !== undefined && !this.isLost(rank)) this.sendOver(endpoint, header, rest);
  }

  sendOver(endpoint: Endpoint, header: Header, rest?: Uint8Array, end: EndNbx = () => {}): void {
    const start: StartNbx = (params) => {
      const packed = writeHeader(this.#packed, header, rest);
      return endpoint.amSendNbx(this.amId, packed, NO_BYTES, 0, 0, params);
    };
    this.issue(this, start, end);
  }

  /** Sends a NACK for offered memory: nothing will be written to it. */
  sendNack(offer: Header, error: UcxError | undefined = this.failure): void {
    const reason = error ?? rankFailed(this.rank, Status.CANCELED, 'does not send');
    const { sequence, signature, slice, round, byteLength } = offer;
    const header = { ...this.header(Kind.NOTICE, sequence, signature), slice, round, byteLength };
    this.send(offer.from, { ...header, ...reasonOf(reason, this.rank) }, textOf(reason));
  }

  /** Notifies a rank of the failure of the team. */
  notifyFailure(rank: number, error: UcxError): void {
    this.send(rank, { ...this.header(Kind.FAILURE), ...reasonOf(error, this.rank) }, textOf(error));
  }

  /** The team fails on this rank, without notifying the others. @returns false if it has failed before */
  adopt(error: UcxError): boolean {
    if (this.failure !== undefined) return false;
    this.failure = error;
    this.#onFailure(error);
    return true;
  }

  /** The team fails on all ranks. */
  fail(error: UcxError): void {
    if (!this.adopt(error)) return;
    for (let rank = 0; rank < this.parts.size; rank++) if (rank !== this.rank) this.notifyFailure(rank, error);
  }

  /** Runs a function when a lost rank has had time to send the reason. */
  later(run: () => void): void {
    const timer = this.parts.clock.setTimer(LOSS_GRACE_NS, () => {
      this.#graces.delete(timer);
      run();
    });
    this.#graces.add(timer);
  }

  cancelTimers(): void {
    for (const grace of this.#graces) grace.cancel();
  }
}

/** The departed ranks of one team: those whose connection has ended, and those that have left the team. */
export class Departures {
  readonly #members: Pick<Members, 'loss'>;
  readonly #memberOf: readonly number[];
  /** Ranks that have left this team. {@link Members} knows the ranks whose connection has ended. */
  readonly #left: Map<number, Loss> = new Map();
  /** Ranks that have left because the team had failed. */
  readonly #withdrawn: Set<number> = new Set();

  /** @param memberOf the member of each rank */
  constructor(members: Pick<Members, 'loss'>, memberOf: readonly number[]) {
    this.#members = members;
    this.#memberOf = memberOf;
  }

  /** Why a rank has departed; undefined if it has not. */
  loss(rank: number): Loss | undefined {
    return this.#left.get(rank) ?? this.#members.loss(this.#memberOf[rank]!);
  }

  /** Ranks that are lost or were the first to leave. Others, which leave because of the failure, are not lost. */
  get lostRanks(): number[] {
    return [...this.#memberOf.keys()].filter((rank) => this.loss(rank) !== undefined && !this.#withdrawn.has(rank));
  }

  /** The rank whose departure is the cause: one whose connection has ended, else one that has left. */
  get first(): number | undefined {
    const { lostRanks } = this;
    return lostRanks.find((rank) => this.loss(rank)?.isClosed === false) ?? lostRanks[0];
  }

  /** The error for a departed rank. */
  errorOf(rank: number, loss: Loss | undefined = this.loss(rank)): UcxError {
    const why = loss?.isClosed === true ? 'has closed the team' : 'is lost';
    return rankFailed(rank, loss?.status ?? Status.CONNECTION_RESET, why);
  }

  /**
   * Handles a rank that leaves.
   * @param hasFailed whether it says that the team had failed
   * @param failure the failure of the team as this rank knows it, which may name the rank that leaves
   * @returns why it has departed; undefined if that was known
   */
  left(rank: number, hasFailed: boolean, failure: UcxError | undefined): Loss | undefined {
    if (this.#left.has(rank)) return undefined;
    const loss = { status: Status.CONNECTION_RESET, isClosed: true };
    this.#left.set(rank, loss);
    if (hasFailed || (failure !== undefined && failure.details['rank'] !== rank)) this.#withdrawn.add(rank);
    return loss;
  }
}
