/**
 * Memory that other libraries own: mappings of a C library of this process, with a view that stays safe to access after they are unmapped; and System V
 * segments.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import { Errno } from '../base/errno.ts';
import { errno, mmap, munmap, shmat, shmdt, viewOfMemory } from '../base/libc.ts';
import { checkViewLength, MapFlag, PAGE_SIZE, PROT_READ_WRITE } from '../base/mapped-memory.ts';
import { SyscallError } from '../base/syscall-error.ts';

/** Maps at the address only if nothing is mapped there (Linux 4.17): `include/uapi/asm-generic/mman-common.h`. */
const MAP_FIXED_NOREPLACE = 0x10_0000;

const placeholders = new FinalizationRegistry<{ readonly address: number; readonly byteLength: number }>(
  ({ address, byteLength }) => munmap(address, byteLength),
);

/** A mapping of a C library. */
export class ForeignMemory {
  /** Host virtual address of the first byte. */
  readonly address: number;
  readonly byteLength: number;
  readonly u8: Uint8Array;
  readonly #unmap: () => void;
  #closed = false;

  /**
   * @param address page aligned, mapped by the library
   * @param unmap makes the library unmap the pages
   * @throws UcxError ERR_INVALID_PARAM
   */
  constructor(address: number, byteLength: number, unmap: () => void) {
    if (!Number.isSafeInteger(address) || address <= 0 || address % PAGE_SIZE !== 0) {
      throw invalidParam('address', 'must be page aligned', address);
    }
    checkViewLength(byteLength);
    this.address = address;
    this.byteLength = byteLength;
    this.u8 = new Uint8Array(viewOfMemory(address, byteLength));
    this.#unmap = unmap;
  }

  /**
   * Returns the memory to the library. Afterwards views read zeros, and writes to them are lost, because zero pages replace the memory until the view is
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

const SHM_RDONLY = 0o10000;

/**
 * Attaches a segment, which exists until it is detached, even after its owner has ended.
 * @returns the address for {@link detachSegment}; undefined if this namespace has no such segment
 * @throws SyscallError EACCES, ENOMEM
 */
export function attachSegment(id: number): number | undefined {
  const address = shmat(id, 0, SHM_RDONLY);
  if (address !== -1) return address;
  const code = errno();
  if (code === Errno.EINVAL || code === Errno.EIDRM) return undefined;
  throw new SyscallError('shmat', code, `segment ${id}`);
}

export function detachSegment(address: number): void {
  shmdt(address);
}
