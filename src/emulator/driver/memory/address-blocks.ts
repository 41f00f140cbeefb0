/**
 * Device virtual addresses of one context: allocation of address blocks (get_va_block of the driver).
 *
 * Addresses are offsets from the base of their range, as exact JavaScript numbers; only the interfaces use bigint.
 * Source: drivers/accel/habanalabs/common/memory.c, Linux 6.12.
 */

import { type AddressRange, type AsicProfile, dmmuRange } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { PageTable } from '../../device/memory/mmu.ts';
import type { FaultPlan } from '../../faults/fault-plan.ts';

export const HOST_PAGE_BYTES = 4096;
export const HUGE_PAGE_BYTES = 0x200000;

/** A request for a block of addresses. */
export interface VaRequest {
  readonly byteLength: number;
  /** Alignment of the address. Ranges whose page size is not a power of two are always aligned to their page size. */
  readonly alignment: number;
  /** Preferred address; 0 for none. Ignored if it is not available, unless `force` is set. */
  readonly hint: bigint;
  /** HL_MEM_FORCE_HINT: fail if the hint is not available or 0. */
  readonly force: boolean;
}

/** A range of addresses, and how its pages are mapped. */
export interface VaRangeInit {
  readonly range: AddressRange;
  readonly pageBytes: number;
  readonly table: PageTable;
  /** Ranges that are allocated only by a hint. */
  readonly reserved: readonly AddressRange[];
}

/** One range of addresses with its page table. */
export class VaRange {
  readonly base: bigint;
  readonly byteLength: number;
  readonly pageBytes: number;
  readonly table: PageTable;
  readonly #allocator: RangeAllocator;
  readonly #faults: FaultPlan;

  constructor({ range, pageBytes, table, reserved }: VaRangeInit, faults: FaultPlan) {
    this.base = range.start;
    this.byteLength = Number(range.end - range.start);
    this.pageBytes = pageBytes;
    this.table = table;
    this.#faults = faults;
    this.#allocator = new RangeAllocator(this.byteLength);
    for (const part of reserved) {
      if (part.start < range.start || part.end > range.end) continue;
      this.#allocator.reserve(Number(part.start - range.start), Number(part.end - part.start));
    }
  }

  /** Number of allocated bytes. */
  get usedBytes(): number {
    return this.#allocator.usedBytes;
  }

  /**
   * Allocates a block: at the hint if it is aligned and free; otherwise the smallest free block that is large enough, the lowest one of equal size.
   * @returns its offset in the range, or -1 if there is none
   */
  allocate(request: VaRequest): number {
    if (this.#faults.exhausts('va')) return -1;
    const isPowerOfTwo = Number.isInteger(Math.log2(this.pageBytes));
    const alignment = isPowerOfTwo ? request.alignment : this.pageBytes;
    const length = Math.ceil(request.byteLength / this.pageBytes) * this.pageBytes;
    const hint = request.hint === 0n ? -1 : this.#offsetOfHint(request.hint);
    if (request.force) {
      return hint >= 0 && hint % alignment === 0 && this.#allocator.allocateAt(hint, length) ? hint : -1;
    }
    if (length > this.byteLength) return -1;
    return this.#allocator.allocate(length, alignment, hint >= 0 ? { at: hint } : {});
  }

  /** Releases a block. */
  free(offset: number): void {
    this.#allocator.free(offset);
  }

  /** The address of an offset. */
  addressOf(offset: number): bigint {
    return this.base + BigInt(offset);
  }

  #offsetOfHint(hint: bigint): number {
    const offset = hint - this.base;
    return offset >= 0n && offset < BigInt(this.byteLength) ? Number(offset) : -1;
  }
}

/** The properties of a card that determine its address space. */
export interface VaSpaceOwner {
  readonly profile: AsicProfile;
  readonly device: GaudiDevice;
  readonly faults: FaultPlan;
}

/** The address space of a context. */
export class VaSpace {
  /** Host memory in small pages. */
  readonly host: VaRange;
  /** Host memory in huge pages; same as {@link host} without a separate range. */
  readonly hostHuge: VaRange;
  /** Device memory; undefined if it has physical addresses only. */
  readonly dram: VaRange | undefined;

  constructor({ profile, device, faults }: VaSpaceOwner) {
    const { va, dram } = profile;
    const { hostPages, hostHugePages, dramPages } = device;
    const host = { reserved: va.reservedHost };
    this.host = new VaRange({ range: va.host, pageBytes: HOST_PAGE_BYTES, table: hostPages, ...host }, faults);
    const huge = { range: va.hostHuge, pageBytes: HUGE_PAGE_BYTES, table: hostHugePages, ...host };
    this.hostHuge = va.hostHuge.start === va.host.start ? this.host : new VaRange(huge, faults);
    const range = dmmuRange(dram, BigInt(device.hbm.byteLength));
    if (range === undefined) return;
    const pageBytes = Number(dram.pageSize);
    this.dram = new VaRange({ range, pageBytes, table: dramPages, reserved: va.reservedDram }, faults);
  }
}

/** Levels of the bitmap: 32^4 numbers exceed the driver's limits of buffers and blocks. */
const LEVELS = 4;
const NUMBERS_MAX = 32 ** LEVELS;

/** The handle numbers of one table, allocated as by the idr of the kernel: the smallest free one, from 1. Calls take constant time. */
export class HandleIds {
  /**
   * The bitmap words of each level, lowest level first. In the lowest level a bit marks a freed number; in a higher level, a word of the level below that
   * is not 0.
   */
  readonly #levels: number[][] = Array.from({ length: LEVELS }, () => []);
  #next = 1;

  /** Takes the smallest free number. Throws RangeError when there is none. */
  take(): number {
    let id = 0;
    for (let level = LEVELS - 1; level >= 0; level--) {
      const bits = this.#levels[level]![id] ?? 0;
      if (bits === 0) return this.#takeNew();
      id = id * 32 + 31 - Math.clz32(bits & -bits);
    }
    this.#clear(id);
    return id;
  }

  /** Returns a number that was taken. */
  free(id: number): void {
    let at = id;
    for (const words of this.#levels) {
      const word = at >>> 5;
      words[word] = (words[word] ?? 0) | (1 << (at & 31));
      at = word;
    }
  }

  #takeNew(): number {
    if (this.#next === NUMBERS_MAX) throw new RangeError(`more than ${NUMBERS_MAX - 1} handles`);
    return this.#next++;
  }

  #clear(id: number): void {
    let at = id;
    for (const words of this.#levels) {
      const word = at >>> 5;
      words[word]! &= ~(1 << (at & 31));
      if (words[word] !== 0) return;
      at = word;
    }
  }
}
