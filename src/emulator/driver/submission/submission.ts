/**
 * Command submissions of one context: their slots, jobs, completion and outcome.
 *
 * Completion is polled: a submission is complete when its jobs are done, according to memory shared with the engines. {@link SubmissionTable.retire}
 * checks the oldest submissions and releases their slots.
 */

import { type MappedMemory, mapAnonymous } from '../../../sys/index.ts';
import { HL_CS_FLAGS } from '../../../uapi/index.ts';
import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import type { PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { Job, type Stream } from '../../device/queue/stream.ts';

const STAMP_BYTES = 8;

/** State of a submission. */
export const SubmissionState = { FREE: 0, PENDING: 1, COMPLETED: 2, TIMED_OUT: 3, ABORTED: 4 } as const;
export type SubmissionState = (typeof SubmissionState)[keyof typeof SubmissionState];

/** Limit of stored outcomes of old submissions with a timestamp (struct hl_cs_outcome_store of the driver). */
const OUTCOMES_MAX = 256;

/** One submission, in the slot `seq & (max pending - 1)`. */
export class Submission {
  seq = 0;
  state: SubmissionState = SubmissionState.FREE;
  /** Bits of HL_CS_FLAGS. */
  flags = 0;
  /** In seconds, an integer, which can be passed on without an allocation. */
  timeoutSeconds = 0;
  jobCount = 0;
  readonly jobs: Job[] = [];
  /** The stream of each job. */
  readonly streams: Stream[] = [];
  /** The staged submission that it belongs to; it completes with the last member. */
  staged: StagedGroup | undefined = undefined;
  /** Whether it used a stream-master queue, so that it ends a multi-wait. */
  multiWait = false;
  /** Whether it is a SIGNAL submission, to which a WAIT submission can refer. */
  signal = false;
  /** Called once, when its state becomes final. */
  onEnd: (() => void) | undefined = undefined;
  /** Injected fault: completion is withheld, regardless of its jobs. */
  withheld = false;
  /** Injected fault: the engines do not execute it. */
  hung = false;

  begin(seq: number, flags: number, timeoutSeconds: number): void {
    this.seq = seq;
    this.state = SubmissionState.PENDING;
    this.flags = flags;
    this.timeoutSeconds = timeoutSeconds;
    this.jobCount = 0;
    this.staged = undefined;
    this.multiWait = false;
    this.signal = false;
    this.onEnd = undefined;
    this.withheld = false;
    this.hung = false;
  }

  /** Adds a job on `stream`, reset to its initial state, and returns it. */
  addJob(stream: Stream): Job {
    const index = this.jobCount++;
    let job = this.jobs[index];
    if (job === undefined) {
      job = new Job();
      this.jobs.push(job);
      this.streams.push(stream);
    }
    this.streams[index] = stream;
    job.reset();
    return job;
  }

  /** True if its state is final. */
  get ended(): boolean {
    return this.state !== SubmissionState.PENDING;
  }

  /** Replaces unfinished jobs by new ones for later submissions in the slot, because the streams still refer to the old ones. */
  abandonJobs(): void {
    for (let i = 0; i < this.jobCount; i++) {
      const job = this.jobs[i]!;
      if (job.done) continue;
      job.stampAddress = 0;
      this.jobs[i] = new Job();
    }
  }

  /** True when every tracked job is done. */
  get jobsDone(): boolean {
    if (this.withheld || this.hung) return false;
    for (let i = 0; i < this.jobCount; i++) {
      if (!this.jobs[i]!.done && this.streams[i]!.tracked) return false;
    }
    return true;
  }
}

/** A staged submission: FIRST, members, LAST. */
export class StagedGroup {
  readonly firstSeq: number;
  readonly members: Submission[] = [];
  closed = false;
  /** Stored, because the slots of complete members are reused. */
  #done = false;

  constructor(firstSeq: number) {
    this.firstSeq = firstSeq;
  }

  get done(): boolean {
    this.#done ||= this.closed && this.members.every((member) => member.ended || member.jobsDone);
    return this.#done;
  }
}

/** The outcome of a submission that has left its slot. */
export interface StoredOutcome {
  readonly timestampNs: number;
}

/** Counters of rejected submissions by reason (struct hl_cs_counters), of a context or summed. */
export class CsCounters {
  outOfMemory = 0;
  parsing = 0;
  queueFull = 0;
  inReset = 0;
  maxCsInFlight = 0;
  validation = 0;

  add(other: CsCounters): void {
    this.outOfMemory += other.outOfMemory;
    this.parsing += other.parsing;
    this.queueFull += other.queueFull;
    this.inReset += other.inReset;
    this.maxCsInFlight += other.maxCsInFlight;
    this.validation += other.validation;
  }
}

export class SubmissionTable {
  /** Sequence number of the next submission. */
  nextSeq = 1;
  /** The oldest submission that is not retired. */
  oldest = 1;
  readonly counters: CsCounters = new CsCounters();
  readonly #slots: (Submission | undefined)[];
  readonly #mask: number;
  /** A 64-bit completion time per slot, written by the engines; mapped when a timestamp is first used. */
  #stamps: MappedMemory | undefined;
  readonly #outcomes: Map<number, StoredOutcome> = new Map();
  readonly #stagedGroups: Map<number, StagedGroup> = new Map();
  /** Jobs of submissions that {@link forceComplete} has ended. */
  readonly #leftJobs: Job[] = [];

  /** @param maxPending number of slots, a power of two (max_pending_cs) */
  constructor(maxPending: number) {
    this.#slots = new Array<Submission | undefined>(maxPending).fill(undefined);
    this.#mask = maxPending - 1;
  }

  /** Address for the completion time of a submission. */
  stampAddress(submission: Submission): number {
    this.#stamps ??= mapAnonymous(this.#slots.length * STAMP_BYTES);
    return this.#stamps.address + (submission.seq & this.#mask) * STAMP_BYTES;
  }

  /** Completion time in nanoseconds of CLOCK_MONOTONIC. */
  timestampNs(submission: Submission): number {
    if (this.#stamps === undefined) return 0;
    return Number(this.#stamps.view.getBigUint64((submission.seq & this.#mask) * STAMP_BYTES, true));
  }

  /** Releases the memory of the table. */
  close(): void {
    this.#stamps?.close();
  }

  /** Whether there are incomplete submissions, even if their waits have ended: they keep the context in use. */
  get hasActive(): boolean {
    this.retire();
    return this.oldest < this.nextSeq || this.#leftJobs.some((job) => !job.done);
  }

  /** Opens the next submission. Requires {@link hasFreeSlot}, because an older one would lose its slot. */
  open(flags: number, timeoutSeconds: number): Submission {
    const index = this.nextSeq & this.#mask;
    let slot = this.#slots[index];
    if (slot === undefined) {
      slot = new Submission();
      this.#slots[index] = slot;
    } else this.#remember(slot);
    slot.begin(this.nextSeq, flags, timeoutSeconds);
    // A rejected submission has time 0.
    if ((flags & HL_CS_FLAGS.TIMESTAMP) !== 0) this.#stamps?.view.setBigUint64(index * STAMP_BYTES, 0n, true);
    this.nextSeq += 1;
    return slot;
  }

  /** The submission, if it is among the last max_pending_cs ones. */
  find(seq: number): Submission | undefined {
    const slot = this.#slots[seq & this.#mask];
    return slot !== undefined && slot.seq === seq && slot.state !== SubmissionState.FREE ? slot : undefined;
  }

  /** Removes and returns the outcome of a submission before the last max_pending_cs ones: each can be read once. */
  takeOutcome(seq: number): StoredOutcome | undefined {
    const outcome = this.#outcomes.get(seq);
    this.#outcomes.delete(seq);
    return outcome;
  }

  /** Updates the state of a pending submission, and returns it. */
  poll(submission: Submission): SubmissionState {
    if (submission.state !== SubmissionState.PENDING) return submission.state;
    const done = submission.staged === undefined ? submission.jobsDone : submission.staged.done;
    if (done) this.#settle(submission, SubmissionState.COMPLETED);
    return submission.state;
  }

  /** Updates all pending submissions, including those behind an incomplete one. */
  pollAll(): void {
    for (let seq = this.oldest; seq < this.nextSeq; seq++) {
      const submission = this.find(seq);
      if (submission !== undefined) this.poll(submission);
    }
    this.retire();
  }

  /** Whether {@link open} has a free slot: the previous submission in it is complete. */
  get hasFreeSlot(): boolean {
    const slot = this.#slots[this.nextSeq & this.#mask];
    return slot === undefined || slot.state === SubmissionState.FREE || this.poll(slot) !== SubmissionState.PENDING;
  }

  /** Retires complete submissions, oldest first. */
  retire(): void {
    while (this.oldest < this.nextSeq) {
      const submission = this.find(this.oldest);
      if (submission !== undefined && this.poll(submission) === SubmissionState.PENDING) return;
      this.oldest += 1;
    }
  }

  /** The oldest incomplete submission, whose time-out runs. */
  get head(): Submission | undefined {
    this.retire();
    return this.oldest < this.nextSeq ? this.find(this.oldest) : undefined;
  }

  /** Ends all pending submissions: `timedOut` with that state, the others as aborted. */
  abort(timedOut: Submission | undefined): void {
    for (let seq = this.oldest; seq < this.nextSeq; seq++) {
      const submission = this.find(seq);
      if (submission === undefined || this.poll(submission) !== SubmissionState.PENDING) continue;
      this.#settle(submission, submission === timedOut ? SubmissionState.TIMED_OUT : SubmissionState.ABORTED);
    }
    this.oldest = this.nextSeq;
  }

  /** Ends the waits for all pending submissions as aborted; the engines continue (force_complete_cs, Linux 6.12). */
  forceComplete(): void {
    this.retire();
    for (let seq = this.oldest; seq < this.nextSeq; seq++) {
      const submission = this.find(seq);
      if (submission === undefined || this.poll(submission) !== SubmissionState.PENDING) continue;
      this.#leftJobs.push(
        ...submission.jobs.filter((_, i) => i < submission.jobCount && submission.streams[i]!.tracked),
      );
      // It cannot complete, although its jobs may all be done: a job that never ends stands for it.
      if (submission.withheld || submission.staged?.closed === false) this.#leftJobs.push(new Job());
    }
    this.abort(undefined);
  }

  /** Opens a staged submission with its first member. */
  openStaged(first: Submission): StagedGroup {
    const group = new StagedGroup(first.seq);
    this.#stagedGroups.set(first.seq, group);
    return group;
  }

  /** The open staged submission whose first member is `firstSeq`. */
  findStaged(firstSeq: number): StagedGroup | undefined {
    const group = this.#stagedGroups.get(firstSeq);
    return group === undefined || group.closed ? undefined : group;
  }

  #settle(submission: Submission, state: SubmissionState): void {
    submission.state = state;
    if (submission.staged?.closed) this.#stagedGroups.delete(submission.staged.firstSeq);
    let abandons = state !== SubmissionState.COMPLETED;
    for (let i = 0; i < submission.jobCount; i++) {
      const stream = submission.streams[i]!;
      stream.outstanding -= 1;
      if (!stream.tracked) abandons = true;
    }
    if (abandons) submission.abandonJobs();
    const { onEnd } = submission;
    if (onEnd === undefined) return;
    submission.onEnd = undefined;
    onEnd();
  }

  /** Stores the outcome of a submission with a timestamp before it loses its slot. */
  #remember(leaving: Submission): void {
    if ((leaving.flags & HL_CS_FLAGS.TIMESTAMP) === 0 || leaving.state !== SubmissionState.COMPLETED) return;
    this.#outcomes.set(leaving.seq, { timestampNs: this.timestampNs(leaving) });
    if (this.#outcomes.size <= OUTCOMES_MAX) return;
    const eldest = this.#outcomes.keys().next().value;
    if (eldest !== undefined) this.#outcomes.delete(eldest);
  }
}

const NS_PER_S = 1e9;

/**
 * Time-out of the oldest incomplete submission of a card (the TDR of the driver). Time counts only for the oldest submission, from when it is found to be
 * the oldest. The card handles the expiry.
 */
export class TimeoutWatch {
  readonly #clock: Clock;
  readonly #onTimer: () => void;
  #timer: Timer | undefined;
  #timerNs = 0;
  /** Sequence number of the submission whose time runs, and its start; 0 for none. */
  #headSeq = 0;
  #headSinceNs = 0;
  /** Whether it timed out without a reset: the next time-out starts when it has completed (cs_handle_tdr, Linux 6.12). */
  #isOverdue = false;

  /** @param onTimer called when {@link expired} must be checked */
  constructor(clock: Clock, onTimer: () => void) {
    this.#clock = clock;
    this.#onTimer = onTimer;
  }

  /** True from the first incomplete submission until a timer finds none. */
  get active(): boolean {
    return this.#timer !== undefined || this.#isOverdue;
  }

  /** Starts to watch the oldest incomplete submission, if there is one. */
  watch(submissions: SubmissionTable): void {
    const { head } = submissions;
    if (head !== undefined) this.#arm(this.#deadlineOf(head));
  }

  /** The oldest incomplete submission if its time has expired, once; otherwise continues to watch. */
  expired(submissions: SubmissionTable): Submission | undefined {
    const { head } = submissions;
    if (head === undefined) {
      this.#isOverdue = false;
      return undefined;
    }
    const deadlineNs = this.#deadlineOf(head);
    if (this.#clock.nowNs() >= deadlineNs) {
      this.#isOverdue = true;
      return head;
    }
    this.#arm(deadlineNs);
    return undefined;
  }

  /** Stops watching. */
  cancel(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#headSeq = 0;
    this.#isOverdue = false;
  }

  #deadlineOf(head: Submission): number {
    if (head.seq !== this.#headSeq) {
      this.#headSeq = head.seq;
      this.#headSinceNs = this.#clock.nowNs();
      this.#isOverdue = false;
    }
    return this.#isOverdue ? Number.POSITIVE_INFINITY : this.#headSinceNs + head.timeoutSeconds * NS_PER_S;
  }

  /** Arms the timer. A pending timer is replaced only if it would fire too late; if it fires too early, it is armed again. */
  #arm(deadlineNs: number): void {
    if (deadlineNs === Number.POSITIVE_INFINITY || (this.#timer !== undefined && this.#timerNs <= deadlineNs)) return;
    this.#timer?.cancel();
    this.#timerNs = deadlineNs;
    this.#timer = this.#clock.setTimer(Math.max(0, deadlineNs - this.#clock.nowNs()), () => {
      this.#timer = undefined;
      this.#onTimer();
    });
  }
}

/** A checked chunk: command buffer and stream. Reused by later submissions. */
export class CheckedChunk {
  stream: Stream;
  /** A driver command buffer; undefined for one that the card fetches from the address in `high` and `low`. */
  memory: PhysicalMemory | undefined = undefined;
  high = 0;
  low = 0;
  byteLength = 0;

  constructor(stream: Stream) {
    this.stream = stream;
  }
}

/** The checked chunks of the current submission. Reused, so that a submission allocates nothing. */
export class ChunkList {
  readonly items: CheckedChunk[] = [];
  length = 0;

  next(stream: Stream): CheckedChunk {
    const item = this.items[this.length] ?? new CheckedChunk(stream);
    item.stream = stream;
    this.items[this.length] = item;
    this.length += 1;
    return item;
  }
}
