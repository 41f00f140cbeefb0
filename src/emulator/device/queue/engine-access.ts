/**
 * Address decoding for the engines of a card, with faults reported to the driver. Small reads of command processors from device addresses: predicates,
 * scalars, tables of command buffers.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { type AddressMap, Target } from '../memory/address-map.ts';
import { fetchBytes } from '../memory/memory-access.ts';
import type { Stream, TransferStream } from './stream.ts';

/** Faults that the device reports to the driver. */
export interface FaultListener {
  /** An engine accessed an address without translation. The packet moved nothing. */
  pageFault(stream: TransferStream, high: number, low: number, writes: boolean): void;
  /** A packet moves data from or to registers. */
  razwi(stream: TransferStream, high: number, low: number, writes: boolean): void;
  /** A packet with an opcode that is unknown or not executed by this device model: the stream has stopped. */
  undefinedOpcode(stream: Stream, opcode: number): void;
  /** An engine has reported an error and stopped (SEI): a PDMA channel after an invalid packet, a refused write or a fault. */
  engineError(stream: TransferStream): void;
}

/** The address decoder with a handler for faults. */
export class EngineAccess {
  /** Holds the result of {@link reach}. */
  readonly map: AddressMap;
  readonly faults: FaultListener;

  constructor(map: AddressMap, faults: FaultListener) {
    this.map = map;
    this.faults = faults;
  }

  /**
   * Decodes the address to read: the 32-bit halves, plus `bytes`. If it is not memory, reports a fault.
   * @returns whether {@link map} holds memory
   */
  reach(stream: TransferStream, high: number, low: number, bytes: number): boolean {
    const sum = (low >>> 0) + bytes;
    // Small integers of V8: passing them on allocates nothing.
    return this.#decode(stream, ((high >>> 0) + highOf(sum)) | 0, sum | 0, false);
  }

  /** {@link reach} of an address to write. */
  reachToWrite(stream: TransferStream, high: number, low: number, bytes: number): boolean {
    const sum = (low >>> 0) + bytes;
    return this.#decode(stream, ((high >>> 0) + highOf(sum)) | 0, sum | 0, true);
  }

  #decode(stream: TransferStream, high: number, low: number, writes: boolean): boolean {
    const target = this.map.decode(high, low);
    if (target === Target.UNMAPPED) this.faults.pageFault(stream, high, low, writes);
    else if (target === Target.REGISTER) this.faults.razwi(stream, high, low, writes);
    return target === Target.MEMORY;
  }
}

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
  read(stream: TransferStream, [high, low]: readonly [number, number], offset: number, byteLength: number): boolean {
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
