/** Memory regions of the same bytes, one with every device of a memory domain. */

import type { MemoryRegion } from '../../../verbs/port.ts';

/** The regions. */
export class IbRegions {
  /** Address of the first byte in work requests: its offset in its page. */
  readonly iova: number;
  /** By the index of the device. */
  readonly lkeys: Uint32Array;
  /** By the index of the device. */
  readonly rkeys: Uint32Array;
  readonly #regions: readonly MemoryRegion[];

  /**
   * Registers with every device, or with none.
   * @param registers what registers with each device
   * @throws the error of a device
   */
  constructor(iova: number, registers: readonly (() => MemoryRegion)[]) {
    const regions: MemoryRegion[] = [];
    try {
      for (const register of registers) regions.push(register());
    } catch (error) {
      for (const region of regions) region.close();
      throw error;
    }
    this.iova = iova;
    this.lkeys = Uint32Array.from(regions, ({ lkey }) => lkey);
    this.rkeys = Uint32Array.from(regions, ({ rkey }) => rkey);
    this.#regions = regions;
  }

  close(): void {
    for (const region of this.#regions) region.close();
  }
}
