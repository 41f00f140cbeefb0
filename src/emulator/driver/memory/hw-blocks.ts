/**
 * Blocks of registers that a user may map (MEMORY MAP_BLOCK). The registers themselves are in device/register-file.ts.
 *
 * What the user stores through such a mapping changes the registers' values; it does not set off what a write by the card would.
 */

import type { DriverMapping } from '../../../driver/port.ts';
import { Errno, mapFile, SyscallError } from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';

/** What MAP_BLOCK answers. */
export interface BlockHandle {
  readonly handle: bigint;
  readonly byteLength: number;
}

/** The register blocks of one context. Their ids are their places in the profile. */
export class HwBlocks {
  readonly #card: CardPort;
  /** Mapped now, by id. */
  readonly #mapped: Set<DriverMapping> = new Set();

  constructor(card: CardPort) {
    this.#card = card;
  }

  /** The handle of the block at an address; or an errno: EPERM where the ASIC has no user blocks, EINVAL for another address. */
  find(address: bigint): BlockHandle | number {
    const { profile } = this.#card;
    if (!profile.capabilities.mapBlock) return Errno.EPERM;
    const id = profile.userBlocks.findIndex((block) => block.address === address);
    if (id < 0) return Errno.EINVAL;
    return { handle: packHandle(HandleType.HW_BLOCK, id), byteLength: profile.userBlocks[id]!.size };
  }

  /**
   * Maps a whole block.
   * @throws SyscallError EINVAL for an unknown block or a part of one; ENOMEM
   */
  mmap(byteLength: number, id: number): DriverMapping {
    const pages = this.share(byteLength, id);
    const memory = mapFile(pages.fd, pages.byteLength, 0);
    this.#mapped.add(memory);
    return memory;
  }

  /**
   * A whole block for another process. It is the card's until {@link close}, so there is nothing to release.
   * @throws SyscallError like {@link mmap}
   */
  share(byteLength: number, id: number): { readonly fd: number; readonly byteLength: number; release(): void } {
    const { profile, device } = this.#card;
    const block = profile.userBlocks[id];
    if (block === undefined || Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE !== block.size) {
      throw new SyscallError('mmap', Errno.EINVAL, `${byteLength} bytes of register block ${id}`);
    }
    const fd = device.registers.shareBlock(Number(block.address - profile.cfg.start), block.size);
    return { fd, byteLength: block.size, release: () => {} };
  }

  /** Drops the mappings: the user's views read zeros from now on, and those in other processes show registers of no card. */
  close(): void {
    for (const mapping of this.#mapped) mapping.close();
    this.#mapped.clear();
    this.#card.device.registers.unshare();
  }
}
