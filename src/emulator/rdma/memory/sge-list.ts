/** A scatter/gather list of a work request, copied when the request is posted, and the copies between its memory and packets. */

import { joinWords } from '../../../ucs/type/int64.ts';
import { AccessFlag, Sge } from '../../../verbs/abi.ts';
import type { VerbsBlock } from '../../../verbs/port.ts';
import type { RegionTable } from './region-table.ts';

/** Index of the word at an address of a block. The whole work request is in the posted block. */
export function wordIndex(block: VerbsBlock, address: number): number {
  const offset = address - block.address;
  if (offset < 0 || offset >= block.u8.byteLength || offset % 4 !== 0) {
    throw new RangeError(`0x${address.toString(16)} is not inside the block of the work request`);
  }
  return offset / 4;
}

/** The list. */
export class SgeList {
  readonly capacity: number;
  readonly #addresses: Float64Array;
  readonly #lengths: Float64Array;
  readonly #keys: Float64Array;
  #count = 0;
  /** Total bytes. */
  byteLength = 0;

  constructor(capacity: number) {
    this.capacity = capacity;
    this.#addresses = new Float64Array(capacity);
    this.#lengths = new Float64Array(capacity);
    this.#keys = new Float64Array(capacity);
  }

  /** Reads `count` entries of struct ibv_sge, at most {@link capacity}. */
  read(block: VerbsBlock, address: number, count: number): void {
    this.#count = count;
    this.byteLength = 0;
    if (count === 0) return;
    const { words } = block;
    for (let i = 0, at = wordIndex(block, address); i < count; i++, at += Sge.WORDS) {
      this.#addresses[i] = joinWords(words[at + Sge.ADDR]!, words[at + Sge.ADDR + 1]!);
      this.#lengths[i] = words[at + Sge.LENGTH]!;
      this.#keys[i] = words[at + Sge.LKEY]!;
      this.byteLength += words[at + Sge.LENGTH]!;
    }
  }

  /** The data of an inline request: one contiguous piece at an address of the block for each entry. */
  copyInline(block: VerbsBlock, target: Uint8Array): void {
    let done = 0;
    for (let i = 0; i < this.#count; i++) {
      const from = this.#addresses[i]! - block.address;
      target.set(block.u8.subarray(from, from + this.#lengths[i]!), done);
      done += this.#lengths[i]!;
    }
  }

  /** Copies bytes from `offset` of the list to an address; false if a key does not permit it. */
  gather(regions: RegionTable, pd: object, offset: number, target: number, byteLength: number): boolean {
    return this.#move(regions, pd, offset, target, byteLength, false);
  }

  /** Copies bytes at an address to `offset` of the list; false if a key does not permit it. */
  scatter(regions: RegionTable, pd: object, offset: number, source: number, byteLength: number): boolean {
    return this.#move(regions, pd, offset, source, byteLength, true);
  }

  #move(
    regions: RegionTable,
    pd: object,
    offset: number,
    other: number,
    byteLength: number,
    isScatter: boolean,
  ): boolean {
    const access = isScatter ? AccessFlag.LOCAL_WRITE : 0;
    let from = offset;
    let done = 0;
    for (let i = 0; i < this.#count && done < byteLength; i++) {
      const length = this.#lengths[i]!;
      if (from >= length) {
        from -= length;
        continue;
      }
      const bytes = Math.min(length - from, byteLength - done);
      const address = this.#addresses[i]! + from;
      const region = regions.find(pd, this.#keys[i]!, address, bytes, access);
      if (region === undefined) return false;
      const at = address - region.iova;
      const isMoved = isScatter
        ? region.memory.write(at, other + done, bytes)
        : region.memory.read(at, other + done, bytes);
      if (!isMoved) return false;
      done += bytes;
      from = 0;
    }
    return done === byteLength;
  }
}
