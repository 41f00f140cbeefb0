/**
 * The endpoints from this rank to all others, and the lost ranks. Shared by a team and its sub-teams. The engine pairs the n-th endpoint of one worker with
 * the n-th endpoint of the other. The program makes endpoints too: an endpoint of the team here may be paired with an endpoint of the program there, which may
 * close it at any time. Two ranks therefore look for an endpoint of which both halves belong to teams. Each rank greets the other over its endpoints; a rank
 * that is greeted over an endpoint of the program creates another one. At the end the lower rank names the endpoint to use.
 */

import type { AwaitedWorker } from '../../api/awaited/worker.ts';
import type { Endpoint } from '../../api/contract/endpoint.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { isUcxError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { timedOut } from './layout/errors.ts';
import type { Links } from './links.ts';

/**
 * Maximum number of endpoints over which a member is greeted: bounds by how much the numbers of endpoints may differ that two workers have made to each other.
 */
const GREETINGS_MAX = 1024;

/** Why a member is lost. */
export interface Loss {
  readonly status: Status;
  /** True if the rank has announced that it leaves. */
  readonly isClosed: boolean;
}

/** Sends a greeting over an endpoint. @param isChosen whether the team will use this endpoint */
export type Greet = (endpoint: Endpoint, isChosen: boolean) => void;

/** The other ranks of a team that was created by an exchange. */
export class Members {
  readonly #links: Links;
  readonly #addresses: readonly Uint8Array[];
  readonly #rank: number;
  readonly #greet: Greet;
  /** For each member the endpoints over which it was greeted. */
  readonly #greetings: readonly Set<Endpoint>[];
  readonly #chosen: (Endpoint | undefined)[] = [];
  readonly #losses: (Loss | undefined)[] = [];
  readonly #listeners: Set<(member: number, loss: Loss) => void> = new Set();
  #users = 1;

  /**
   * @param addresses worker address of each member
   * @param rank this rank
   */
  constructor(links: Links, addresses: readonly Uint8Array[], rank: number, greet: Greet) {
    this.#links = links;
    this.#addresses = addresses;
    this.#rank = rank;
    this.#greet = greet;
    this.#greetings = addresses.map(() => new Set());
    links.listen(this.#onEnded);
  }

  /**
   * Connects to all members; {@link endpoint} returns an endpoint once both ranks have agreed on it.
   * @throws UcxError of Worker.endpoint, after all other members were greeted
   */
  connect(): void {
    const errors: unknown[] = [];
    for (const member of this.#addresses.keys()) {
      if (member === this.#rank) continue;
      try {
        this.#greetMember(member);
      } catch (error) {
        errors.push(error);
      }
    }
    if (errors.length > 0) throw errors[0];
  }

  /** Handles a greeting. @param endpoint this rank's half of the endpoint that the member has used */
  greeted(member: number, endpoint: Endpoint, isChosen: boolean): void {
    if (this.#chosen[member] !== undefined || this.#losses[member] !== undefined) return;
    const isOfTeams = this.endpointsTo(member).includes(endpoint);
    if (!isOfTeams) this.#tryNext(member);
    else if (this.#rank < member || isChosen) {
      this.#chosen[member] = endpoint;
      if (!isChosen) this.#greet(endpoint, true);
    } else this.#greet(endpoint, false);
  }

  /** The members with which no endpoint is agreed on yet. */
  get missing(): readonly number[] {
    return [...this.#addresses.keys()].filter((one) => one !== this.#rank && this.#chosen[one] === undefined);
  }

  /** The endpoint to a member; undefined until both have agreed on one. */
  endpoint(member: number): Endpoint | undefined {
    return this.#chosen[member];
  }

  /** The endpoints over which a member can be reached: the agreed one, or all candidates. */
  endpointsTo(member: number): readonly Endpoint[] {
    const chosen = this.#chosen[member];
    return chosen === undefined ? this.#links.to(this.#addresses[member]!) : [chosen];
  }

  /** Why a member is lost; undefined if it is not. */
  loss(member: number): Loss | undefined {
    const endpoint = this.#chosen[member];
    // Requests fail before their endpoint reports its failure.
    if (this.#losses[member] === undefined && endpoint !== undefined && !endpoint.closed && endpoint.status < 0) {
      this.#losses[member] = lossOf(endpoint);
    }
    return this.#losses[member];
  }

  /** An endpoint of the worker to itself, for copies by a card. */
  toItself(): Endpoint {
    return this.#links.toItself();
  }

  /** Calls a function for every member that is lost from now on, until {@link leave}. */
  listen(listener: (member: number, loss: Loss) => void): void {
    this.#listeners.add(listener);
  }

  unlisten(listener: (member: number, loss: Loss) => void): void {
    this.#listeners.delete(listener);
  }

  /** Adds a team that uses these endpoints. */
  share(): Members {
    this.#users += 1;
    return this;
  }

  /** Closes an endpoint over which a member does not respond, unless another team uses the endpoints of the worker. */
  giveUp(endpoint: Endpoint): void {
    this.#links.giveUp(endpoint);
  }

  /** Removes a team that uses these endpoints. */
  leave(): void {
    this.#users -= 1;
    if (this.#users === 0) this.#links.unlisten(this.#onEnded);
  }

  /** Greets a member over the endpoints that were not used for it yet, or over a new one. @throws UcxError of Worker.endpoint */
  #greetMember(member: number): void {
    const greeted = this.#greetings[member]!;
    const endpoints = this.endpointsTo(member).filter((endpoint) => !greeted.has(endpoint));
    if (endpoints.length === 0) endpoints.push(this.#links.add(this.#addresses[member]!));
    for (const endpoint of endpoints) {
      greeted.add(endpoint);
      this.#greet(endpoint, false);
    }
  }

  #tryNext(member: number): void {
    if (this.#greetings[member]!.size >= GREETINGS_MAX) {
      this.#lose(member, { status: Status.EXCEEDS_LIMIT, isClosed: false });
      return;
    }
    try {
      this.#greetMember(member);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#lose(member, { status: error.status, isClosed: false });
    }
  }

  readonly #onEnded = (endpoint: Endpoint, address: Uint8Array): void => {
    const member = this.#addresses.findIndex((one) => Buffer.compare(one, address) === 0);
    if (member < 0 || member === this.#rank) return;
    const chosen = this.#chosen[member];
    if (chosen === endpoint) this.#lose(member, lossOf(endpoint));
    else if (chosen === undefined && this.#losses[member] === undefined) {
      // The other half of the endpoint did not belong to a team there.
      if (endpoint.closedByPeer === true) this.#tryNext(member);
      else this.#lose(member, lossOf(endpoint));
    }
  };

  #lose(member: number, loss: Loss): void {
    this.#losses[member] = loss;
    for (const listener of [...this.#listeners]) listener(member, loss);
  }
}

function lossOf({ status, closedByPeer }: Endpoint): Loss {
  return { status, isClosed: closedByPeer === true };
}

/** Time limit for peers to receive the last messages of a team that has failed. */
const LEAVE_NS = 500e6;

/** What the waits of a team need. */
export interface MembershipParts {
  readonly members: Members;
  readonly worker: AwaitedWorker;
  readonly clock: Clock;
  /** Time after which waiting for ranks fails; 0 for no limit. */
  readonly timeoutNs: number;
}

/**
 * Waits until all ranks have agreed on their endpoints.
 * @param hasEnded true once they never will: the team has failed or is closed
 * @param fail called if they have not agreed in time
 */
export async function untilConnected(
  { members, worker, clock, timeoutNs }: MembershipParts,
  hasEnded: () => boolean,
  fail: (error: UcxError) => void,
): Promise<void> {
  const startedNs = clock.nowNs();
  let missing: number | undefined;
  let timer: Timer | undefined;
  // Like an operation, it fails only if nothing has changed since the previous check.
  const look = (): void => {
    const isLate = clock.nowNs() - startedNs >= timeoutNs && members.missing.length === missing;
    missing = members.missing.length;
    if (isLate) fail(timedOut('createTeam', members.missing, timeoutNs / 1e6));
    else timer = clock.setTimer(timeoutNs / 4, look);
    worker.promises.wake();
  };
  if (timeoutNs > 0) timer = clock.setTimer(timeoutNs / 4, look);
  await worker.promises.until(() => members.missing.length === 0 || hasEnded());
  timer?.cancel();
}

/** Waits until all ranks were notified. @param isGivenUp whether to wait only {@link LEAVE_NS} for those that do not respond */
export async function untilNotified(
  { worker, clock }: MembershipParts,
  isNotified: () => boolean,
  isGivenUp: () => boolean,
): Promise<void> {
  let isLate = false;
  const timer = clock.setTimer(LEAVE_NS, () => {
    isLate = true;
    worker.promises.wake();
  });
  await worker.promises.until(() => isNotified() || worker.closed || (isLate && isGivenUp()));
  timer.cancel();
}
