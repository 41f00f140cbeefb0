/** Builds the schedule of one rank, round by round. */

import {
  type Group,
  type LocalStep,
  type Region,
  type Round,
  type Schedule,
  Space,
  type Transfer,
} from './schedule.ts';

/** Scratch memory is allocated in multiples of this, so that elements are aligned. */
const SCRATCH_ALIGNMENT = 64;
/** Round ids that are reserved for each phase: more than any algorithm uses with the largest team. */
const PHASE_ROUNDS = 2 ** 20;

interface OpenRound extends Round {
  readonly sends: Transfer[];
  readonly receives: Transfer[];
  readonly steps: LocalStep[];
}

/** Collects the steps of a schedule while an algorithm runs. */
export class ScheduleBuilder {
  readonly #rounds: OpenRound[] = [];
  #current: OpenRound = emptyRound(0);
  #nextId = 1;
  #scratchBytes = 0;

  /** Begins a round. All ranks must begin the same rounds, including those in which they have no step. */
  round(): void {
    this.#begin(this.#nextId);
  }

  /** Begins a phase. Its round ids are the same on all ranks, however many rounds each rank had before. */
  phase(index: number): void {
    this.#begin(index * PHASE_ROUNDS);
  }

  /** Allocates host memory that exists while the schedule runs. */
  scratch(byteLength: number): Region {
    const region: Region = { space: Space.SCRATCH, offset: this.#scratchBytes, byteLength };
    this.#scratchBytes += Math.ceil(byteLength / SCRATCH_ALIGNMENT) * SCRATCH_ALIGNMENT;
    return region;
  }

  /** Sends a region to a member of the group in this round. */
  send(group: Group, member: number, region: Region): void {
    this.#current.sends.push({ peer: group.ranks[member]!, region });
  }

  /** Receives a region from a member of the group in this round. */
  receive(group: Group, member: number, region: Region): void {
    this.#current.receives.push({ peer: group.ranks[member]!, region });
  }

  /** Copies a region when the messages of this round have ended. */
  copy(from: Region, to: Region): void {
    this.#step({ from, to, operand: undefined });
  }

  /** Reduces `from` and `operand` into `to` when the messages of this round have ended. */
  reduce(from: Region, to: Region, operand: Region = to): void {
    this.#step({ from, to, operand });
  }

  build(): Schedule {
    this.#begin(this.#nextId);
    return { rounds: this.#rounds, scratchBytes: this.#scratchBytes };
  }

  #step(step: LocalStep): void {
    if (step.from.byteLength > 0) this.#current.steps.push(step);
  }

  #begin(id: number): void {
    const { sends, receives, steps } = this.#current;
    if (sends.length + receives.length + steps.length > 0) this.#rounds.push(this.#current);
    this.#current = emptyRound(id);
    this.#nextId = id + 1;
  }
}

function emptyRound(id: number): OpenRound {
  return { id, sends: [], receives: [], steps: [] };
}
