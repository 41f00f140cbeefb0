/**
 * Entries in the order of their last use, with the bytes that they stand for: what the caches of registrations evict from. Which entry may go is the
 * cache's to say. The links are numbers in one array: a use of an entry touches no other entry, and stores no reference that the garbage
 * collector would have to look at.
 */

/** What an entry must have. In one list at most. */
export interface LruEntry {
  readonly byteLength: number;
  /** Place in the list; the list's. */
  slot: number;
}

const INITIAL_SLOTS = 16;
/** The slot in front of the first entry and behind the last. */
const ENDS = 0;

/** The list. */
export class LruList<E extends LruEntry> {
  /** Of every slot the previous and the next one. */
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

  /** The entry that was used after this one, next. */
  after(entry: E): E | undefined {
    return this.#entries[this.#links[2 * entry.slot + 1]!];
  }

  /** Appends an entry that is in no list: it is the most recently used one. */
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

  /** The least recently used entry that may go; undefined when none may. */
  oldest(mayGo: (entry: E) => boolean): E | undefined {
    let entry = this.first;
    while (entry !== undefined && !mayGo(entry)) entry = this.after(entry);
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
