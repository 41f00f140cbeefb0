/** The ioctls of one queue: submits a batch, and asks the driver about one. The arguments are in blocks that are allocated once. What a batch contains is not decided here. */

import type { DriverFile } from '../../driver/port.ts';
import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import { HL_CS_ARGS, HL_CS_CHUNK } from '../../uapi/index.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { CommandRing } from './command-ring.ts';
import { allocateWaitArguments, writeWaitArguments } from './completion-wait.ts';

const CS = HL_CS_ARGS.in.words;
const CS_OUT = HL_CS_ARGS.out.words;
const CHUNK = HL_CS_CHUNK.words;
/** The one chunk of a submission is behind the arguments in the same block. */
const CHUNK_BYTE = 64;
const CHUNK_WORD: number = CHUNK_BYTE / 4;

/** The ioctls of one queue. */
export class BatchIoctls {
  readonly #file: DriverFile;
  readonly #ring: CommandRing;
  readonly #queueIndex: number;
  readonly #csRequest: number;
  readonly #waitRequest: number;
  readonly #block: ScratchBlock;
  readonly #waitBlock: ScratchBlock;
  /** Sequence number of the driver for each slot. */
  readonly #slotSeq: Float64Array;

  constructor(file: DriverFile, ring: CommandRing, queueIndex: number) {
    this.#file = file;
    this.#ring = ring;
    this.#queueIndex = queueIndex;
    // Signed, so that the numbers are small integers of V8; the kernel evaluates 32 bits only.
    this.#csRequest = file.numbers.CS | 0;
    this.#waitRequest = file.numbers.WAIT_CS | 0;
    this.#block = allocateScratch(CHUNK_BYTE + HL_CS_CHUNK.size);
    this.#waitBlock = allocateWaitArguments();
    this.#slotSeq = new Float64Array(ring.slots);
  }

  /** Runs the CS ioctl for the packets in an area; returns 0 or a negative errno. */
  submit(slot: number, area: number, packetBytes: number): number {
    const { words, address } = this.#block;
    for (let i = 0; i < CHUNK_WORD; i++) words[i] = 0;
    words[CS.chunks_execute] = address + CHUNK_BYTE;
    words[CS.chunks_execute + 1] = highOf(address + CHUNK_BYTE);
    words[CS.num_chunks_execute] = 1;
    words[CHUNK_WORD + CHUNK.cb_handle] = this.#ring.handleLow(area);
    words[CHUNK_WORD + CHUNK.cb_handle + 1] = this.#ring.handleHigh(area);
    words[CHUNK_WORD + CHUNK.queue_index] = this.#queueIndex;
    words[CHUNK_WORD + CHUNK.cb_size] = packetBytes;
    words[CHUNK_WORD + CHUNK.cs_chunk_flags] = this.#ring.chunkFlags;
    const result = this.#file.ioctl(this.#csRequest, this.#block);
    if (result === 0) this.#slotSeq[slot] = joinWords(words[CS_OUT.seq]!, words[CS_OUT.seq + 1]!);
    return result;
  }

  /** The driver's number of the last batch that was submitted in a slot. */
  seqOf(slot: number): number {
    return this.#slotSeq[slot]!;
  }

  /** Result of the WAIT_CS ioctl for a submission, without waiting: a negative errno for one that has failed. */
  poll(seq: number): number {
    writeWaitArguments(this.#waitBlock, seq, 0);
    return this.#file.ioctl(this.#waitRequest, this.#waitBlock);
  }

  close(): void {
    this.#block.free();
    this.#waitBlock.free();
  }
}
