/**
 * One region of the registration cache and the lists that regions wait in. Which region is found, kept or dropped is decided in
 * rcache.ts.
 */

/** A registered ArrayBuffer. Read it; only the cache writes. */
export class RcacheRegion<R extends object> {
  /** What the registrar made. It must not refer to the ArrayBuffer, or the buffer could never be collected. */
  readonly registration: R;
  /** Unique among all regions of the cache, rising; a changed generation means another registration. */
  readonly generation: number;
  /** Length of the ArrayBuffer when it was registered, in bytes. */
  readonly byteLength: number;
  /** The ArrayBuffer while the region is in use, which pins it; undefined while idle, so that it can be collected. */
  owner: ArrayBufferLike | undefined;
  /** How often the region is acquired at present. */
  references: number;
  /** False once the region left the table: it can be released but not found. */
  valid: boolean;
  /** Neighbours in the list of the region. */
  previous: RcacheRegion<R> | undefined;
  next: RcacheRegion<R> | undefined;

  constructor(registration: R, generation: number, owner: ArrayBufferLike) {
    this.registration = registration;
    this.generation = generation;
    this.byteLength = owner.byteLength;
    this.owner = owner;
    this.references = 0;
    this.valid = true;
    this.previous = undefined;
    this.next = undefined;
  }
}

/** A list through the regions themselves: all operations are O(1) and allocate nothing. A region is in one list at most. */
export class RegionList<R extends object> {
  first: RcacheRegion<R> | undefined;
  last: RcacheRegion<R> | undefined;
  count: number;

  constructor() {
    this.first = undefined;
    this.last = undefined;
    this.count = 0;
  }

  /** Appends a region that is in no list. */
  add(region: RcacheRegion<R>): void {
    region.previous = this.last;
    region.next = undefined;
    if (this.last === undefined) this.first = region;
    else this.last.next = region;
    this.last = region;
    this.count++;
  }

  /** Removes a region that is in this list. */
  remove(region: RcacheRegion<R>): void {
    if (region.previous === undefined) this.first = region.next;
    else region.previous.next = region.next;
    if (region.next === undefined) this.last = region.previous;
    else region.next.previous = region.previous;
    region.previous = undefined;
    region.next = undefined;
    this.count--;
  }
}
