/**
 * Device memory of one context: allocations, their mappings and exports (MEMORY ALLOC, FREE, MAP, UNMAP, EXPORT_DMABUF_FD).
 *
 * On ASICs whose HBM has no virtual addresses (gaudi), the driver only counts the allocated bytes, and the user manages the memory.
 * Source: drivers/accel/habanalabs/common/memory.c, Linux 6.12.
 */

import { Errno, isSyscallError } from '../../../sys/index.ts';
import { HL_MEM } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';
import { cutRuns, type ExportedDmabuf, type MemoryRun } from '../base/dmabuf.ts';
import type { UserMapping } from '../base/error-records.ts';
import type { CardState } from '../card-state.ts';
import { HandleIds, type VaSpace } from './address-blocks.ts';

const EXPORT_ALIGNMENT = 4096n;

/** One allocation (struct hl_vm_phys_pg_pack). */
interface Allocation {
  readonly handle: number;
  readonly runs: readonly MemoryRun[];
  readonly byteLength: number;
  /** Alignment of its device addresses. */
  readonly pageBytes: number;
  mappings: number;
  /** Exports whose descriptors may still be open. */
  readonly exports: Set<ExportedDmabuf>;
}

interface DeviceMapping {
  readonly allocation: Allocation;
  /** Offset of the mapping in the range of device memory. */
  readonly offset: number;
}

/** Arguments of EXPORT_DMABUF_FD. */
export interface ExportRequest {
  readonly address: bigint;
  readonly byteLength: bigint;
  readonly offset: bigint;
  /** O_* flags of the new descriptor. */
  readonly flags: number;
}

export class DeviceMemoryTable {
  readonly #card: CardState;
  readonly #va: VaSpace;
  /** User memory, as offsets after the reserved memory. */
  readonly #physical: RangeAllocator;
  readonly #firstByte: number;
  readonly #allocations: Map<number, Allocation> = new Map();
  readonly #handles: HandleIds = new HandleIds();
  readonly #mappings: Map<bigint, DeviceMapping> = new Map();
  /** Exports of physical ranges, which do not belong to an allocation. */
  readonly #physicalExports: Set<ExportedDmabuf> = new Set();
  /** Bytes allocated by this context (ctx->dram_phys_mem); the user may set any number if the driver only counts. */
  #usedBytes = 0;

  constructor(card: CardState, va: VaSpace) {
    this.#card = card;
    this.#va = va;
    this.#firstByte = Number(card.profile.dram.reservedSize);
    this.#physical = new RangeAllocator(card.device.hbm.byteLength - this.#firstByte);
  }

  get usedBytes(): number {
    return this.#usedBytes;
  }

  /** Whether a dma-buf of the context still has an open descriptor. */
  get hasLiveExports(): boolean {
    for (const dmabuf of this.#exports()) if (dmabuf.alive) return true;
    return false;
  }

  *list(): Iterable<UserMapping> {
    for (const [address, { allocation }] of this.#mappings) yield { address, byteLength: allocation.byteLength };
  }

  /**
   * Allocates device memory.
   * @param byteLength more than 0
   * @param pageBytes a page size of the ASIC
   * @param flags of HL_MEM: CONTIGUOUS requires one run of pages
   * @returns the handle (0 if the driver only counts), or a negative errno: ENOMEM
   */
  allocate(byteLength: number, pageBytes: number, flags: number): number {
    if (this.#va.dram === undefined) {
      this.#account(byteLength);
      return 0;
    }
    if (this.#card.faults.exhausts('hbm')) return -Errno.ENOMEM;
    const pages = Math.ceil(byteLength / pageBytes);
    const bytes = pages * pageBytes;
    if (bytes > this.#physical.freeBytes) return -Errno.ENOMEM;
    const runs = this.#allocateRuns(pages, pageBytes, (flags & HL_MEM.CONTIGUOUS) !== 0);
    if (runs === undefined) return -Errno.ENOMEM;
    const handle = this.#handles.take();
    this.#allocations.set(handle, { handle, runs, byteLength: bytes, pageBytes, mappings: 0, exports: new Set() });
    this.#account(bytes);
    return handle;
  }

  /**
   * Frees device memory.
   * @param handle low word of the handle; ignored if the driver only counts, which then subtracts `byteLength` unchecked
   * @returns 0, or EINVAL for an unknown or still mapped allocation
   */
  free(handle: number, byteLength: number): number {
    if (this.#va.dram === undefined) {
      this.#account(-byteLength);
      return 0;
    }
    const allocation = this.#allocations.get(handle);
    if (allocation === undefined || allocation.mappings > 0) return Errno.EINVAL;
    this.#allocations.delete(handle);
    this.#handles.free(handle);
    this.#release(allocation);
    return 0;
  }

  /**
   * Maps an allocation.
   * @returns the device address, or an errno: EINVAL for an unknown handle, ENOMEM if the address space is exhausted
   */
  map(handle: number, hint: bigint, flags: number): bigint | number {
    const { dram } = this.#va;
    const allocation = this.#allocations.get(handle);
    if (dram === undefined || allocation === undefined) return Errno.EINVAL;
    const force = (flags & HL_MEM.FORCE_HINT) !== 0;
    const alignment = Math.max(allocation.pageBytes, dram.pageBytes);
    const offset = dram.allocate({ byteLength: allocation.byteLength, alignment, hint, force });
    if (offset < 0) return Errno.ENOMEM;
    let mapped = offset;
    for (const run of allocation.runs) {
      dram.table.map(mapped, run.byteLength, this.#card.device.hbm, run.offset);
      mapped += run.byteLength;
    }
    allocation.mappings += 1;
    const address = dram.addressOf(offset);
    this.#mappings.set(address, { allocation, offset });
    return address;
  }

  /** Unmaps a mapping. Returns 0, EINVAL while it is exported, or undefined if no mapping of device memory starts at `address`. */
  unmap(address: bigint): number | undefined {
    const mapping = this.#mappings.get(address);
    if (mapping === undefined) return undefined;
    const { allocation } = mapping;
    if (isExported(allocation)) return Errno.EINVAL;
    this.#card.waitForEngines();
    this.#mappings.delete(address);
    this.#drop(mapping);
    return 0;
  }

  /** Creates a dma-buf. Returns its descriptor or a negative errno. */
  exportDmabuf(request: ExportRequest): number {
    const { address, byteLength, offset } = request;
    if (byteLength === 0n || (address | byteLength | offset) % EXPORT_ALIGNMENT !== 0n) return -Errno.EINVAL;
    if (this.#va.dram === undefined) return this.#exportPhysical(request);
    const mapping = this.#mappings.get(address);
    if (mapping === undefined) return -Errno.EINVAL;
    const { allocation } = mapping;
    if (offset + byteLength > BigInt(allocation.byteLength)) return -Errno.EINVAL;
    const runs = cutRuns(allocation.runs, Number(offset), Number(byteLength));
    return this.#create(runs, request.flags, allocation.exports);
  }

  /** Called when the card leaves the bus: RDMA devices and importing cards lose access. */
  leaveBus(): void {
    for (const dmabuf of this.#exports()) dmabuf.leaveBus();
  }

  /** Revokes exports, then unmaps and frees everything. Call this when the engines of the card have finished. */
  close(): void {
    for (const dmabuf of [...this.#exports()]) dmabuf.revoke();
    for (const mapping of this.#mappings.values()) this.#drop(mapping);
    this.#mappings.clear();
    for (const allocation of this.#allocations.values()) this.#release(allocation);
    this.#allocations.clear();
    this.#account(-this.#usedBytes);
  }

  *#exports(): Iterable<ExportedDmabuf> {
    yield* this.#physicalExports;
    for (const allocation of this.#allocations.values()) yield* allocation.exports;
  }

  #account(byteLength: number): void {
    this.#usedBytes += byteLength;
    this.#card.dramUsedBytes += byteLength;
  }

  /** Allocates pages as runs in ascending order: one run if possible, otherwise single pages, unless contiguous memory is required. */
  #allocateRuns(pages: number, pageBytes: number, contiguous: boolean): MemoryRun[] | undefined {
    const start = this.#physical.allocate(pages * pageBytes, pageBytes);
    if (start >= 0) return [{ offset: this.#firstByte + start, byteLength: pages * pageBytes }];
    if (contiguous) return undefined;
    const runs: MemoryRun[] = [];
    for (let page = 0; page < pages; page++) {
      const offset = this.#physical.allocate(pageBytes, pageBytes);
      if (offset < 0) {
        for (const run of runs) this.#physical.free(run.offset - this.#firstByte);
        return undefined;
      }
      runs.push({ offset: this.#firstByte + offset, byteLength: pageBytes });
    }
    return runs;
  }

  #release({ runs, byteLength }: Allocation): void {
    for (const run of runs) {
      this.#physical.free(run.offset - this.#firstByte);
      this.#card.device.discardHbm(run.offset, run.byteLength);
    }
    this.#account(-byteLength);
  }

  #drop({ allocation, offset }: DeviceMapping): void {
    const dram = this.#va.dram!;
    dram.table.unmap(offset, allocation.byteLength);
    dram.free(offset);
    allocation.mappings -= 1;
  }

  #exportPhysical({ address, byteLength, offset, flags }: ExportRequest): number {
    const { base, reservedSize } = this.#card.profile.dram;
    const end = base + BigInt(this.#card.device.hbm.byteLength);
    if (offset !== 0n || address < base + reservedSize || address + byteLength > end) return -Errno.EINVAL;
    const runs = [{ offset: Number(address - base), byteLength: Number(byteLength) }];
    return this.#create(runs, flags, this.#physicalExports);
  }

  #create(runs: readonly MemoryRun[], flags: number, exports: Set<ExportedDmabuf>): number {
    for (const dmabuf of exports) if (!dmabuf.alive) exports.delete(dmabuf);
    if (this.#card.faults.exhausts('fd')) return -Errno.EMFILE;
    try {
      const { device, place, dmabufs } = this.#card;
      const { fd, dmabuf } = dmabufs.create({ memory: device.hbm, minor: place.minor, runs }, flags);
      exports.add(dmabuf);
      return fd;
    } catch (error) {
      if (isSyscallError(error)) return -error.errno;
      throw error;
    }
  }
}

function isExported(allocation: Allocation): boolean {
  for (const dmabuf of allocation.exports) {
    if (dmabuf.alive) return true;
    allocation.exports.delete(dmabuf);
  }
  return false;
}
