/**
 * What a peer may send on one connection without being asked: the receiver's account of it. Messages use it up when they arrive, and give it back when their
 * memory is free again; the peer is told of a quarter of the window at once. It sends nothing itself: see credit-messages.ts.
 *
 * A sender that lacks credit waits if it may hope for it, and offers its message (RTS) where the receiver holds what the credit was for. It
 * cannot know which; so a peer that may lack credit and has none to expect is told, once, that its messages are held.
 */

import type { CreditBudget, Grantee } from './credit-budget.ts';

/** Offers of one connection that are kept until they are matched. More break the protocol: a sender does not offer more before one has ended. */
export const OFFERS_MAX = 8192;

/** A quarter of a window: what is returned at once, and the longest message that may wait for credit. */
export function quarterOf(windowBytes: number): number {
  return windowBytes / 4;
}

/** The window of one connection. */
export class InboundWindow implements Grantee {
  readonly #budget: CreditBudget;
  readonly #sendUpdate: () => boolean;
  #windowBytes: number;
  /** A quarter of it. */
  #returnBytes: number;
  /** What the peer may still send, and credit that is free again and not yet returned. The rest of the window is held. */
  #allowed: number;
  #returnable = 0;
  #isHeldSent = false;
  #offers = 0;
  #isBroken = false;
  #isClosed = false;

  /** @param sendUpdate returns the free credit to the peer, now or when there is room; false on a connection that does not stand */
  constructor(budget: CreditBudget, sendUpdate: () => boolean) {
    this.#budget = budget;
    this.#sendUpdate = sendUpdate;
    this.#windowBytes = budget.open(this);
    this.#returnBytes = quarterOf(this.#windowBytes);
    this.#allowed = this.#windowBytes;
  }

  get windowBytes(): number {
    return this.#windowBytes;
  }

  /** Credit that is free again, and that the peer does not know of. */
  get returnable(): number {
    return this.#returnable;
  }

  /** Bytes that messages take which are kept. */
  get heldBytes(): number {
    return this.#windowBytes - this.#allowed - this.#returnable;
  }

  /** Whether most of the window is held, not counting the free credit. */
  get isHeld(): boolean {
    return this.#allowed + this.#returnable < this.#windowBytes / 2;
  }

  /** A message has arrived. @returns false where the peer had no credit for it, then and from then on */
  arrive(cost: number): boolean {
    if (cost > this.#allowed || this.#isBroken) {
      this.#isBroken = true;
      return false;
    }
    this.#allowed -= cost;
    return true;
  }

  /** A message that has arrived was dealt with: kept, or released. */
  settle(): void {
    const isLow = this.#allowed < this.#returnBytes;
    if (isLow && !this.#isHeldSent && !this.#isClosed) this.#sendUpdate();
  }

  /** The memory of a message is free again. */
  release(cost: number): void {
    if (this.#isClosed) {
      this.#budget.giveBack(cost);
      return;
    }
    this.#returnable += cost;
    if (this.#returnable >= this.#returnBytes) this.#sendUpdate();
    else this.settle();
  }

  /** The free credit was returned to the peer. */
  updateSent(): void {
    this.#isHeldSent = this.isHeld;
    this.#allowed += this.#returnable;
    this.#returnable = 0;
  }

  /** An offer is to be kept. @returns false where the peer has too many */
  keepOffer(): boolean {
    if (this.#offers >= OFFERS_MAX || this.#isBroken) {
      this.#isBroken = true;
      return false;
    }
    this.#offers += 1;
    return true;
  }

  /** An offer was taken. */
  releaseOffer(): void {
    this.#offers -= 1;
  }

  grant(byteLength: number): boolean {
    this.#windowBytes += byteLength;
    this.#returnable += byteLength;
    const isSent = this.#sendUpdate();
    if (!isSent) {
      this.#windowBytes -= byteLength;
      this.#returnable -= byteLength;
    }
    this.#returnBytes = quarterOf(this.#windowBytes);
    return isSent;
  }

  /** The connection is closed: what messages still take goes back to the budget with them. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#budget.close(this);
    this.#budget.giveBack(this.#windowBytes - this.heldBytes);
  }
}
