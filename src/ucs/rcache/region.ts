/**
 * Regions of the registration cache: one region, the regions of one ArrayBuffer, the bounds of a new region (aligned, and joined with overlapping regions), and
 * the queue of unmapped address ranges that a cache has not processed yet.
 */

import { IntervalMap } from '../datastruct/interval-map.ts';
import type { LruEntry } from '../datastruct/lru-list.ts';
import { Status } from '../type/status.ts';

/** Permitted accesses to registered memory, as bits. A region also serves requests that need only some of its accesses. */
export const Protection = { READ: 0x1, WRITE: 0x2, READ_WRITE: 0x3 } as const;

/** Parameters of a region. */
export interface RcacheRegionParams<R extends object> {
  readonly registration: R;
  readonly generation: number;
  readonly start: number;
  readonly byteLength: number;
  readonly protection: number;
  readonly alignment: number;
  readonly buffer: BufferRegions<R> | undefined;
}

/** Registered memory. Only the cache writes it. The fields that every use touches come first, so that they share a cache line. */
export class RcacheRegion<R extends object> implements LruEntry {
  /** Number of acquisitions that are not released. */
  references = 0;
  /** The ArrayBuffer of a region in use, which keeps it alive; undefined while idle, so that it can be collected. */
  owner: ArrayBufferLike | undefined = undefined;
  /** False once the region was removed from the table: it can be released but not found. */
  valid = true;
  /** The regions of the ArrayBuffer; undefined for memory that is identified by its address. */
  readonly buffer: BufferRegions<R> | undefined;
  slot = 0;
  readonly byteLength: number;
  /** Bits of {@link Protection}. */
  readonly protection: number;
  /** Power of two to which the bounds were extended, except at the ends of the memory. */
  readonly alignment: number;
  /** The result of the registrar. It must not refer to the ArrayBuffer, which could then never be collected. */
  readonly registration: R;
  /** Unique among all regions of the cache, ascending; tells a new registration from an older one of the same memory. */
  readonly generation: number;
  /** Address of the first byte. */
  readonly start: number;

  constructor(params: RcacheRegionParams<R>) {
    this.registration = params.registration;
    this.generation = params.generation;
    this.start = params.start;
    this.byteLength = params.byteLength;
    this.protection = params.protection;
    this.alignment = params.alignment;
    this.buffer = params.buffer;
  }

  /** The first address after the region. */
  get end(): number {
    return this.start + this.byteLength;
  }

  /** Offset in the ArrayBuffer at which the region begins; 0 if it covers the whole buffer. */
  get offset(): number {
    return this.buffer === undefined ? 0 : this.start - this.buffer.start;
  }
}

/** The regions of one ArrayBuffer: one for the whole buffer, or one for each used range. Does not refer to the buffer. */
export class BufferRegions<R extends object> {
  /** Length of the buffer at its first use. */
  readonly byteLength: number;
  /** Regions of ranges, if the buffer is too long to be registered as a whole. */
  readonly parts: IntervalMap<RcacheRegion<R>> | undefined;
  /** The region of the whole buffer. */
  whole: RcacheRegion<R> | undefined = undefined;
  /** Address of the first byte. */
  readonly start: number;
  /** Number of regions that can be found. */
  count = 0;
  /** Status of the failed registration of the whole buffer; OK without a failure. */
  failure: Status = Status.OK;
  /** Epoch of the cache in which `failure` is valid. */
  failureEpoch = 0;

  constructor(start: number, byteLength: number, parts: IntervalMap<RcacheRegion<R>> | undefined) {
    this.start = start;
    this.byteLength = byteLength;
    this.parts = parts;
  }

  get end(): number {
    return this.start + this.byteLength;
  }
}

/** Maximum number of disjoint ranges in the queue. */
export const UNMAP_RANGES_MAX = 1024;

/**
 * Unmapped address ranges. Reports come at any time, inside any callback, so they are only recorded; overlapping ones are merged. Beyond {@link
 * UNMAP_RANGES_MAX}, the whole address space counts as unmapped.
 */
export class UnmapQueue {
  /** Number of ranges. A field, because every use of a cache reads it. */
  length = 0;
  #ranges: IntervalMap<undefined> = new IntervalMap();
  #bytes = 0;

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

/** Bounds of a region to be registered. */
export interface RegionBounds {
  readonly start: number;
  readonly end: number;
  readonly alignment: number;
}

/** The memory that a region may cover: an ArrayBuffer, or all addresses. */
export interface MemoryLimits {
  readonly start: number;
  readonly end: number;
}

/** Extends [start, end) to multiples of `alignment`, within the limits. */
export function alignBounds(start: number, end: number, alignment: number, limits: MemoryLimits): RegionBounds {
  return {
    start: Math.max(limits.start, Math.floor(start / alignment) * alignment),
    end: Math.min(limits.end, Math.ceil(end / alignment) * alignment),
    alignment,
  };
}

/**
 * Joins aligned bounds with the regions that they overlap: the union of the ranges at the largest alignment, until nothing overlaps any more. Regions with
 * another protection are not joined, because the protection of one region does not hold for the memory of the other.
 */
export function mergeBounds<R extends object>(
  regions: IntervalMap<RcacheRegion<R>>,
  alone: RegionBounds,
  protection: number,
  limits: MemoryLimits,
): RegionBounds {
  let bounds = alone;
  for (;;) {
    let { start, end, alignment } = bounds;
    for (const { value } of regions.overlapping(bounds.start, bounds.end)) {
      if (value.protection !== protection) continue;
      start = Math.min(start, value.start);
      end = Math.max(end, value.end);
      alignment = Math.max(alignment, value.alignment);
    }
    const joined = alignBounds(start, end, alignment, limits);
    if (joined.start === bounds.start && joined.end === bounds.end && alignment === bounds.alignment) return bounds;
    bounds = joined;
  }
}
