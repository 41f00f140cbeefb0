/**
 * Page tables of one range of device virtual addresses: the physical memory behind each address.
 *
 * Addresses are offsets from the base of the range, which are exact JavaScript numbers; 64-bit addresses are not.
 * Translations are kept as intervals in address order, not per page: pinned host memory is contiguous here, and
 * pages of HBM are large (768 MiB on gaudi2).
 */

import type { PhysicalMemory } from './physical-memory.ts';

/** One contiguous stretch of device virtual addresses on one contiguous stretch of physical memory. */
export class Translation {
  /** First offset in the range. */
  readonly start: number;
  /** One past the last offset. */
  readonly end: number;
  readonly memory: PhysicalMemory;
  /** Byte of `memory` that `start` maps to. */
  readonly memoryOffset: number;

  constructor(start: number, end: number, memory: PhysicalMemory, memoryOffset: number) {
    this.start = start;
    this.end = end;
    this.memory = memory;
    this.memoryOffset = memoryOffset;
  }
}

/** The translations of one address range. */
export class PageTable {
  readonly #entries: Translation[] = [];
  #last: Translation | undefined = undefined;

  /** Number of stretches mapped. */
  get size(): number {
    return this.#entries.length;
  }

  /**
   * Maps `[start, start + byteLength)`.
   * @returns false if any byte of it is already mapped; then nothing has changed
   */
  map(start: number, byteLength: number, memory: PhysicalMemory, memoryOffset: number): boolean {
    const index = this.#indexAfter(start);
    const before = this.#entries[index - 1];
    const after = this.#entries[index];
    const end = start + byteLength;
    if (before !== undefined && before.end > start) return false;
    if (after !== undefined && after.start < end) return false;
    this.#entries.splice(index, 0, new Translation(start, end, memory, memoryOffset));
    return true;
  }

  /** Removes every stretch inside `[start, start + byteLength)`. */
  unmap(start: number, byteLength: number): void {
    const first = this.#indexAfter(start - 1);
    let count = 0;
    while (this.#endOf(first + count) <= start + byteLength) count += 1;
    this.#entries.splice(first, count);
    this.#last = undefined;
  }

  /** The stretch that contains `offset`, or undefined if it is not mapped: a page fault. */
  translate(offset: number): Translation | undefined {
    const last = this.#last;
    if (last !== undefined && offset >= last.start && offset < last.end) return last;
    const candidate = this.#entries[this.#indexAfter(offset) - 1];
    if (candidate === undefined || offset >= candidate.end) return undefined;
    this.#last = candidate;
    return candidate;
  }

  #endOf(index: number): number {
    return this.#entries[index]?.end ?? Number.POSITIVE_INFINITY;
  }

  /** Index of the first entry that starts after `offset`. */
  #indexAfter(offset: number): number {
    let low = 0;
    let high = this.#entries.length;
    while (low < high) {
      const middle = (low + high) >>> 1;
      if (this.#entries[middle]!.start <= offset) low = middle + 1;
      else high = middle;
    }
    return low;
  }
}
