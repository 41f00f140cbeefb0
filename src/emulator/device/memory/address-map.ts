/**
 * Address decoder for the engines of one card: HBM, SRAM, registers, or host memory through the MMU.
 *
 * Addresses are passed as two 32-bit words and results are (memory, offset). A lookup stores its result in fields of the map instead of an object, because
 * it runs several times per packet and must not allocate.
 */

import { distanceFrom } from '../../../ucs/type/int64.ts';
import type { PageTable } from './mmu.ts';
import { PhysicalMemory } from './physical-memory.ts';

/** Kind of memory at an address. */
export const Target = { UNMAPPED: 0, MEMORY: 1, REGISTER: 2 } as const;
export type Target = (typeof Target)[keyof typeof Target];

/** One region of the device address space, `[base, base + byteLength)`. */
export class AddressRegion {
  readonly name: string;
  readonly baseHigh: number;
  readonly baseLow: number;
  readonly byteLength: number;
  /** At most one of the two is set: memory at fixed addresses, or page tables. Neither is set for registers. */
  readonly memory: PhysicalMemory | undefined;
  readonly pageTable: PageTable | undefined;
  /** Registers: offset of the first one from the configuration base. */
  readonly registerOffset: number;

  constructor(
    name: string,
    base: bigint,
    byteLength: number,
    behind: { readonly memory?: PhysicalMemory; readonly pageTable?: PageTable; readonly registerOffset?: number },
  ) {
    this.name = name;
    this.baseHigh = Number(base >> 32n);
    this.baseLow = Number(base & 0xffff_ffffn);
    this.byteLength = byteLength;
    this.memory = behind.memory;
    this.pageTable = behind.pageTable;
    this.registerOffset = behind.registerOffset ?? 0;
  }
}

const NO_MEMORY = new PhysicalMemory('none', { address: 0, byteLength: 0 });

/** The address decoder of one card for one context. */
export class AddressMap {
  /** Results of the last {@link decode}: the memory and the byte offset in it, or the offset in the register window. */
  memory: PhysicalMemory = NO_MEMORY;
  offset = 0;
  /** Number of contiguous bytes from the address on for which the result is valid. */
  available = 0;
  readonly #regions: readonly AddressRegion[];

  /** @param regions in lookup order: most used first */
  constructor(regions: readonly AddressRegion[]) {
    this.#regions = regions;
  }

  /** Decodes an address given as 32-bit halves, signed or unsigned, into the fields of this object. */
  decode(high: number, low: number): Target {
    for (let i = 0; i < this.#regions.length; i++) {
      const region = this.#regions[i]!;
      // Exact if the difference is below 2^53; more distant addresses are rounded, but stay outside the region.
      const relative = distanceFrom(region.baseLow, region.baseHigh, low, high);
      if (relative < 0 || relative >= region.byteLength) continue;
      const target = this.#found(region, relative);
      // A later region may lie inside this one: the driver maps registers at addresses of the host range.
      if (target !== Target.UNMAPPED) return target;
    }
    return Target.UNMAPPED;
  }

  #found(region: AddressRegion, relative: number): Target {
    if (region.memory !== undefined) {
      this.memory = region.memory;
      this.offset = relative;
      this.available = region.byteLength - relative;
      return Target.MEMORY;
    }
    if (region.pageTable === undefined) {
      this.offset = region.registerOffset + relative;
      this.available = region.byteLength - relative;
      return Target.REGISTER;
    }
    const translation = region.pageTable.translate(relative);
    if (translation === undefined) return Target.UNMAPPED;
    this.memory = translation.memory;
    this.offset = translation.memoryOffset + (relative - translation.start);
    this.available = translation.end - relative;
    return Target.MEMORY;
  }
}
