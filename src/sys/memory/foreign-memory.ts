/**
 * Memory that a C library of this process has mapped and will unmap: one view, which stays safe to access after that. Segments of System V of other
 * libraries.
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

const SHM_RDONLY = 0o10000;

/**
 * Attaches a segment, which exists until it is detached, even if its owner ends.
 * @returns the address for {@link detachSegment}; undefined if there is no such segment in this namespace
 * @throws SyscallError EACCES, ENOMEM
 */
export function attachSegment(id: number): number | undefined {
  const address = shmat(id, 0, SHM_RDONLY);
  if (address !== -1) return address;
  const code = errno();
  if (code === Errno.EINVAL || code === Errno.EIDRM) return undefined;
  throw new SyscallError('shmat', code, `segment ${id}`);
}

/** Detaches a segment. */
export function detachSegment(address: number): void {
  shmdt(address);
}
