/**
 * The window of a connection at the receiver: bytes that the peer may send before the receiver requests them. Messages use credit when they arrive, and
 * return it when their memory is free again; a quarter of the window is returned to the peer at once.
 *
 * A sender that lacks credit waits if credit will arrive soon, and offers its message (RTS) if the receiver holds the messages that have used the
 * credit. It cannot distinguish these cases; so a peer that may lack credit, and will get none soon, is notified once that its messages are held.
 */

/** Offers of one connection that are kept until they are matched. More break the protocol: a sender does not offer more before one has ended. */
export const OFFERS_MAX = 8192;

/** A quarter of a window: the credit that is returned at once, and the longest message that may wait for credit. */
function quarterOf(windowBytes: number): number {
  return windowBytes / 4;
}

/** The window of one connection. */
export class InboundWindow {
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

/*
 * The memory of one worker for messages that arrive before the receiver asks for them (UCX_UNEXP_MAX_BYTES), and its division between connections.
 */
/** Memory of a kept message besides its bytes: objects, list links and the headers of its buffer. */
export const KEPT_OVERHEAD_BYTES = 256;
/** Smallest window, as long as the budget has that much. */
export const WINDOW_BYTES_MIN = 32_768;
/** The first connection gets this part of the budget. */
const FIRST_SHARE = 64;
/** With this number of connections, a further one gets half of that share, with twice as many a third: a thousand connections get a window each. */
const HALVING_CONNECTIONS = 12;
/** Largest budget: the two words of a window in a message can hold it. */
const BUDGET_BYTES_MAX: number = 2 ** 50;

/** The budget of one worker. */
export class CreditBudget {
  readonly #limitBytes: number;
  #leftBytes: number;
  #connections = 0;
  readonly #without: Set<InboundWindow> = new Set();

  /** @param limitBytes UCX_UNEXP_MAX_BYTES; Infinity for no bound */
  constructor(limitBytes: number) {
    this.#limitBytes = Math.min(limitBytes, BUDGET_BYTES_MAX);
    this.#leftBytes = this.#limitBytes;
  }

  /** Bytes that windows have, and that messages of closed connections still take. */
  get grantedBytes(): number {
    return this.#limitBytes - this.#leftBytes;
  }

  /** The window of a new connection: 0 where the budget is spent; it is granted one when there is memory again. */
  open(grantee: InboundWindow): number {
    const byteLength = this.#next();
    this.#connections += 1;
    if (byteLength === 0) this.#without.add(grantee);
    this.#leftBytes -= byteLength;
    return byteLength;
  }

  /** Called when a connection is closed. */
  close(grantee: InboundWindow): void {
    this.#without.delete(grantee);
    this.#connections -= 1;
  }

  /** Takes memory back, and gives it to connections that have none, the oldest first. */
  giveBack(byteLength: number): void {
    this.#leftBytes += byteLength;
    for (const grantee of this.#without) {
      const bytes = this.#next();
      if (bytes === 0) return;
      if (!grantee.grant(bytes)) continue;
      this.#without.delete(grantee);
      this.#leftBytes -= bytes;
    }
  }

  /** Bytes of the next window; 0 if less than half of the smallest window is left. */
  #next(): number {
    const least = Math.min(WINDOW_BYTES_MIN, this.#limitBytes);
    if (this.#leftBytes < least / 2) return 0;
    const share = this.#limitBytes / FIRST_SHARE / (1 + this.#connections / HALVING_CONNECTIONS);
    return Math.min(this.#leftBytes, Math.max(WINDOW_BYTES_MIN, Math.floor(share)));
  }
}

/*
 * The credit of a connection at the sender: bytes that it may send before the receiver asks for them.
 */

/** Credit of one connection. The protocols read and lower `bytes` when they send. */
export class OutboundCredit {
  bytes = 0;
  #windowBytes = 0;
  #isHeld = false;
  /** Whether a lack of credit was counted since credit last arrived. */
  #isCounted = false;

  /** Longest message, with its overhead, that may wait for credit. */
  get waitBytesMax(): number {
    return quarterOf(this.#windowBytes);
  }

  /** Called when the connection is established, with the window that the peer grants. */
  open(windowBytes: number): void {
    this.bytes = windowBytes;
    this.#windowBytes = windowBytes;
  }

  /** Called for a CREDIT message of the peer. */
  take(byteLength: number, windowBytes: number, isHeld: boolean): void {
    this.bytes += byteLength;
    this.#windowBytes = windowBytes;
    this.#isHeld = isHeld;
    if (byteLength > 0) this.#isCounted = false;
  }

  /** Whether credit for this cost may take long to arrive: the receiver holds messages, or the cost exceeds {@link waitBytesMax}. */
  isLongFor(cost: number): boolean {
    return this.#isHeld || cost > this.waitBytesMax;
  }

  /** True for the first message that lacks credit since credit last arrived. */
  isFirstLack(): boolean {
    const isFirst = !this.#isCounted;
    this.#isCounted = true;
    return isFirst;
  }
}
