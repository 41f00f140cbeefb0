/**
 * Memory that an emulated RDMA device accesses by DMA: pinned host memory of this process, and memory of emulated cards behind dma-bufs. Also the memory
 * regions with their keys and permitted accesses, and scatter/gather lists of work requests, which are copied when a request is posted.
 */

import { Errno, memcpy, PAGE_SIZE, readAddressSpace, SyscallError, writeAddressSpace } from '../../../sys/index.ts';
import { systemRandomBytes } from '../../../ucs/sys/random.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { AccessFlag, Sge } from '../../../verbs/abi.ts';
import type { VerbsBlock } from '../../../verbs/port.ts';
import { DIRECT, type PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { pinOwnPages } from '../../driver/memory/pinned-memory.ts';

/** Memory of one region. */
export interface DmaMemory {
  readonly byteLength: number;
  /** Copies bytes of the memory to an address of this process; returns false if the memory is not accessible any more. The range must be inside the memory. */
  read(offset: number, target: number, byteLength: number): boolean;
  /** Copies bytes at an address of this process into the memory; returns false if the memory is not accessible any more. */
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
    const range = `${byteLength} bytes at 0x${address.toString(16)}`;
    throw new SyscallError(
      'ibv_reg_mr',
      Errno.EFAULT,
      `a page of the ${range} is not mapped or not writable (emulated)`,
    );
  }
  return new HostDmaMemory(pages.memory, offset, byteLength, () => pages.unpin());
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

/** A registered region. */
export interface Region {
  readonly key: number;
  /** The protection domain. */
  readonly pd: object;
  readonly memory: DmaMemory;
  /** Address of its first byte in work requests. */
  readonly iova: number;
  /** Bits of AccessFlag. */
  readonly access: number;
}

/** The regions. The local and the remote key of a region are the same number. */
export class RegionTable {
  readonly #regions: Map<number, Region> = new Map();

  get size(): number {
    return this.#regions.size;
  }

  add(region: Omit<Region, 'key'>): Region {
    let key: number;
    do key = Buffer.from(systemRandomBytes(4)).readUInt32LE();
    while (key === 0 || this.#regions.has(key));
    const added = { ...region, key };
    this.#regions.set(key, added);
    return added;
  }

  remove(region: Region): void {
    if (this.#regions.delete(region.key)) region.memory.release();
  }

  /** The region of a key, if it belongs to the protection domain, contains the range and permits the access. */
  find(pd: object, key: number, address: number, byteLength: number, access: number): Region | undefined {
    const region = this.#regions.get(key);
    if (region === undefined || region.pd !== pd || (region.access & access) !== access) return undefined;
    const from = address - region.iova;
    return from >= 0 && from + byteLength <= region.memory.byteLength ? region : undefined;
  }
}

/** Whether access flags are permitted: remote writes and atomic operations need local writes. */
export function isValidAccess(access: number): boolean {
  const known =
    AccessFlag.LOCAL_WRITE |
    AccessFlag.REMOTE_WRITE |
    AccessFlag.REMOTE_READ |
    AccessFlag.REMOTE_ATOMIC |
    AccessFlag.RELAXED_ORDERING;
  const writes = AccessFlag.REMOTE_WRITE | AccessFlag.REMOTE_ATOMIC;
  return (access & ~known) === 0 && ((access & writes) === 0 || (access & AccessFlag.LOCAL_WRITE) !== 0);
}

/** Index of the word at an address of a block. The whole work request is in the posted block. */
export function wordIndex(block: VerbsBlock, address: number): number {
  const offset = address - block.address;
  if (offset < 0 || offset >= block.u8.byteLength || offset % 4 !== 0) {
    const [start, end] = [block.address, block.address + block.u8.byteLength].map((bound) => bound.toString(16));
    throw new RangeError(
      `address 0x${address.toString(16)} must be a multiple of 4 inside the block of the work request (0x${start} to 0x${end})`,
    );
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
