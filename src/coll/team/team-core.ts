/** The operations of a team in progress: their order, their messages, failures, and ranks that do not answer. Arguments are checked before. */

import type { AwaitedWorker } from '../../api/awaited/worker.ts';
import { AM_HEADER_BYTES_MAX } from '../../api/contract/active-message.ts';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { closedError, statusError, type UcxError } from '../../ucs/type/error.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import { Departures } from './departures.ts';
import { mismatch, rankFailed, reasonOf, reportedBy, teamFailed, textOf, timedOut } from './layout/errors.ts';
import {
  describeSignature,
  type Header,
  isCheck,
  isSame,
  Kind,
  NO_OPERATION,
  restOf,
  type Signature,
  writeHeader,
} from './layout/header.ts';
import { type Loss, type Members, untilConnected, untilTold } from './members.ts';
import { CollRequest } from './run/coll-request.ts';
import { KeyCache } from './run/memory.ts';
import { Operation, type OperationCall, type OperationHost, type PartKey } from './run/operation.ts';
import type { Scratch } from './run/plan.ts';
import { discard, type HandlerWorker, keep, type Message, type TeamMessages, type TeamService } from './run/service.ts';
import type { EndNbx, IssueOwner, Issuer, Part, StartNbx } from './run/slice-run.ts';

/** Operations that a team has in progress at most. */
const OPERATIONS_MAX = 1024;
/** Operations whose signatures are remembered after they have ended, for messages that should not come any more. */
const HISTORY = 64;
/** Time without a message after which an operation is described (CHECK_RECEIVE, CHECK_SEND) to the ranks that it waits for; it doubles. */
const CHECK_NS = 20e6;
const CHECK_NS_MAX = 1e9;
/** Time after the end of a rank until operations that still need it fail: messages that it has sent before may be unread. */
const LOSS_GRACE_NS = 20e6;
const NO_BYTES = new Uint8Array(0);

/** The parts of a team. */
export interface TeamParts {
  readonly id: number;
  readonly rank: number;
  readonly size: number;
  readonly worker: AwaitedWorker & HandlerWorker;
  readonly amId: number;
  readonly service: TeamService;
  readonly members: Members;
  /** Member of each rank. */
  readonly memberOf: readonly number[];
  readonly scratch: Scratch;
  readonly issuer: Issuer;
  readonly clock: Clock;
  /** Time after which an operation fails that waits for a rank; 0 for no limit. */
  readonly timeoutNs: number;
}

interface Waiting {
  readonly header: Header;
  readonly message: Message;
}

/** The state of a team. */
export class TeamCore implements OperationHost, TeamMessages, IssueOwner {
  readonly id: number;
  readonly rank: number;
  readonly amId: number;
  readonly parts: TeamParts;
  readonly requests: Set<Request> = new Set();
  /** True once this rank has left: no message of the team itself is started any more. */
  hasFailed = false;
  /** Why the team has failed. */
  failure: UcxError | undefined;
  isClosed = false;
  readonly keys: KeyCache = new KeyCache();
  readonly #operations: Map<number, Operation> = new Map();
  /** Messages of operations that this rank has not begun, by their number. */
  readonly #future: Map<number, Waiting[]> = new Map();
  readonly #history: Signature[] = [];
  readonly #marks: Map<Operation, number> = new Map();
  readonly #packed: Uint8Array = new Uint8Array(AM_HEADER_BYTES_MAX);
  readonly #graces: Set<Timer> = new Set();
  readonly #departures: Departures;
  /** Endpoints over which greetings are being sent. */
  readonly #greetings: Set<Endpoint> = new Set();
  readonly #onLost = (member: number, loss: Loss): void => this.#memberLost(member, loss);
  #next = 0;
  #checkNs = CHECK_NS;
  #timer: Timer | undefined;

  constructor(parts: TeamParts) {
    this.parts = parts;
    this.id = parts.id;
    this.rank = parts.rank;
    this.amId = parts.amId;
    this.#departures = new Departures(parts.members, parts.memberOf);
  }

  /** Receives messages from now on, until {@link leave}. @throws UcxError of TeamService.add */
  open(): void {
    this.parts.service.add(this);
    this.parts.members.listen(this.#onLost);
  }

  get scratch(): Scratch {
    return this.parts.scratch;
  }

  /** Number of the next operation. */
  get next(): number {
    return this.#next;
  }

  /** Operations that have not ended. */
  get inProgress(): number {
    return this.#operations.size;
  }

  /** See Team.lostRanks. */
  get lostRanks(): number[] {
    return this.#departures.lostRanks;
  }

  /**
   * Checks that operations can begin. The team fails, on all ranks, if one is lost: the others may wait for this one in an operation that does not need it.
   * @throws UcxError ERR_CLOSED, ERR_COLL_TEAM_FAILED
   */
  checkUsable(): void {
    if (this.isClosed) throw closedError('team');
    if (this.parts.worker.closed) throw closedError('worker of the team');
    if (this.failure !== undefined) throw teamFailed(this.failure);
    const gone = this.#departures.first;
    if (gone !== undefined) {
      const error = this.#departures.errorOf(gone);
      this.failed(error);
      throw teamFailed(error);
    }
    if (this.#operations.size >= OPERATIONS_MAX) {
      throw statusError(Status.EXCEEDS_LIMIT, `begin operation ${OPERATIONS_MAX + 1} of a team at once`);
    }
  }

  /** This rank has cancelled an operation, or does not begin it: the others wait for it. */
  cancelled(signature: Signature): void {
    this.failed(rankFailed(this.rank, Status.CANCELED, `has cancelled ${describeSignature(signature)}`));
  }

  /** Begins an operation. @returns its status, or its request */
  begin(call: OperationCall, params: RequestParams | undefined): Status | Request {
    const sequence = this.#next++;
    const operation = new Operation(this, sequence, call, this.parts.clock.nowNs());
    this.#history[sequence % HISTORY] = call.signature;
    this.#operations.set(sequence, operation);
    for (const { header, message } of this.#take(sequence)) this.#deliver(operation, header, message);
    operation.start();
    this.#arm();
    const { plan, target, source } = call;
    const byteLength = (target ?? source)?.bytes?.byteLength ?? 0;
    const hasEnded = this.#operations.get(sequence) !== operation;
    const status: Status = operation.failure?.status ?? Status.OK;
    if (hasEnded && params?.noImmediateCompletion !== true) return status;
    const staged = plan.isStaged ? ', on host fragments' : '';
    const protocol = `${call.signature.collective}/${plan.algorithm.name}${staged}`;
    const request = new CollRequest(params, byteLength, protocol, {
      cancel: () => this.#cancel(operation),
      onThrown: (error) => this.parts.worker.onThrown(error),
    });
    if (hasEnded) request.end(status, operation.failure);
    else operation.request = request;
    return request;
  }

  endpoint(rank: number): Endpoint {
    return this.parts.members.endpoint(this.parts.memberOf[rank]!)!;
  }

  toItself(): Endpoint {
    return this.parts.members.toItself();
  }

  isLost(rank: number): boolean {
    return this.#departures.loss(rank) !== undefined;
  }

  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void {
    this.parts.issuer.issue(owner, start, end);
  }

  pack(kind: Kind, { sequence, signature }: Operation, part: Part, key?: PartKey): Uint8Array {
    const { run, round, place } = part;
    const moved = { slice: run.slice, round, offset: key?.offset ?? 0, byteLength: place.byteLength };
    return writeHeader(this.#packed, { ...this.#header(kind, sequence, signature), ...moved }, key?.packed);
  }

  refuse(offer: Header): void {
    this.#refuse(offer, this.failure ?? rankFailed(this.rank, Status.CANCELED, 'does not send'));
  }

  lost(rank: number, status: Status, operation: Operation): void {
    // Transfers end before the messages that the rank sent first are read, such as the reason.
    this.#later(() => {
      if (this.#operations.get(operation.sequence) !== operation) return;
      const isReleased = status === Status.INVALID_ADDR && !this.isLost(rank);
      if (isReleased) this.failed(rankFailed(rank, status, 'has released the memory of its part'));
      else this.failed(this.#departures.errorOf(rank, this.#departures.loss(rank) ?? { status, isClosed: false }));
    });
  }

  failed(error: UcxError): void {
    if (!this.#adopt(error)) return;
    for (let rank = 0; rank < this.parts.size; rank++) if (rank !== this.rank) this.#tell(rank, error);
  }

  ended(operation: Operation, status: Status, error: UcxError | undefined): void {
    this.#operations.delete(operation.sequence);
    this.#marks.delete(operation);
    if (this.#operations.size === 0) this.#disarm();
    operation.request?.end(status, error);
  }

  onMessage(header: Header, message: Message): void {
    const { from, sequence, kind } = header;
    if (!Number.isInteger(from) || from >= this.parts.size || from === this.rank) {
      discard(message);
      return;
    }
    if (kind === Kind.FAILURE || isCheck(kind)) {
      if (kind === Kind.FAILURE) this.#reported(header, restOf(message.header));
      else this.#onCheck(header);
      discard(message);
      return;
    }
    if (kind === Kind.GREETING || kind === Kind.CHOICE || kind === Kind.LEAVE) {
      if (kind === Kind.LEAVE) this.#onLeave(header, restOf(message.header));
      else this.parts.members.greeted(this.parts.memberOf[from]!, message.replyEndpoint, kind === Kind.CHOICE);
      discard(message);
      return;
    }
    const operation = this.#operations.get(sequence);
    if (operation !== undefined) this.#deliver(operation, header, message);
    else if (this.failure !== undefined || this.isClosed) {
      if (kind === Kind.READY) this.refuse(header);
      discard(message);
    } else if (sequence >= this.#next) this.#keep(header, message);
    else {
      // No schedule leaves messages behind: the sender means another operation.
      discard(message);
      this.#mismatch(header);
      if (kind === Kind.READY) this.refuse(header);
    }
  }

  /** Stops everything; operations in progress fail on all ranks. */
  shutDown(error: UcxError): void {
    this.isClosed = true;
    if (this.#operations.size > 0) this.failed(error);
    this.#refuseFuture(error);
  }

  /** Leaves the team and the worker; nothing is in progress any more. */
  async leave(): Promise<void> {
    const { members, memberOf, service, size } = this.parts;
    this.#disarm();
    this.keys.close();
    const untold = new Set<Endpoint>();
    const { failure } = this;
    const header = this.#header(Kind.LEAVE, this.#next, NO_OPERATION);
    if (failure !== undefined) Object.assign(header, reasonOf(failure, this.rank));
    const text = failure && textOf(failure);
    for (let rank = 0; rank < size; rank++) {
      const endpoints = rank === this.rank || this.isLost(rank) ? [] : members.endpointsTo(memberOf[rank]!);
      for (const endpoint of endpoints) {
        untold.add(endpoint);
        const end: EndNbx = () => untold.delete(endpoint);
        this.#sendOver(endpoint, header, text, () => this.issue(this, (params) => endpoint.flushNbx(params), end));
      }
    }
    const isGivenUp = (): boolean => this.failure !== undefined || members.missing.length > 0;
    // A member that has died may have taken the last message, and not a greeting.
    const isTold = (): boolean => untold.size === 0 && (this.#greetings.size === 0 || !isGivenUp());
    await untilTold(this.parts, isTold, isGivenUp);
    this.hasFailed = true;
    if (isGivenUp()) for (const endpoint of this.#greetings) untold.add(endpoint);
    for (const endpoint of untold) members.giveUp(endpoint);
    members.unlisten(this.#onLost);
    members.leave();
    service.remove(this);
    for (const grace of this.#graces) grace.cancel();
  }

  /** Waits until all ranks have agreed on their endpoints. @throws UcxError ERR_COLL_RANK_FAILED, ERR_COLL_TIMED_OUT, ERR_CLOSED */
  async connected(): Promise<void> {
    const hasEnded = (): boolean => this.failure !== undefined || this.isClosed || this.parts.worker.closed;
    await untilConnected(
      this.parts,
      () => hasEnded() || this.lostRanks.length > 0,
      (error) => this.failed(error),
    );
    const [lost] = this.lostRanks;
    if (!hasEnded() && lost !== undefined) this.failed(this.#departures.errorOf(lost));
    if (this.failure !== undefined) throw this.failure;
  }

  /** Sends a greeting to a rank. */
  greet(endpoint: Endpoint, isChosen: boolean): void {
    const kind = isChosen ? Kind.CHOICE : Kind.GREETING;
    this.#greetings.add(endpoint);
    this.#sendOver(endpoint, this.#header(kind, this.#next, NO_OPERATION), undefined, () => {
      this.#greetings.delete(endpoint);
      this.parts.worker.promises.wake();
    });
  }

  /** @returns false if the team has failed before */
  #adopt(error: UcxError): boolean {
    if (this.failure !== undefined) return false;
    this.failure = error;
    for (const operation of [...this.#operations.values()]) operation.fail(error);
    this.#refuseFuture(error);
    return true;
  }

  /** Nothing is sent for operations that this rank has not begun. */
  #refuseFuture(error: UcxError): void {
    for (const sequence of [...this.#future.keys()]) {
      for (const { header, message } of this.#take(sequence)) {
        if (header.kind === Kind.READY) this.#refuse(header, error);
        discard(message);
      }
    }
  }

  #deliver(operation: Operation, header: Header, message: Message): void {
    if (operation.hasFailed || isSame(operation.signature, header.signature)) {
      operation.onMessage(header, message);
      return;
    }
    discard(message);
    this.#mismatch(header);
    if (header.kind === Kind.READY) this.refuse(header);
  }

  /** Compares the operation in which a rank waits with the one of this rank. That rank may not know yet that the team has failed. */
  #onCheck(header: Header): void {
    const { sequence, signature, from } = header;
    if (this.failure !== undefined) {
      this.#tell(from, this.failure);
      return;
    }
    const own = this.#signatureOf(sequence);
    if (own === undefined) return;
    if (isSame(own, signature)) this.#operations.get(sequence)?.onCheck(header);
    else this.#mismatch(header);
  }

  /** What this rank called; undefined for an operation that it has not begun, or that ended long ago. */
  #signatureOf(sequence: number): Signature | undefined {
    const isRecent = sequence < this.#next && sequence + HISTORY >= this.#next;
    return this.#operations.get(sequence)?.signature ?? (isRecent ? this.#history[sequence % HISTORY] : undefined);
  }

  #refuse(offer: Header, error: UcxError): void {
    const { sequence, signature, slice, round, byteLength } = offer;
    const header = { ...this.#header(Kind.NOTICE, sequence, signature), slice, round, byteLength };
    this.#send(offer.from, { ...header, ...reasonOf(error, this.rank) }, textOf(error));
  }

  #mismatch({ sequence, signature, from }: Header): void {
    const own = this.#signatureOf(sequence);
    const description = own === undefined ? 'another one long ago' : describeSignature(own);
    const other = { rank: from, operation: describeSignature(signature) };
    this.failed(mismatch(sequence, { rank: this.rank, operation: description }, other));
  }

  #reported({ from, offset, status }: Header, text: Uint8Array): void {
    this.#adopt(reportedBy(from, offset, statusOf(status), new TextDecoder().decode(text)));
  }

  #onLeave(header: Header, text: Uint8Array): void {
    const { from, status } = header;
    const hasFailed = status !== Status.OK;
    const loss = this.#departures.left(from, hasFailed, this.failure);
    if (loss === undefined) return;
    // The rank that has found the failure may be slower to tell it.
    if (hasFailed) this.#reported(header, text);
    this.#memberLost(this.parts.memberOf[from]!, loss);
  }

  #memberLost(member: number, loss: Loss): void {
    const rank = this.parts.memberOf.indexOf(member);
    if (rank < 0) return;
    const error = this.#departures.errorOf(rank, loss);
    this.#later(() => {
      for (const operation of [...this.#operations.values()]) operation.rankLost(rank, error);
      this.parts.issuer.restart();
    });
  }

  #later(run: () => void): void {
    const timer = this.parts.clock.setTimer(LOSS_GRACE_NS, () => {
      this.#graces.delete(timer);
      run();
    });
    this.#graces.add(timer);
  }

  #cancel(operation: Operation): boolean {
    if (this.#operations.get(operation.sequence) !== operation || operation.hasFailed) return false;
    this.cancelled(operation.signature);
    return true;
  }

  /** Tells a rank why the team has failed. */
  #tell(rank: number, error: UcxError): void {
    const header = { ...this.#header(Kind.FAILURE, this.#next, NO_OPERATION), ...reasonOf(error, this.rank) };
    this.#send(rank, header, textOf(error));
  }

  #keep(header: Header, message: Message): void {
    const { sequence } = header;
    const waiting = this.#future.get(sequence) ?? [];
    this.#future.set(sequence, waiting);
    waiting.push({ header, message: keep(message) });
  }

  #take(sequence: number): readonly Waiting[] {
    const waiting = this.#future.get(sequence) ?? [];
    this.#future.delete(sequence);
    return waiting;
  }

  #header(kind: Kind, sequence: number, signature: Signature): Header {
    const { id: team, rank: from } = this;
    return { kind, team, sequence, from, slice: 0, round: 0, signature, status: Status.OK, byteLength: 0, offset: 0 };
  }

  /** Sends a message of the team itself; a rank that cannot be reached learns it otherwise. */
  #send(rank: number, header: Header, rest?: Uint8Array): void {
    const endpoint = this.parts.members.endpoint(this.parts.memberOf[rank]!);
    if (endpoint !== undefined && !this.isLost(rank)) this.#sendOver(endpoint, header, rest);
  }

  #sendOver(endpoint: Endpoint, header: Header, rest?: Uint8Array, end: EndNbx = () => {}): void {
    const start: StartNbx = (params) => {
      const packed = writeHeader(this.#packed, header, rest);
      return endpoint.amSendNbx(this.amId, packed, NO_BYTES, 0, 0, params);
    };
    this.issue(this, start, end);
  }

  #arm(): void {
    if (this.#timer !== undefined || this.#operations.size === 0) return;
    const { timeoutNs } = this.parts;
    const delayNs = timeoutNs > 0 ? Math.min(this.#checkNs, timeoutNs / 4) : this.#checkNs;
    this.#timer = this.parts.clock.setTimer(delayNs, () => {
      this.#timer = undefined;
      this.#lookAfter();
      this.#arm();
    });
  }

  #disarm(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#checkNs = CHECK_NS;
  }

  /** Checks operations without progress: they may wait for ranks that run another operation, or for ever. */
  #lookAfter(): void {
    const { worker, timeoutNs, clock } = this.parts;
    if (worker.closed) {
      this.#adopt(closedError('worker of the team'));
      for (const operation of [...this.#operations.values()]) operation.abandon();
      return;
    }
    const stuck = [...this.#operations.values()].filter((one) => this.#marks.get(one) === one.marks && !one.hasFailed);
    this.#checkNs = stuck.length === 0 ? CHECK_NS : Math.min(this.#checkNs * 2, CHECK_NS_MAX);
    for (const operation of this.#operations.values()) this.#marks.set(operation, operation.marks);
    for (const operation of stuck) {
      const { sequence, signature, startedNs } = operation;
      if (timeoutNs > 0 && clock.nowNs() - startedNs >= timeoutNs) {
        this.failed(timedOut(describeSignature(signature), operation.awaited(), timeoutNs / 1e6));
        return;
      }
      for (const { run, round, peer, isSend, place } of operation.awaitedParts()) {
        const { slice } = run;
        const { byteLength } = place;
        const kind = isSend ? Kind.CHECK_SEND : Kind.CHECK_RECEIVE;
        this.#send(peer, { ...this.#header(kind, sequence, signature), slice, round, byteLength });
      }
    }
  }
}
