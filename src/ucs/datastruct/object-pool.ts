/** A bounded pool of reusable objects, used on the hot path instead of `new`. The caller of `get` resets the fields of an object. */

import { invalidParam, UcxError } from '../type/error.ts';
import { Status } from '../type/status.ts';

/** Maximum number of free objects that are kept for reuse; the garbage collector takes the others. */
export const OBJECTS_KEPT_MAX = 4096;

/** A pool of at most `capacity` objects of one shape; objects are created at first need, and up to {@link OBJECTS_KEPT_MAX} free ones are kept. */
export class ObjectPool<T> {
  /** Maximum number of objects that can be in use at once. */
  readonly capacity: number;
  readonly #create: () => T;
  /** Free objects as a stack, because the last one put is most likely still in the processor's caches. */
  readonly #free: T[];
  #freeCount: number;
  #created: number;

  /**
   * @param capacity positive number of objects
   * @param create creates one object
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

  get inUse(): number {
    return this.#created - this.#freeCount;
  }

  /** Objects in use or kept. */
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
   * @returns false if the pool did not keep the object
   * @throws UcxError ERR_POOL_OVERFLOW if more objects are returned than were taken
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
    message: 'object returned to a pool that has no object in use',
    details: { capacity },
  });
}
