/**
 * What one DMA queue does, for those who look on: counters for statistics, and events for the subscribers of the diagnostics channels. The queue
 * tells; nothing here decides anything.
 */

import { commandSubmissionEnd, transferEnd } from '../../ucs/debug/diagnostics.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmaRequest } from './request.ts';

/** The counters of a queue, under the names that statistics show. */
export interface DmaCounts {
  /** Transfers that have ended well, and their bytes. */
  readonly operations: number;
  /** Bytes that were transferred. */
  readonly bytes: number;
  /** Transfers that have ended with a failure. */
  readonly errors: number;
  /** Command submissions. */
  readonly submissions: number;
  /** Command submissions that the card has not finished: a level. */
  readonly in_flight: number;
}

/** Whose activity it is. */
export interface DmaActivityOptions {
  readonly device: { readonly name: string; readonly clock: Clock };
  readonly queueIndex: number;
  /** Batches in flight of the queue. */
  readonly slots: number;
}

const OPERATIONS = 0;
const BYTES = 1;
const ERRORS = 2;
const SUBMISSIONS = 3;

/** The activity of a queue. */
export class DmaActivity {
  /** Lies in an array of Numbers, so that counting never allocates. */
  readonly #counts: Float64Array = new Float64Array(4);
  /** When the batch of each slot was submitted; -1 without observers. */
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

  /** A transfer has been taken. */
  started(request: DmaRequest): void {
    request.startNs = transferEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** A transfer has ended. */
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

  /** The driver has taken the batch of a slot. */
  submitted(slot: number): void {
    this.#counts[SUBMISSIONS]! += 1;
    this.#submittedNs[slot] = commandSubmissionEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** The card has finished the batch of a slot. */
  retired(slot: number, sequence: number): void {
    const startNs = this.#submittedNs[slot]!;
    if (startNs < 0) return;
    const endNs = this.#clock.nowNs();
    commandSubmissionEnd.publish({ card: this.#card, queue: this.#queue, sequence, startNs, endNs });
  }

  /** The counters, beside the submissions that are in flight now. */
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
