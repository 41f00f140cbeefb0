/**
 * An ordered map from disjoint half-open intervals [start, end) of Numbers to values, for looking up the owner of an address. Designed for millions of
 * intervals: a list of sorted chunks, so that insertion and removal move entries of one chunk only, and a table of recent finds that saves most binary
 * searches. The caller merges and splits intervals, because that depends on the values.
 */

import { invalidParam } from '../type/error.ts';
import { RecentFinds } from './recent-finds.ts';

/** An interval and its value. */
export interface Interval<V> {
  readonly start: number;
  /** The first Number after the interval. */
  readonly end: number;
  readonly value: V;
}

/** Maximum number of entries in a chunk: moving half of them costs less than finding the chunk. */
const CHUNK_MAX = 256;
/** Maps of fewer chunks have no table of recent finds: a search takes only a few steps. */
const RECENT_CHUNKS_MIN = 4;

/** A run of entries in ascending order; never empty within a map. */
class Chunk<V> {
  /** The starts of `entries`, kept separately so that the search reads one array of numbers. */
  readonly starts: number[];
  readonly entries: Interval<V>[];

  constructor(starts: number[], entries: Interval<V>[]) {
    this.starts = starts;
    this.entries = entries;
  }
}

/** Disjoint intervals in ascending order with a value each. */
export class IntervalMap<V> {
  readonly #chunks: Chunk<V>[] = [];
  /** The first start of every chunk. */
  readonly #firsts: number[] = [];
  #recent: RecentFinds<V> | undefined = undefined;
  #size = 0;

  /** The number of intervals. */
  get size(): number {
    return this.#size;
  }

  /**
   * Adds [start, end).
   * @returns false, with nothing changed, if it overlaps an existing interval
   * @throws UcxError ERR_INVALID_PARAM if the bounds are not safe integers or the interval is empty
   */
  insert(start: number, end: number, value: V): boolean {
    if (!Number.isSafeInteger(start)) throw invalidParam('start', 'must be a safe integer', start);
    if (!(Number.isSafeInteger(end) && end > start))
      throw invalidParam('end', `must be an integer above ${start}`, end);
    if (this.firstOverlapping(start, end) !== undefined) return false;
    const entry = { start, end, value };
    const at = lastNotAbove(this.#firsts, start);
    if (at < 0) this.#insertFirst(entry);
    else this.#insertIn(at, entry);
    this.#size++;
    return true;
  }

  /** Removes the interval that starts exactly at `start`; undefined if there is none. */
  delete(start: number): Interval<V> | undefined {
    const at = lastNotAbove(this.#firsts, start);
    if (at < 0) return undefined;
    const { starts, entries } = this.#chunks[at]!;
    const index = lastNotAbove(starts, start);
    if (starts[index] !== start) return undefined;
    const entry = entries.splice(index, 1)[0]!;
    starts.splice(index, 1);
    if (starts.length === 0) this.#removeChunk(at);
    else if (index === 0) this.#firsts[at] = starts[0]!;
    this.#size--;
    this.#recent?.forget(entry);
    return entry;
  }

  /** The interval that contains `address`; undefined if there is none. Allocates nothing. */
  find(address: number): Interval<V> | undefined {
    const at = lastNotAbove(this.#firsts, address);
    if (at < 0) return undefined;
    const { starts, entries } = this.#chunks[at]!;
    const entry = entries[lastNotAbove(starts, address)]!;
    return address < entry.end ? entry : undefined;
  }

  /**
   * The value of the interval that contains all of [start, end), which must not be empty; undefined if there is none. Allocates nothing,
   * and for recently found addresses takes the same time in a large map as in a small one.
   */
  covering(start: number, end: number): V | undefined {
    const recent = this.#recent;
    if (recent !== undefined) {
      const known = recent.covering(start, end);
      if (known !== undefined) return known;
    }
    const entry = this.find(start);
    if (entry === undefined || end > entry.end) return undefined;
    if (recent !== undefined) recent.note(start, entry);
    return entry.value;
  }

  /** The lowest interval that overlaps [start, end); undefined if there is none. Allocates nothing. */
  firstOverlapping(start: number, end: number): Interval<V> | undefined {
    if (!(start < end) || this.#size === 0) return undefined;
    const at = lastNotAbove(this.#firsts, start);
    if (at >= 0) {
      const { starts, entries } = this.#chunks[at]!;
      const index = lastNotAbove(starts, start);
      const before = entries[index]!;
      if (before.end > start) return before;
      if (index + 1 < entries.length) return entries[index + 1]!.start < end ? entries[index + 1] : undefined;
    }
    const next = this.#chunks[at + 1]?.entries[0];
    return next !== undefined && next.start < end ? next : undefined;
  }

  /** The intervals that overlap [start, end), in ascending order. */
  overlapping(start: number, end: number): Interval<V>[] {
    const found: Interval<V>[] = [];
    let from = start;
    for (;;) {
      const entry = this.firstOverlapping(from, end);
      if (entry === undefined) return found;
      found.push(entry);
      from = entry.end;
    }
  }

  /** Removes everything. */
  clear(): void {
    this.#chunks.length = 0;
    this.#firsts.length = 0;
    this.#recent = undefined;
    this.#size = 0;
  }

  /** The intervals in ascending order. Do not insert or delete while iterating. */
  *[Symbol.iterator](): IterableIterator<Interval<V>> {
    for (const { entries } of this.#chunks) yield* entries;
  }

  /** Adds an entry below all others. */
  #insertFirst(entry: Interval<V>): void {
    if (this.#chunks.length === 0) {
      this.#addChunk(0, new Chunk([entry.start], [entry]));
      return;
    }
    this.#firsts[0] = entry.start;
    const { starts, entries } = this.#chunks[0]!;
    starts.unshift(entry.start);
    entries.unshift(entry);
    this.#split(0);
  }

  #insertIn(at: number, entry: Interval<V>): void {
    const { starts, entries } = this.#chunks[at]!;
    const index = lastNotAbove(starts, entry.start) + 1;
    // With ascending addresses this fills chunks completely instead of leaving them half empty.
    if (index === CHUNK_MAX) {
      this.#addChunk(at + 1, new Chunk([entry.start], [entry]));
      return;
    }
    starts.splice(index, 0, entry.start);
    entries.splice(index, 0, entry);
    this.#split(at);
  }

  #split(at: number): void {
    const { starts, entries } = this.#chunks[at]!;
    if (starts.length <= CHUNK_MAX) return;
    const half = CHUNK_MAX / 2;
    this.#addChunk(at + 1, new Chunk(starts.splice(half), entries.splice(half)));
  }

  #addChunk(at: number, chunk: Chunk<V>): void {
    this.#chunks.splice(at, 0, chunk);
    this.#firsts.splice(at, 0, chunk.starts[0]!);
    if (this.#chunks.length >= RECENT_CHUNKS_MIN) this.#recent ??= new RecentFinds();
  }

  #removeChunk(at: number): void {
    this.#chunks.splice(at, 1);
    this.#firsts.splice(at, 1);
  }
}

/** The index of the last of some ascending numbers that is not above `value`; -1 if all are. */
function lastNotAbove(numbers: readonly number[], value: number): number {
  let low = 0;
  let high = numbers.length;
  while (low < high) {
    const middle = (low + high) >>> 1;
    if (numbers[middle]! <= value) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}
