/** The core of a team on one rank: starts operations, and handles failure and closing. Callers check the arguments. */

import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { closedError, statusError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { rankFailed, reasonOf, teamFailed, textOf } from './layout/errors.ts';
import { describeSignature, Kind, type Signature } from './layout/header.ts';
import { Mailbox } from './mailbox.ts';
import { type Loss, untilConnected, untilNotified } from './members.ts';
import { CollRequest } from './run/coll-request.ts';
import { Operation, type OperationCall } from './run/operation.ts';
import type { TeamListener } from './run/service.ts';
import type { EndNbx } from './run/slice-run.ts';
import { type TeamParts, TeamState } from './team-state.ts';
import { Watch } from './watch.ts';

/** Maximum number of operations in progress in one team. */
const OPERATIONS_MAX = 1024;

export class TeamCore {
  readonly state: TeamState;
  readonly #operations: Map<number, Operation> = new Map();
  readonly #mailbox: Mailbox;
  readonly #watch: Watch;
  /** Endpoints over which greetings are being sent. */
  readonly #greetings: Set<Endpoint> = new Set();
  readonly onMessage: TeamListener = (header, message) => this.#mailbox.deliver(header, message);
  readonly #onEnded = (operation: Operation): void => this.#ended(operation);
  readonly #onLost = (member: number, loss: Loss): void => this.#memberLost(member, loss);

  constructor(parts: TeamParts) {
    this.state = new TeamState(parts, (error) => this.#failed(error));
    this.#mailbox = new Mailbox(this.state, this.#operations, (rank, loss) => this.#lost(rank, loss));
    this.#watch = new Watch(this.state, this.#operations);
  }

  /** Receives messages from now on, until {@link leave}. @throws UcxError of TeamService.add */
  open(): void {
    const { service, members, id } = this.state.parts;
    service.add(id, this.onMessage);
    members.listen(this.#onLost);
  }

  /** Operations that have not ended. */
  get inProgress(): number {
    return this.#operations.size;
  }

  /** Why the team has failed; undefined if it has not. */
  get failure(): UcxError | undefined {
    return this.state.failure;
  }

  /** See Team.lostRanks. */
  get lostRanks(): number[] {
    return this.state.departures.lostRanks;
  }

  /**
   * Checks that operations can begin. If a rank is lost, the team fails on all ranks: the others may wait for this one in an operation that does not need the
   * lost rank.
   * @throws UcxError ERR_CLOSED, ERR_COLL_TEAM_FAILED
   */
  checkUsable(): void {
    const { isClosed, failure, departures, parts } = this.state;
    if (isClosed) throw closedError('team');
    if (parts.worker.closed) throw closedError('worker of the team');
    if (failure !== undefined) throw teamFailed(failure);
    const departed = departures.first;
    if (departed !== undefined) {
      const error = departures.errorOf(departed);
      this.state.fail(error);
      throw teamFailed(error);
    }
    if (this.#operations.size >= OPERATIONS_MAX) {
      throw statusError(
        Status.EXCEEDS_LIMIT,
        `a team has at most ${OPERATIONS_MAX} operations in progress (wait for one of them)`,
      );
    }
  }

  /** Fails the team because this rank has cancelled an operation, or does not begin it: the others wait for it. */
  cancelled(signature: Signature): void {
    this.state.fail(rankFailed(this.state.rank, Status.CANCELED, `has cancelled ${describeSignature(signature)}`));
  }

  /** Begins an operation. @returns its status if it has ended, else its request */
  begin(call: OperationCall, params: RequestParams | undefined): Status | Request {
    const sequence = this.state.next++;
    const operation = new Operation(this.state, sequence, call, this.#onEnded);
    this.#operations.set(sequence, operation);
    this.#mailbox.begun(operation);
    operation.start();
    this.#watch.arm();
    const { plan, target, source } = call;
    const byteLength = (target ?? source)?.bytes?.byteLength ?? 0;
    const hasEnded = this.#operations.get(sequence) !== operation;
    const status: Status = operation.failure?.status ?? Status.OK;
    if (hasEnded && params?.noImmediateCompletion !== true) return status;
    const staged = plan.isStaged ? ', on host fragments' : '';
    const protocol = `${call.signature.collective}/${plan.algorithm.name}${staged}`;
    const request = new CollRequest(params, byteLength, protocol, this.state.parts.worker);
    request.onCancel = () => this.#cancel(operation);
    if (hasEnded) request.end(status, operation.failure);
    else operation.request = request;
    return request;
  }

  /** Fails the operations in progress, on all ranks. */
  shutDown(error: UcxError): void {
    this.state.isClosed = true;
    if (this.#operations.size > 0) this.state.fail(error);
    this.#mailbox.nackFuture(error);
  }

  /** Notifies the other ranks and leaves the worker. Called when no operation is in progress. */
  async leave(): Promise<void> {
    const { state } = this;
    const { members, memberOf, service, size, id } = state.parts;
    this.#watch.disarm();
    state.keys.close();
    const pending = new Set<Endpoint>();
    const { failure, rank: own } = state;
    const header = state.header(Kind.LEAVE);
    if (failure !== undefined) Object.assign(header, reasonOf(failure, own));
    const text = failure && textOf(failure);
    for (let rank = 0; rank < size; rank++) {
      const endpoints = rank === own || state.isLost(rank) ? [] : members.endpointsTo(memberOf[rank]!);
      for (const endpoint of endpoints) {
        pending.add(endpoint);
        const end: EndNbx = () => pending.delete(endpoint);
        state.sendOver(endpoint, header, text, () => state.issue(state, (params) => endpoint.flushNbx(params), end));
      }
    }
    const isGivenUp = (): boolean => state.failure !== undefined || members.missing.length > 0;
    // If the team is given up, its greetings must have ended too: a member that has died may have received the last message, but not a greeting.
    const isNotified = (): boolean => pending.size === 0 && (this.#greetings.size === 0 || !isGivenUp());
    await untilNotified(state.parts, isNotified, isGivenUp);
    state.hasFailed = true;
    if (isGivenUp()) for (const endpoint of this.#greetings) pending.add(endpoint);
    for (const endpoint of pending) members.giveUp(endpoint);
    members.unlisten(this.#onLost);
    members.leave();
    service.remove(id, this.onMessage);
    state.cancelTimers();
  }

  /** Waits until all ranks have agreed on their endpoints. @throws UcxError ERR_COLL_RANK_FAILED, ERR_COLL_TIMED_OUT, ERR_CLOSED */
  async connected(): Promise<void> {
    const { state } = this;
    const hasEnded = (): boolean => state.failure !== undefined || state.isClosed || state.parts.worker.closed;
    await untilConnected(
      state.parts,
      () => hasEnded() || this.lostRanks.length > 0,
      (error) => state.fail(error),
    );
    const [lost] = this.lostRanks;
    if (!hasEnded() && lost !== undefined) state.fail(state.departures.errorOf(lost));
    if (state.failure !== undefined) throw state.failure;
  }

  greet(endpoint: Endpoint, isChosen: boolean): void {
    const kind = isChosen ? Kind.CHOICE : Kind.GREETING;
    this.#greetings.add(endpoint);
    this.state.sendOver(endpoint, this.state.header(kind), undefined, () => {
      this.#greetings.delete(endpoint);
      this.state.parts.worker.promises.wake();
    });
  }

  #failed(error: UcxError): void {
    for (const operation of [...this.#operations.values()]) operation.fail(error);
    this.#mailbox.nackFuture(error);
  }

  #ended(operation: Operation): void {
    this.#operations.delete(operation.sequence);
    this.#watch.ended(operation);
  }

  #memberLost(member: number, loss: Loss): void {
    const rank = this.state.parts.memberOf.indexOf(member);
    if (rank >= 0) this.#lost(rank, loss);
  }

  #lost(rank: number, loss: Loss): void {
    const error = this.state.departures.errorOf(rank, loss);
    this.state.later(() => {
      for (const operation of [...this.#operations.values()]) operation.rankLost(rank, error);
      this.state.parts.issuer.restart();
    });
  }

  #cancel(operation: Operation): boolean {
    if (this.#operations.get(operation.sequence) !== operation || operation.hasFailed) return false;
    this.cancelled(operation.signature);
    return true;
  }
}
