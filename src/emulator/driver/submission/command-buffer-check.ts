/**
 * Checks of a command buffer by the driver: for an external queue of gaudi the permitted packets, before it is copied and executed; for an internal queue
 * the address ranges of users. Like the driver, they do not check mappings. Source: gaudi_validate_cb and gaudi_parse_cb_no_ext_queue
 * (drivers/accel/habanalabs/gaudi/gaudi.c, with the MMU enabled), gaudi2_validate_cb_address, Linux 6.12.
 */

import { Errno } from '../../../sys/index.ts';
import {
  type AddressRange,
  type AsicProfile,
  dmmuRange,
  PacketOpcode,
  packetBytes,
  packetOpcode,
} from '../../../uapi/index.ts';
import { distanceFrom } from '../../../ucs/type/int64.ts';
import { type PhysicalMemory, windowIndex } from '../../device/memory/physical-memory.ts';

/** Packets that only the driver may use. */
const PRIVILEGED: ReadonlySet<number> = new Set([
  PacketOpcode.MSG_PROT,
  PacketOpcode.CP_DMA,
  PacketOpcode.STOP,
  PacketOpcode.WREG_BULK,
]);

const ACCEPTED: ReadonlySet<number> = new Set([
  PacketOpcode.WREG_32,
  PacketOpcode.MSG_LONG,
  PacketOpcode.MSG_SHORT,
  PacketOpcode.REPEAT,
  PacketOpcode.FENCE,
  PacketOpcode.NOP,
  PacketOpcode.ARB_POINT,
  PacketOpcode.LIN_DMA,
  PacketOpcode.LOAD_AND_EXE,
]);

/** LOAD_AND_EXE with destination 1 loads packets (scalars). */
const LOAD_AND_EXE_SCALARS = 1;

/**
 * Parses `byteLength` bytes of packets.
 * @returns 0; EINVAL for an unknown or truncated packet; EPERM for a complete privileged packet
 */
export function parseExternalBuffer(memory: PhysicalMemory, byteLength: number): number {
  const { words } = memory.window(0);
  for (let offset = 0; offset < byteLength; ) {
    const index = windowIndex(offset) >>> 2;
    const opcode = packetOpcode(words[index + 1]!);
    const isPrivileged = PRIVILEGED.has(opcode);
    if (!isPrivileged && !ACCEPTED.has(opcode)) return Errno.EINVAL;
    offset += packetBytes(opcode);
    if (offset > byteLength) return Errno.EINVAL;
    const loadsScalars = opcode === PacketOpcode.LOAD_AND_EXE && (words[index]! & LOAD_AND_EXE_SCALARS) !== 0;
    if (isPrivileged || loadsScalars) return Errno.EPERM;
  }
  return 0;
}

interface RangeWords {
  readonly baseHigh: number;
  readonly baseLow: number;
  readonly byteLength: number;
}

/** The address ranges for user command buffers of one card. */
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

  /** Whether one range contains the whole buffer. False for an empty buffer. */
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
