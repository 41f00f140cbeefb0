/**
 * A pool of reusable objects with a fixed bound: what the hot path takes instead of `new`. Not a memory pool: it hands out
 * objects, and whoever takes one resets its fields.
 */

import { invalidParam, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** Objects that are kept for the next operations: more of them were needed once, and are left to the garbage collector. */
export const OBJECTS_KEPT_MAX = 4096;

/** Hands out at most `capacity` objects of one shape; objects are made when first needed, and up to {@link OBJECTS_KEPT_MAX} free ones are kept. */
export class ObjectPool<T> {
  /** The bound: the most objects that can be in use at once. */
  readonly capacity: number;
  readonly #create: () => T;
  /** Objects that are free, as a stack: the last one put is the warmest in the caches. */
  readonly #free: T[];
  #freeCount: number;
  #created: number;

  /**
   * @param capacity positive number of objects
   * @param create makes one object
   */
  constructor(capacity: number, create: () => T) {
    if (!(Number.isSafeInteger(capacity) && capacity > 0)) {
      throw invalidParam('capacity', 'must be a positive integer', capacity);
    }
    this.capacity = capacity;
    this.#create = create;
    this.#free = [];
    this.#freeCount = 0;
    this.#created = 0;
  }

  /** Objects taken and not yet put back. */
  get inUse(): number {
    return this.#created - this.#freeCount;
  }

  /** Objects that it has: in use, or kept. */
  get created(): number {
    return this.#created;
  }

  /** Takes an object; undefined at the bound, which is NO_RESOURCE for the caller. */
  get(): T | undefined {
    if (this.#freeCount > 0) return this.#free[--this.#freeCount];
    return this.#created < this.capacity ? this.#grow() : undefined;
  }

  /**
   * Gives an object back. It must come from this pool and must not be used afterwards; its slot is the caller's to clear.
   * @returns false if the pool does not keep it
   * @throws UcxError ERR_POOL_OVERFLOW when more objects come back than were taken
   */
  put(item: T): boolean {
    if (this.#freeCount >= this.#created) throw overflow(this.capacity);
    if (this.#freeCount >= OBJECTS_KEPT_MAX) {
      this.#created--;
      return false;
    }
    this.#free[this.#freeCount++] = item;
    return true;
  }

  #grow(): T {
    const item = this.#create();
    this.#created++;
    return item;
  }
}

function overflow(capacity: number): UcxError {
  return new UcxError({
    code: 'ERR_POOL_OVERFLOW',
    status: Status.INVALID_PARAM,
    message: 'object put into a pool from which no object is taken',
    details: { capacity },
  });
}
