/** Attached segments of peers: each is attached once while it is in use, and a limited number of idle ones stays attached. */

import { Segment } from './segment.ts';
import { SEGMENT_FOLDER } from './segment-name.ts';

interface Entry {
  readonly segment: Segment;
  references: number;
}

/** A set of attached segments. */
export class SegmentCache {
  /** By name; the idle ones in the order of their release. */
  readonly #entries: Map<string, Entry> = new Map();
  readonly #idleMax: number;
  readonly #folder: string;
  #idle = 0;

  /**
   * @param idleMax maximum number of idle attached segments; beyond it the oldest is detached
   * @param folder folder of the segments
   */
  constructor(idleMax: number, folder: string = SEGMENT_FOLDER) {
    this.#folder = folder;
    this.#idleMax = idleMax;
  }

  /**
   * Attaches a segment. Each call needs one {@link release}.
   * @throws UcxError ERR_SHM_SEGMENT as {@link Segment.attach}
   */
  acquire(packedName: Uint8Array, byteLengthMin = 1): Segment {
    const key = keyOf(packedName);
    const entry = this.#entries.get(key);
    if (entry === undefined) {
      const segment = Segment.attach(packedName, byteLengthMin, this.#folder);
      this.#entries.set(key, { segment, references: 1 });
      return segment;
    }
    if (entry.references === 0) this.#idle -= 1;
    entry.references += 1;
    return entry.segment;
  }

  /** Releases a segment that {@link acquire} returned, once for each call. */
  release(segment: Segment): void {
    const key = keyOf(segment.packedName);
    const entry = this.#entries.get(key);
    if (entry === undefined || entry.segment !== segment) return;
    entry.references -= 1;
    if (entry.references > 0) return;
    // Moved to the end: a map keeps the order of insertion.
    this.#entries.delete(key);
    this.#entries.set(key, entry);
    this.#idle += 1;
    if (this.#idle > this.#idleMax) this.#detachOldest();
  }

  /** Detaches all segments, including those in use. */
  close(): void {
    for (const { segment } of this.#entries.values()) segment.close();
    this.#entries.clear();
    this.#idle = 0;
  }

  #detachOldest(): void {
    for (const [key, { segment, references }] of this.#entries) {
      if (references > 0) continue;
      segment.close();
      this.#entries.delete(key);
      this.#idle -= 1;
      return;
    }
  }
}

function keyOf(packedName: Uint8Array): string {
  return Buffer.from(packedName.buffer, packedName.byteOffset, packedName.byteLength).toString('latin1');
}
