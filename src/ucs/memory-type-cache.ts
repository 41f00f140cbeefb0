/**
 * What is known about memory that is not host memory: ranges keyed by (device, address). Fed by whoever allocates and frees; it
 * detects nothing itself. Cards share virtual address ranges, so two cards may each have an entry at the same address.
 *
 * A miss means host memory, which holds only while every allocation is reported. Entries are whole allocations and are never
 * merged, so that an answer also tells where the allocation starts and how long it is.
 */

import { invalidParam } from './error.ts';
import { IntervalMap } from './interval-map.ts';
import type { MemoryType } from './memory-type.ts';

/** One known range. */
export interface MemoryRange {
  readonly memoryType: MemoryType;
  /** Index of the device that owns the address space. */
  readonly device: number;
  readonly base: bigint;
  /** Length in bytes. */
  readonly length: number;
}

/** Bounds of a {@link MemoryTypeCache}. */
export interface MemoryTypeCacheLimits {
  /** The most ranges kept; see {@link MemoryTypeCache.insert} for what happens beyond. Default 65536. */
  readonly maxRanges?: number;
}

const DEFAULT_MAX_RANGES = 65536;
/**
 * Addresses have 64 bits, Numbers 53: a map holds the ranges of one segment of 2^52 bytes. Its key is exact, and a range that
 * crosses into the next segment is listed in both.
 */
const SEGMENT_BITS = 52;
const SEGMENT_SIZE = 2 ** SEGMENT_BITS;
const SEGMENT_SHIFT: bigint = BigInt(SEGMENT_BITS);
const SEGMENT_MASK: bigint = (1n << SEGMENT_SHIFT) - 1n;
const SEGMENTS_PER_DEVICE = 2 ** (64 - SEGMENT_BITS);

/** Ranges of non-host memory of all devices. */
export class MemoryTypeCache {
  readonly #maxRanges: number;
  /** By device * SEGMENTS_PER_DEVICE + segment. */
  readonly #segments = new Map<number, IntervalMap<MemoryRange>>();
  readonly #devices: number[] = [];
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

  /** False once a range was dropped because the cache was full: from then on a miss does not mean host memory. */
  get isComplete(): boolean {
    return this.#complete;
  }

  /**
   * What [address, address + length) is.
   * @param device the address space to look in; undefined looks in all
   * @param length bytes; 0 asks about the byte at `address`
   * @returns the entry that covers the range; undefined for host memory; `'partial'` when the cache cannot tell (the range is
   *   covered in part, or by several devices, or the cache is not complete): ask the memory domains
   */
  lookup(device: number | undefined, address: bigint, length: number): MemoryRange | 'partial' | undefined {
    if (device !== undefined) return this.#lookupIn(device, address, length) ?? this.#miss();
    let answer: MemoryRange | 'partial' | undefined;
    for (let index = 0; index < this.#devices.length; index++) {
      const found = this.#lookupIn(this.#devices[index]!, address, length);
      if (found === undefined) continue;
      if (answer !== undefined) return 'partial';
      answer = found;
    }
    return answer ?? this.#miss();
  }

  /**
   * Records an allocation. What it overlaps on the same device is older knowledge and is cut away.
   * @returns false when the cache is full: the range is dropped and {@link isComplete} becomes false
   * @throws UcxError ERR_INVALID_PARAM for a bad device, address, length
   */
  insert(device: number, address: bigint, length: number, memoryType: MemoryType): boolean {
    this.remove(device, address, length);
    return this.#add({ memoryType, device, base: address, length });
  }

  /**
   * Forgets [address, address + length) of a device; entries that reach beyond keep the rest.
   * @throws UcxError ERR_INVALID_PARAM for a bad device, address, length
   */
  remove(device: number, address: bigint, length: number): void {
    checkRange(device, address, length);
    const end = address + BigInt(length);
    for (;;) {
      const entry = this.#firstOverlapping(device, address, length);
      if (entry === undefined) return;
      this.#drop(entry);
      const entryEnd = entry.base + BigInt(entry.length);
      if (entry.base < address) this.#add({ ...entry, length: Number(address - entry.base) });
      if (entryEnd > end) this.#add({ ...entry, base: end, length: Number(entryEnd - end) });
    }
  }

  /** Forgets everything; the cache is complete again. */
  clear(): void {
    this.#segments.clear();
    this.#devices.length = 0;
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
          if (Number(value.base >> SEGMENT_SHIFT) === segment) yield value;
        }
      }
    }
  }

  #miss(): 'partial' | undefined {
    return this.#complete ? undefined : 'partial';
  }

  #lookupIn(device: number, address: bigint, length: number): MemoryRange | 'partial' | undefined {
    const entry = this.#firstOverlapping(device, address, length > 0 ? length : 1);
    if (entry === undefined) return undefined;
    const offset = Number(address - entry.base);
    return offset >= 0 && offset + length <= entry.length ? entry : 'partial';
  }

  #firstOverlapping(device: number, address: bigint, length: number): MemoryRange | undefined {
    let key = device * SEGMENTS_PER_DEVICE + Number(address >> SEGMENT_SHIFT);
    let start = Number(address & SEGMENT_MASK);
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
    this.#forEachPiece(entry, (map, start, end) => map.insert(start, end, entry));
    this.#size++;
    return true;
  }

  #drop(entry: MemoryRange): void {
    this.#forEachPiece(entry, (map, start) => map.delete(start));
    this.#size--;
  }

  /** Visits the part of `entry` in every segment that it touches. */
  #forEachPiece(entry: MemoryRange, visit: (map: IntervalMap<MemoryRange>, start: number, end: number) => void): void {
    let key = entry.device * SEGMENTS_PER_DEVICE + Number(entry.base >> SEGMENT_SHIFT);
    let start = Number(entry.base & SEGMENT_MASK);
    for (let left = entry.length; left > 0; ) {
      const end = Math.min(start + left, SEGMENT_SIZE);
      let map = this.#segments.get(key);
      if (map === undefined) {
        map = new IntervalMap();
        this.#segments.set(key, map);
      }
      visit(map, start, end);
      left -= end - start;
      start = 0;
      key++;
    }
  }
}

function checkRange(device: number, address: bigint, length: number): void {
  if (!(Number.isInteger(device) && device >= 0 && device < 2 ** 31)) {
    throw invalidParam('device', 'must be an integer of [0, 2^31)', device);
  }
  if (!(Number.isSafeInteger(length) && length > 0)) throw invalidParam('length', 'must be a positive integer', length);
  if (!(address >= 0n && address + BigInt(length) <= 1n << 64n)) {
    throw invalidParam('address', `plus length ${length} must lie within 64 bits`, address);
  }
}
