/**
 * The time-out of the oldest incomplete submission of a card (the TDR of the driver). Time is counted only for the oldest submission, from the
 * moment at which it is found to be the oldest. The card handles the expiry.
 */

import type { Clock, Timer } from '../../../ucs/sys/clock.ts';
import type { Submission, SubmissionTable } from './submission.ts';

const NS_PER_S = 1e9;

/** The time-out watch of one card. */
export class TimeoutWatch {
  readonly #clock: Clock;
  readonly #onTimer: () => void;
  #timer: Timer | undefined;
  #timerNs = 0;
  /** The submission whose time runs, and its start; 0 for none. */
  #headSeq = 0;
  #headSinceNs = 0;
  /** The head has timed out without a reset: the next time-out runs when it has completed (cs_handle_tdr, Linux 6.12). */
  #isOverdue = false;

  /** @param onTimer called when {@link expired} has to be checked */
  constructor(clock: Clock, onTimer: () => void) {
    this.#clock = clock;
    this.#onTimer = onTimer;
  }

  /** True from the first incomplete submission on, until a timer finds none. */
  get active(): boolean {
    return this.#timer !== undefined || this.#isOverdue;
  }

  /** Starts to watch the oldest incomplete submission, if there is one. */
  watch(submissions: SubmissionTable): void {
    const { head } = submissions;
    if (head !== undefined) this.#arm(this.#deadlineOf(head));
  }

  /** The oldest incomplete submission if its time has expired, once; otherwise the watch continues. */
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

  /** Arms the timer. A pending timer is replaced only if it would fire too late; one that fires too early is armed again then. */
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
