/**
 * LIN_DMA of gaudi2 that reverses the bytes of every element. Elements may span translations, so it reads slices, swaps them and writes them, in
 * the thread of the command processor.
 *
 * Source: endian_swap of packet_lin_dma, gaudi2_packets.h, Linux 6.12. Bytes behind the last whole element are copied as they are (inferred).
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { fetchBytes, storeBytes } from '../memory/memory-access.ts';
import type { CardTraffic } from '../memory/traffic.ts';
import type { EngineAccess } from '../queue/engine-access.ts';
import type { Stream } from '../queue/stream.ts';
import type { WorkBudget } from '../queue/work-budget.ts';
import type { LinearDma, Outcome } from './linear-dma.ts';

/** Bytes of a slice, a multiple of every element size; units of the work budget that a slice takes. */
const SLICE_BYTES = 65_536;
const SLICE_UNITS = 128;

/** Connections of the transfers. */
export interface SwappedDmaOptions {
  readonly access: EngineAccess;
  readonly linearDma: LinearDma;
  readonly budget: WorkBudget;
  readonly traffic: CardTraffic;
}

/** Executes such transfers. One per card. */
export class SwappedDma {
  readonly #options: SwappedDmaOptions;
  #scratch: ScratchBlock | undefined;

  constructor(options: SwappedDmaOptions) {
    this.#options = options;
  }

  /** Executes the packet at `words[index]`, in several passes if it is long. */
  execute(stream: Stream, words: Int32Array, index: number, elementBytes: number): Outcome {
    const { linearDma, budget } = this.#options;
    const { cp } = stream;
    const byteLength = words[index]! >>> 0;
    if (byteLength === 0) return 'next';
    if (!stream.drained) return 'blocked';
    if (cp.swappedBytes === 0 && !linearDma.isReachable(stream, words, index)) return 'next';
    while (cp.swappedBytes < byteLength) {
      if (!budget.take(SLICE_UNITS)) return 'blocked';
      const slice = Math.min(SLICE_BYTES, byteLength - cp.swappedBytes);
      // A fault here means that memory was unmapped after the check: the rest of the transfer is dropped.
      if (!this.#moveSlice(stream, words, index, slice, elementBytes)) break;
      cp.swappedBytes += slice;
    }
    cp.swappedBytes = 0;
    return 'next';
  }

  close(): void {
    this.#scratch?.free();
    this.#scratch = undefined;
  }

  #moveSlice(stream: Stream, words: Int32Array, index: number, byteLength: number, elementBytes: number): boolean {
    const { access, traffic } = this.#options;
    const { map } = access;
    const done = stream.cp.swappedBytes;
    const scratch = this.#buffer();
    let source = map.memory;
    for (let read = 0; read < byteLength; ) {
      if (!access.reach(stream, words[index + 3]!, words[index + 2]!, done + read)) return false;
      const piece = Math.min(byteLength - read, map.available);
      source = map.memory;
      fetchBytes(source, map.offset, scratch.address + read, piece);
      read += piece;
    }
    reverseElements(scratch.u8, byteLength, elementBytes);
    for (let written = 0; written < byteLength; ) {
      if (!access.reachToWrite(stream, words[index + 5]!, words[index + 4]!, done + written)) return false;
      const piece = Math.min(byteLength - written, map.available);
      storeBytes(map.memory, map.offset, scratch.address + written, piece);
      traffic.copied(source, map.memory, piece, done + written === 0);
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
