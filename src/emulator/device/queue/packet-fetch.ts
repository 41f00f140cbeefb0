/** The packet that a command processor executes: in a window of the memory that contains it, or in a copy. */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { fetchBytes } from '../memory/memory-access.ts';
import { DIRECT, type PhysicalMemory, WINDOW_BYTES, windowIndex } from '../memory/physical-memory.ts';

/** Bytes that one system call reads ahead from the memory of another process: all packets of most command buffers. */
const AHEAD_BYTES = 4096;

/** The words of the current packet: in a window of its memory, or in a small copy if the memory has no window or the packet spans two memories. */
export class PacketFetch {
  /** The words of the packet, from {@link index} on; words beyond the fetched bytes do not belong to it. */
  words: Int32Array;
  index = 0;
  readonly #bytesMax: number;
  readonly #scratch: ScratchBlock;
  readonly #scratchWords: Int32Array;
  /** Bytes that were read ahead, with their memory and the offset of the first one; undefined if there are none. */
  #ahead: ScratchBlock | undefined;
  #aheadWords: Int32Array = new Int32Array(0);
  #aheadMemory: PhysicalMemory | undefined;
  #aheadStart = 0;
  #aheadEnd = 0;

  /** @param bytesMax bytes of the longest packet */
  constructor(bytesMax: number) {
    this.#bytesMax = bytesMax;
    this.#scratch = allocateScratch(bytesMax);
    const { words } = this.#scratch;
    this.#scratchWords = new Int32Array(words.buffer, words.byteOffset, words.length);
    this.words = this.#scratchWords;
  }

  /** Drops the bytes read ahead: a command buffer is fetched anew at each execution. */
  begin(): void {
    this.#aheadMemory = undefined;
  }

  /** Makes the packet at byte `offset` of a memory current; at least `byteLength` bytes follow there. */
  show(memory: PhysicalMemory, offset: number, byteLength: number): void {
    const inWindow = windowIndex(offset);
    if (memory.hasWindows && (inWindow & 3) === 0 && inWindow <= WINDOW_BYTES - this.#bytesMax) {
      this.words = memory.window(offset).words;
      this.index = inWindow >>> 2;
      return;
    }
    if (memory.space !== DIRECT) {
      this.#showForeign(memory, offset, byteLength);
      return;
    }
    this.beginCopy();
    this.copy(0, memory, offset, Math.min(byteLength, this.#bytesMax));
  }

  /** Makes a copy current, at first zeros, that {@link copy} fills with the pieces of a packet. */
  beginCopy(): void {
    this.words = this.#scratchWords;
    this.index = 0;
    this.#scratchWords.fill(0);
  }

  /** Copies a piece to byte `at` of the packet. */
  copy(at: number, memory: PhysicalMemory, offset: number, byteLength: number): void {
    fetchBytes(memory, offset, this.#scratch.address + at, byteLength);
  }

  close(): void {
    this.#scratch.free();
    this.#ahead?.free();
  }

  /** Reads zeros for bytes that cannot be read: they are not a valid packet, so the stream stops there. */
  #showForeign(memory: PhysicalMemory, offset: number, byteLength: number): void {
    const needed = Math.min(byteLength, this.#bytesMax);
    const isAhead = memory === this.#aheadMemory && offset >= this.#aheadStart && offset + needed <= this.#aheadEnd;
    if (!isAhead || ((offset - this.#aheadStart) & 3) !== 0) {
      this.#readAhead(memory, offset, Math.min(byteLength, AHEAD_BYTES));
    }
    this.words = this.#aheadWords;
    this.index = (offset - this.#aheadStart) >>> 2;
  }

  #readAhead(memory: PhysicalMemory, offset: number, byteLength: number): void {
    if (this.#ahead === undefined) {
      this.#ahead = allocateScratch(AHEAD_BYTES + this.#bytesMax);
      const { words } = this.#ahead;
      this.#aheadWords = new Int32Array(words.buffer, words.byteOffset, words.length);
    }
    this.#aheadWords.fill(0, 0, (byteLength + this.#bytesMax) >>> 2);
    fetchBytes(memory, offset, this.#ahead.address, byteLength);
    this.#aheadMemory = memory;
    this.#aheadStart = offset;
    this.#aheadEnd = offset + byteLength;
  }
}
