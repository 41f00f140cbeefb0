/**
 * The LIN_DMA packet: copies and fills between all memories that a card reaches. It translates a transfer and passes it to the channel of the stream; the
 * engines move the bytes, or this thread if they are few and the stream is idle.
 *
 * A transfer that spans translations is checked as a whole before its first byte moves. If it has more slices than the channel has free entries, the
 * stream records its progress and continues later.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { linDmaMemset } from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import type { DmaChannel, DmaEngines } from '../engine/dma-engines.ts';
import { Opcode } from '../engine/dma-ring.ts';
import { Target } from '../memory/address-map.ts';
import { copyMemory, fetchBytes, storeBytes } from '../memory/memory-access.ts';
import type { PhysicalMemory } from '../memory/physical-memory.ts';
import type { CardTraffic } from '../memory/traffic.ts';
import type { WorkBudget } from '../queue/cp-state.ts';
import type { EngineAccess } from '../queue/engine-access.ts';
import type { Job, TransferStream } from '../queue/stream.ts';

/** Result of one packet: continue with the next, or stop and retry later. */
export type PacketOutcome = 'next' | 'blocked';

/** Bytes of the pattern of a fill. */
const PATTERN_BYTES = 8;

/** Minimum size of inline copies that are timed: shorter ones take hardly longer than reading the clock. */
const TIMED_BYTES_MIN = 65_536;

/** Parts of the card that transfers use. */
export interface LinearDmaOptions {
  readonly access: EngineAccess;
  readonly engines: DmaEngines;
  /** Copies up to this size run at once if their stream is idle; 0 never. */
  readonly inlineBytesMax: number;
  readonly clock: Clock;
  readonly traffic: CardTraffic;
}

/** Eight bytes with which memory is filled. */
interface Pattern {
  low: number;
  high: number;
}

/** Executes transfers. One per card. */
export class LinearDma {
  readonly #access: EngineAccess;
  readonly #engines: DmaEngines;
  readonly #inlineBytesMax: number;
  readonly #clock: Clock;
  readonly #traffic: CardTraffic;
  /** Source of the piece that {@link #nextPiece} found; the address map has the destination. */
  #source: PhysicalMemory;
  #sourceOffset = 0;
  readonly #pattern: Pattern = { low: 0, high: 0 };

  constructor({ access, engines, inlineBytesMax, clock, traffic }: LinearDmaOptions) {
    this.#access = access;
    this.#engines = engines;
    this.#inlineBytesMax = inlineBytesMax;
    this.#clock = clock;
    this.#traffic = traffic;
    this.#source = access.map.memory;
  }

  /** Executes the packet at `words[index]`: tsize, ctl, source, destination. */
  execute(stream: TransferStream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const byteLength = words[index]! >>> 0;
    if (byteLength === 0) return 'next';
    if (stream.movedBytes > 0 || linDmaMemset(words[index + 1]!)) return this.#byPieces(stream, job, words, index);
    const { map } = this.#access;
    if (map.decode(words[index + 3]!, words[index + 2]!) !== Target.MEMORY || map.available < byteLength) {
      return this.#byPieces(stream, job, words, index);
    }
    const source = map.memory;
    const sourceOffset = map.offset;
    if (map.decode(words[index + 5]!, words[index + 4]!) !== Target.MEMORY || map.available < byteLength) {
      return this.#byPieces(stream, job, words, index);
    }
    const target = map.memory;
    if (byteLength <= this.#inlineBytesMax && stream.drained) {
      this.#traffic.copied(source, target, byteLength, true);
      const isTimed = byteLength >= TIMED_BYTES_MIN;
      const started = isTimed ? this.#clock.nowNs() : 0;
      copyMemory(target, map.offset, source, sourceOffset, byteLength);
      if (isTimed) this.#traffic.inlineNs += this.#clock.nowNs() - started;
      return 'next';
    }
    const channel = job.channelOf(stream, this.#engines);
    if (channel.room === 0) return 'blocked';
    this.#traffic.copied(source, target, byteLength, true);
    channel.copy(target, map.offset, source, sourceOffset, byteLength);
    job.position = channel.position;
    return 'next';
  }

  /** Executes a fill, or a transfer that spans translations or faults. */
  #byPieces(stream: TransferStream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { map } = this.#access;
    const byteLength = words[index]! >>> 0;
    if (stream.movedBytes === 0 && !this.isReachable(stream, words, index)) return 'next';
    const channel = job.channelOf(stream, this.#engines);
    const fills = linDmaMemset(words[index + 1]!);
    while (stream.movedBytes < byteLength) {
      if (channel.room === 0) return 'blocked';
      // A fault here means that memory was unmapped after the check: the rest of the transfer is dropped.
      const piece = this.#nextPiece(stream, words, index, stream.movedBytes);
      if (piece === 0) break;
      const isFirst = stream.movedBytes === 0;
      if (fills) {
        this.#traffic.filled(piece, isFirst);
        this.#fill(channel, this.#patternAt(words, index, stream.movedBytes % PATTERN_BYTES), piece);
      } else {
        this.#traffic.copied(this.#source, map.memory, piece, isFirst);
        channel.copy(map.memory, map.offset, this.#source, this.#sourceOffset, piece);
      }
      job.position = channel.position;
      stream.movedBytes += piece;
    }
    stream.movedBytes = 0;
    return 'next';
  }

  /** Whether every byte of the transfer at `words[index]` can move; reports the fault otherwise. */
  isReachable(stream: TransferStream, words: Int32Array, index: number): boolean {
    const byteLength = words[index]! >>> 0;
    for (let done = 0; done < byteLength; ) {
      const piece = this.#nextPiece(stream, words, index, done);
      if (piece === 0) return false;
      done += piece;
    }
    return true;
  }

  /** Number of contiguous bytes after the first `done` ones; 0, after reporting it, on a fault. */
  #nextPiece(stream: TransferStream, words: Int32Array, index: number, done: number): number {
    const { map } = this.#access;
    let available = (words[index]! >>> 0) - done;
    if (!linDmaMemset(words[index + 1]!)) {
      if (!this.#access.reach(stream, words[index + 3]!, words[index + 2]!, done)) return 0;
      this.#source = map.memory;
      this.#sourceOffset = map.offset;
      available = Math.min(available, map.available);
    }
    if (!this.#access.reachToWrite(stream, words[index + 5]!, words[index + 4]!, done)) return 0;
    return Math.min(available, map.available);
  }

  /** The two halves of the pattern in the source words, rotated so that it begins with its byte `phase`. */
  #patternAt(words: Int32Array, index: number, phase: number): Pattern {
    const pattern = this.#pattern;
    pattern.low = words[index + 2]!;
    pattern.high = words[index + 3]!;
    for (let i = 0; i < phase; i++) {
      const first = pattern.low & 0xff;
      pattern.low = (pattern.low >>> 8) | (pattern.high << 24);
      pattern.high = (pattern.high >>> 8) | (first << 24);
    }
    return pattern;
  }

  /** Fills the piece with a pattern. */
  #fill(channel: DmaChannel, { low, high }: Pattern, byteLength: number): void {
    const { memory, offset } = this.#access.map;
    channel.immediate(Opcode.FILL, low, high, memory.address + offset, byteLength, memory.space);
  }
}

/** Bytes of a slice, a multiple of every element size; units of the work budget that a slice takes. */
const SLICE_BYTES = 65_536;
const SLICE_UNITS = 128;

/** Parts of the card that {@link SwappedDma} uses. */
export interface SwappedDmaOptions {
  readonly access: EngineAccess;
  readonly linearDma: LinearDma;
  readonly budget: WorkBudget;
  readonly traffic: CardTraffic;
}

/**
 * LIN_DMA of gaudi2 that reverses the bytes of every element; one per card. Elements may span translations, so it reads slices, swaps them and writes
 * them, in the thread of the command processor.
 *
 * Source: endian_swap of packet_lin_dma, gaudi2_packets.h, Linux 6.12. Bytes after the last whole element are copied unchanged (inferred).
 */
export class SwappedDma {
  readonly #options: SwappedDmaOptions;
  #scratch: ScratchBlock | undefined;
  /** The memory of the last read. */
  #source: PhysicalMemory | undefined;

  constructor(options: SwappedDmaOptions) {
    this.#options = options;
  }

  /** Executes the packet at `words[index]`, in several passes if it is long. */
  execute(stream: TransferStream, words: Int32Array, index: number, elementBytes: number): PacketOutcome {
    const { linearDma, budget } = this.#options;
    const byteLength = words[index]! >>> 0;
    if (byteLength === 0) return 'next';
    if (!stream.drained) return 'blocked';
    if (stream.swappedBytes === 0 && !linearDma.isReachable(stream, words, index)) return 'next';
    while (stream.swappedBytes < byteLength) {
      if (!budget.take(SLICE_UNITS)) return 'blocked';
      const slice = Math.min(SLICE_BYTES, byteLength - stream.swappedBytes);
      // A fault here means that memory was unmapped after the check: the rest of the transfer is dropped.
      if (!this.#readSlice(stream, words, index, slice)) break;
      reverseElements(this.#buffer().u8, slice, elementBytes);
      if (!this.#writeSlice(stream, words, index, slice)) break;
      stream.swappedBytes += slice;
    }
    stream.swappedBytes = 0;
    return 'next';
  }

  close(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  /** Reads a slice into the buffer; false on a fault. */
  #readSlice(stream: TransferStream, words: Int32Array, index: number, byteLength: number): boolean {
    const { access } = this.#options;
    const { map } = access;
    const done = stream.swappedBytes;
    const scratch = this.#buffer();
    for (let read = 0; read < byteLength; ) {
      if (!access.reach(stream, words[index + 3]!, words[index + 2]!, done + read)) return false;
      const piece = Math.min(byteLength - read, map.available);
      this.#source = map.memory;
      fetchBytes(map.memory, map.offset, scratch.address + read, piece);
      read += piece;
    }
    return true;
  }

  /** Writes a slice from the buffer; false on a fault. */
  #writeSlice(stream: TransferStream, words: Int32Array, index: number, byteLength: number): boolean {
    const { access, traffic } = this.#options;
    const { map } = access;
    const done = stream.swappedBytes;
    const scratch = this.#buffer();
    for (let written = 0; written < byteLength; ) {
      if (!access.reachToWrite(stream, words[index + 5]!, words[index + 4]!, done + written)) return false;
      const piece = Math.min(byteLength - written, map.available);
      storeBytes(map.memory, map.offset, scratch.address + written, piece);
      traffic.copied(this.#source ?? map.memory, map.memory, piece, done + written === 0);
      written += piece;
    }
    return true;
  }

  #buffer(): ScratchBlock {
    this.#scratch ??= allocateScratch(SLICE_BYTES);
    return this.#scratch;
  }
}

/** Reverses the bytes of each whole element. */
function reverseElements(bytes: Uint8Array, byteLength: number, elementBytes: number): void {
  for (let at = 0; at + elementBytes <= byteLength; at += elementBytes) {
    for (let low = at, high = at + elementBytes - 1; low < high; low++, high--) {
      const byte = bytes[low]!;
      bytes[low] = bytes[high]!;
      bytes[high] = byte;
    }
  }
}
