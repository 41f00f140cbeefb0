/**
 * Memory that a C library of this process has mapped and will unmap: one view, which stays safe to access after that. Mappings of this package are in
 * mapped-memory.ts.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import { mmap, munmap, viewOfMemory } from '../base/libc.ts';
import { checkViewLength, MapFlag, PAGE_SIZE, PROT_READ_WRITE } from '../base/mapped-memory.ts';

/** Maps at the address only if nothing is mapped there (Linux 4.17): `include/uapi/asm-generic/mman-common.h`. */
const MAP_FIXED_NOREPLACE = 0x10_0000;

const placeholders = new FinalizationRegistry<{ readonly address: number; readonly byteLength: number }>(
  ({ address, byteLength }) => munmap(address, byteLength),
);

/** Memory of a C library. */
export class ForeignMemory {
  /** Host virtual address of the first byte. */
  readonly address: number;
  readonly byteLength: number;
  readonly u8: Uint8Array;
  readonly #unmap: () => void;
  #closed = false;

  /**
   * @param address of whole pages mapped by the library
   * @param unmap makes the library unmap them
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
   * Returns the memory to the library. Views then read zeros, and writes to them are lost: zero pages replace the memory until the view is
   * collected. If another thread maps memory there at the same instant, the view shows that mapping instead. Idempotent.
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
