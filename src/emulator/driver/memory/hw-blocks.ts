/**
 * Register blocks that a user may map (MEMORY MAP_BLOCK).
 *
 * Stores of the user through memory ({@link HwBlocks.mmap}) change register values without the effects of a write; accesses through
 * {@link HwBlocks.mapRegisters} have them.
 */

import type { DriverMapping, RegisterMapping } from '../../../driver/port.ts';
import { Errno, mapFile, SyscallError } from '../../../sys/index.ts';
import { type AsicProfile, HandleType, PAGE_SIZE, packHandle, type UserBlock } from '../../../uapi/index.ts';
import type { CardState } from '../card-state.ts';
import { BufferMapping, type MmapFile, SharedPages } from './mmap-file.ts';

/** Result of MAP_BLOCK. */
export interface BlockHandle {
  readonly handle: bigint;
  readonly byteLength: number;
}

/** The register blocks of one context. Their ids are indices in the profile. */
export class HwBlocks {
  readonly #card: CardState;
  /** Mappings of blocks. */
  readonly #mapped: Set<{ close(): void }> = new Set();

  readonly #mmapFile: MmapFile | undefined;

  /** @param mmapFile the file of the context in which the blocks are mapped; undefined for a file per block */
  constructor(card: CardState, mmapFile?: MmapFile) {
    this.#card = card;
    this.#mmapFile = mmapFile;
  }

  /** The handle of the block at an address, or an errno: EPERM if the ASIC has no user blocks, EINVAL for another address. */
  find(address: bigint): BlockHandle | number {
    const { profile } = this.#card;
    if (!profile.capabilities.mapBlock) return Errno.EPERM;
    const id = profile.userBlocks.findIndex((block) => block.address === address);
    if (id < 0) return Errno.EINVAL;
    const byteLength = profile.userBlocks[id]!.size;
    if (this.#mmapFile === undefined) return { handle: packHandle(HandleType.HW_BLOCK, id), byteLength };
    const page = firstPage(profile, id);
    // The kernel maps the file without calling the driver: the registers must be in the file before the handle is returned.
    const handle = this.#mmapFile.cookie(HandleType.HW_BLOCK, page);
    const place = { fd: this.#mmapFile.fd, offset: handle };
    this.#card.device.registers.shareBlock(Number(address - profile.cfg.start), byteLength, place);
    this.#card.watchSharedRegisters();
    return { handle, byteLength };
  }

  /**
   * Maps a whole block.
   * @throws SyscallError EINVAL for an unknown block or an incomplete range; ENOMEM
   */
  mmap(byteLength: number, id: number): DriverMapping {
    const { fd, size } = this.#shareFile(byteLength, id);
    const mapping = new BufferMapping(mapFile(fd, size, 0), () => this.#mapped.delete(mapping));
    this.#mapped.add(mapping);
    return mapping;
  }

  /**
   * Returns a whole block for another process. The card owns it until {@link close}; it counts as mapped until it is released.
   * @throws SyscallError like {@link mmap}
   */
  share(byteLength: number, id: number): SharedPages {
    const { fd, size } = this.#shareFile(byteLength, id);
    const mapping = { close: (): void => {} };
    this.#mapped.add(mapping);
    return new SharedPages(fd, 0, size, () => this.#mapped.delete(mapping));
  }

  /**
   * Maps a whole block for exact accesses.
   * @throws SyscallError like {@link mmap}
   */
  mapRegisters(byteLength: number, id: number): RegisterMapping {
    const { address, size } = this.#block(byteLength, id);
    const mapping = new BlockRegisters(this.#card, Number(address - this.#card.profile.cfg.start), size, () =>
      this.#mapped.delete(mapping),
    );
    this.#mapped.add(mapping);
    return mapping;
  }

  /** Checks a mapping of the mmap file that the kernel makes. Throws SyscallError EINVAL like {@link mmap}. */
  checkMmap(byteLength: number, page: number): void {
    const { profile } = this.#card;
    const id = profile.userBlocks.findIndex((_block, index) => firstPage(profile, index) === page);
    if (id < 0) throw new SyscallError('mmap', Errno.EINVAL, `no register block begins at page ${page}`);
    const { size } = profile.userBlocks[id]!;
    if (byteLength !== size) throw wrongLength(id, size, byteLength);
  }

  #shareFile(byteLength: number, id: number): { readonly fd: number; readonly size: number } {
    const { profile, device } = this.#card;
    const { address, size } = this.#block(byteLength, id);
    const fd = device.registers.shareBlock(Number(address - profile.cfg.start), size);
    this.#card.watchSharedRegisters();
    return { fd, size };
  }

  #block(byteLength: number, id: number): UserBlock {
    const block = this.#card.profile.userBlocks[id];
    if (block === undefined) throw new SyscallError('mmap', Errno.EINVAL, `register block ${id} does not exist`);
    if (Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE !== block.size) throw wrongLength(id, block.size, byteLength);
    return block;
  }

  /** True while the user has mapped a block. */
  get hasMappings(): boolean {
    return this.#mapped.size > 0 || this.#mmapFile?.hasBlocks === true;
  }

  /** Removes the mappings: the views of the user read zeros from now on, and those in other processes are no longer connected to a card. */
  close(): void {
    for (const mapping of [...this.#mapped]) mapping.close();
    this.#mapped.clear();
    this.#card.device.registers.unshare();
  }
}

/** Accesses to the registers of a card, with their effects. */
class BlockRegisters implements RegisterMapping {
  readonly byteLength: number;
  readonly #card: CardState;
  readonly #offset: number;
  readonly #onClose: () => void;
  #closed = false;

  /** @param offset of the block from the configuration base */
  constructor(card: CardState, offset: number, byteLength: number, onClose: () => void) {
    this.#card = card;
    this.#offset = offset;
    this.byteLength = byteLength;
    this.#onClose = onClose;
  }

  read(offset: number): number {
    if (this.#closed || !this.#contains(offset)) return 0;
    // A card that was removed answers with all ones.
    return this.#card.removed ? -1 : this.#card.device.registers.readRegister(this.#offset + offset) | 0;
  }

  write(offset: number, value: number): void {
    if (this.#closed || this.#card.removed || !this.#contains(offset)) return;
    this.#card.device.registers.writeRegister(this.#offset + offset, value | 0);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#onClose();
  }

  #contains(offset: number): boolean {
    return offset >= 0 && offset < this.byteLength && offset % 4 === 0;
  }
}

function wrongLength(id: number, size: number, byteLength: number): SyscallError {
  return new SyscallError(
    'mmap',
    Errno.EINVAL,
    `a mapping of register block ${id} must have ${size} bytes, got ${byteLength}`,
  );
}

/** First page of a block in an mmap file: the blocks follow one another. */
function firstPage(profile: AsicProfile, id: number): number {
  let page = 1;
  for (let before = 0; before < id; before++) page += profile.userBlocks[before]!.size / PAGE_SIZE;
  return page;
}
