/** Memory regions of the same bytes, one with every device of a memory domain. */

import type { MemoryRegion } from '../../../verbs/port.ts';
import type { IbDevice } from './ib-device.ts';

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
   * @throws the error of a device
   */
  constructor(devices: readonly IbDevice[], iova: number, register: (device: IbDevice) => MemoryRegion) {
    const regions: MemoryRegion[] = [];
    try {
      for (const device of devices) regions.push(register(device));
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
