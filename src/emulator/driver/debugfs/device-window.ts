/**
 * Device memory and registers at addresses of the card, as debugfs accesses them. The files are in debugfs.ts.
 *
 * Source: drivers/accel/habanalabs/common/debugfs.c, Linux 6.12.
 */

import { allocateScratch, Errno } from '../../../sys/index.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import { Target } from '../../device/memory/address-map.ts';
import { fetchBytes, storeBytes } from '../../device/memory/memory-access.ts';
import type { PhysicalMemory } from '../../device/memory/physical-memory.ts';

const BITS_32 = 32n;
/** Maximum number of bytes that one step of a copy moves. */
const COPY_BYTES = 32_768;

/** Device memory and registers as the driver accesses them: at addresses of the card, those of physical device memory included. */
export class DeviceWindow {
  readonly #device: GaudiDevice;
  readonly #physicalBase: bigint;
  #memory: PhysicalMemory | undefined;
  #offset = 0;
  #available = 0;

  constructor(device: GaudiDevice) {
    this.#device = device;
    this.#physicalBase = device.profile.dram.base;
  }

  /** Reads 4 or 8 bytes at an address; -EINVAL if nothing is there (hl_access_mem). */
  read(address: bigint, byteLength: 4 | 8): bigint | number {
    if (!this.#find(address) || this.#available < byteLength) return -Errno.EINVAL;
    if (this.#memory === undefined) return this.#readRegisters(byteLength);
    const scratch = allocateScratch(8);
    scratch.words.fill(0);
    fetchBytes(this.#memory, this.#offset, scratch.address, byteLength);
    const value = byteLength === 4 ? BigInt(scratch.words[0]!) : scratch.view.getBigUint64(0, true);
    scratch.free();
    return value;
  }

  /** Writes 4 or 8 bytes, registers with their effects; -EINVAL if nothing is there. */
  write(address: bigint, byteLength: 4 | 8, value: bigint): number {
    if (!this.#find(address) || this.#available < byteLength) return -Errno.EINVAL;
    if (this.#memory === undefined) {
      const { registers } = this.#device;
      registers.writeRegister(this.#offset, Number(BigInt.asIntN(32, value)));
      if (byteLength === 8) registers.writeRegister(this.#offset + 4, Number(BigInt.asIntN(32, value >> BITS_32)));
      return 0;
    }
    const scratch = allocateScratch(8);
    scratch.view.setBigUint64(0, value, true);
    storeBytes(this.#memory, this.#offset, scratch.address, byteLength);
    scratch.free();
    return 0;
  }

  /** Copies bytes of memory into an array; returns false if a part of them is not mapped. */
  copy(address: bigint, target: Uint8Array): boolean {
    const scratch = allocateScratch(COPY_BYTES);
    try {
      for (let done = 0; done < target.byteLength; ) {
        if (!this.#find(address + BigInt(done)) || this.#memory === undefined) return false;
        const piece = Math.min(target.byteLength - done, this.#available, COPY_BYTES);
        fetchBytes(this.#memory, this.#offset, scratch.address, piece);
        target.set(scratch.u8.subarray(0, piece), done);
        done += piece;
      }
      return true;
    } finally {
      scratch.free();
    }
  }

  #readRegisters(byteLength: 4 | 8): bigint {
    const { registers } = this.#device;
    const low = BigInt(registers.readRegister(this.#offset) >>> 0);
    if (byteLength === 4) return low;
    return (BigInt(registers.readRegister(this.#offset + 4) >>> 0) << BITS_32) | low;
  }

  /** Looks up an address: memory, or registers if there is no memory; returns false if there is neither. */
  #find(address: bigint): boolean {
    const { addressMap: map, hbm } = this.#device;
    const target = map.decode(Number(BigInt.asIntN(32, address >> BITS_32)), Number(BigInt.asIntN(32, address)));
    this.#memory = target === Target.MEMORY ? map.memory : undefined;
    this.#offset = map.offset;
    this.#available = map.available;
    if (target !== Target.UNMAPPED) return true;
    const physical = address - this.#physicalBase;
    if (physical < 0n || physical >= BigInt(hbm.byteLength)) return false;
    this.#memory = hbm;
    this.#offset = Number(physical);
    this.#available = hbm.byteLength - this.#offset;
    return true;
  }
}
