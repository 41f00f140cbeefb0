/**
 * A pool of reusable objects with a fixed bound: what the hot path takes instead of `new`. Not a memory pool: it hands out
 * objects, and whoever takes one resets its fields.
 */

import { invalidParam, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** Hands out at most `capacity` objects of one shape; objects are made when first needed and kept for ever. */
export class ObjectPool<T> {
  /** The bound: the most objects that can be in use at once. */
  readonly capacity: number;
  readonly #create: (index: number) => T;
  /** Objects that are free, as a stack: the last one put is the warmest in the caches. */
  readonly #free: T[];
  #freeCount: number;
  #created: number;

  /**
   * @param capacity positive number of objects
   * @param create makes one object; `index` counts from 0 and is unique in the pool
   * @param preallocated how many to make now instead of at first need
   */
  constructor(capacity: number, create: (index: number) => T, preallocated = 0) {
    if (!(Number.isSafeInteger(capacity) && capacity > 0)) {
      throw invalidParam('capacity', 'must be a positive integer', capacity);
    }
    if (!(Number.isSafeInteger(preallocated) && preallocated >= 0 && preallocated <= capacity)) {
      throw invalidParam('preallocated', `must be an integer from 0 to ${capacity}`, preallocated);
    }
    this.capacity = capacity;
    this.#create = create;
    this.#free = [];
    this.#freeCount = 0;
    this.#created = 0;
    for (let i = 0; i < preallocated; i++) this.#free.push(create(i));
    this.#freeCount = preallocated;
    this.#created = preallocated;
  }

  /** Objects taken and not yet put back. */
  get inUse(): number {
    return this.#created - this.#freeCount;
  }

  /** Objects made so far. */
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
   * @throws UcxError ERR_POOL_OVERFLOW when more objects come back than were taken
   */
  put(item: T): void {
    if (this.#freeCount >= this.#created) throw overflow(this.capacity);
    this.#free[this.#freeCount++] = item;
  }

  #grow(): T {
    const item = this.#create(this.#created);
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
