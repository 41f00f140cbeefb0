/** One collective operation on one rank: runs its slices, and completes its request. */

import { isUcxError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { reduceBytes } from '../../dtype/reduce.ts';
import type { LocalStep, Round } from '../../schedule/schedule.ts';
import { rankFailed } from '../layout/errors.ts';
import type { Signature } from '../layout/header.ts';
import type { TeamState } from '../team-state.ts';
import type { CollRequest } from './coll-request.ts';
import { areSame, type Bound, bind, type Place } from './memory.ts';
import { PartMessages } from './parts.ts';
import type { Plan } from './plan.ts';
import { type EndNbx, SliceRun } from './slice-run.ts';

/** Slices that are in progress at the same time. */
const SLICES_AT_ONCE = 4;
const NO_BYTES = new Uint8Array(0);

/** An operation as the caller has described it. */
export interface OperationCall {
  readonly signature: Signature;
  readonly plan: Plan;
  readonly source: Bound | undefined;
  readonly target: Bound | undefined;
}

/** A collective operation in progress. */
export class Operation extends PartMessages {
  /** The caller's request; undefined if the operation ended in the call. */
  request: CollRequest | undefined = undefined;
  readonly startedNs: number;
  readonly #call: OperationCall;
  readonly #onEnded: (operation: Operation) => void;
  readonly #runs: Set<SliceRun> = new Set();
  #nextSlice = 0;
  #slicesEnded = 0;
  #isStarting = false;

  /** @param onEnded called once when the operation has ended */
  constructor(team: TeamState, sequence: number, call: OperationCall, onEnded: (operation: Operation) => void) {
    super(team, sequence, call.signature);
    this.startedNs = team.parts.clock.nowNs();
    this.#call = call;
    this.#onEnded = onEnded;
  }

  /** Starts slices, as many as may be in progress. */
  start(): void {
    if (this.#isStarting) return;
    this.#isStarting = true;
    const { slices } = this.#call.plan;
    while (this.#nextSlice < slices && this.#runs.size < SLICES_AT_ONCE && !this.hasFailed) this.#startSlice();
    this.#isStarting = false;
    this.endIfDone();
  }

  /** Handles the loss of a rank: the operation fails if it still needs that rank. */
  rankLost(rank: number, error: UcxError): void {
    if (this.hasFailed) {
      this.forget(({ peer }) => peer === rank);
      this.endIfDone();
      return;
    }
    const isAwaited = this.awaited().includes(rank) || [...this.#runs].some((run) => run.needs(rank));
    const isToCome = this.#nextSlice < this.#call.plan.slices;
    if (isAwaited || isToCome) this.team.fail(error);
  }

  /** Fails the operation; its request ends as soon as no transport uses its memory. */
  fail(error: UcxError): void {
    if (this.hasFailed || this.hasEnded) return;
    this.failure = error;
    this.dropParts();
    this.endIfDone();
  }

  /** Ends a failed operation without waiting for peers: their messages cannot arrive any more. */
  abandon(): void {
    this.forget(() => true);
    this.endIfDone();
  }

  protected partEnded(run: SliceRun): void {
    run.pending -= 1;
    this.#advance(run);
  }

  protected endIfDone(): void {
    const isDone = this.hasFailed
      ? this.inFlight === 0 && !this.isExpecting
      : this.#slicesEnded === this.#call.plan.slices && this.inFlight === 0;
    if (!isDone || this.hasEnded || this.#isStarting) return;
    this.hasEnded = true;
    for (const run of this.#runs) this.#giveScratch(run);
    this.#runs.clear();
    this.copies.release();
    this.#onEnded(this);
    this.request?.end(this.failure?.status ?? Status.OK, this.failure);
  }

  #startSlice(): void {
    const slice = this.#nextSlice++;
    try {
      const { plan, source, target } = this.#call;
      const schedule = plan.schedule(slice);
      const { scratchBytes } = schedule;
      const memory = scratchBytes === 0 ? NO_BYTES : this.team.scratch.take(scratchBytes);
      const run = new SliceRun(slice, schedule, [source, target, bind(memory, 0, scratchBytes)]);
      this.#runs.add(run);
      this.#advance(run);
    } catch (error) {
      this.#stepFailed(error);
    }
  }

  /** Runs the rounds of a slice until one has to wait. */
  #advance(run: SliceRun): void {
    if (run.isAdvancing) return;
    run.isAdvancing = true;
    try {
      while (run.pending === 0 && !this.hasFailed) this.#advanceOnce(run);
    } catch (error) {
      this.#stepFailed(error);
    } finally {
      run.isAdvancing = false;
    }
  }

  #advanceOnce(run: SliceRun): void {
    const step = run.takeStep();
    if (step !== undefined) {
      this.#run(run, step);
      return;
    }
    const round = run.takeRound();
    if (round !== undefined) this.#begin(run, round);
    else {
      run.pending = -1;
      this.#sliceEnded(run);
    }
  }

  #begin(run: SliceRun, { id, sends, receives }: Round): void {
    // Receives first: the senders wait for the memory.
    for (const transfer of receives) {
      if (!this.hasFailed) this.receivePart(run.part(id, transfer, false));
    }
    for (const transfer of sends) {
      if (!this.hasFailed) this.sendPart(run.part(id, transfer, true));
    }
  }

  #run(run: SliceRun, step: LocalStep): void {
    const [from, to] = [run.placeOf(step.from), run.placeOf(step.to)];
    const { dtype, op } = this.signature;
    if (step.operand !== undefined) {
      reduceBytes(dtype, op!, to.bytes!, from.bytes!, run.placeOf(step.operand).bytes!);
    } else if (areSame(from, to)) return;
    else if (from.bytes !== undefined && to.bytes !== undefined) this.copies.copyHost(from.bytes, to.bytes);
    else {
      run.pending += 1;
      this.#startCopy(run, from, to);
    }
  }

  /** Starts a copy from or to device memory. */
  #startCopy(run: SliceRun, from: Place, to: Place): void {
    const what = 'could not copy device memory';
    const ended: EndNbx = (status, error) => {
      if (status !== Status.OK) this.failBy(this.team.rank, status, what, error);
      else if (!this.hasFailed) this.partEnded(run);
    };
    this.issue(
      (params) => this.copies.startCopy(from, to, params),
      (status, error) => {
        // A put ends when its source can be reused; flush it, because the next step may read its target.
        const isPut = to.bytes === undefined && status === Status.OK;
        if (isPut) this.issue((params) => this.copies.startFlush(params), ended);
        else ended(status, error);
      },
    );
  }

  #sliceEnded(run: SliceRun): void {
    this.#runs.delete(run);
    this.#giveScratch(run);
    this.#slicesEnded += 1;
    this.start();
  }

  /** Handles an exception of a step. */
  #stepFailed(error: unknown): void {
    if (!isUcxError(error)) throw error;
    const { team } = this;
    team.fail(rankFailed(team.rank, error.status, 'failed', error));
  }

  #giveScratch({ scratch }: SliceRun): void {
    if (scratch !== undefined && scratch.memory !== NO_BYTES) this.team.scratch.give(scratch.memory);
  }
}
