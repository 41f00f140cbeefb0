/** The schedule of one slice, and its progress. Also starts UCP operations, retries them after back-pressure, and counts them until they end. */

import type { Request, RequestParams } from '../../../api/contract/request.ts';
import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { LocalStep, Region, Round, Schedule, Transfer } from '../../schedule/schedule.ts';
import { type Bound, type Place, placeOf } from './memory.ts';

/** The data of one message of a round. */
export interface Part {
  readonly run: SliceRun;
  readonly round: number;
  /** Rank of the other end. */
  readonly peer: number;
  /** True for a message to the peer, false for one from it. */
  readonly isSend: boolean;
  readonly place: Place;
  /** True while a peer has the key of the memory and may write to it. */
  isExposed: boolean;
}

/** The memory to which a part is written: its packed key, if peers may have one, and the offset. */
export interface PartKey {
  readonly offset: number;
  readonly packed: Uint8Array | undefined;
}

/** The progress of one slice through its schedule. */
export class SliceRun {
  readonly slice: number;
  readonly schedule: Schedule;
  /** Messages and copies of the current round that have not ended; -1 after the last round. */
  pending = 0;
  /** True while the operation is running its steps. */
  isAdvancing = false;
  /** The memories, indexed by {@link Space}; the scratch memory is the last one. */
  readonly #spaces: readonly (Bound | undefined)[];
  #next = 0;
  #step = 0;

  constructor(slice: number, schedule: Schedule, spaces: readonly (Bound | undefined)[]) {
    this.slice = slice;
    this.schedule = schedule;
    this.#spaces = spaces;
  }

  get scratch(): Bound | undefined {
    return this.#spaces.at(-1);
  }

  /** True if a later round has a message from or to a rank. */
  needs(rank: number): boolean {
    const has = ({ peer }: Transfer): boolean => peer === rank;
    return this.schedule.rounds.slice(this.#next).some(({ sends, receives }) => sends.some(has) || receives.some(has));
  }

  /** Takes the next step of the current round; undefined after the last one. */
  takeStep(): LocalStep | undefined {
    const step = this.schedule.rounds[this.#next - 1]?.steps[this.#step];
    if (step !== undefined) this.#step += 1;
    return step;
  }

  /** Begins the next round; undefined after the last one. */
  takeRound(): Round | undefined {
    const round = this.schedule.rounds[this.#next];
    if (round === undefined) return undefined;
    this.#next += 1;
    this.#step = 0;
    this.pending = round.sends.length + round.receives.length;
    return round;
  }

  /** The part of a message of a round. @throws UcxError ERR_INVALID_ADDR as {@link placeOf} */
  part(round: number, { peer, region }: Transfer, isSend: boolean): Part {
    return { run: this, round, peer, isSend, place: this.placeOf(region), isExposed: false };
  }

  /** Finds the memory of a region. @throws UcxError ERR_INVALID_ADDR if the memory is not valid any more */
  placeOf(region: Region): Place {
    return placeOf(this.#spaces[region.space]!, region);
  }
}

/** Starts an operation. */
export type StartNbx = (params: RequestParams) => Status | Request;
/** Called once when the operation has ended. */
export type EndNbx = (status: Status, error: unknown) => void;

interface Blocked {
  readonly owner: IssueOwner;
  readonly start: StartNbx;
  readonly end: EndNbx;
}

/** Starts UCP operations through an {@link Issuer}. */
export interface IssueOwner {
  readonly requests: Set<Request>;
  /** True if no further operation may be started for it: blocked ones end with CANCELED. */
  readonly hasFailed: boolean;
}

/** Time after which blocked operations are retried even if no other operation has ended. */
const RETRY_NS = 100_000;

/** Starts the UCP operations of one worker. */
export class Issuer {
  readonly #clock: Clock;
  readonly #blocked: Blocked[] = [];
  #timer: Timer | undefined;
  #isRestarting = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts an operation; calls `end` before it returns if the operation ends at once. */
  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void {
    if (this.#blocked.length > 0) this.#wait({ owner, start, end });
    else if (!this.#start(owner, start, end)) this.#wait({ owner, start, end });
  }

  /** Retries the blocked operations, in order. */
  restart(): void {
    if (this.#isRestarting || this.#blocked.length === 0) return;
    this.#isRestarting = true;
    while (this.#blocked.length > 0) {
      const { owner, start, end } = this.#blocked[0]!;
      if (owner.hasFailed) {
        this.#blocked.shift();
        end(Status.CANCELED, undefined);
      } else if (this.#start(owner, start, end)) this.#blocked.shift();
      else break;
    }
    this.#isRestarting = false;
    if (this.#blocked.length > 0) this.#arm();
  }

  #wait(blocked: Blocked): void {
    this.#blocked.push(blocked);
    this.#arm();
  }

  #arm(): void {
    this.#timer ??= this.#clock.setTimer(RETRY_NS, () => {
      this.#timer = undefined;
      this.restart();
    });
  }

  /** @returns false for back-pressure */
  #start(owner: IssueOwner, start: StartNbx, end: EndNbx): boolean {
    let started: Status | Request;
    try {
      started = start({
        callback: (request, status) => {
          const { error } = request;
          owner.requests.delete(request);
          request.free();
          end(status, error);
          this.restart();
        },
      });
    } catch (error) {
      end(isUcxError(error) ? error.status : Status.IO_ERROR, error);
      return true;
    }
    if (started === Status.NO_RESOURCE) return false;
    if (typeof started === 'number') end(started, undefined);
    else owner.requests.add(started);
    return true;
  }
}
