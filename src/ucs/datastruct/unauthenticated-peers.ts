/**
 * Connections of unauthenticated peers, bounded in total and per address. At a bound the oldest is evicted, so that silent connections cannot lock out other
 * peers, which authenticate at once.
 */

/** The unauthenticated peers of one listening socket. */
export class UnauthenticatedPeers<T extends object> {
  readonly #max: number;
  /** Half of the total, so that one address cannot take all places. */
  readonly #perAddressMax: number;
  /** With their addresses, oldest first. */
  readonly #all: Map<T, string> = new Map();
  readonly #byAddress: Map<string, Set<T>> = new Map();

  /** @param max maximum number of unauthenticated peers */
  constructor(max: number) {
    this.#max = max;
    this.#perAddressMax = Math.ceil(max / 2);
  }

  get size(): number {
    return this.#all.size;
  }

  /** The peer to evict before one more from this address is added; undefined if the bounds allow one more. Call again until it is undefined. */
  excess(address: string): T | undefined {
    const known = this.#byAddress.get(address);
    if (known !== undefined && known.size >= this.#perAddressMax) return firstOf(known);
    return this.#all.size >= this.#max ? firstOf(this.#all.keys()) : undefined;
  }

  add(unauthenticatedPeer: T, address: string): void {
    this.#all.set(unauthenticatedPeer, address);
    const known = this.#byAddress.get(address);
    if (known === undefined) this.#byAddress.set(address, new Set([unauthenticatedPeer]));
    else known.add(unauthenticatedPeer);
  }

  delete(unauthenticatedPeer: T): void {
    const address = this.#all.get(unauthenticatedPeer);
    if (address === undefined) return;
    this.#all.delete(unauthenticatedPeer);
    const known = this.#byAddress.get(address);
    known?.delete(unauthenticatedPeer);
    if (known?.size === 0) this.#byAddress.delete(address);
  }
}

function firstOf<T>(items: Iterable<T>): T | undefined {
  for (const item of items) return item;
  return undefined;
}
