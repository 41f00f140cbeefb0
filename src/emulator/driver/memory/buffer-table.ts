/**
 * Driver buffers of a context: command buffers and timestamp buffers, with their handles and mappings (struct hl_mem_mgr).
 *
 * A buffer is a memfd, so that driver and user have separate mappings of it and either can be removed first. Handles share
 * one number space. Source: drivers/accel/habanalabs/common/memory_mgr.c, Linux 6.12.
 */

import type { DriverMapping } from '../../../driver/port.ts';
import {
  addSeals,
  close as closeFd,
  Errno,
  ftruncate,
  isSyscallError,
  type MappedMemory,
  mapFile,
  memfdCreate,
  SealFlag,
  SyscallError,
} from '../../../sys/index.ts';
import { HandleType, handleId, handleType, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';
import { HOST_MEMORY, PhysicalMemory } from '../../device/memory/physical-memory.ts';
import { smallestFreeId } from './handle-ids.ts';
import type { HwBlocks } from './hw-blocks.ts';
import type { MmapFile, MmapPlace } from './mmap-file.ts';

/** Pages of the driver that another process maps. */
export interface SharedPages {
  /** The driver's own descriptor of a file that cannot shrink; valid until the file that shared it is closed. */
  readonly fd: number;
  readonly byteLength: number;
  /** Notifies that the process has unmapped the pages. Idempotent. */
  release(): void;
}

/** A mapped buffer for the driver port; notifies when it is closed. */
export class BufferMapping implements DriverMapping {
  readonly address: number;
  readonly byteLength: number;
  readonly buffer: ArrayBuffer;
  readonly #memory: MappedMemory;
  readonly #onClose: () => void;

  constructor(memory: MappedMemory, onClose: () => void) {
    this.address = memory.address;
    this.byteLength = memory.byteLength;
    this.buffer = memory.buffer;
    this.#memory = memory;
    this.#onClose = onClose;
  }

  close(): void {
    if (this.#memory.closed) return;
    this.#memory.close();
    this.#onClose();
  }
}

/** One buffer. It exists until it is destroyed and unmapped. */
export class DriverBuffer {
  readonly id: number;
  readonly type: HandleType;
  /** Size in bytes as the driver counts it. */
  readonly byteLength: number;
  /** The driver's mapping; host memory for the card. */
  readonly memory: PhysicalMemory;
  readonly mapping: MappedMemory;
  /** Device address of a command buffer created with MAP; 0 for none. */
  deviceAddress = 0n;
  /** Destroyed by the user; it may still be mapped. */
  destroyed = false;
  readonly #isMapped: (() => boolean) | undefined;
  #mapped = false;
  /** The mmap cookie. */
  readonly handle: bigint;
  readonly #fd: number;
  readonly #mmapFile: MmapFile | undefined;
  readonly #place: MmapPlace | undefined;

  /**
   * @param mmapFile the file of the context that has its buffers, and chooses their ids; undefined for a file of its own
   * @throws SyscallError ENOMEM, EMFILE
   */
  constructor(id: number, type: HandleType, byteLength: number, mmapFile?: MmapFile) {
    const place = mmapFile?.allocate(type, byteLength);
    this.id = place?.id ?? id;
    this.type = type;
    this.handle = packHandle(mmapFile?.typeOf(type) ?? type, this.id);
    this.byteLength = byteLength;
    this.#mmapFile = mmapFile;
    this.#place = place;
    this.#isMapped = place === undefined ? undefined : () => mmapFile!.isMapped(place);
    const bytes = roundUp(byteLength);
    if (place !== undefined) {
      this.#fd = place.fd;
      try {
        this.mapping = mapFile(place.fd, bytes, place.offset);
      } catch (error) {
        mmapFile!.free(place);
        throw error;
      }
      this.memory = new PhysicalMemory(HOST_MEMORY, this.mapping.address, bytes, () => this.mapping.buffer);
      return;
    }
    this.#fd = memfdCreate(type === HandleType.CB ? 'gaudi-cb' : 'gaudi-ts', { sealing: true });
    try {
      ftruncate(this.#fd, bytes);
      // Other processes receive the descriptor: a file that shrinks under the driver's mapping would end the process.
      addSeals(this.#fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
      this.mapping = mapFile(this.#fd, bytes, 0);
    } catch (error) {
      closeFd(this.#fd);
      throw error;
    }
    this.memory = new PhysicalMemory(HOST_MEMORY, this.mapping.address, bytes, () => this.mapping.buffer);
  }

  /** Whether the user has it mapped. Mappings that the kernel makes are not reported: there it is looked up. */
  get mapped(): boolean {
    return this.#isMapped?.() ?? this.#mapped;
  }

  set mapped(mapped: boolean) {
    this.#mapped = mapped;
  }

  /** The file of the buffer, which the buffer owns. */
  get fd(): number {
    return this.#fd;
  }

  /** Maps the same bytes once more, for the user. */
  mapForUser(onClose: () => void): DriverMapping {
    return new BufferMapping(mapFile(this.#fd, this.mapping.byteLength, this.#place?.offset ?? 0), onClose);
  }

  close(): void {
    this.memory.forget();
    this.mapping.close();
    if (this.#place === undefined) closeFd(this.#fd);
    else this.#mmapFile!.free(this.#place);
  }
}

/** The buffers of one context. */
export class BufferTable {
  readonly #buffers: Map<number, DriverBuffer> = new Map();
  readonly #blocks: HwBlocks;
  readonly #mmapFile: MmapFile | undefined;
  /** Destroyed buffers that were mapped still: nothing tells when the kernel unmaps them. */
  readonly #leftMapped: Set<DriverBuffer> = new Set();
  #closed = false;

  constructor(blocks: HwBlocks, mmapFile?: MmapFile) {
    this.#blocks = blocks;
    this.#mmapFile = mmapFile;
  }

  /** True while the user has a buffer mapped, destroyed or not. */
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
      const id = this.#mmapFile === undefined ? smallestFreeId(this.#buffers) : 0;
      const buffer = new DriverBuffer(id, type, byteLength, this.#mmapFile);
      this.#buffers.set(buffer.id, buffer);
      return buffer;
    } catch (error) {
      if (isSyscallError(error)) return error.errno;
      throw error;
    }
  }

  /** Finds the buffer of a handle, if it has that type. Destroyed buffers are found while they are mapped. */
  find(type: HandleType, low: number, high: number): DriverBuffer | undefined {
    if (handleType(high) !== (this.#mmapFile?.typeOf(type) ?? type)) return undefined;
    const buffer = this.#buffers.get(handleId(low, high));
    return buffer?.type === type ? buffer : undefined;
  }

  /** Finds the command buffer of a handle. */
  findCommandBuffer(low: number, high: number): DriverBuffer | undefined {
    return this.find(HandleType.CB, low, high);
  }

  /** The command buffers. */
  commandBuffers(): readonly DriverBuffer[] {
    return [...this.#buffers.values()].filter(({ type }) => type === HandleType.CB);
  }

  /** The buffers that have a device address. */
  mappedForDevice(): readonly DriverBuffer[] {
    return [...this.#buffers.values()].filter((buffer) => buffer.deviceAddress !== 0n);
  }

  /** Releases the user's reference; the buffer is freed when it is not mapped. Returns false if it was released before. */
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

  /**
   * Returns what {@link mmap} maps, for another process. It counts as mapped until it is released.
   * @throws SyscallError like mmap
   */
  share(byteLength: number, offset: bigint): SharedPages {
    const { type, id } = unpackHandle(offset);
    if (type === HandleType.HW_BLOCK) return this.#blocks.share(byteLength, Number(id));
    const buffer = this.#takeForUser(byteLength, offset);
    return {
      fd: buffer.fd,
      byteLength: buffer.mapping.byteLength,
      release: () => {
        if (buffer.mapped) this.#returnFromUser(buffer);
      },
    };
  }

  /**
   * Checks a mapping that the kernel makes of the mmap file.
   * @throws SyscallError EINVAL as {@link mmap}
   */
  checkMmap(byteLength: number, offset: bigint): void {
    this.#dropUnmapped();
    const { type, id } = unpackHandle(offset);
    if (type === HandleType.HW_BLOCK) this.#blocks.checkMmap(byteLength, Number(id));
    else if (this.#forUser(byteLength, offset).mapped) throw refused('the buffer is mapped already');
  }

  /** Drops all handles. Existing mappings of the user stay valid. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const buffer of this.#buffers.values()) buffer.close();
    this.#buffers.clear();
  }

  /** Checks the arguments of a mapping and marks the buffer as mapped. */
  #takeForUser(byteLength: number, offset: bigint): DriverBuffer {
    const buffer = this.#forUser(byteLength, offset);
    if (buffer.mapped) throw refused('the buffer is mapped already');
    buffer.mapped = true;
    return buffer;
  }

  /** The buffer at an offset, all of which is to be mapped. */
  #forUser(byteLength: number, offset: bigint): DriverBuffer {
    const { type, id } = unpackHandle(offset);
    const buffer = this.#buffers.get(Number(id));
    const isType = buffer !== undefined && type === (this.#mmapFile?.typeOf(buffer.type) ?? buffer.type);
    if (buffer === undefined || !isType) throw refused(`no buffer at offset 0x${offset.toString(16)}`);
    if (roundUp(byteLength) !== buffer.mapping.byteLength || byteLength <= 0) {
      throw refused(`${byteLength} bytes of a buffer that has ${buffer.byteLength}`);
    }
    return buffer;
  }

  #returnFromUser(buffer: DriverBuffer): void {
    buffer.mapped = false;
    this.#dropUnused(buffer);
  }

  /** Frees the destroyed buffers that the user has unmapped meanwhile. */
  #dropUnmapped(): void {
    for (const buffer of this.#leftMapped) this.#dropUnused(buffer);
  }

  #dropUnused(buffer: DriverBuffer): void {
    if (this.#closed || !buffer.destroyed) return;
    if (buffer.mapped) {
      if (this.#mmapFile !== undefined) this.#leftMapped.add(buffer);
      return;
    }
    this.#leftMapped.delete(buffer);
    this.#buffers.delete(buffer.id);
    buffer.close();
  }
}

/** The error of a rejected mmap. */
export function refused(summary: string): SyscallError {
  return new SyscallError('mmap', Errno.EINVAL, summary);
}

function roundUp(byteLength: number): number {
  return Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE;
}
