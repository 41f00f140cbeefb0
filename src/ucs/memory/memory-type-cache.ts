/**
 * Memory types of device memory: ranges keyed by (device, address). An allocator adds a range before it returns the address, and removes the range when it
 * frees it. Cards may use the same virtual addresses, so entries of different cards are independent.
 *
 * A miss means host memory, provided that every allocation is reported. Entries are whole allocations and are never merged, so that a lookup also returns the
 * start and the length of the allocation.
 */

import { IntervalMap } from '../datastruct/interval-map.ts';
import { invalidParam } from '../type/error.ts';
import type { MemoryType } from './memory-type.ts';

/** One range of device memory. */
export interface MemoryRange {
  readonly memoryType: MemoryType;
  /** Index of the device that owns the address space. */
  readonly device: number;
  readonly base: bigint;
  /** Length in bytes. */
  readonly length: number;
}

export interface MemoryTypeCacheLimits {
  /** Maximum number of ranges; see {@link MemoryTypeCache.insert} for the behaviour at the bound. Default 2^20. */
  readonly maxRanges?: number;
}

const DEFAULT_MAX_RANGES: number = 2 ** 20;
/**
 * Addresses have 64 bits, Numbers 53: a map holds the ranges of one segment of 2^52 bytes, in which keys are exact. A range that crosses into the next segment
 * is in both maps.
 */
const SEGMENT_BITS = 52;
const SEGMENT_SIZE = 2 ** SEGMENT_BITS;
const SEGMENTS_PER_DEVICE = 2 ** (64 - SEGMENT_BITS);
/** Shift that turns the upper word of an address into the number of its segment. */
const SEGMENT_HIGH_SHIFT: number = SEGMENT_BITS - 32;
const OFFSET_HIGH_MASK: number = 2 ** SEGMENT_HIGH_SHIFT - 1;
const WORD = 2 ** 32;
/** Scratch for splitting an address without BigInt arithmetic. */
const ADDRESS: BigUint64Array = new BigUint64Array(1);
const ADDRESS_WORDS: Uint32Array = new Uint32Array(ADDRESS.buffer);

/** Ranges of non-host memory of all devices. */
export class MemoryTypeCache {
  readonly #maxRanges: number;
  /** By device * SEGMENTS_PER_DEVICE + segment. */
  readonly #segments = new Map<number, IntervalMap<MemoryRange>>();
  readonly #devices: number[] = [];
  /** The segment of the last lookup, which is likely to be that of the next one. */
  #lastKey = -1;
  #lastMap: IntervalMap<MemoryRange> | undefined = undefined;
  #size = 0;
  #complete = true;

  constructor(limits: MemoryTypeCacheLimits = {}) {
    const maxRanges = limits.maxRanges ?? DEFAULT_MAX_RANGES;
    if (!(Number.isSafeInteger(maxRanges) && maxRanges > 0)) {
      throw invalidParam('maxRanges', 'must be a positive integer', maxRanges);
    }
    this.#maxRanges = maxRanges;
  }

  /** The number of ranges. */
  get size(): number {
    return this.#size;
  }

  /** False once a range was dropped because the cache was full; from then on a miss does not imply host memory. */
  get isComplete(): boolean {
    return this.#complete;
  }

  /**
   * Finds the memory of [address, address + length). Allocates nothing and does no BigInt arithmetic.
   * @param device the address space to search; undefined searches all
   * @param address 64 bits, checked by the caller
   * @param length bytes; 0 looks up the byte at `address`
   * @returns the entry that covers the range; undefined for host memory; `'partial'` if the cache cannot tell (the range is covered in part or by several
   *   devices, or the cache is incomplete): query the memory domains
   */
  lookup(device: number | undefined, address: bigint, length: number): MemoryRange | 'partial' | undefined {
    ADDRESS[0] = address;
    return this.lookupWords(device, ADDRESS_WORDS[0]!, ADDRESS_WORDS[1]!, length);
  }

  /** Like {@link lookup}, for an address in two 32-bit words, signed or not. */
  lookupWords(
    device: number | undefined,
    low: number,
    high: number,
    length: number,
  ): MemoryRange | 'partial' | undefined {
    const segment = high >>> SEGMENT_HIGH_SHIFT;
    const start = (high & OFFSET_HIGH_MASK) * WORD + (low >>> 0);
    if (device !== undefined) return this.#lookupIn(device, segment, start, length) ?? this.#miss();
    let answer: MemoryRange | 'partial' | undefined;
    for (let index = 0; index < this.#devices.length; index++) {
      const found = this.#lookupIn(this.#devices[index]!, segment, start, length);
      if (found === undefined) continue;
      if (answer !== undefined) return 'partial';
      answer = found;
    }
    return answer ?? this.#miss();
  }

  /**
   * Records an allocation. Overlapping ranges of older entries of the same device are removed.
   * @returns false if the cache is full: the range is dropped and {@link isComplete} becomes false
   * @throws UcxError ERR_INVALID_PARAM for an invalid device, address or length
   */
  insert(device: number, address: bigint, length: number, memoryType: MemoryType): boolean {
    this.remove(device, address, length);
    return this.#add({ memoryType, device, base: address, length });
  }

  /**
   * Removes [address, address + length) of a device; an entry that extends beyond it keeps the rest.
   * @throws UcxError ERR_INVALID_PARAM for an invalid device, address or length
   */
  remove(device: number, address: bigint, length: number): void {
    checkRange(device, address, length);
    const end = address + BigInt(length);
    for (;;) {
      const entry = this.#overlapping(device, address, length);
      if (entry === undefined) return;
      this.#drop(entry);
      const entryEnd = entry.base + BigInt(entry.length);
      if (entry.base < address) this.#add({ ...entry, length: Number(address - entry.base) });
      if (entryEnd > end) this.#add({ ...entry, base: end, length: Number(entryEnd - end) });
    }
  }

  /** Removes everything; the cache is complete again. */
  clear(): void {
    this.#segments.clear();
    this.#devices.length = 0;
    this.#lastKey = -1;
    this.#lastMap = undefined;
    this.#size = 0;
    this.#complete = true;
  }

  /** The ranges by device (in order of first use) and ascending address. */
  *[Symbol.iterator](): IterableIterator<MemoryRange> {
    for (const device of this.#devices) {
      for (let segment = 0; segment < SEGMENTS_PER_DEVICE; segment++) {
        const map = this.#segments.get(device * SEGMENTS_PER_DEVICE + segment);
        if (map === undefined) continue;
        for (const { value } of map) {
          if (segmentOf(value.base) === segment) yield value;
        }
      }
    }
  }

  #miss(): 'partial' | undefined {
    return this.#complete ? undefined : 'partial';
  }

  #lookupIn(device: number, segment: number, start: number, length: number): MemoryRange | 'partial' | undefined {
    const end = start + (length > 0 ? length : 1);
    const map = this.#segment(device * SEGMENTS_PER_DEVICE + segment);
    if (map !== undefined && end <= SEGMENT_SIZE) {
      const entry = map.covering(start, end);
      if (entry !== undefined) return entry;
    }
    const entry = this.#firstOverlapping(device, segment, start, end - start);
    if (entry === undefined) return undefined;
    // An entry that continues in the next segment may still cover the range.
    const offset = (segment - segmentOf(entry.base)) * SEGMENT_SIZE - offsetOf(entry.base) + start;
    return offset >= 0 && offset + length <= entry.length ? entry : 'partial';
  }

  #segment(key: number): IntervalMap<MemoryRange> | undefined {
    if (key !== this.#lastKey) {
      this.#lastKey = key;
      this.#lastMap = this.#segments.get(key);
    }
    return this.#lastMap;
  }

  #overlapping(device: number, address: bigint, length: number): MemoryRange | undefined {
    return this.#firstOverlapping(device, segmentOf(address), offsetOf(address), length);
  }

  #firstOverlapping(device: number, segment: number, offset: number, length: number): MemoryRange | undefined {
    let key = device * SEGMENTS_PER_DEVICE + segment;
    let start = offset;
    for (let left = length; left > 0; ) {
      const end = Math.min(start + left, SEGMENT_SIZE);
      const found = this.#segments.get(key)?.firstOverlapping(start, end);
      if (found !== undefined) return found.value;
      left -= end - start;
      start = 0;
      key++;
    }
    return undefined;
  }

  #add(entry: MemoryRange): boolean {
    if (this.#size >= this.#maxRanges) {
      this.#complete = false;
      return false;
    }
    if (!this.#devices.includes(entry.device)) this.#devices.push(entry.device);
    this.#forEachSegment(entry, (map, start, end) => map.insert(start, end, entry));
    this.#size++;
    return true;
  }

  #drop(entry: MemoryRange): void {
    this.#forEachSegment(entry, (map, start) => map.delete(start));
    this.#size--;
  }

  /** Visits the range of `entry` in each segment that it overlaps. */
  #forEachSegment(
    entry: MemoryRange,
    visit: (map: IntervalMap<MemoryRange>, start: number, end: number) => void,
  ): void {
    let key = entry.device * SEGMENTS_PER_DEVICE + segmentOf(entry.base);
    let start = offsetOf(entry.base);
    for (let left = entry.length; left > 0; ) {
      const end = Math.min(start + left, SEGMENT_SIZE);
      let map = this.#segments.get(key);
      if (map === undefined) {
        map = new IntervalMap();
        this.#segments.set(key, map);
        this.#lastKey = -1;
      }
      visit(map, start, end);
      left -= end - start;
      start = 0;
      key++;
    }
  }
}

function segmentOf(address: bigint): number {
  ADDRESS[0] = address;
  return ADDRESS_WORDS[1]! >>> SEGMENT_HIGH_SHIFT;
}

/** Offset of an address within its segment. */
function offsetOf(address: bigint): number {
  ADDRESS[0] = address;
  return (ADDRESS_WORDS[1]! & OFFSET_HIGH_MASK) * WORD + ADDRESS_WORDS[0]!;
}

function checkRange(device: number, address: bigint, length: number): void {
  if (!(Number.isInteger(device) && device >= 0 && device < 2 ** 31)) {
    throw invalidParam('device', 'must be an integer from 0 to 2^31 - 1', device);
  }
  if (!(Number.isSafeInteger(length) && length > 0)) throw invalidParam('length', 'must be a positive integer', length);
  if (!(address >= 0n && address + BigInt(length) <= 1n << 64n)) {
    throw invalidParam('address', `must be at least 0, and address + ${length} at most 2^64`, address);
  }
}
