/**
 * Sources of memory for arenas, in whole pages: allocations of the driver (gaudi2 and later), or ranges of the physical memory that the user manages (gaudi).
 */

import { Errno } from '../../sys/index.ts';
import { HL_MEM_OP } from '../../uapi/index.ts';
import { RangeAllocator } from '../../ucs/datastruct/range-allocator.ts';
import type { CardFile, CardTarget } from '../base/card-file.ts';
import { isDeviceLost } from '../base/gaudi-error.ts';
import { getDramUsage } from '../info/device-info.ts';
import { freeInput, mapHandle } from './device-memory.ts';

/** Device memory in whole pages, at an address for transfers. */
export interface ArenaMemory {
  readonly address: bigint;
  readonly byteLength: number;
  /** Handle of the driver; 0n on gaudi. */
  readonly handle: bigint;
}

/** Allocates and frees memory for arenas. */
export interface ArenaSource {
  readonly pageBytes: number;
  /**
   * @param byteLength a multiple of `pageBytes`
   * @returns undefined if the memory is exhausted
   * @throws UcxError ERR_GAUDI_* for any other error of the driver
   */
  acquire(byteLength: number): ArenaMemory | undefined;
  /** Returns false if the driver keeps the memory, because a dma-buf exported from it is open. */
  release(memory: ArenaMemory): boolean;
  /** Free bytes available for arenas, in whole pages. */
  freeBytes(): number;
}

/** Memory that the driver allocates and maps. */
export class VirtualArenaSource implements ArenaSource, CardTarget {
  readonly card: CardFile;
  readonly pageBytes: number;

  constructor(card: CardFile, pageBytes: number) {
    this.card = card;
    this.pageBytes = pageBytes;
  }

  acquire(byteLength: number): ArenaMemory | undefined {
    const handle = allocate(this.card, byteLength);
    if (handle === undefined) return undefined;
    try {
      return { address: mapHandle(this, handle), byteLength, handle };
    } catch (error) {
      this.card.tryMemory(freeInput(handle, byteLength));
      throw error;
    }
  }

  release(memory: ArenaMemory): boolean {
    const result = this.card.tryMemory({ unmap_device_virt_addr: memory.address, op: HL_MEM_OP.UNMAP });
    if (result === -Errno.EINVAL) return false;
    if (result === 0) this.card.tryMemory(freeInput(memory.handle, memory.byteLength));
    else if (!isDeviceLost(result)) throw this.card.error(result, 'unmap of device memory');
    return true;
  }

  freeBytes(): number {
    return wholePages(Number(getDramUsage(this).dramFreeMem), this.pageBytes);
  }
}

/** Physical memory that this process manages and the driver only accounts for. One process uses the whole card. */
export class PhysicalArenaSource implements ArenaSource {
  readonly pageBytes: number;
  readonly #card: CardFile;
  readonly #base: bigint;
  readonly #ranges: RangeAllocator;

  /** @param base first user address of device memory; @param byteLength length of the memory */
  constructor(card: CardFile, pageBytes: number, base: bigint, byteLength: number) {
    this.#card = card;
    this.pageBytes = pageBytes;
    this.#base = base;
    this.#ranges = new RangeAllocator(wholePages(byteLength, pageBytes));
  }

  acquire(byteLength: number): ArenaMemory | undefined {
    const offset = this.#ranges.allocate(byteLength, this.pageBytes);
    if (offset < 0) return undefined;
    try {
      if (allocate(this.#card, byteLength) !== undefined) {
        return { address: this.#base + BigInt(offset), byteLength, handle: 0n };
      }
    } catch (error) {
      this.#ranges.free(offset);
      throw error;
    }
    this.#ranges.free(offset);
    return undefined;
  }

  release(memory: ArenaMemory): boolean {
    this.#ranges.free(Number(memory.address - this.#base));
    const result = this.#card.tryMemory(freeInput(0n, memory.byteLength));
    if (result < 0 && !isDeviceLost(result)) throw this.#card.error(result, 'free of device memory');
    return true;
  }

  freeBytes(): number {
    return this.#ranges.largestFree;
  }

  /**
   * Reserves the pages of a range that the program manages itself, so that no arena uses them. The driver is not involved.
   * @param address of user memory of the card, with `byteLength` bytes in it
   * @returns a function that releases the pages; undefined if one of them is in use
   */
  claim(address: bigint, byteLength: number): (() => void) | undefined {
    const begin = Number(address - this.#base);
    const offset = wholePages(begin, this.pageBytes);
    const end = Math.min(this.#ranges.size, Math.ceil((begin + byteLength) / this.pageBytes) * this.pageBytes);
    if (end < begin + byteLength || !this.#ranges.allocateAt(offset, end - offset)) return undefined;
    return () => void this.#ranges.free(offset);
  }
}

/** Runs ALLOC; returns the handle, or undefined for ENOMEM. */
function allocate(card: CardFile, byteLength: number): bigint | undefined {
  const result = card.tryMemory({ alloc_mem_size: BigInt(byteLength), op: HL_MEM_OP.ALLOC });
  if (result === -Errno.ENOMEM) return undefined;
  if (result < 0) throw card.error(result, `allocation of ${byteLength} bytes of device memory`);
  return card.memoryResult().handle;
}

function wholePages(byteLength: number, pageBytes: number): number {
  return byteLength - (byteLength % pageBytes);
}
