/**
 * Execution of one descriptor by a DMA engine: copy, fill, write of a word, time stamp. It takes descriptors from a channel in order and publishes the
 * consumer index; its caller selects the time and the thread.
 */

import { allocateScratch, Errno, memcpy, SyscallError, writeAddressSpace } from '../../../sys/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { highOf, joinWords } from '../../../ucs/type/int64.ts';
import { copyBytes } from '../memory/memory-access.ts';
import { DIRECT } from '../memory/physical-memory.ts';
import {
  busyWord,
  consumerWord,
  DESCRIPTOR_DESTINATION_HIGH,
  DESCRIPTOR_DESTINATION_LOW,
  DESCRIPTOR_DESTINATION_SPACE,
  DESCRIPTOR_LENGTH,
  DESCRIPTOR_OPCODE,
  DESCRIPTOR_SOURCE_HIGH,
  DESCRIPTOR_SOURCE_LOW,
  DESCRIPTOR_SOURCE_SPACE,
  descriptorWord,
  Opcode,
  producerWord,
} from './dma-ring.ts';

/** Bytes that are copied or filled for one channel before the next channel is served; a multiple of the pattern. */
const SLICE_BYTES = 4 * 2 ** 20;
const WORD_BYTES = 4;
const NS_PER_US = 1000;
/** Bytes that are filled in another process before the next channel is served; a multiple of the pattern. */
const PATTERN_COPY_BYTES = 65536;

/** Executes the descriptors of one shared region. */
export class EngineProgram {
  readonly #words: Int32Array;
  /** Host virtual address of the region, for copying values out of descriptors. */
  readonly #address: number;
  /** Bytes already executed of the descriptor at the head of each channel. */
  readonly #done: Float64Array;
  /** Busy time of each channel in nanoseconds. */
  readonly #busyNs: Float64Array;
  readonly #clock: Clock;

  constructor(words: Int32Array, address: number, channels: number, clock: Clock) {
    this.#words = words;
    this.#address = address;
    this.#done = new Float64Array(channels);
    this.#busyNs = new Float64Array(channels);
    this.#clock = clock;
  }

  /**
   * Serves a channel, with a bounded amount of work.
   * @returns 0 if it had nothing to do, 1 if it worked, 2 if a descriptor was finished
   * @throws SyscallError EIO for an invalid opcode: the ring is corrupt
   */
  serve(channel: number): 0 | 1 | 2 {
    const words = this.#words;
    const consumer = words[consumerWord(channel)]!;
    if (Atomics.load(words, producerWord(channel)) === consumer) return 0;
    const started = this.#clock.nowNs();
    const isFinished = this.#execute(channel, descriptorWord(channel, consumer));
    const busyNs = this.#busyNs[channel]! + this.#clock.nowNs() - started;
    this.#busyNs[channel] = busyNs;
    words[busyWord(channel)] = Math.floor(busyNs / NS_PER_US) | 0;
    if (!isFinished) return 1;
    this.#done[channel] = 0;
    // The index is stored last: a reader that sees it also sees the data.
    Atomics.store(words, consumerWord(channel), (consumer + 1) | 0);
    return 2;
  }

  /** Works on the descriptor at word `at`; returns true if it is finished. */
  #execute(channel: number, at: number): boolean {
    const words = this.#words;
    const destination = addressAt(words, at + DESCRIPTOR_DESTINATION_HIGH, at + DESCRIPTOR_DESTINATION_LOW);
    switch (words[at + DESCRIPTOR_OPCODE]) {
      case Opcode.COPY:
        return this.#copySlice(channel, at, destination);
      case Opcode.FILL:
        if (words[at + DESCRIPTOR_DESTINATION_SPACE] === DIRECT) return this.#fillSlice(channel, at, destination);
        return this.#fillForeignSlice(channel, at, destination);
      case Opcode.WRITE32: {
        const value = this.#address + (at + DESCRIPTOR_SOURCE_LOW) * 4;
        copyBytes(words[at + DESCRIPTOR_DESTINATION_SPACE]!, destination, DIRECT, value, WORD_BYTES);
        return true;
      }
      case Opcode.TIMESTAMP:
        this.#stamp(at, destination);
        return true;
      default:
        throw new SyscallError(
          'dma',
          Errno.EIO,
          `unknown opcode ${words[at + DESCRIPTOR_OPCODE]} of a descriptor in channel ${channel}`,
        );
    }
  }

  /** Copies a slice. If another process has ended or has unmapped its memory, the transfer ends there. */
  #copySlice(channel: number, at: number, destination: number): boolean {
    const words = this.#words;
    const source = addressAt(words, at + DESCRIPTOR_SOURCE_HIGH, at + DESCRIPTOR_SOURCE_LOW);
    const byteLength = words[at + DESCRIPTOR_LENGTH]! >>> 0;
    const done = this.#done[channel]!;
    const slice = Math.min(SLICE_BYTES, byteLength - done);
    const targetSpace = words[at + DESCRIPTOR_DESTINATION_SPACE]!;
    const sourceSpace = words[at + DESCRIPTOR_SOURCE_SPACE]!;
    const moved = copyBytes(targetSpace, destination + done, sourceSpace, source + done, slice);
    this.#done[channel] = done + slice;
    return moved !== slice || done + slice === byteLength;
  }

  /** Fills a slice in another process, from a local copy of the pattern. */
  #fillForeignSlice(channel: number, at: number, destination: number): boolean {
    const byteLength = this.#words[at + DESCRIPTOR_LENGTH]! >>> 0;
    const done = this.#done[channel]!;
    const slice = Math.min(PATTERN_COPY_BYTES, byteLength - done);
    const pattern = allocateScratch(PATTERN_COPY_BYTES);
    const { words } = pattern;
    for (let i = 0; i < words.length; i++) words[i] = this.#words[at + DESCRIPTOR_SOURCE_LOW + (i & 1)]!;
    const space = this.#words[at + DESCRIPTOR_DESTINATION_SPACE]!;
    const moved = writeAddressSpace(space, destination + done, pattern.address, slice);
    pattern.free();
    this.#done[channel] = done + slice;
    return moved !== slice || done + slice === byteLength;
  }

  /** Repeats the 8-byte pattern in a slice: writes it once, then doubles the filled part. */
  #fillSlice(channel: number, at: number, destination: number): boolean {
    const byteLength = this.#words[at + DESCRIPTOR_LENGTH]! >>> 0;
    const done = this.#done[channel]!;
    const start = destination + done;
    const slice = Math.min(SLICE_BYTES, byteLength - done);
    let filled = Math.min(8, slice);
    memcpy(start, this.#address + (at + DESCRIPTOR_SOURCE_LOW) * 4, filled);
    while (filled < slice) {
      const piece = Math.min(filled, slice - filled);
      memcpy(start + filled, start, piece);
      filled += piece;
    }
    this.#done[channel] = done + slice;
    return done + slice === byteLength;
  }

  /** Writes CLOCK_MONOTONIC in nanoseconds as 64 bits. The source words of the descriptor are used as scratch memory. */
  #stamp(at: number, destination: number): void {
    const now = this.#clock.nowNs();
    this.#words[at + DESCRIPTOR_SOURCE_LOW] = now | 0;
    this.#words[at + DESCRIPTOR_SOURCE_HIGH] = highOf(now);
    memcpy(destination, this.#address + (at + DESCRIPTOR_SOURCE_LOW) * 4, 8);
  }
}

function addressAt(words: Int32Array, high: number, low: number): number {
  return joinWords(words[low]!, words[high]!);
}
