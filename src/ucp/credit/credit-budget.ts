/**
 * The memory of one worker for messages that arrive before the receiver asks for them (UCX_UNEXP_MAX_BYTES), and its division between connections. The
 * part of one connection is managed in inbound-window.ts.
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

/** A window that got no memory, and takes some when there is some again. */
export interface Grantee {
  /** @returns false if it takes none now */
  grant(byteLength: number): boolean;
}

/** The budget of one worker. */
export class CreditBudget {
  readonly #limitBytes: number;
  #leftBytes: number;
  #connections = 0;
  readonly #without: Set<Grantee> = new Set();

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
  open(grantee: Grantee): number {
    const byteLength = this.#next();
    this.#connections += 1;
    if (byteLength === 0) this.#without.add(grantee);
    this.#leftBytes -= byteLength;
    return byteLength;
  }

  /** Called when a connection is closed. */
  close(grantee: Grantee): void {
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
