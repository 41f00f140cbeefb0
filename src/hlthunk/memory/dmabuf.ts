/**
 * Sharing device memory by dma-buf: exporting memory of this process, importing memory of another one. A dma-buf of device memory cannot be mapped into the
 * CPU; it only gives another driver or another card access to the memory.
 *
 * Import is a capability of the driver: MEMORY REG_DMABUF_FD is in the vendor's driver only, not in upstream kernels.
 */

import { Errno, forgetDescriptor, OpenFlag } from '../../sys/index.ts';
import { HABANALABS_IOCTLS, HL_MEM_OP } from '../../uapi/index.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import { type AddressOwner, type CardFile, type CardTarget, cardOf } from '../base/card-file.ts';
import {
  checkInteger,
  checkLength,
  checkWord32,
  checkWord64,
  GaudiErrorCode,
  gaudiError,
  invalidArgument,
  isDeviceLost,
} from '../base/gaudi-error.ts';
import { DeviceBlock } from './arena.ts';
import type { ArenaMemory } from './arena-source.ts';
import { type CardRange, checkUnused, DmaMemory } from './dma-memory.ts';

/** Default flags of an exported descriptor: those that the C library passes. */
const EXPORT_FLAGS: number = OpenFlag.RDWR | OpenFlag.CLOEXEC;

/** Descriptors are signed 32-bit integers. */
const FD_MAX = 2 ** 31 - 1;

/** An exported block. */
export interface DmabufExport {
  /** New descriptor of the dma-buf of the block's arena, close-on-exec; the caller owns and closes it. */
  readonly fd: number;
  /** Offset of the block in the dma-buf, in bytes. */
  readonly offset: number;
}

/**
 * Exports a range of physical device memory of gaudi.
 * @param address physical, a multiple of 4096 like `byteLength`
 * @param flags O_* flags of the descriptor; O_RDWR and O_CLOEXEC by default
 * @returns the descriptor, which the caller owns
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a range outside the memory
 */
export function deviceMemoryExportDmabufFd(
  target: CardTarget,
  address: bigint,
  byteLength: number,
  flags: number = EXPORT_FLAGS,
): number {
  return exportForCaller(target, { address, byteLength, offset: 0 }, flags, 'deviceMemoryExportDmabufFd');
}

/**
 * Exports a range of a mapped allocation of gaudi2 and later.
 * @param address exactly the result of deviceMemoryMap
 * @param offset of the range in the allocation, a multiple of 4096 like `byteLength`
 */
export function deviceMappedMemoryExportDmabufFd(
  target: CardTarget,
  address: bigint,
  byteLength: number,
  offset = 0,
  flags: number = EXPORT_FLAGS,
): number {
  return exportForCaller(target, { address, byteLength, offset }, flags, 'deviceMappedMemoryExportDmabufFd');
}

/**
 * Exports the arena of a block, once for all of its blocks. The receiver has access to the whole arena: a block for an untrusted process needs `dedicated`.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS for a freed block; ERR_GAUDI_OUT_OF_MEMORY without free descriptors
 */
export function exportBlock(block: DeviceBlock): DmabufExport {
  if (!DmaMemory.isGenuine(block) || !(block instanceof DeviceBlock)) {
    throw invalidArgument('block', 'must be device memory', block);
  }
  return { fd: exportArenaOf(block, block.offset, block.byteLength), offset: block.offset };
}

/**
 * Exports the arena of a block for a range of the arena.
 * @returns a new descriptor, which the caller owns
 * @throws like {@link exportBlock}
 */
export function exportArenaOf(block: DeviceBlock, offset: number, byteLength: number): number {
  if (!block.live) throw invalidArgument('block', 'has been freed', block.address);
  const { arena, card } = block;
  card.checkUsable();
  const fd = arena.exportFd((memory) => exportArena(block, memory));
  forgetDescriptor(fd);
  card.dmabufs.exported(
    byteLength,
    `${byteLength} bytes at offset ${offset} of arena ${arena.generation} (${arena.byteLength} bytes) of ${card.name}, fd ${fd}`,
  );
  return fd;
}

/**
 * Exports a whole arena. Linux 6.1 expects the handle of the allocation instead of its address, and rejects the address with EINVAL. Only kernels with the
 * older ioctl family can be that old.
 */
function exportArena(target: CardTarget, memory: ArenaMemory): number {
  const { card } = target;
  const what = 'export of an arena';
  const old = memory.handle !== 0n && card.file.numbers.MEMORY === HABANALABS_IOCTLS.MEMORY;
  const { address, byteLength } = memory;
  if (!old) return exportFd(target, { address, byteLength, offset: 0 }, EXPORT_FLAGS, what);
  const sized = {
    export_dmabuf_fd_mem_size: BigInt(memory.byteLength),
    op: HL_MEM_OP.EXPORT_DMABUF_FD,
    flags: EXPORT_FLAGS,
  };
  const result = card.tryMemory({ ...sized, export_dmabuf_fd_addr: memory.address });
  if (result === -Errno.EINVAL) return card.memory({ ...sized, export_dmabuf_fd_handle: memory.handle }, what).fd;
  if (result < 0) throw card.error(result, what);
  return card.memoryResult().fd;
}

function exportFd(target: CardTarget, { address, byteLength, offset }: RawRange, flags: number, what: string): number {
  checkWord64('address', address);
  checkLength('byteLength', byteLength);
  checkInteger('offset', offset);
  checkWord32('flags', flags);
  return cardOf(target).memory(
    {
      export_dmabuf_fd_addr: address,
      export_dmabuf_fd_mem_size: BigInt(byteLength),
      export_dmabuf_fd_offset: BigInt(offset),
      op: HL_MEM_OP.EXPORT_DMABUF_FD,
      flags,
    },
    `${what} of ${byteLength} bytes at 0x${address.toString(16)}`,
  ).fd;
}

/** Export of a raw call: the caller gets the descriptor. */
function exportForCaller(
  target: CardTarget,
  { address, byteLength, offset }: RawRange,
  flags: number,
  what: string,
): number {
  const fd = exportFd(target, { address, byteLength, offset }, flags, what);
  const { dmabufs, name } = target.card;
  dmabufs.exported(
    byteLength,
    `${byteLength} bytes at offset ${offset} of 0x${address.toString(16)} of ${name}, fd ${fd}`,
  );
  return fd;
}

/** A range of device memory for the ioctl. */
interface RawRange {
  readonly address: bigint;
  readonly byteLength: number;
  readonly offset: number;
}

/** Memory of another card, or of another process, in the address space of this card. Made by {@link DmabufImports.register}. */
export class ImportedMapping extends DmaMemory {
  /** Device address of the first byte of the dma-buf, which identifies the import for the driver. */
  readonly baseAddress: bigint;
  readonly #owner: DmabufImports;

  constructor(owner: DmabufImports, { card, address, byteLength }: CardRange, baseAddress: bigint) {
    super(card, lowWord(address), highWord(address), byteLength);
    this.baseAddress = baseAddress;
    this.#owner = owner;
  }

  /** Ends the import. Errors as those of a host mapping. */
  unmap(): void {
    this.#owner.unmap(this);
  }
}

/** The imports of one open card. */
export class DmabufImports implements AddressOwner {
  readonly #card: CardFile;
  readonly #mappings = new Set<ImportedMapping>();
  #canImport: boolean | undefined;

  constructor(card: CardFile) {
    this.#card = card;
    card.addressOwners.push(this);
  }

  /** Live imports. */
  get count(): number {
    return this.#mappings.size;
  }

  /** Whether a range of device addresses overlaps memory of a live import. Cold. */
  touches(address: bigint, byteLength: number): boolean {
    for (const mapping of this.#mappings) {
      if (address < mapping.address + BigInt(mapping.byteLength) && mapping.address < address + BigInt(byteLength))
        return true;
    }
    return false;
  }

  /** Whether the driver imports dma-bufs. Probed once with an invalid descriptor: EBADF means yes, EINVAL means that the op does not exist. */
  get canImport(): boolean {
    if (this.#canImport === undefined) {
      const result = this.#card.tryMemory({ ...registerInput(-1, 4096), op: HL_MEM_OP.REG_DMABUF_FD });
      if (isDeviceLost(result)) throw this.#card.error(result, 'probe of registerDmabufFd');
      this.#canImport = result === 0 || result === -Errno.EBADF;
    }
    return this.#canImport;
  }

  /**
   * Imports `byteLength` bytes of a dma-buf (MEMORY REG_DMABUF_FD). The descriptor may be closed afterwards.
   * @param offset of the first byte in the dma-buf; the driver also maps the bytes before it
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS if the driver cannot import, or for a descriptor of another kind or an invalid range
   */
  register(fd: number, byteLength: number, offset = 0): ImportedMapping {
    this.#card.checkOpen();
    this.#card.checkUsable();
    checkLength('byteLength', byteLength);
    if (!Number.isSafeInteger(offset) || offset < 0 || !Number.isSafeInteger(offset + byteLength)) {
      throw invalidArgument(
        'offset',
        'must be an integer of at least 0, and offset + byteLength must be below 2^53',
        offset,
      );
    }
    checkFd(fd);
    if (!this.canImport) {
      throw gaudiError(
        GaudiErrorCode.INVALID_PARAMS,
        `the driver of ${this.#card.name} cannot import dma-bufs: MEMORY REG_DMABUF_FD is in the vendor's driver only`,
        { capability: 'importDmabuf' },
      );
    }
    const input = registerInput(fd, offset + byteLength);
    const out = this.#card.memory(
      { ...input, op: HL_MEM_OP.REG_DMABUF_FD },
      `registerDmabufFd of ${offset + byteLength} bytes of fd ${fd}`,
    );
    const base = out.device_virt_addr;
    const range = { card: this.#card, address: base + BigInt(offset), byteLength };
    const mapping = new ImportedMapping(this, range, base);
    this.#mappings.add(mapping);
    this.#card.dmabufs.imported(byteLength, `fd ${fd} from offset ${offset}, as ${rangeText(mapping)}`);
    return mapping;
  }

  /** See {@link ImportedMapping.unmap}. */
  unmap(mapping: ImportedMapping): void {
    if (this.#card.closed) return;
    checkUnused(mapping, this.#card, 'mapping');
    const result = this.#card.tryMemory({ unmap_device_virt_addr: mapping.baseAddress, op: HL_MEM_OP.UNMAP });
    if (result < 0 && !isDeviceLost(result)) throw this.#card.error(result, 'unmap of an import');
    this.#end(mapping);
    this.#mappings.delete(mapping);
  }

  unmapAt(address: bigint): boolean {
    const mapping = [...this.#mappings].find(({ baseAddress }) => baseAddress === address);
    if (mapping !== undefined) this.unmap(mapping);
    return mapping !== undefined;
  }

  /** Marks every import as ended: closing the file ends them. */
  close(): void {
    for (const mapping of this.#mappings) this.#end(mapping);
    this.#mappings.clear();
  }

  #end(mapping: ImportedMapping): void {
    mapping.live = false;
    this.#card.dmabufs.released(mapping.byteLength, rangeText(mapping));
  }
}

function rangeText({ card, address, byteLength }: ImportedMapping): string {
  return `${byteLength} bytes at 0x${address.toString(16)} of ${card.name}`;
}

/** Returns a checked descriptor. @throws UcxError ERR_GAUDI_INVALID_PARAMS */
export function checkFd(fd: number): number {
  if (!Number.isInteger(fd) || fd < 0 || fd > FD_MAX) throw invalidArgument('fd', 'must be a file descriptor', fd);
  return fd;
}

function registerInput(fd: number, byteLength: number): { reg_dmabuf_fd_fd: number; reg_dmabuf_fd_length: bigint } {
  return { reg_dmabuf_fd_fd: fd, reg_dmabuf_fd_length: BigInt(byteLength) };
}
