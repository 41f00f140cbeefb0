/** Memory that an emulated RDMA device accesses by DMA: pinned host memory of this process, and memory of emulated cards behind dma-bufs. */

import { Errno, memcpy, PAGE_SIZE, readAddressSpace, SyscallError, writeAddressSpace } from '../../../sys/index.ts';
import { DIRECT, type PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { pinOwnPages } from '../../driver/memory/pinned-memory.ts';

/** Memory of one region. */
export interface DmaMemory {
  readonly byteLength: number;
  /** Copies bytes of the memory to an address of this process; false if they are no longer accessible. The range must be inside the memory. */
  read(offset: number, target: number, byteLength: number): boolean;
  /** Copies bytes at an address of this process into the memory; false if it is no longer accessible. */
  write(offset: number, source: number, byteLength: number): boolean;
  /** Ends the access. */
  release(): void;
}

/** Finds the memory of dma-bufs in the cards of the node. */
export interface DmabufAccess {
  /** @throws SyscallError EBADF; EINVAL for a foreign descriptor or a range that is not inside the dma-buf; ENODEV; EMFILE */
  attach(fd: number, offset: number, byteLength: number): DmaMemory;
}

/** Host memory of this process. */
class HostDmaMemory implements DmaMemory {
  readonly byteLength: number;
  readonly #memory: PhysicalMemory;
  readonly #offset: number;
  readonly #release: () => void;

  constructor(memory: PhysicalMemory, offset: number, byteLength: number, release: () => void) {
    this.#memory = memory;
    this.#offset = offset;
    this.byteLength = byteLength;
    this.#release = release;
  }

  read(offset: number, target: number, byteLength: number): boolean {
    return readPhysical(this.#memory, this.#offset + offset, target, byteLength);
  }

  write(offset: number, source: number, byteLength: number): boolean {
    return writePhysical(this.#memory, this.#offset + offset, source, byteLength);
  }

  release(): void {
    this.#release();
  }
}

/**
 * Pins host memory.
 * @throws SyscallError EFAULT if a page is not mapped or not writable
 */
export function hostDmaMemory(address: number, byteLength: number): DmaMemory {
  const offset = address % PAGE_SIZE;
  const pinnedBytes = Math.ceil((offset + byteLength) / PAGE_SIZE) * PAGE_SIZE;
  const pages = pinOwnPages(address - offset, pinnedBytes);
  if (pages === undefined) {
    throw new SyscallError('ibv_reg_mr', Errno.EFAULT, `${byteLength} bytes at 0x${address.toString(16)} (emulated)`);
  }
  return new HostDmaMemory(pages.memory, offset, byteLength, pages.unpin);
}

/** Copies bytes of physical memory to an address of this process; false if their process has unmapped them. */
export function readPhysical(memory: PhysicalMemory, offset: number, target: number, byteLength: number): boolean {
  const { space, address } = memory;
  if (space !== DIRECT) return readAddressSpace(space, address + offset, target, byteLength) === byteLength;
  memcpy(target, address + offset, byteLength);
  return true;
}

/** Copies bytes at an address of this process to physical memory; false if their process has unmapped it. */
export function writePhysical(memory: PhysicalMemory, offset: number, source: number, byteLength: number): boolean {
  const { space, address } = memory;
  if (space !== DIRECT) return writeAddressSpace(space, address + offset, source, byteLength) === byteLength;
  memcpy(address + offset, source, byteLength);
  return true;
}
