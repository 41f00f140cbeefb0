/**
 * The address ranges in which the driver accepts command buffers of users. Like the driver, it does not check mappings.
 * Source: gaudi_parse_cb_no_ext_queue and gaudi2_validate_cb_address, drivers/accel/habanalabs, Linux 6.12.
 */

import { type AddressRange, type AsicProfile, dmmuRange } from '../../../uapi/index.ts';
import { distanceFrom } from '../../../ucs/type/int64.ts';

interface RangeWords {
  readonly baseHigh: number;
  readonly baseLow: number;
  readonly byteLength: number;
}

/** The ranges of one card. */
export class UserCbRanges {
  readonly #ranges: readonly RangeWords[];

  /** @param hbmBytes physical device memory of the card */
  constructor(profile: AsicProfile, hbmBytes: number) {
    const { dram, va, sram } = profile;
    const ranges: AddressRange[] = [va.host, va.hostHuge, sram];
    ranges.push({ start: dram.base + dram.reservedSize, end: dram.base + BigInt(hbmBytes) });
    const dmmu = dmmuRange(dram, BigInt(hbmBytes));
    if (dmmu !== undefined) ranges.push(dmmu);
    this.#ranges = ranges.map(({ start, end }) => ({
      baseHigh: Number(start >> 32n),
      baseLow: Number(start & 0xffff_ffffn),
      byteLength: Number(end - start),
    }));
  }

  /** Whether one range contains the whole buffer. No range contains an empty buffer. */
  contain(high: number, low: number, byteLength: number): boolean {
    if (byteLength === 0) return false;
    for (let i = 0; i < this.#ranges.length; i++) {
      const range = this.#ranges[i]!;
      const relative = distanceFrom(range.baseLow, range.baseHigh, low, high);
      if (relative >= 0 && relative + byteLength <= range.byteLength) return true;
    }
    return false;
  }
}
