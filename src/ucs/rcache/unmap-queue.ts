/**
 * Unmapped ranges of addresses that a cache has not processed yet. Reports come at any time, inside any callback, so they are only
 * recorded; overlapping ones are merged. Bounded: beyond the bound, the whole address space counts as unmapped.
 */

import { IntervalMap } from '../datastruct/interval-map.ts';

/** The most disjoint ranges. */
export const UNMAP_RANGES_MAX = 1024;

/** The queue. */
export class UnmapQueue {
  /** Number of ranges. A field, because every use of a cache reads it. */
  length = 0;
  #ranges: IntervalMap<undefined> = new IntervalMap();
  #bytes = 0;

  /** The bytes of the ranges. */
  get byteLength(): number {
    return this.#bytes;
  }

  /** Adds [start, end), merged with overlapping and adjacent ranges. */
  add(start: number, end: number): void {
    let first = start;
    let last = end;
    for (const range of this.#ranges.overlapping(start - 1, end + 1)) {
      first = Math.min(first, range.start);
      last = Math.max(last, range.end);
      this.#bytes -= range.end - range.start;
      this.#ranges.delete(range.start);
    }
    if (this.#ranges.size === UNMAP_RANGES_MAX) {
      this.#ranges.clear();
      first = 0;
      last = Number.MAX_SAFE_INTEGER;
    } else this.#bytes += last - first;
    this.#ranges.insert(first, last, undefined);
    this.length = this.#ranges.size;
  }

  /** Removes and returns all ranges. */
  take(): IntervalMap<undefined> {
    const taken = this.#ranges;
    this.#ranges = new IntervalMap();
    this.#bytes = 0;
    this.length = 0;
    return taken;
  }
}
