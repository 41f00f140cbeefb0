/**
 * Runs the schedule of one slice: round after round, as messages and copies end. The operation sends and receives. Starts nbx operations, again after
 * back-pressure, and counts them until they end. It does not know their purpose.
 */

import type { Request, RequestParams } from '../../../api/contract/request.ts';
import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { reduceBytes } from '../../dtype/reduce.ts';
import type { LocalStep, Region, Round, Schedule, Transfer } from '../../schedule/schedule.ts';
import type { Signature } from '../layout/header.ts';
import { areSame, type Bound, type Place, placeOf } from './memory.ts';

/** A message of a round that is under way. */
export interface Part {
  readonly run: SliceRun;
  readonly round: number;
  /** Rank of the other end. */
  readonly peer: number;
  /** True for a message to the peer, false for one from it. */
  readonly isSend: boolean;
  readonly place: Place;
  /** A peer has the key of the place and may write to it. */
  isExposed: boolean;
}

/** The operation of a slice. */
export interface SliceOwner {
  readonly signature: Signature;
  readonly hasFailed: boolean;
  receivePart(part: Part): void;
  sendPart(part: Part): void;
  /** Starts a copy from or to the memory of a card; {@link SliceRun.partEnded} follows. */
  startCopy(run: SliceRun, from: Place, to: Place): void;
  /** Copies host bytes. */
  copyHost(from: Uint8Array, to: Uint8Array): void;
  /** A step could not be run. */
  stepFailed(error: UcxError): void;
  sliceEnded(run: SliceRun): void;
}

/** One slice. */
export class SliceRun {
  readonly slice: number;
  readonly schedule: Schedule;
  readonly #owner: SliceOwner;
  /** The memories by their space; the scratch memory is the last one. */
  readonly #spaces: readonly (Bound | undefined)[];
  #next = 0;
  #step = 0;
  #pending = 0;
  #isAdvancing = false;

  constructor(owner: SliceOwner, slice: number, schedule: Schedule, spaces: readonly (Bound | undefined)[]) {
    this.#owner = owner;
    this.slice = slice;
    this.schedule = schedule;
    this.#spaces = spaces;
  }

  /** Host memory that the schedule uses. */
  get scratch(): Bound | undefined {
    return this.#spaces.at(-1);
  }

  /** True if a round that has not begun has a message from or to a rank. */
  needs(rank: number): boolean {
    const has = ({ peer }: Transfer): boolean => peer === rank;
    return this.schedule.rounds.slice(this.#next).some(({ sends, receives }) => sends.some(has) || receives.some(has));
  }

  /** A message or a copy of the round has ended. */
  partEnded(): void {
    this.#pending -= 1;
    this.advance();
  }

  /** Continues as far as possible. */
  advance(): void {
    if (this.#isAdvancing) return;
    this.#isAdvancing = true;
    try {
      while (this.#pending === 0 && !this.#owner.hasFailed) this.#advanceOnce();
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#owner.stepFailed(error);
    } finally {
      this.#isAdvancing = false;
    }
  }

  #advanceOnce(): void {
    const step = this.schedule.rounds[this.#next - 1]?.steps[this.#step];
    if (step !== undefined) {
      this.#step += 1;
      this.#run(step);
    } else if (this.#next < this.schedule.rounds.length) {
      this.#begin(this.schedule.rounds[this.#next]!);
    } else {
      this.#pending = -1;
      this.#owner.sliceEnded(this);
    }
  }

  #begin({ id, sends, receives }: Round): void {
    this.#next += 1;
    this.#step = 0;
    this.#pending = sends.length + receives.length;
    // Receives first: their peers wait for memory.
    for (const transfer of receives) {
      if (!this.#owner.hasFailed) this.#owner.receivePart(this.#part(id, transfer, false));
    }
    for (const transfer of sends) {
      if (!this.#owner.hasFailed) this.#owner.sendPart(this.#part(id, transfer, true));
    }
  }

  #part(round: number, { peer, region }: Transfer, isSend: boolean): Part {
    return { run: this, round, peer, isSend, place: this.#placeOf(region), isExposed: false };
  }

  #placeOf(region: Region): Place {
    return placeOf(this.#spaces[region.space]!, region);
  }

  #run(step: LocalStep): void {
    const [from, to] = [this.#placeOf(step.from), this.#placeOf(step.to)];
    const { dtype, op } = this.#owner.signature;
    if (step.operand !== undefined) {
      reduceBytes(dtype, op!, to.bytes!, from.bytes!, this.#placeOf(step.operand).bytes!);
    } else if (areSame(from, to)) return;
    else if (from.bytes !== undefined && to.bytes !== undefined) this.#owner.copyHost(from.bytes, to.bytes);
    else {
      this.#pending += 1;
      this.#owner.startCopy(this, from, to);
    }
  }
}

/** Starts an operation. */
export type StartNbx = (params: RequestParams) => Status | Request;
/** Called once when it has ended. */
export type EndNbx = (status: Status, error: unknown) => void;

interface Blocked {
  readonly owner: IssueOwner;
  readonly start: StartNbx;
  readonly end: EndNbx;
}

/** An operation that issues others. */
export interface IssueOwner {
  /** Requests that have not ended. */
  readonly requests: Set<Request>;
  /** True if nothing more is started for it: waiting operations end with CANCELED. */
  readonly hasFailed: boolean;
}

/** Time after which blocked operations are started again if nothing else has ended. */
const RETRY_NS = 100_000;

/** The operations of one worker. */
export class Issuer {
  readonly #clock: Clock;
  readonly #blocked: Blocked[] = [];
  #timer: Timer | undefined;
  #isRestarting = false;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  /** Starts an operation; `end` is called inside this call if it ends at once. */
  issue(owner: IssueOwner, start: StartNbx, end: EndNbx): void {
    if (this.#blocked.length > 0) this.#wait({ owner, start, end });
    else if (!this.#start(owner, start, end)) this.#wait({ owner, start, end });
  }

  /** Starts the operations that were refused, in order. */
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
