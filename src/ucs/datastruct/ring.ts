/** A bounded first-in-first-out queue of objects within one process. Allocates nothing after construction. */

import { invalidParam } from '../type/error.ts';

export class Ring<T> {
  /** Maximum number of items in the ring: a power of two. */
  readonly capacity: number;
  readonly #mask: number;
  readonly #items: (T | undefined)[];
  /** Counts of all items ever removed and added; they wrap at 2^32 together. */
  #head: number;
  #tail: number;

  /**
   * @param capacity a power of two up to 2^30
   * @throws UcxError ERR_INVALID_PARAM
   */
  constructor(capacity: number) {
    if (!(Number.isInteger(capacity) && capacity > 0 && capacity <= 2 ** 30 && (capacity & (capacity - 1)) === 0)) {
      throw invalidParam('capacity', 'must be a power of two up to 2^30', capacity);
    }
    this.capacity = capacity;
    this.#mask = capacity - 1;
    this.#items = new Array<T | undefined>(capacity).fill(undefined);
    this.#head = 0;
    this.#tail = 0;
  }

  /** The number of items in the ring. */
  get length(): number {
    return (this.#tail - this.#head) >>> 0;
  }

  get isEmpty(): boolean {
    return this.#tail === this.#head;
  }

  get isFull(): boolean {
    return this.length === this.capacity;
  }

  /** Adds an item at the end; false, with nothing changed, if the ring is full. */
  push(item: T): boolean {
    if (this.length === this.capacity) return false;
    this.#items[this.#tail & this.#mask] = item;
    this.#tail = (this.#tail + 1) | 0;
    return true;
  }

  /** Removes the oldest item; undefined if the ring is empty. */
  shift(): T | undefined {
    if (this.#tail === this.#head) return undefined;
    const slot = this.#head & this.#mask;
    const item = this.#items[slot];
    // A reference in an unused slot would keep the item alive until the slot is used again.
    this.#items[slot] = undefined;
    this.#head = (this.#head + 1) | 0;
    return item;
  }

  /** The oldest item, without removing it; undefined if the ring is empty. */
  peek(): T | undefined {
    return this.#items[this.#head & this.#mask];
  }

  /** The item at `index` counted from the oldest; undefined outside the ring. */
  at(index: number): T | undefined {
    return index >= 0 && index < this.length ? this.#items[(this.#head + index) & this.#mask] : undefined;
  }

  /** Removes all items. */
  clear(): void {
    this.#items.fill(undefined);
    this.#head = this.#tail;
  }
}
