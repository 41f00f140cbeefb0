/**
 * A pool of reusable objects with a fixed bound, which the hot path uses instead of `new`. It is not a memory pool, and it does not reset the fields
 * of
 * an object: the caller of `get` does.
 */

import { invalidParam, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** A pool of at most `capacity` objects of one shape; objects are created at first need and kept. */
export class ObjectPool<T> {
  /** The most objects that can be in use at once. */
  readonly capacity: number;
  readonly #create: (index: number) => T;
  /** Free objects as a stack, because the last one put is most likely still in the processor's caches. */
  readonly #free: T[];
  #freeCount: number;
  #created: number;

  /**
   * @param capacity positive number of objects
   * @param create creates one object; `index` counts from 0 and is unique in the pool
   * @param preallocated number of objects to create now instead of at first need
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

  /** Objects taken and not yet returned. */
  get inUse(): number {
    return this.#created - this.#freeCount;
  }

  /** Objects created so far. */
  get created(): number {
    return this.#created;
  }

  /** Takes an object; undefined if all are in use, which the caller reports as NO_RESOURCE. */
  get(): T | undefined {
    if (this.#freeCount > 0) return this.#free[--this.#freeCount];
    return this.#created < this.capacity ? this.#grow() : undefined;
  }

  /**
   * Returns an object. It must come from this pool and must not be used afterwards; the caller clears its own reference.
   * @throws UcxError ERR_POOL_OVERFLOW if more objects are returned than were taken
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
