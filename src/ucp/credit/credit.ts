/**
 * The window of a connection at the receiver: bytes that the peer may send before the receiver requests them. Messages use credit when they arrive, and
 * return it when their memory is free again; free credit is returned to the peer in portions of a quarter of the window.
 *
 * A sender that lacks credit waits if credit will arrive soon, and offers its message (RTS) if the receiver holds the messages that have used the credit. It
 * cannot distinguish these cases. So if held messages use most of the window, the receiver tells the peer, once, that it will get no credit soon.
 */

/** Maximum number of kept offers of one connection. More violate the protocol: a sender waits until one has ended. */
export const OFFERS_MAX = 8192;

/** A quarter of a window: the credit that is returned at once, and the longest message that may wait for credit. */
function quarterOf(windowBytes: number): number {
  return windowBytes / 4;
}

export class InboundWindow {
  readonly #budget: CreditBudget;
  readonly #sendUpdate: () => boolean;
  #windowBytes: number;
  /** A quarter of the window. */
  #returnBytes: number;
  /** Bytes that the peer may still send, and free credit that was not returned yet. Messages hold the rest of the window. */
  #allowed: number;
  #returnable = 0;
  #isHeldSent = false;
  #offers = 0;
  #isBroken = false;
  #isClosed = false;

  /** @param sendUpdate returns the free credit to the peer, now or when there are resources; false on a connection that is not established */
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

  /** Free credit that was not returned to the peer yet. */
  get returnable(): number {
    return this.#returnable;
  }

  /** Bytes of memory that kept messages occupy. */
  get heldBytes(): number {
    return this.#windowBytes - this.#allowed - this.#returnable;
  }

  /** True if kept messages hold most of the window. */
  get isHeld(): boolean {
    return this.#allowed + this.#returnable < this.#windowBytes / 2;
  }

  /** Called when a message has arrived. @returns false if the peer had no credit for it, for this message and all later ones */
  arrive(cost: number): boolean {
    if (cost > this.#allowed || this.#isBroken) {
      this.#isBroken = true;
      return false;
    }
    this.#allowed -= cost;
    return true;
  }

  /** Called when it is decided whether an arrived message is kept or released. */
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

  /** Counts an offer that is kept. @returns false if the peer has too many */
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

  /** Closes the window: memory of kept messages returns to the budget when they are released. Idempotent. */
  close(): void {
    if (this.#isClosed) return;
    this.#isClosed = true;
    this.#budget.close(this);
    this.#budget.giveBack(this.#windowBytes - this.heldBytes);
  }
}

/* The memory of one worker for messages that arrive before they are received (UCX_UNEXP_MAX_BYTES), and its division between connections. */
/** Memory of a kept message besides its data: objects, list links and buffer headers. */
export const KEPT_OVERHEAD_BYTES = 256;
/** Smallest window, as long as the budget has enough memory. */
export const WINDOW_BYTES_MIN = 32_768;
/** Divisor of the budget for the window of the first connection. */
const FIRST_SHARE = 64;
/** With this number of connections, a new one gets half of that share, with twice as many a third: a thousand connections get a window each. */
const HALVING_CONNECTIONS = 12;
/** Largest budget: a window has to fit into two words of a message. */
const BUDGET_BYTES_MAX: number = 2 ** 50;

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

  /** Memory of open windows, and of messages of closed connections that are still kept. */
  get grantedBytes(): number {
    return this.#limitBytes - this.#leftBytes;
  }

  /** The window of a new connection: 0 if the budget is exhausted; the connection is granted a window when memory is free again. */
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

  /** Returns memory to the budget, and grants windows to connections without one, the oldest first. */
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

  /** Size of the next window; 0 if less than half of the smallest window is left. */
  #next(): number {
    const least = Math.min(WINDOW_BYTES_MIN, this.#limitBytes);
    if (this.#leftBytes < least / 2) return 0;
    const share = this.#limitBytes / FIRST_SHARE / (1 + this.#connections / HALVING_CONNECTIONS);
    return Math.min(this.#leftBytes, Math.max(WINDOW_BYTES_MIN, Math.floor(share)));
  }
}

/* The credit of a connection at the sender: bytes that it may send before the receiver requests them. */

/** Credit of one connection. Protocols read `bytes`, and lower it when they send. */
export class OutboundCredit {
  bytes = 0;
  #windowBytes = 0;
  #isHeld = false;
  /** True if a lack of credit was counted since credit last arrived. */
  #isCounted = false;

  /** Longest message, including overhead, that may wait for credit. */
  get waitBytesMax(): number {
    return quarterOf(this.#windowBytes);
  }

  /** Called when the connection is established, with the window granted by the peer. */
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

  /** True if credit for this cost may take long to arrive: the receiver holds messages, or the cost exceeds {@link waitBytesMax}. */
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
