/** A remote key of posix after unpacking: remote memory that is mapped into this process. */

import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RemoteKey } from '../../api/memory.ts';
import { AtomicWords } from '../../base/atomic-word.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';
import type { Segment } from '../../base/key/segment.ts';
import type { SegmentCache } from '../../base/key/segment-cache.ts';

/** Name of component, memory domain and transport. */
export const POSIX_NAME = 'posix';

/** A remote key. */
export class PosixKey implements RemoteKey {
  readonly mdName: string = POSIX_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly byteLength: number;
  /** The remote memory. Operations of the transport check that it is still valid; other users of this field must do so themselves. */
  readonly bytes: Uint8Array;
  /** The whole segment, and the offset of the memory in it. */
  readonly words: Int32Array;
  readonly all: Uint8Array;
  readonly base: number;
  readonly atomics: AtomicWords;
  readonly #published: PublishedKey;
  readonly #segment: Segment;
  readonly #segments: SegmentCache;
  #released = false;

  /** @param offset offset of the memory in the segment, which contains all of it */
  constructor(published: PublishedKey, segment: Segment, offset: number, segments: SegmentCache) {
    this.byteLength = published.byteLength;
    this.bytes = segment.bytes.subarray(offset, offset + published.byteLength);
    this.words = segment.words;
    this.all = segment.bytes;
    this.base = offset;
    this.atomics = new AtomicWords(this.bytes);
    this.#published = published;
    this.#segment = segment;
    this.#segments = segments;
  }

  /** False once the owner has freed the memory, or the key was released. */
  get live(): boolean {
    return !this.#released && this.#published.live;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#published.release();
    this.#segments.release(this.#segment);
  }
}
