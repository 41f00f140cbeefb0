/**
 * One region of the registration cache, and the regions of one ArrayBuffer. Which region is found, kept or dropped is decided in rcache.ts.
 */

import type { IntervalMap } from '../datastruct/interval-map.ts';
import type { LruEntry } from '../datastruct/lru-list.ts';
import { Status } from '../type/status.ts';

/** What registered memory may be used for, as bits. A region serves requests for less. */
export const Protection = { READ: 0x1, WRITE: 0x2, READ_WRITE: 0x3 } as const;

/** What a region is made of. */
export interface RcacheRegionParams<R extends object> {
  readonly registration: R;
  readonly generation: number;
  readonly start: number;
  readonly byteLength: number;
  readonly protection: number;
  readonly alignment: number;
  readonly buffer: BufferRegions<R> | undefined;
}

/** Registered memory. Read it; only the cache writes. What every use touches comes first, to lie together. */
export class RcacheRegion<R extends object> implements LruEntry {
  /** How often the region is acquired at present. */
  references = 0;
  /** The ArrayBuffer while the region is in use, which pins it; undefined while idle, so that it can be collected. */
  owner: ArrayBufferLike | undefined = undefined;
  /** False once the region left the table: it can be released but not found. */
  valid = true;
  /** The ArrayBuffer's other regions; undefined for memory that is known by its address only. */
  readonly buffer: BufferRegions<R> | undefined;
  slot = 0;
  readonly byteLength: number;
  /** Bits of {@link Protection}. */
  readonly protection: number;
  /** The power of two that the bounds were extended to, where the memory goes on. */
  readonly alignment: number;
  /** What the registrar made. It must not refer to the ArrayBuffer, or the buffer could never be collected. */
  readonly registration: R;
  /** Unique among all regions of the cache, rising; a changed generation means another registration. */
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

  /** Byte of the ArrayBuffer at which the region begins; 0 where it is a whole one. */
  get offset(): number {
    return this.buffer === undefined ? 0 : this.start - this.buffer.start;
  }
}

/** The regions of one ArrayBuffer: one for all of it, or one for each of its parts that are in use. Does not refer to the buffer. */
export class BufferRegions<R extends object> {
  /** Length of the buffer when it was first seen. */
  readonly byteLength: number;
  /** Regions of parts, where the buffer is too long to be registered as a whole. */
  readonly parts: IntervalMap<RcacheRegion<R>> | undefined;
  /** The region of the whole buffer. */
  whole: RcacheRegion<R> | undefined = undefined;
  /** Address of the first byte. */
  readonly start: number;
  /** Regions that can be found. */
  count = 0;
  /** Why the whole buffer cannot be registered; OK when nothing is known against it. */
  failure: Status = Status.OK;
  /** Up to when that counts: see the cache. */
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
