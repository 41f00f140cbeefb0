/**
 * Allocates ranges of a linear space [0, size): best fit, any alignment, coalescing on free. Ranges are plain numbers: offsets in HBM or virtual addresses.
 *
 * Cost: a binary search plus one memmove of the tables per call; 10,000 live blocks take 80 KiB per table. An allocation examines a second free block only if
 * the first is long enough, but becomes too short by alignment.
 */

import { invalidParam } from '../type/error.ts';
import { SortedPairs } from './sorted-pairs.ts';

export interface AllocatedRange {
  readonly offset: number;
  /** Length in the unit of the space. */
  readonly length: number;
}

/** Options of one allocation. */
export interface AllocateOptions {
  /** Preferred offset: used if it is aligned and free (reserved or not), otherwise ignored. */
  readonly at?: number;
}

/** Best-fit allocator over [0, `size`), in any unit. */
export class RangeAllocator {
  readonly size: number;
  /** Live allocations as (offset, length). */
  readonly #allocated = new SortedPairs();
  /** Free blocks outside reserved ranges as (offset, length); never adjacent to one another. */
  readonly #freeByOffset = new SortedPairs();
  /** The same blocks as (length, offset): the order of best fit. */
  readonly #freeByLength = new SortedPairs();
  /** Reserved ranges as (offset, length), disjoint and not adjacent. */
  readonly #reserved = new SortedPairs();
  #usedBytes = 0;

  /**
   * @param size length of the space: a positive integer up to 2^53 - 1
   * @throws UcxError ERR_INVALID_PARAM
   */
  constructor(size: number) {
    checkPositive('size', size);
    this.size = size;
    this.#addFree(0, size);
  }

  /** Sum of the lengths of live allocations. */
  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Length that is not allocated, reserved ranges included. */
  get freeBytes(): number {
    return this.size - this.#usedBytes;
  }

  /** Length of the longest block that {@link allocate} can return with alignment 1. */
  get largestFree(): number {
    const count = this.#freeByLength.count;
    return count === 0 ? 0 : this.#freeByLength.firstAt(count - 1);
  }

  /** The number of live allocations. */
  get allocations(): number {
    return this.#allocated.count;
  }

  /** The number of free blocks outside reserved ranges: 1 in an empty space without them, more when fragmented. */
  get freeBlocks(): number {
    return this.#freeByOffset.count;
  }

  /**
   * Allocates from the smallest free block that holds the range once aligned, the lowest one among equals.
   * @param length positive integer
   * @param alignment positive integer, not only powers of two; the offset is a multiple of it
   * @returns the offset, or -1 if no block is large enough
   * @throws UcxError ERR_INVALID_PARAM
   */
  allocate(length: number, alignment = 1, options?: AllocateOptions): number {
    checkPositive('length', length);
    checkPositive('alignment', alignment);
    const at = options?.at;
    if (at !== undefined && at % alignment === 0 && this.allocateAt(at, length)) return at;
    const blocks = this.#freeByLength;
    const count = blocks.count;
    for (let index = blocks.lowerBound(length, 0); index < count; index++) {
      const blockLength = blocks.firstAt(index);
      const blockOffset = blocks.secondAt(index);
      const padding = paddingOf(blockOffset, alignment);
      if (padding + length <= blockLength) {
        this.#carve(this.#freeByOffset.lowerBound(blockOffset, 0), blockOffset + padding, length);
        this.#commit(blockOffset + padding, length);
        return blockOffset + padding;
      }
    }
    return -1;
  }

  /**
   * Allocates exactly [offset, offset + length), also in reserved ranges.
   * @returns false if any of it is allocated or outside the space
   * @throws UcxError ERR_INVALID_PARAM if `length` is not a positive integer
   */
  allocateAt(offset: number, length: number): boolean {
    checkPositive('length', length);
    if (!(Number.isSafeInteger(offset) && offset >= 0 && length <= this.size - offset)) return false;
    const end = offset + length;
    const next = this.#allocated.lowerBound(offset, 0);
    if (next < this.#allocated.count && this.#allocated.firstAt(next) < end) return false;
    if (next > 0 && this.#allocated.firstAt(next - 1) + this.#allocated.secondAt(next - 1) > offset) return false;
    this.#carveAll(offset, end);
    this.#commit(offset, length);
    return true;
  }

  /**
   * Frees an allocation; its range is joined with free neighbours.
   * @param offset where the allocation starts
   * @returns its length, or -1 if no allocation starts there
   */
  free(offset: number): number {
    const index = this.#allocated.lowerBound(offset, 0);
    if (index >= this.#allocated.count || this.#allocated.firstAt(index) !== offset) return -1;
    const length = this.#allocated.secondAt(index);
    this.#allocated.removeAt(index);
    this.#usedBytes -= length;
    this.#release(offset, offset + length);
    return length;
  }

  /**
   * Excludes a range from {@link allocate}; {@link allocateAt} can still allocate it. Live allocations inside stay valid, and the range that
   * they free is excluded too. Ranges may overlap earlier ones.
   * @throws UcxError ERR_INVALID_PARAM if the range is empty or exceeds the space
   */
  reserve(offset: number, length: number): void {
    checkPositive('length', length);
    if (!(Number.isSafeInteger(offset) && offset >= 0 && length <= this.size - offset)) {
      throw invalidParam('offset', `must be at least 0, and offset + ${length} at most ${this.size}`, offset);
    }
    this.#carveAll(offset, offset + length);
    let start = offset;
    let end = offset + length;
    let index = this.#firstEndingFrom(this.#reserved, offset);
    while (index < this.#reserved.count && this.#reserved.firstAt(index) <= end) {
      start = Math.min(start, this.#reserved.firstAt(index));
      end = Math.max(end, this.#reserved.firstAt(index) + this.#reserved.secondAt(index));
      this.#reserved.removeAt(index);
    }
    index = this.#reserved.lowerBound(start, 0);
    this.#reserved.insertAt(index, start, end - start);
  }

  /** The live allocation that contains `offset`; undefined if the offset is free or outside. */
  find(offset: number): AllocatedRange | undefined {
    const index = this.#allocated.lowerBound(offset, Infinity) - 1;
    if (index < 0) return undefined;
    const start = this.#allocated.firstAt(index);
    const length = this.#allocated.secondAt(index);
    return offset < start + length ? { offset: start, length } : undefined;
  }

  /** The live allocations by ascending offset. Do not allocate or free while iterating. */
  *[Symbol.iterator](): IterableIterator<AllocatedRange> {
    for (let index = 0; index < this.#allocated.count; index++) {
      yield { offset: this.#allocated.firstAt(index), length: this.#allocated.secondAt(index) };
    }
  }

  /**
   * The allocated share of each of `parts` equal parts of the space: from 0 to 1.
   * @throws UcxError ERR_INVALID_PARAM if `parts` is not a positive integer
   */
  usedShares(parts: number): Float64Array {
    checkPositive('parts', parts);
    const shares = new Float64Array(parts);
    const partLength = this.size / parts;
    for (const { offset, length } of this) {
      const end = offset + length;
      const last = Math.min(parts - 1, Math.floor(end / partLength));
      for (let part = Math.floor(offset / partLength); part <= last; part++) {
        const overlap = Math.min(end, (part + 1) * partLength) - Math.max(offset, part * partLength);
        shares[part] = Math.min(1, shares[part]! + Math.max(0, overlap) / partLength);
      }
    }
    return shares;
  }

  #commit(offset: number, length: number): void {
    this.#allocated.insert(offset, length);
    this.#usedBytes += length;
  }

  /** Removes [start, end) from every free block it overlaps; reserved ranges may have split it into several. */
  #carveAll(start: number, end: number): void {
    const blocks = this.#freeByOffset;
    let index = this.#firstEndingFrom(blocks, start + 1);
    while (index < blocks.count && blocks.firstAt(index) < end) {
      const from = Math.max(start, blocks.firstAt(index));
      const to = Math.min(end, blocks.firstAt(index) + blocks.secondAt(index));
      index = this.#carve(index, from, to - from);
    }
  }

  /** Removes a range from the free block at `index` that contains it; returns the index of the next higher block. */
  #carve(index: number, offset: number, length: number): number {
    const blockOffset = this.#freeByOffset.firstAt(index);
    const blockLength = this.#freeByOffset.secondAt(index);
    const head = offset - blockOffset;
    const tail = blockLength - head - length;
    this.#freeByLength.remove(blockLength, blockOffset);
    if (head > 0) {
      this.#freeByLength.insert(head, blockOffset);
      this.#freeByOffset.replaceAt(index, blockOffset, head);
      if (tail > 0) this.#addFreeAt(index + 1, offset + length, tail);
      return tail > 0 ? index + 2 : index + 1;
    }
    if (tail > 0) {
      this.#freeByLength.insert(tail, offset + length);
      this.#freeByOffset.replaceAt(index, offset + length, tail);
      return index + 1;
    }
    this.#freeByOffset.removeAt(index);
    return index;
  }

  /** Returns [start, end) to the free blocks, except for reserved ranges. */
  #release(start: number, end: number): void {
    let from = start;
    const reserved = this.#reserved;
    for (let index = this.#firstEndingFrom(reserved, start + 1); index < reserved.count; index++) {
      const reservedStart = reserved.firstAt(index);
      if (reservedStart >= end) break;
      if (reservedStart > from) this.#addFree(from, reservedStart);
      from = reservedStart + reserved.secondAt(index);
    }
    if (from < end) this.#addFree(from, end);
  }

  /** Adds [start, end) as a free block, joined with adjacent blocks. */
  #addFree(start: number, end: number): void {
    const blocks = this.#freeByOffset;
    const next = blocks.lowerBound(start, 0);
    const joinsNext = next < blocks.count && blocks.firstAt(next) === end;
    const joinsPrevious = next > 0 && blocks.firstAt(next - 1) + blocks.secondAt(next - 1) === start;
    const nextLength = joinsNext ? blocks.secondAt(next) : 0;
    if (joinsNext) this.#freeByLength.remove(nextLength, end);
    if (joinsPrevious) {
      const previous = blocks.firstAt(next - 1);
      const length = end + nextLength - previous;
      this.#freeByLength.remove(blocks.secondAt(next - 1), previous);
      this.#freeByLength.insert(length, previous);
      blocks.replaceAt(next - 1, previous, length);
      if (joinsNext) blocks.removeAt(next);
    } else if (joinsNext) {
      const length = end + nextLength - start;
      this.#freeByLength.insert(length, start);
      blocks.replaceAt(next, start, length);
    } else {
      this.#addFreeAt(next, start, end - start);
    }
  }

  #addFreeAt(index: number, offset: number, length: number): void {
    this.#freeByOffset.insertAt(index, offset, length);
    this.#freeByLength.insert(length, offset);
  }

  /** The index of the lowest of disjoint (offset, length) ranges whose end is at or above `position`. */
  #firstEndingFrom(ranges: SortedPairs, position: number): number {
    const index = ranges.lowerBound(position, 0);
    if (index > 0 && ranges.firstAt(index - 1) + ranges.secondAt(index - 1) >= position) return index - 1;
    return index;
  }
}

function paddingOf(offset: number, alignment: number): number {
  const remainder = offset % alignment;
  return remainder === 0 ? 0 : alignment - remainder;
}

function checkPositive(argument: string, value: number): void {
  if (!(Number.isSafeInteger(value) && value > 0)) throw invalidParam(argument, 'must be a positive integer', value);
}
