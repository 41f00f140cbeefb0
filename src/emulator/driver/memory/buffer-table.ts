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
import { HOST_MEMORY, PhysicalMemory } from '../../device/physical-memory.ts';
import { smallestFreeId } from './handle-ids.ts';
import type { HwBlocks } from './hw-blocks.ts';

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
  /** Whether the user has it mapped. */
  mapped = false;
  readonly #fd: number;

  /** @throws SyscallError ENOMEM, EMFILE */
  constructor(id: number, type: HandleType, byteLength: number) {
    this.id = id;
    this.type = type;
    this.byteLength = byteLength;
    const bytes = roundUp(byteLength);
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

  get handle(): bigint {
    return packHandle(this.type, this.id);
  }

  /** The file of the buffer, which the buffer owns. */
  get fd(): number {
    return this.#fd;
  }

  /** Maps the same bytes once more, for the user. */
  mapForUser(onClose: () => void): DriverMapping {
    return new BufferMapping(mapFile(this.#fd, this.mapping.byteLength, 0), onClose);
  }

  close(): void {
    this.memory.forget();
    this.mapping.close();
    closeFd(this.#fd);
  }
}

/** The buffers of one context. */
export class BufferTable {
  readonly #buffers: Map<number, DriverBuffer> = new Map();
  readonly #blocks: HwBlocks;
  #closed = false;

  constructor(blocks: HwBlocks) {
    this.#blocks = blocks;
  }

  /** True while the user has a buffer mapped, destroyed or not. */
  get hasMappedBuffers(): boolean {
    for (const buffer of this.#buffers.values()) if (buffer.mapped) return true;
    return false;
  }

  /** Number of existing buffers. */
  get size(): number {
    return this.#buffers.size;
  }

  /** Creates a zeroed buffer; or returns an errno. */
  create(type: HandleType, byteLength: number): DriverBuffer | number {
    try {
      const buffer = new DriverBuffer(smallestFreeId(this.#buffers), type, byteLength);
      this.#buffers.set(buffer.id, buffer);
      return buffer;
    } catch (error) {
      if (isSyscallError(error)) return error.errno;
      throw error;
    }
  }

  /** Finds the buffer of a handle, if it has that type. Destroyed buffers are found while they are mapped. */
  find(type: HandleType, low: number, high: number): DriverBuffer | undefined {
    if (handleType(high) !== type) return undefined;
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

  /** Drops all handles. Existing mappings of the user stay valid. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const buffer of this.#buffers.values()) buffer.close();
    this.#buffers.clear();
  }

  /** Checks the arguments of a mapping and marks the buffer as mapped. */
  #takeForUser(byteLength: number, offset: bigint): DriverBuffer {
    const { type, id } = unpackHandle(offset);
    const buffer = this.#buffers.get(Number(id));
    if (buffer === undefined || buffer.type !== type) throw refused(`no buffer at offset 0x${offset.toString(16)}`);
    if (roundUp(byteLength) !== buffer.mapping.byteLength || byteLength <= 0) {
      throw refused(`${byteLength} bytes of a buffer that has ${buffer.byteLength}`);
    }
    if (buffer.mapped) throw refused('the buffer is mapped already');
    buffer.mapped = true;
    return buffer;
  }

  #returnFromUser(buffer: DriverBuffer): void {
    buffer.mapped = false;
    this.#dropUnused(buffer);
  }

  #dropUnused(buffer: DriverBuffer): void {
    if (this.#closed || buffer.mapped || !buffer.destroyed) return;
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
