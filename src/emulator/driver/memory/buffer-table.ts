/**
 * Driver buffers of a context: command buffers and timestamp buffers, with their handles and mappings (struct hl_mem_mgr).
 *
 * Driver and user have separate mappings of a buffer, which can be removed in any order. Both types share one range of handle numbers.
 * Source: drivers/accel/habanalabs/common/memory_mgr.c, Linux 6.12.
 */

import type { DriverMapping, RegisterMapping } from '../../../driver/port.ts';
import { Errno, isSyscallError, mapFile, SyscallError } from '../../../sys/index.ts';
import { HandleType, handleId, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';
import { HOST_MEMORY, PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { HandleIds, HOST_PAGE_BYTES, type VaRange } from './address-blocks.ts';
import type { HwBlocks } from './hw-blocks.ts';
import { BufferMapping, BufferPages, type BufferRange, type MmapFile, SharedPages } from './mmap-file.ts';

interface DriverBufferInit {
  readonly handle: bigint;
  readonly byteLength: number;
  readonly place: BufferRange;
}

/** One buffer. It exists until it is destroyed and unmapped. */
export class DriverBuffer {
  readonly id: number;
  readonly type: HandleType;
  /** Size in bytes as the driver counts it. */
  readonly byteLength: number;
  /** The mmap cookie. */
  readonly handle: bigint;
  /** The driver's mapping; host memory for the card. */
  readonly memory: PhysicalMemory;
  readonly view: DataView;
  readonly place: BufferRange;
  /** Device address of a command buffer created with MAP; 0 for none. */
  deviceAddress = 0n;
  /** Destroyed by the user; it may still be mapped. */
  destroyed = false;
  /** Whether the user has mapped it. Mappings made by the kernel are not reported: see {@link BufferTable}. */
  mapped = false;

  constructor(id: number, type: HandleType, init: DriverBufferInit) {
    const { handle, byteLength, place } = init;
    const { address, bytes } = place;
    this.id = id;
    this.type = type;
    this.handle = handle;
    this.byteLength = byteLength;
    this.place = place;
    this.memory = new PhysicalMemory(HOST_MEMORY, { address, byteLength: bytes.byteLength }, () => bytes);
    this.view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  }

  /** Maps the same bytes again, for the user. */
  mapForUser(onClose: () => void): DriverMapping {
    const { fd, offset } = this.place;
    return new BufferMapping(mapFile(fd, this.memory.byteLength, offset), onClose);
  }
}

export class BufferTable {
  readonly #buffers: Map<number, DriverBuffer> = new Map();
  readonly #ids: HandleIds = new HandleIds();
  readonly #pages: BufferPages;
  readonly #blocks: HwBlocks;
  readonly #mmapFile: MmapFile | undefined;
  readonly #onDrop: (buffer: DriverBuffer) => void;
  /** Destroyed buffers that may still be mapped. The kernel does not report when it unmaps them, so this is checked later. */
  readonly #leftMapped: Set<DriverBuffer> = new Set();
  #closed = false;

  /**
   * @param onDrop called when the last reference to a buffer is released, before its memory is freed
   * @param mmapFile the file that the kernel maps; undefined if the driver makes mappings
   */
  constructor(blocks: HwBlocks, onDrop: (buffer: DriverBuffer) => void, mmapFile?: MmapFile) {
    this.#blocks = blocks;
    this.#onDrop = onDrop;
    this.#mmapFile = mmapFile;
    this.#pages = new BufferPages(mmapFile);
  }

  /** True while the user has mapped a buffer, destroyed or not. */
  get hasMappedBuffers(): boolean {
    if (this.#mmapFile !== undefined) return this.#mmapFile.hasMappings;
    for (const buffer of this.#buffers.values()) if (buffer.mapped) return true;
    return false;
  }

  /** Number of existing buffers. */
  get size(): number {
    return this.#buffers.size;
  }

  /** Creates a zeroed buffer; or returns an errno. */
  create(type: HandleType, byteLength: number): DriverBuffer | number {
    this.#dropUnmapped();
    try {
      const place = this.#pages.allocate(type, byteLength);
      // The kernel maps the file at the offset that the program passes, so the id is the page number.
      const id = this.#mmapFile === undefined ? this.#ids.take() : place.page;
      const handle = this.#mmapFile?.cookie(type, id) ?? packHandle(type, id);
      const buffer = new DriverBuffer(id, type, { handle, byteLength, place });
      this.#buffers.set(id, buffer);
      return buffer;
    } catch (error) {
      if (isSyscallError(error)) return error.errno;
      throw error;
    }
  }

  /**
   * Finds the buffer of a handle by its actual type; the type in the handle is ignored (hl_mmap_mem_buf_get). Destroyed buffers are found while they are
   * mapped.
   */
  find(type: HandleType, low: number, high: number): DriverBuffer | undefined {
    const buffer = this.#buffers.get(handleId(low, high));
    return buffer?.type === type ? buffer : undefined;
  }

  /** Finds the command buffer of a handle. */
  findCommandBuffer(low: number, high: number): DriverBuffer | undefined {
    return this.find(HandleType.CB, low, high);
  }

  /** The command buffers, for the debugfs list. */
  commandBuffers(): readonly { readonly handle: bigint; readonly byteLength: number; readonly mapped: boolean }[] {
    const isMapped = this.#mmapFile?.mapped();
    return [...this.#buffers.values()]
      .filter(({ type }) => type === HandleType.CB)
      .map(({ handle, byteLength, mapped }) => ({
        handle,
        byteLength,
        mapped: isMapped?.(handle, byteLength) ?? mapped,
      }));
  }

  /** The buffers that have a device address. */
  mappedForDevice(): readonly DriverBuffer[] {
    return [...this.#buffers.values()].filter((buffer) => buffer.deviceAddress !== 0n);
  }

  /** Releases the user's reference; the buffer is freed once it is not mapped. Returns false if it was released before. */
  destroy(buffer: DriverBuffer): boolean {
    if (buffer.destroyed) return false;
    buffer.destroyed = true;
    this.#dropUnused(buffer);
    return true;
  }

  /**
   * Maps a buffer or a block of registers.
   * @throws SyscallError EINVAL for an unknown handle, a length that differs from that of the buffer in pages, or a second mapping; ENOMEM
   */
  mmap(byteLength: number, offset: bigint): DriverMapping {
    const { type, id } = unpackHandle(offset);
    if (type === HandleType.HW_BLOCK) return this.#blocks.mmap(byteLength, Number(id));
    const buffer = this.#takeForUser(byteLength, offset);
    try {
      return buffer.mapForUser(() => this.#returnFromUser(buffer));
    } catch (error) {
      buffer.mapped = false;
      throw error;
    }
  }

  /** Maps a block of registers for exact accesses. @throws SyscallError EINVAL for another handle or length */
  mapRegisters(byteLength: number, offset: bigint): RegisterMapping {
    const { type, id } = unpackHandle(offset);
    if (type !== HandleType.HW_BLOCK) throw mmapError(`no register block at offset 0x${offset.toString(16)}`);
    return this.#blocks.mapRegisters(byteLength, Number(id));
  }

  /**
   * Returns the memory that {@link mmap} would map, for another process. The buffer counts as mapped until that memory is released.
   * @throws SyscallError like mmap
   */
  share(byteLength: number, offset: bigint): SharedPages {
    const { type, id } = unpackHandle(offset);
    if (type === HandleType.HW_BLOCK) return this.#blocks.share(byteLength, Number(id));
    const buffer = this.#takeForUser(byteLength, offset);
    const { fd, offset: start } = buffer.place;
    return new SharedPages(fd, Number(start), buffer.memory.byteLength, () => {
      if (buffer.mapped) this.#returnFromUser(buffer);
    });
  }

  /**
   * Checks a mapping of the mmap file that the kernel makes in the process `pid`.
   * @throws SyscallError EINVAL like {@link mmap}
   */
  checkMmap(byteLength: number, offset: bigint, pid: number): void {
    this.#mmapFile?.addProcess(pid);
    this.#dropUnmapped();
    const { type, id } = unpackHandle(offset);
    if (type === HandleType.HW_BLOCK) this.#blocks.checkMmap(byteLength, Number(id));
    else {
      const buffer = this.#forUser(byteLength, offset);
      // A buffer that was never mapped need not be looked up.
      if (buffer.mapped && this.#isMapped(buffer)) throw mmapError('the buffer is already mapped');
      buffer.mapped = true;
    }
  }

  /** Releases all handles. Existing mappings of the user stay valid. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const { memory } of this.#buffers.values()) memory.forget();
    this.#buffers.clear();
    this.#pages.close();
  }

  /** Checks the arguments of a mapping and marks the buffer as mapped. */
  #takeForUser(byteLength: number, offset: bigint): DriverBuffer {
    const buffer = this.#forUser(byteLength, offset);
    if (buffer.mapped) throw mmapError('the buffer is already mapped');
    buffer.mapped = true;
    return buffer;
  }

  /** The buffer at an offset. A mapping must cover the whole buffer. */
  #forUser(byteLength: number, offset: bigint): DriverBuffer {
    const { type, id } = unpackHandle(offset);
    const buffer = this.#buffers.get(Number(id));
    const isType = buffer !== undefined && type === (this.#mmapFile?.typeOf(buffer.type) ?? buffer.type);
    if (buffer === undefined || !isType) throw mmapError(`no buffer at offset 0x${offset.toString(16)}`);
    if (roundUp(byteLength) !== buffer.memory.byteLength || byteLength <= 0) {
      throw mmapError(`mapping has ${byteLength} bytes, but the buffer has ${buffer.byteLength}`);
    }
    return buffer;
  }

  #returnFromUser(buffer: DriverBuffer): void {
    buffer.mapped = false;
    this.#dropUnused(buffer);
  }

  /** Frees destroyed buffers that the user has unmapped meanwhile. */
  #dropUnmapped(): void {
    if (this.#leftMapped.size === 0 || this.#mmapFile === undefined) return;
    const isMapped = this.#mmapFile.mapped();
    for (const buffer of this.#leftMapped) if (!isMapped(buffer.handle, buffer.byteLength)) this.#drop(buffer);
  }

  #dropUnused(buffer: DriverBuffer): void {
    if (this.#closed || !buffer.destroyed) return;
    if (!this.#isMapped(buffer)) this.#drop(buffer);
    else if (this.#mmapFile !== undefined) this.#leftMapped.add(buffer);
  }

  /** Whether the user has mapped a buffer. Mappings made by the kernel are looked up in /proc. */
  #isMapped(buffer: DriverBuffer): boolean {
    return this.#mmapFile?.mapped()(buffer.handle, buffer.byteLength) ?? buffer.mapped;
  }

  #drop(buffer: DriverBuffer): void {
    this.#leftMapped.delete(buffer);
    this.#onDrop(buffer);
    this.#buffers.delete(buffer.id);
    if (this.#mmapFile === undefined) this.#ids.free(buffer.id);
    buffer.memory.forget();
    this.#pages.free(buffer.place);
  }
}

/** The error of a rejected mmap. */
export function mmapError(summary: string): SyscallError {
  return new SyscallError('mmap', Errno.EINVAL, summary);
}

function roundUp(byteLength: number): number {
  return Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE;
}

/** Range of device addresses that a context reserves for command buffers (CB_VA_POOL_SIZE). */
const POOL_BYTES = 4 * 2 ** 30;

/** Device addresses of the driver's mapped command buffers (CB CREATE with MAP). The pool is allocated from the host range when the first buffer is mapped. */
export class CommandBufferVa {
  readonly #range: VaRange;
  #pool: RangeAllocator | undefined;
  #poolOffset = 0;

  constructor(range: VaRange) {
    this.#range = range;
  }

  /** Maps a buffer for the card. Returns its address, or 0 if the pool is exhausted. */
  map(buffer: DriverBuffer): bigint {
    if (this.#pool === undefined) {
      const alignment = HOST_PAGE_BYTES;
      this.#poolOffset = this.#range.allocate({ byteLength: POOL_BYTES, alignment, hint: 0n, force: false });
      if (this.#poolOffset < 0) return 0n;
      this.#pool = new RangeAllocator(POOL_BYTES);
    }
    const { byteLength } = buffer.memory;
    const offset = this.#pool.allocate(byteLength, HOST_PAGE_BYTES);
    if (offset < 0) return 0n;
    this.#range.table.map(this.#poolOffset + offset, byteLength, buffer.memory, 0);
    return this.#range.addressOf(this.#poolOffset + offset);
  }

  unmap(buffer: DriverBuffer): void {
    if (buffer.deviceAddress === 0n) return;
    const offset = Number(buffer.deviceAddress - this.#range.base);
    this.#range.table.unmap(offset, buffer.memory.byteLength);
    this.#pool?.free(offset - this.#poolOffset);
    buffer.deviceAddress = 0n;
  }

  /** Releases the pool. */
  close(): void {
    if (this.#pool !== undefined) this.#range.free(this.#poolOffset);
    this.#pool = undefined;
  }
}
