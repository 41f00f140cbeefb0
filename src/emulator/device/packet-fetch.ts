/**
 * Where the command processor finds the words of the packet at hand: in a window of its memory, or in a small copy where there is no
 * window, or where the packet lies across a border. It knows no packets and no addresses.
 */

import { allocateScratch, memcpy, type ScratchBlock } from '../../sys/index.ts';
import { LIN_DMA_BYTES } from '../../uapi/index.ts';
import { type PhysicalMemory, WINDOW_BYTES, windowIndex } from './physical-memory.ts';

/** Bytes of the longest packet. */
export const PACKET_BYTES_MAX: number = LIN_DMA_BYTES;

/** The packet at hand. */
export class PacketFetch {
  /** The words of the packet, from {@link index} on; those behind what was fetched are not of it. */
  words: Int32Array;
  index = 0;
  readonly #scratch: ScratchBlock = allocateScratch(PACKET_BYTES_MAX);
  readonly #scratchWords: Int32Array;

  constructor() {
    const { words } = this.#scratch;
    this.#scratchWords = new Int32Array(words.buffer, words.byteOffset, words.length);
    this.words = this.#scratchWords;
  }

  /** Shows the packet at byte `offset` of a memory, of which at least `byteLength` bytes are there. */
  show(memory: PhysicalMemory, offset: number, byteLength: number): void {
    const inWindow = windowIndex(offset);
    if (memory.hasWindows && (inWindow & 3) === 0 && inWindow <= WINDOW_BYTES - PACKET_BYTES_MAX) {
      this.words = memory.window(offset).words;
      this.index = inWindow >>> 2;
      return;
    }
    this.beginCopy();
    this.copy(0, memory, offset, Math.min(byteLength, PACKET_BYTES_MAX));
  }

  /** Shows zeros, into which {@link copy} puts the pieces of a packet. */
  beginCopy(): void {
    this.words = this.#scratchWords;
    this.index = 0;
    this.#scratchWords.fill(0);
  }

  /** Puts a piece at byte `at` of the packet. */
  copy(at: number, memory: PhysicalMemory, offset: number, byteLength: number): void {
    memcpy(this.#scratch.address + at, memory.address + offset, byteLength);
  }

  close(): void {
    this.#scratch.free();
  }
}
