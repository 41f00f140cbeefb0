/**
 * The window of a connection at the receiver: bytes that the peer may send before the receiver asks for them. Messages use credit when they arrive, and
 * return it when their memory is free again; a quarter of the window is returned to the peer at once. It sends nothing itself: see credit-messages.ts.
 *
 * A sender that lacks credit waits if credit will arrive soon, and offers its message (RTS) if the receiver holds the messages that have used the
 * credit. It cannot distinguish these cases; so a peer that may lack credit, and will get none soon, is told once that its messages are held.
 */

import type { CreditBudget, Grantee } from './credit-budget.ts';

/** Offers of one connection that are kept until they are matched. More break the protocol: a sender does not offer more before one has ended. */
export const OFFERS_MAX = 8192;

/** A quarter of a window: the credit that is returned at once, and the longest message that may wait for credit. */
export function quarterOf(windowBytes: number): number {
  return windowBytes / 4;
}

/** The window of one connection. */
export class InboundWindow implements Grantee {
  readonly #budget: CreditBudget;
  readonly #sendUpdate: () => boolean;
  #windowBytes: number;
  /** A quarter of the window. */
  #returnBytes: number;
  /** Bytes that the peer may still send, and credit that is free again and not yet returned. Messages hold the rest of the window. */
  #allowed: number;
  #returnable = 0;
  #isHeldSent = false;
  #offers = 0;
  #isBroken = false;
  #isClosed = false;

  /** @param sendUpdate returns the free credit to the peer, now or when there is room; false on a connection that is not established */
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

  /** Credit that is free again and not yet returned to the peer. */
  get returnable(): number {
    return this.#returnable;
  }

  /** Bytes of memory that kept messages occupy. */
  get heldBytes(): number {
    return this.#windowBytes - this.#allowed - this.#returnable;
  }

  /** Whether most of the window is held, not counting the free credit. */
  get isHeld(): boolean {
    return this.#allowed + this.#returnable < this.#windowBytes / 2;
  }

  /** Called when a message has arrived. @returns false if the peer had no credit for it, then and from then on */
  arrive(cost: number): boolean {
    if (cost > this.#allowed || this.#isBroken) {
      this.#isBroken = true;
      return false;
    }
    this.#allowed -= cost;
    return true;
  }

  /** Called when a message that has arrived was kept or released. */
  settle(): void {
    const isLow = this.#allowed < this.#returnBytes;
    if (isLow && !this.#isHeldSent && !this.#isClosed) this.#sendUpdate();
  }

  /** Called when the memory of a message is free again. */
  release(cost: number): void {
    if (this.#isClosed) {
      this.#budget.giveBack(cost);
      return;
    }
    this.#returnable += cost;
    if (this.#returnable >= this.#returnBytes) this.#sendUpdate();
    else this.settle();
  }

  /** Called when the free credit was returned to the peer. */
  updateSent(): void {
    this.#isHeldSent = this.isHeld;
    this.#allowed += this.#returnable;
    this.#returnable = 0;
  }

  /** Counts an offer that is to be kept. @returns false if the peer has too many */
  keepOffer(): boolean {
    if (this.#offers >= OFFERS_MAX || this.#isBroken) {
      this.#isBroken = true;
      return false;
    }
    this.#offers += 1;
    return true;
  }

  /** Called when a kept offer was matched. */
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

  /** Closes the window: the memory of messages that are still kept goes back to the budget when they are released. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#budget.close(this);
    this.#budget.giveBack(this.#windowBytes - this.heldBytes);
  }
}
