/**
 * Register blocks that a user may map (MEMORY MAP_BLOCK).
 *
 * Stores of the user through such a mapping change register values without the effects of a write by the card.
 */

import type { DriverMapping } from '../../../driver/port.ts';
import { Errno, mapFile, SyscallError } from '../../../sys/index.ts';
import { type AsicProfile, HandleType, PAGE_SIZE, packHandle } from '../../../uapi/index.ts';
import type { CardState } from '../card-state.ts';
import { type MmapFile, SharedPages } from './mmap-file.ts';

/** Result of MAP_BLOCK. */
export interface BlockHandle {
  readonly handle: bigint;
  readonly byteLength: number;
}

/** The register blocks of one context. Their ids are indices in the profile. */
export class HwBlocks {
  readonly #card: CardState;
  /** Mapped blocks by id. */
  readonly #mapped: Set<DriverMapping> = new Set();

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
    return { handle, byteLength };
  }

  /**
   * Maps a whole block.
   * @throws SyscallError EINVAL for an unknown block or an incomplete range; ENOMEM
   */
  mmap(byteLength: number, id: number): DriverMapping {
    const pages = this.share(byteLength, id);
    const memory = mapFile(pages.fd, pages.byteLength, 0);
    this.#mapped.add(memory);
    return memory;
  }

  /**
   * Returns a whole block for another process. The card owns it until {@link close}, so it need not be released.
   * @throws SyscallError like {@link mmap}
   */
  share(byteLength: number, id: number): SharedPages {
    const { profile, device } = this.#card;
    const block = profile.userBlocks[id];
    if (block === undefined) throw new SyscallError('mmap', Errno.EINVAL, `register block ${id} does not exist`);
    if (Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE !== block.size) throw wrongLength(id, block.size, byteLength);
    const fd = device.registers.shareBlock(Number(block.address - profile.cfg.start), block.size);
    return new SharedPages(fd, 0, block.size);
  }

  /** Checks a mapping of the mmap file that the kernel makes. Throws SyscallError EINVAL like {@link mmap}. */
  checkMmap(byteLength: number, page: number): void {
    const { profile } = this.#card;
    const id = profile.userBlocks.findIndex((_block, index) => firstPage(profile, index) === page);
    if (id < 0) throw new SyscallError('mmap', Errno.EINVAL, `no register block begins at page ${page}`);
    const { size } = profile.userBlocks[id]!;
    if (byteLength !== size) throw wrongLength(id, size, byteLength);
  }

  /** Removes the mappings: the views of the user read zeros from now on, and those in other processes are no longer connected to a card. */
  close(): void {
    for (const mapping of this.#mapped) mapping.close();
    this.#mapped.clear();
    this.#card.device.registers.unshare();
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
