/**
 * Ranges of addresses that are gone and that a cache has not looked at yet. Reports come at any time, from inside any callback, so they are only
 * noted; overlapping ones become one. Bounded: where there are too many apart, everything counts as gone.
 */

import { IntervalMap } from '../datastruct/interval-map.ts';

/** Ranges that are kept apart at most. */
export const UNMAP_RANGES_MAX = 1024;

/** The queue. */
export class UnmapQueue {
  /** Ranges that wait. A field, since every use of a cache looks at it. */
  length = 0;
  #ranges: IntervalMap<undefined> = new IntervalMap();
  #bytes = 0;

  /** The bytes of the ranges. */
  get byteLength(): number {
    return this.#bytes;
  }

  /** Notes [start, end), which joins what it overlaps or touches. */
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

  /** Takes all ranges out. */
  take(): IntervalMap<undefined> {
    const taken = this.#ranges;
    this.#ranges = new IntervalMap();
    this.#bytes = 0;
    this.length = 0;
    return taken;
  }
}
