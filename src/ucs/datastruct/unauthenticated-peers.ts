/**
 * Connections of peers that have not shown yet who they are: bounded, in all and for each address that they come from. At a bound the oldest has to go, so that
 * silent ones lock no other out: who has something to say says it at once.
 */

/** The unauthenticated peers of one listening socket. */
export class UnauthenticatedPeers<T extends object> {
  readonly #max: number;
  /** Half of all: one address leaves room for others. */
  readonly #perAddressMax: number;
  /** With their addresses, the oldest first. */
  readonly #all: Map<T, string> = new Map();
  readonly #byAddress: Map<string, Set<T>> = new Map();

  /** @param max unauthenticated peers at most */
  constructor(max: number) {
    this.#max = max;
    this.#perAddressMax = Math.ceil(max / 2);
  }

  get size(): number {
    return this.#all.size;
  }

  /** Who has to go before one more of this address is taken; undefined while there is room. Ask again until there is. */
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

  /** One that has gone, or is none any more. */
  delete(unauthenticatedPeer: T): void {
    const address = this.#all.get(unauthenticatedPeer);
    if (address === undefined) return;
    this.#all.delete(unauthenticatedPeer);
    const known = this.#byAddress.get(address)!;
    known.delete(unauthenticatedPeer);
    if (known.size === 0) this.#byAddress.delete(address);
  }
}

function firstOf<T>(items: Iterable<T>): T | undefined {
  for (const item of items) return item;
  return undefined;
}
