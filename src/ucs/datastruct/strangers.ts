/**
 * Connections of peers that have not shown yet who they are: bounded, in all and for each address that they come from. At a bound the oldest has to go, so that
 * silent ones lock no other out: who has something to say says it at once.
 */

/** The strangers of one listening socket. */
export class Strangers<T extends object> {
  readonly #max: number;
  /** Half of all: one address leaves room for others. */
  readonly #perAddressMax: number;
  /** With their addresses, the oldest first. */
  readonly #all: Map<T, string> = new Map();
  readonly #byAddress: Map<string, Set<T>> = new Map();

  /** @param max strangers at most */
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

  add(stranger: T, address: string): void {
    this.#all.set(stranger, address);
    const known = this.#byAddress.get(address);
    if (known === undefined) this.#byAddress.set(address, new Set([stranger]));
    else known.add(stranger);
  }

  /** One that has gone, or is none any more. */
  delete(stranger: T): void {
    const address = this.#all.get(stranger);
    if (address === undefined) return;
    this.#all.delete(stranger);
    const known = this.#byAddress.get(address)!;
    known.delete(stranger);
    if (known.size === 0) this.#byAddress.delete(address);
  }
}

function firstOf<T>(items: Iterable<T>): T | undefined {
  for (const item of items) return item;
  return undefined;
}
