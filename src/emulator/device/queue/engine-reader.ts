/**
 * Small reads of command processors from device addresses: predicates, scalars, tables of command buffers. Packets themselves are fetched by
 * packet-fetch.ts.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { fetchBytes } from '../memory/memory-access.ts';
import type { EngineAccess } from './engine-access.ts';
import type { Stream } from './stream.ts';

/** Bytes of the longest read: 32 predicates of a word each. */
const BYTES_MAX = 128;

/** Reads for the command processors of one card. */
export class EngineReader {
  /** The words of the last read. */
  readonly words: Int32Array;
  readonly #access: EngineAccess;
  readonly #scratch: ScratchBlock = allocateScratch(BYTES_MAX);

  constructor(access: EngineAccess) {
    this.#access = access;
    const { words } = this.#scratch;
    this.words = new Int32Array(words.buffer, words.byteOffset, words.length);
  }

  /**
   * Reads bytes at a device address, given as two words, plus `offset`. A fault is reported and stops the stream, like a fault of a packet fetch.
   * @returns whether all bytes are in {@link words}
   */
  read(stream: Stream, high: number, low: number, offset: number, byteLength: number): boolean {
    const { map } = this.#access;
    for (let done = 0; done < byteLength; ) {
      if (!this.#access.reach(stream, high, low, offset + done)) {
        stream.stopped = true;
        return false;
      }
      const piece = Math.min(byteLength - done, map.available);
      fetchBytes(map.memory, map.offset, this.#scratch.address + done, piece);
      done += piece;
    }
    return true;
  }

  close(): void {
    this.#scratch.free();
  }
}
