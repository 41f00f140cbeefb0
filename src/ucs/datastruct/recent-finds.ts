/**
 * A cache of recent lookups in a large interval map, by the page of the address, like the TLB of a processor. The bounds are in one typed array, so that a
 * lookup touches two cache lines.
 */

const SETS_BITS = 12;
const SETS: number = 2 ** SETS_BITS;
/** Two, so that two pages that map to one set do not evict each other. */
const WAYS = 2;
const WORDS_PER_SET: number = 2 * WAYS;
const PAGE = 4096;
const PER_PAGE: number = 1 / PAGE;
/** Spreads neighbouring pages: 2^32 divided by the golden ratio. */
const SPREAD = 0x9e3779b1;
/** Removing an interval of more pages than this clears the table. */
const FORGET_PAGES_MAX = 64;

/** An interval of the map. */
interface Found<V> {
  readonly start: number;
  readonly end: number;
  readonly value: V;
}

/** The table of recent finds. */
export class RecentFinds<V> {
  /** Start and end of both ways of every set; an unused way has an empty interval. */
  readonly #bounds: Float64Array = new Float64Array(SETS * WORDS_PER_SET);
  readonly #values: (V | undefined)[] = new Array<V | undefined>(SETS * WAYS).fill(undefined);

  /** The value of a recent find that contains all of [start, end); undefined if there is none. */
  covering(start: number, end: number): V | undefined {
    const set = setOf(start);
    const bounds = this.#bounds;
    const at = set * WORDS_PER_SET;
    if (start >= bounds[at]! && end <= bounds[at + 1]!) return this.#values[set * WAYS];
    if (start >= bounds[at + 2]! && end <= bounds[at + 3]!) return this.#values[set * WAYS + 1];
    return undefined;
  }

  /** Records the interval found for `address`. It replaces the older entry of its set. */
  note(address: number, found: Found<V>): void {
    const set = setOf(address);
    const bounds = this.#bounds;
    const values = this.#values;
    const at = set * WORDS_PER_SET;
    bounds[at + 2] = bounds[at]!;
    bounds[at + 3] = bounds[at + 1]!;
    values[set * WAYS + 1] = values[set * WAYS];
    bounds[at] = found.start;
    bounds[at + 1] = found.end;
    values[set * WAYS] = found.value;
  }

  /** Removes an interval; must be called when the map removes it. */
  forget({ start, end }: Found<V>): void {
    const first = start - (start % PAGE);
    if ((end - first) * PER_PAGE > FORGET_PAGES_MAX) {
      this.#bounds.fill(0);
      this.#values.fill(undefined);
      return;
    }
    for (let page = first; page < end; page += PAGE) {
      const set = setOf(page);
      for (let way = 0; way < WAYS; way++) {
        const at = set * WORDS_PER_SET + way * 2;
        if (this.#bounds[at] !== start) continue;
        this.#bounds[at] = 0;
        this.#bounds[at + 1] = 0;
        this.#values[set * WAYS + way] = undefined;
      }
    }
  }
}

function setOf(address: number): number {
  return Math.imul(address * PER_PAGE, SPREAD) >>> (32 - SETS_BITS);
}
