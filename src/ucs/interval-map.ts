/**
 * An ordered map from disjoint half-open intervals [start, end) of Numbers to values: who owns this address? Search is binary,
 * insertion and removal move the tail of two arrays. Neither merges nor splits: what that means depends on the values.
 */

import { invalidParam } from './error.ts';

/** One entry. */
export interface Interval<V> {
  readonly start: number;
  /** The first Number after the interval. */
  readonly end: number;
  readonly value: V;
}

/** Disjoint intervals in ascending order with a value each. */
export class IntervalMap<V> {
  /** The starts of `#entries`, apart from them so that the search stays within one array of numbers. */
  readonly #starts: number[] = [];
  readonly #entries: Interval<V>[] = [];

  /** The number of intervals. */
  get size(): number {
    return this.#entries.length;
  }

  /**
   * Adds [start, end).
   * @returns false, with nothing changed, when it overlaps an interval that is there
   * @throws UcxError ERR_INVALID_PARAM when the bounds are not safe integers or the interval is empty
   */
  insert(start: number, end: number, value: V): boolean {
    if (!Number.isSafeInteger(start)) throw invalidParam('start', 'must be a safe integer', start);
    if (!(Number.isSafeInteger(end) && end > start))
      throw invalidParam('end', `must be an integer above ${start}`, end);
    const index = this.#lowerBound(start);
    if (index < this.#entries.length && this.#starts[index]! < end) return false;
    if (index > 0 && this.#entries[index - 1]!.end > start) return false;
    this.#starts.splice(index, 0, start);
    this.#entries.splice(index, 0, { start, end, value });
    return true;
  }

  /** Removes the interval that starts exactly at `start`; undefined when there is none. */
  delete(start: number): Interval<V> | undefined {
    const index = this.#lowerBound(start);
    if (this.#starts[index] !== start) return undefined;
    const entry = this.#entries[index];
    this.#starts.splice(index, 1);
    this.#entries.splice(index, 1);
    return entry;
  }

  /** The interval that contains `address`; undefined when there is none. Allocates nothing. */
  find(address: number): Interval<V> | undefined {
    let index = this.#lowerBound(address);
    if (this.#starts[index] !== address) index--;
    if (index < 0) return undefined;
    const entry = this.#entries[index]!;
    return address < entry.end ? entry : undefined;
  }

  /** The lowest interval that shares a Number with [start, end); undefined when there is none. Allocates nothing. */
  firstOverlapping(start: number, end: number): Interval<V> | undefined {
    const entry = this.#entries[this.#firstEndingAfter(start)];
    return entry !== undefined && entry.start < end && start < end ? entry : undefined;
  }

  /** The intervals that share a Number with [start, end), in ascending order. */
  overlapping(start: number, end: number): Interval<V>[] {
    if (!(start < end)) return [];
    return this.#entries.slice(this.#firstEndingAfter(start), this.#lowerBound(end));
  }

  /** Removes everything. */
  clear(): void {
    this.#starts.length = 0;
    this.#entries.length = 0;
  }

  /** The intervals in ascending order. Do not insert or delete while iterating. */
  [Symbol.iterator](): IterableIterator<Interval<V>> {
    return this.#entries.values();
  }

  /** The index of the lowest interval with a start not below `address`. */
  #lowerBound(address: number): number {
    const starts = this.#starts;
    let low = 0;
    let high = starts.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (starts[middle]! < address) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #firstEndingAfter(address: number): number {
    const index = this.#lowerBound(address);
    return index > 0 && this.#entries[index - 1]!.end > address ? index - 1 : index;
  }
}
