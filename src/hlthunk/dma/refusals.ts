/** Rejections of the first waiting batch of a queue by the driver: which are transient, and when they have to end. */

import { Errno } from '../../sys/index.ts';
import { Status } from '../../ucs/type/status.ts';

/** Maximum number of transient rejections of a batch while no batch is in flight whose completion could free resources; then its requests fail. */
export const REFUSALS_MAX = 1024;

/** Whether a rejection is transient: a full queue, a signal, lack of memory. All others fail the batch. */
export function isTransient(result: number): boolean {
  return result === -Errno.EAGAIN || result === -Errno.EINTR || result === -Errno.ENOMEM;
}

/** Whether a rejection means that the open file is lost: the card is not operational (EBUSY), went into reset (EPERM) or was removed (ENODEV). Others reject one submission. */
export function isLoss(result: number): boolean {
  return result === -Errno.EBUSY || result === -Errno.EPERM || result === -Errno.ENODEV;
}

/** The transient rejections of one queue. */
export class Refusals {
  /** Number of requests in the rejected batch. */
  requests = 0;
  #count = 0;
  #result = 0;

  /**
   * Counts a rejection for lack of room, unless room will follow: from batches in flight, or, for EAGAIN, from the driver, which frees its own resources.
   * @param hasFlights whether batches are in flight
   */
  add(result: number, requests: number, hasFlights: boolean): void {
    this.#result = result;
    this.requests = requests;
    if (result === -Errno.EAGAIN || hasFlights) this.#count = 0;
    else this.#count += 1;
  }

  /** Starts again: a batch was accepted or has failed. */
  clear(): void {
    this.#count = 0;
  }

  /** Whether the batch has been rejected too often. */
  get isExhausted(): boolean {
    return this.#count > REFUSALS_MAX;
  }

  /** The status of the requests of a batch that was rejected too often. */
  get status(): Status {
    return this.#result === -Errno.ENOMEM ? Status.NO_MEMORY : Status.IO_ERROR;
  }
}
