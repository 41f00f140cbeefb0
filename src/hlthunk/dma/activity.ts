/**
 * Instrumentation of one DMA queue: counters for statistics, and events for the subscribers of the diagnostics channels. It only records what the
 * queue reports.
 */

import { commandSubmissionEnd, transferEnd } from '../../ucs/debug/diagnostics.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmaRequest } from './request.ts';

/** The counters of a queue, with their names in statistics. */
export interface DmaCounts {
  /** Number of successful transfers. */
  readonly operations: number;
  /** Bytes that were transferred. */
  readonly bytes: number;
  /** Number of failed transfers. */
  readonly errors: number;
  /** Command submissions. */
  readonly submissions: number;
  /** Number of command submissions that the card has not finished: a level, not a count. */
  readonly in_flight: number;
}

/** Owner and size of the recorded activity. */
export interface DmaActivityOptions {
  readonly device: { readonly name: string; readonly clock: Clock };
  readonly queueIndex: number;
  /** Maximum number of batches in flight of the queue. */
  readonly slots: number;
}

const OPERATIONS = 0;
const BYTES = 1;
const ERRORS = 2;
const SUBMISSIONS = 3;

/** The activity of a queue. */
export class DmaActivity {
  /** An array of Numbers, so that counting never allocates. */
  readonly #counts: Float64Array = new Float64Array(4);
  /** Submission time of the batch in each slot; -1 without observers. */
  readonly #submittedNs: Float64Array;
  readonly #card: string;
  readonly #queue: number;
  readonly #clock: Clock;

  constructor({ device, queueIndex, slots }: DmaActivityOptions) {
    this.#card = device.name;
    this.#queue = queueIndex;
    this.#clock = device.clock;
    this.#submittedNs = new Float64Array(slots).fill(-1);
  }

  /** Records the start of a transfer. */
  started(request: DmaRequest): void {
    request.startNs = transferEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** Records the end of a transfer. */
  ended(request: DmaRequest): void {
    const { status, byteLength, startNs } = request;
    if (status === Status.OK) {
      this.#counts[OPERATIONS]! += 1;
      this.#counts[BYTES]! += byteLength;
    } else {
      this.#counts[ERRORS]! += 1;
    }
    if (startNs < 0) return;
    const endNs = this.#clock.nowNs();
    transferEnd.publish({ card: this.#card, queue: this.#queue, byteLength, status, startNs, endNs });
  }

  /** Records the submission of the batch in a slot. */
  submitted(slot: number): void {
    this.#counts[SUBMISSIONS]! += 1;
    this.#submittedNs[slot] = commandSubmissionEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** Records the completion of the batch in a slot. */
  retired(slot: number, sequence: number): void {
    const startNs = this.#submittedNs[slot]!;
    if (startNs < 0) return;
    const endNs = this.#clock.nowNs();
    commandSubmissionEnd.publish({ card: this.#card, queue: this.#queue, sequence, startNs, endNs });
  }

  /** The counters, together with the given number of submissions in flight. */
  read(inFlight: number): DmaCounts {
    return {
      operations: this.#counts[OPERATIONS]!,
      bytes: this.#counts[BYTES]!,
      errors: this.#counts[ERRORS]!,
      submissions: this.#counts[SUBMISSIONS]!,
      in_flight: inFlight,
    };
  }
}
