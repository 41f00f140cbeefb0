/** What this end may send on a connection without being asked: the sender's account. What the receiver makes of it is in inbound-window.ts. */

import { quarterOf } from '../credit/inbound-window.ts';
import { WorkerCounter, type WorkerCounters } from './worker-counters.ts';

/** Credit of one connection. The protocols read and lower `bytes` when they send. */
export class OutboundCredit {
  bytes = 0;
  #windowBytes = 0;
  #isHeld = false;
  /** Whether the want of it was counted since credit last came. */
  #isCounted = false;

  /** Longest message, with its overhead, that may wait for credit. */
  get waitBytesMax(): number {
    return quarterOf(this.#windowBytes);
  }

  /** The connection stands, and the peer has given this window. */
  open(windowBytes: number): void {
    this.bytes = windowBytes;
    this.#windowBytes = windowBytes;
  }

  /** The peer has told. */
  take(byteLength: number, windowBytes: number, isHeld: boolean): void {
    this.bytes += byteLength;
    this.#windowBytes = windowBytes;
    this.#isHeld = isHeld;
    if (byteLength > 0) this.#isCounted = false;
  }

  /** Whether it may be long until there is credit of this cost: the receiver holds messages, or has never given so much. */
  isLongFor(cost: number): boolean {
    return this.#isHeld || cost > this.waitBytesMax;
  }

  /** True for the first message without credit since some came. */
  isFirstLack(): boolean {
    const isFirst = !this.#isCounted;
    this.#isCounted = true;
    return isFirst;
  }
}

/**
 * Counts a message that there is no credit for.
 * @returns true where it is to be offered, false where it waits: credit is coming as soon as the receiver makes progress
 */
export function lacksCredit(credit: OutboundCredit, cost: number, counters: WorkerCounters): boolean {
  if (credit.isFirstLack()) counters.count(WorkerCounter.TX_NO_CREDIT);
  const isOffered = credit.isLongFor(cost);
  if (isOffered) counters.count(WorkerCounter.TX_NO_CREDIT_RNDV);
  return isOffered;
}
