/**
 * Pooled command buffers of one DMA queue: slots for packets, a data area for short transfers, long areas for batches of many packets, and the completion word.
 *
 * Gaudi2 executes command buffers in user memory: the slots are in host memory that is mapped for the card once, and a slot is free again when its batch is
 * complete. Gaudi copies a kernel command buffer at submission, so one buffer serves all slots. The data area and the completion word are mapped host memory in
 * both cases: shareable, so that a driver in another process can map it too.
 */

import type { DriverFile } from '../../driver/port.ts';
import { mapShareable, type ShareableMemory } from '../../sys/index.ts';
import {
  HL_CS_CHUNK_FLAGS,
  LIN_DMA_BYTES,
  linDmaCtl,
  MSG_LONG_BYTES,
  msgLongCtl,
  type PacketAsic,
  writeLinDma,
  writeMsgLong,
} from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { highAt, lowAt } from '../base/card-file.ts';
import type { CommandBuffer } from '../cs/command-buffer.ts';
import type { DmaRequest } from './request.ts';

/** Bytes of packets in one slot: enough for 42 transfers and the completion message. */
const SLOT_PACKET_BYTES = 1024;
/** Bytes of packets in a long area (there are two): enough for 1364 transfers and the completion message. */
const LONG_PACKET_BYTES = 32_768;
const LONG_AREAS = 2;
/** Maximum size of a short transfer in bytes. */
export const SLOT_DATA_BYTES = 1024;
const SLOT_BYTES = SLOT_PACKET_BYTES + SLOT_DATA_BYTES;
/** The completion word has a separate page before the slots. */
const HEADER_BYTES = 4096;

/** Host memory in the card's address space, with the methods that a ring uses. */
export interface RingMapping {
  readonly low: number;
  readonly high: number;
  unmap(): void;
}

/** The device of a DMA queue. */
export interface DmaQueueDevice {
  readonly name: string;
  readonly clock: Clock;
  readonly file: DriverFile;
  readonly asic: PacketAsic;
  /** Whether requests are held back, to be submitted together. */
  readonly isCorked: boolean;
  /** Maps host memory for the card. */
  mapHost(address: number, byteLength: number): RingMapping;
  /** Creates and maps a kernel command buffer; undefined if the card executes user memory. */
  createKernelBuffer: ((byteLength: number) => CommandBuffer) | undefined;
  /** Counts a submission against the driver's limit, after reading the faults of earlier ones; false at the limit. */
  takeSubmission(): boolean;
  returnSubmission(): void;
  /** Reads the reported faults. Sets the outcome of requests whose transfers a fault may have corrupted to a failure. */
  checkFaults(): void;
  /** The driver's number of the submission that it reported as timed out, 0 for none. Read only when a queue fails. */
  readonly timedOutSeq: number;
  /** Remaining sleep of callers that wait for progress of a queue, in nanoseconds; 0 if there are none. */
  readonly sleepNs: number;
  /** Wakes the sleeping callers. */
  wake(): void;
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
  readonly #transferCtl: number;
  readonly #messageCtl: number;
  readonly #memory: ShareableMemory;
  readonly #mapping: RingMapping;
  readonly #kernelBuffer: CommandBuffer | undefined;
  /** Low word of the kernel buffer's handle, with the high word below; 0 without a kernel buffer. */
  readonly #handleLow: number;
  readonly #handleHigh: number;
  /** The last batch of each long area; 0 if an area was never used. */
  readonly #longBatches: Int32Array = new Int32Array(LONG_AREAS);

  /** @param slots maximum number of batches in flight, a power of two */
  constructor(device: Pick<DmaQueueDevice, 'asic' | 'mapHost' | 'createKernelBuffer'>, slots: number) {
    this.slots = slots;
    this.#transferCtl = linDmaCtl(device.asic) | 0;
    this.#messageCtl = msgLongCtl({ engBarrier: true, msgBarrier: true }) | 0;
    this.#memory = mapShareable(HEADER_BYTES + slots * SLOT_BYTES + LONG_AREAS * LONG_PACKET_BYTES);
    let mapping: RingMapping | undefined;
    try {
      mapping = device.mapHost(this.#memory.address, this.#memory.byteLength);
      this.#memory.closeFile();
      this.#kernelBuffer = device.createKernelBuffer?.(LONG_PACKET_BYTES);
    } catch (error) {
      mapping?.unmap();
      this.#memory.close();
      throw error;
    }
    this.#mapping = mapping;
    this.#handleLow = lowWord(this.#kernelBuffer?.handle ?? 0n);
    this.#handleHigh = highWord(this.#kernelBuffer?.handle ?? 0n);
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

  /**
   * The area for the packets of a batch: that of its slot, or a long one if it has more packets and one is free.
   * @param retired the last batch that the card has completed
   */
  areaFor(slot: number, transfers: number, retired: number): number {
    if (this.#kernelBuffer !== undefined || transfers <= transfersIn(SLOT_PACKET_BYTES)) return slot;
    for (let i = 0; i < LONG_AREAS; i++) {
      if (((retired - this.#longBatches[i]!) | 0) >= 0) return this.slots + i;
    }
    return slot;
  }

  /** Records the batch that uses an area until the batch is retired. */
  useArea(area: number, batch: number): void {
    if (area >= this.slots) this.#longBatches[area - this.slots] = batch;
  }

  /** Number of transfers that fit into an area with the completion message. */
  transfersMax(area: number): number {
    return transfersIn(this.#kernelBuffer !== undefined || area >= this.slots ? LONG_PACKET_BYTES : SLOT_PACKET_BYTES);
  }

  /** Word index of the packets of an area. */
  packetWord(area: number): number {
    return this.#kernelBuffer === undefined ? this.#areaOffset(area) >>> 2 : 0;
  }

  /** Byte offset of the data of a slot. */
  dataOffset(slot: number): number {
    return HEADER_BYTES + slot * SLOT_BYTES + SLOT_PACKET_BYTES;
  }

  /** The handle field of a chunk: the handle of the kernel buffer, or the device address of the area. */
  handleLow(area: number): number {
    if (this.#kernelBuffer !== undefined) return this.#handleLow;
    return lowAt(this.#mapping.low, this.#areaOffset(area));
  }

  handleHigh(area: number): number {
    if (this.#kernelBuffer !== undefined) return this.#handleHigh;
    return highAt(this.#mapping.low, this.#mapping.high, this.#areaOffset(area));
  }

  /** Device address of a byte of the data area. */
  dataLow(offset: number): number {
    return lowAt(this.#mapping.low, offset);
  }

  dataHigh(offset: number): number {
    return highAt(this.#mapping.low, this.#mapping.high, offset);
  }

  /** Writes the packet of `bytes` bytes of a transfer, from byte `from` of it on, at a word; returns the next word. */
  writeTransfer(word: number, request: DmaRequest, from: number, bytes: number): number {
    return writeLinDma(
      this.words,
      word,
      this.#transferCtl,
      bytes,
      lowAt(request.sourceLow, from),
      highAt(request.sourceLow, request.sourceHigh, from),
      lowAt(request.destinationLow, from),
      highAt(request.destinationLow, request.destinationHigh, from),
    );
  }

  /** Writes the packet that signals the end of a batch, after the packets of its transfers. Returns like {@link writeTransfer}. */
  writeCompletion(word: number, batch: number): number {
    return writeMsgLong(this.words, word, this.#messageCtl, batch, this.completionLow, this.completionHigh);
  }

  #areaOffset(area: number): number {
    const { slots } = this;
    if (area < slots) return HEADER_BYTES + area * SLOT_BYTES;
    return HEADER_BYTES + slots * SLOT_BYTES + (area - slots) * LONG_PACKET_BYTES;
  }

  /** Releases all memory. The card must no longer access any slot. */
  close(): void {
    this.#kernelBuffer?.destroy();
    this.#mapping.unmap();
    this.#memory.close();
  }
}

/** Number of transfers whose packets fit into `packetBytes` with the completion message. */
function transfersIn(packetBytes: number): number {
  return Math.floor((packetBytes - MSG_LONG_BYTES) / LIN_DMA_BYTES);
}
