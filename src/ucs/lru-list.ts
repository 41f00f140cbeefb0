/**
 * A list through its entries, in the order of their last use, with the bytes that they stand for: what the caches of registrations evict from. Which
 * entry may go is the cache's to say.
 */

/** What an entry must have. In one list at most; the links are the list's. */
export interface LruEntry<E> {
  readonly byteLength: number;
  previous: E | undefined;
  next: E | undefined;
}

/** The list. All operations but {@link oldest} are O(1), and none allocates. */
export class LruList<E extends LruEntry<E>> {
  /** The least recently used entry. */
  first: E | undefined = undefined;
  last: E | undefined = undefined;
  count = 0;
  /** The sum of the lengths. */
  byteLength = 0;

  /** Appends an entry that is in no list: it is the most recently used one. */
  add(entry: E): void {
    this.#link(entry);
    this.count++;
    this.byteLength += entry.byteLength;
  }

  /** Removes an entry that is in this list. */
  remove(entry: E): void {
    this.#unlink(entry);
    this.count--;
    this.byteLength -= entry.byteLength;
  }

  /** Makes an entry of this list the most recently used one. */
  touch(entry: E): void {
    if (entry === this.last) return;
    this.#unlink(entry);
    this.#link(entry);
  }

  /** The least recently used entry that may go; undefined when none may. */
  oldest(mayGo: (entry: E) => boolean): E | undefined {
    let entry = this.first;
    while (entry !== undefined && !mayGo(entry)) entry = entry.next;
    return entry;
  }

  #link(entry: E): void {
    entry.previous = this.last;
    entry.next = undefined;
    if (this.last === undefined) this.first = entry;
    else this.last.next = entry;
    this.last = entry;
  }

  #unlink(entry: E): void {
    if (entry.previous === undefined) this.first = entry.next;
    else entry.previous.next = entry.next;
    if (entry.next === undefined) this.last = entry.previous;
    else entry.next.previous = entry.previous;
    entry.previous = undefined;
    entry.next = undefined;
  }
}
