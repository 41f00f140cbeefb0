/** The credit of a connection at the sender: bytes that it may send before the receiver asks for them. The receiver's side is in inbound-window.ts. */

import { quarterOf } from './inbound-window.ts';

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
