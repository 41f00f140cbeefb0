/**
 * Memory that a C library of this process has allocated and unmaps: seen through one view, which is safe to touch afterwards. Mappings of this package are in
 * mapped-memory.ts.
 */

import { invalidParam } from '../ucs/type/error.ts';
import { mmap, munmap, viewOfMemory } from './libc.ts';
import { checkViewLength, MapFlag, PAGE_SIZE, PROT_READ_WRITE } from './mapped-memory.ts';

/** Maps at the address only where nothing is (Linux 4.17): `include/uapi/asm-generic/mman-common.h`. */
const MAP_FIXED_NOREPLACE = 0x10_0000;

const placeholders = new FinalizationRegistry<{ readonly address: number; readonly byteLength: number }>(
  ({ address, byteLength }) => munmap(address, byteLength),
);

/** The memory. */
export class ForeignMemory {
  /** Host virtual address of the first byte. */
  readonly address: number;
  readonly byteLength: number;
  readonly u8: Uint8Array;
  readonly #unmap: () => void;
  #closed = false;

  /**
   * @param address of whole pages that the library has mapped
   * @param unmap has the library unmap them
   * @throws UcxError ERR_INVALID_PARAM
   */
  constructor(address: number, byteLength: number, unmap: () => void) {
    if (!Number.isSafeInteger(address) || address <= 0 || address % PAGE_SIZE !== 0) {
      throw invalidParam('address', 'must be that of a page', address);
    }
    checkViewLength(byteLength);
    this.address = address;
    this.byteLength = byteLength;
    this.u8 = new Uint8Array(viewOfMemory(address, byteLength));
    this.#unmap = unmap;
  }

  /**
   * Gives the memory back to the library. Views read zeros from now on, and what is written to them is lost: pages of zeros take the place until the view is
   * collected. Only where another thread has mapped something there in the same instant the view shows that. Idempotent.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#unmap();
    const flags = MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.NORESERVE | MAP_FIXED_NOREPLACE;
    const { address, byteLength } = this;
    if (mmap(address, byteLength, PROT_READ_WRITE, flags, -1, 0) === address) {
      placeholders.register(this.u8.buffer, { address, byteLength });
    }
  }
}
