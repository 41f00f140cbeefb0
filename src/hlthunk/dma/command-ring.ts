/**
 * Pooled command buffers of one DMA queue: slots for packets, a data area for short transfers, and the completion word.
 *
 * Gaudi2 executes command buffers in user memory: the slots are in host memory that is mapped for the card once, and a slot is
 * free again when its batch is done. Gaudi copies a kernel command buffer at submission: there one buffer serves all slots. Data
 * area and completion word are mapped host memory in both cases: shareable, so that a driver in another process can map it too.
 */

import { mapShareable, type ShareableMemory } from '../../sys/index.ts';
import { HL_CS_CHUNK_FLAGS } from '../../uapi/index.ts';
import { highAt, lowAt } from '../base/device-address.ts';

/** Bytes of packets in one slot: enough for 41 transfers and the completion message. */
export const SLOT_PACKET_BYTES = 1024;
/** Maximum size of a short transfer in bytes. */
export const SLOT_DATA_BYTES = 1024;
const SLOT_BYTES = SLOT_PACKET_BYTES + SLOT_DATA_BYTES;
/** The completion word has a page of its own before the slots. */
const HEADER_BYTES = 4096;

/** Host memory in the card's address space: the part of its interface that a ring uses. */
export interface RingMapping {
  readonly low: number;
  readonly high: number;
  unmap(): void;
}

/** A kernel command buffer: the part of its interface that a ring uses. */
export interface RingKernelBuffer {
  readonly handleLow: number;
  readonly handleHigh: number;
  readonly words: Uint32Array;
  destroy(): void;
}

/** Services of the device for a ring. */
export interface RingDevice {
  /** Maps host memory for the card. */
  mapHost(address: number, byteLength: number): RingMapping;
  /** Creates and maps a kernel command buffer; undefined if the card executes user memory. */
  createKernelBuffer: ((byteLength: number) => RingKernelBuffer) | undefined;
}

/** The memory of one DMA queue. */
export class CommandRing {
  readonly slots: number;
  /** The words of the packets; slot n starts at `packetWord(n)`. */
  readonly words: Uint32Array;
  /** The data area as bytes; slot n starts at `dataOffset(n)`. */
  readonly data: Uint8Array;
  /** Flags of a chunk that names a slot. */
  readonly chunkFlags: number;
  /** Device address of the completion word. */
  readonly completionLow: number;
  readonly completionHigh: number;
  readonly #completion: Int32Array;
  readonly #memory: ShareableMemory;
  readonly #mapping: RingMapping;
  readonly #kernelBuffer: RingKernelBuffer | undefined;

  /** @param slots maximum number of batches in flight, a power of two */
  constructor(device: RingDevice, slots: number) {
    this.slots = slots;
    this.#memory = mapShareable(HEADER_BYTES + slots * SLOT_BYTES);
    let mapping: RingMapping | undefined;
    try {
      mapping = device.mapHost(this.#memory.address, this.#memory.byteLength);
      this.#memory.closeFile();
      this.#kernelBuffer = device.createKernelBuffer?.(SLOT_PACKET_BYTES);
    } catch (error) {
      mapping?.unmap();
      this.#memory.close();
      throw error;
    }
    this.#mapping = mapping;
    this.words = this.#kernelBuffer?.words ?? this.#memory.words;
    this.data = this.#memory.u8;
    this.chunkFlags = this.#kernelBuffer === undefined ? HL_CS_CHUNK_FLAGS.USER_ALLOC_CB : 0;
    this.#completion = new Int32Array(this.#memory.buffer, 0, 1);
    this.completionLow = this.#mapping.low;
    this.completionHigh = this.#mapping.high;
  }

  /** Number of the last batch that the card has completed, modulo 2^32. */
  get completed(): number {
    return Atomics.load(this.#completion, 0);
  }

  /** Word index of the packets of a slot. */
  packetWord(slot: number): number {
    return this.#kernelBuffer === undefined ? (HEADER_BYTES + slot * SLOT_BYTES) >>> 2 : 0;
  }

  /** Byte offset of the data of a slot. */
  dataOffset(slot: number): number {
    return HEADER_BYTES + slot * SLOT_BYTES + SLOT_PACKET_BYTES;
  }

  /** The handle field of a chunk: the handle of the kernel buffer, or the device address of the slot. */
  handleLow(slot: number): number {
    if (this.#kernelBuffer !== undefined) return this.#kernelBuffer.handleLow;
    return lowAt(this.#mapping.low, HEADER_BYTES + slot * SLOT_BYTES);
  }

  handleHigh(slot: number): number {
    if (this.#kernelBuffer !== undefined) return this.#kernelBuffer.handleHigh;
    return highAt(this.#mapping.low, this.#mapping.high, HEADER_BYTES + slot * SLOT_BYTES);
  }

  /** Device address of a byte of the data area. */
  dataLow(offset: number): number {
    return lowAt(this.#mapping.low, offset);
  }

  dataHigh(offset: number): number {
    return highAt(this.#mapping.low, this.#mapping.high, offset);
  }

  /** Releases everything. The card must not access any slot any more. */
  close(): void {
    this.#kernelBuffer?.destroy();
    this.#mapping.unmap();
    this.#memory.close();
  }
}
