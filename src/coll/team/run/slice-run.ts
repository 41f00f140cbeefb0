/** Runs the schedule of one slice: round after round, as messages and copies end. The operation sends and receives. */

import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { reduceBytes } from '../../dtype/reduce.ts';
import type { LocalStep, Region, Round, Schedule, Transfer } from '../../schedule/schedule.ts';
import type { Signature } from '../wire/header.ts';
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
