/** One sender to an interface, at the receiver: its slot in the directory, its ring, and the pipe that shows whether it runs. */

import { existsSync } from 'node:fs';
import { unlinkIfThere } from '../../base/key/owned-files.ts';
import { isLackOfResources, Segment, segmentError } from '../../base/key/segment.ts';
import { segmentPath } from '../../base/key/segment-name.ts';
import type { TransferCounters } from '../../base/transfer-counters.ts';
import { wakeFile } from './directory-layout.ts';
import { RING_HEADER_BYTES, readRingGeometry, senderOf } from './ring/ring-layout.ts';
import { RingReader } from './ring/ring-reader.ts';
import { WakeLine } from './wake-pipe.ts';

/** A sender. */
export class Sender {
  readonly slot: number;
  readonly ring: RingReader;
  /** Whether every call of progress polls the ring. */
  isPolled = false;
  /** Whether a message was delivered since the receiver last decided what to poll. */
  isActive = false;
  readonly #line: WakeLine | undefined;

  private constructor(slot: number, ring: RingReader, line: WakeLine | undefined) {
    this.slot = slot;
    this.ring = ring;
    this.#line = line;
  }

  /**
   * Attaches the ring with this name and removes its file, unless the attempt can be repeated.
   * @returns undefined if the ring no longer exists
   * @throws UcxError ERR_SHM_SEGMENT if the ring cannot be attached or is invalid; SyscallError EACCES, and those of {@link isLackOfResources}
   */
  static attach(slot: number, packedName: Uint8Array, counters: TransferCounters, folder: string): Sender | undefined {
    const path = segmentPath(packedName, folder);
    // The sender has died, and its files were removed.
    if (!existsSync(path)) return undefined;
    const segment = Segment.attach(packedName, RING_HEADER_BYTES, folder);
    try {
      const geometry = readRingGeometry(segment.words, segment.byteLength);
      if (geometry === undefined) throw segmentError(`${path} is no ring of this version`);
      const { directoryName, wakeFd } = senderOf(segment.words, segment.bytes);
      const line = WakeLine.open(wakeFile(directoryName, folder, wakeFd));
      unlinkIfThere(path);
      return new Sender(slot, new RingReader(segment, geometry, counters), line);
    } catch (error) {
      segment.close();
      if (!isLackOfResources(error)) unlinkIfThere(path);
      throw error;
    }
  }

  /** False once its interface has closed, or its process has ended. */
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
