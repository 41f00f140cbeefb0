/** One sender to an interface, as the interface sees it: its slot in the directory, its ring, and the line that tells whether it lives. */

import { existsSync } from 'node:fs';
import { unlinkIfThere } from '../../base/owned-files.ts';
import { isLackOfResources, Segment, segmentError, segmentPath } from '../../base/segment.ts';
import type { TransferCounters } from '../../base/transfer-counters.ts';
import { wakePath } from './directory-layout.ts';
import { RING_HEADER_BYTES, readRingGeometry, senderOf } from './ring-layout.ts';
import { RingReader } from './ring-reader.ts';
import { WakeLine } from './wake-pipe.ts';

/** A sender. */
export class Sender {
  readonly slot: number;
  readonly ring: RingReader;
  readonly #line: WakeLine | undefined;

  private constructor(slot: number, ring: RingReader, line: WakeLine | undefined) {
    this.slot = slot;
    this.ring = ring;
    this.#line = line;
  }

  /**
   * Attaches the ring of this name and removes its file, which is the receiver's to remove; it stays where that can be tried again.
   * @returns undefined when there is no such ring any more
   * @throws UcxError ERR_SHM_SEGMENT for a ring that cannot be attached, or is none; SyscallError EACCES, and what {@link isLackOfResources} names
   */
  static attach(slot: number, packedName: Uint8Array, counters: TransferCounters, folder: string): Sender | undefined {
    const path = segmentPath(packedName, folder);
    // The sender has died, and others have cleaned up after it.
    if (!existsSync(path)) return undefined;
    const segment = Segment.attach(packedName, RING_HEADER_BYTES, folder);
    try {
      const geometry = readRingGeometry(segment.words, segment.byteLength);
      if (geometry === undefined) throw segmentError(`${path} is no ring of this version`);
      const line = WakeLine.open(wakePath(segmentPath(senderOf(segment.bytes), folder)));
      unlinkIfThere(path);
      return new Sender(slot, new RingReader(segment, geometry, counters), line);
    } catch (error) {
      segment.close();
      if (!isLackOfResources(error)) unlinkIfThere(path);
      throw error;
    }
  }

  /** False when its interface is gone: closed, or with its process. */
  get alive(): boolean {
    return this.#line?.alive === true;
  }

  wake(): void {
    this.#line?.signal();
  }

  close(): void {
    this.#line?.close();
    this.ring.segment.close();
  }
}
