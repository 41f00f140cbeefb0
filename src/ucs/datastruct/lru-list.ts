/**
 * Entries in the order of their last use, with the sum of their sizes, for the eviction of registration caches. The links are indices in one array: using an
 * entry touches no other entry and stores no reference for the garbage collector to trace.
 */

/** Fields that an entry must have. An entry is in at most one list. */
export interface LruEntry {
  readonly byteLength: number;
  /** Index in the list; managed by the list. */
  slot: number;
}

const INITIAL_SLOTS = 16;
/** The slot before the first entry and after the last. */
const ENDS = 0;

/** A list in the order of last use. */
export class LruList<E extends LruEntry> {
  /** For every slot the previous and the next one. */
  #links: Int32Array = new Int32Array(2 * INITIAL_SLOTS);
  readonly #entries: (E | undefined)[] = [undefined];
  readonly #freeSlots: number[] = [];
  #count = 0;
  #byteLength = 0;

  get count(): number {
    return this.#count;
  }

  /** The sum of the lengths. */
  get byteLength(): number {
    return this.#byteLength;
  }

  /** The least recently used entry. */
  get first(): E | undefined {
    return this.#entries[this.#links[2 * ENDS + 1]!];
  }

  /** The entry after this one in the order of use. */
  after(entry: E): E | undefined {
    return this.#entries[this.#links[2 * entry.slot + 1]!];
  }

  /** Appends an entry that is in no list as the most recently used one. */
  add(entry: E): void {
    const slot = this.#freeSlots.pop() ?? this.#entries.length;
    entry.slot = slot;
    this.#entries[slot] = entry;
    if (2 * slot >= this.#links.length) this.#grow();
    this.#link(slot);
    this.#count++;
    this.#byteLength += entry.byteLength;
  }

  /** Removes an entry that is in this list. */
  remove(entry: E): void {
    const { slot } = entry;
    this.#unlink(slot);
    this.#entries[slot] = undefined;
    this.#freeSlots.push(slot);
    this.#count--;
    this.#byteLength -= entry.byteLength;
  }

  /** Makes an entry of this list the most recently used one. */
  touch({ slot }: E): void {
    if (slot === this.#links[2 * ENDS]) return;
    this.#unlink(slot);
    this.#link(slot);
  }

  /** The least recently used entry for which `isEvictable` is true; undefined if there is none. */
  oldest(isEvictable: (entry: E) => boolean): E | undefined {
    let entry = this.first;
    while (entry !== undefined && !isEvictable(entry)) entry = this.after(entry);
    return entry;
  }

  #link(slot: number): void {
    const links = this.#links;
    const last = links[2 * ENDS]!;
    links[2 * slot] = last;
    links[2 * slot + 1] = ENDS;
    links[2 * last + 1] = slot;
    links[2 * ENDS] = slot;
  }

  #unlink(slot: number): void {
    const links = this.#links;
    const previous = links[2 * slot]!;
    const next = links[2 * slot + 1]!;
    links[2 * previous + 1] = next;
    links[2 * next] = previous;
  }

  #grow(): void {
    const links = new Int32Array(2 * this.#links.length);
    links.set(this.#links);
    this.#links = links;
  }
}
