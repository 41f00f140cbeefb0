/**
 * Pinning: makes memory of a caller accessible to the engines. For other processes, one file descriptor per address space, open until its last pinned
 * memory is released.
 */

import {
  allocateScratch,
  close,
  Errno,
  isOwnMapping,
  isProcessMemoryReadable,
  isSyscallError,
  type MappedMemory,
  mapFile,
  mapLarge,
  OWN_ADDRESS_SPACE,
  openAddressSpace,
  populateWritable,
  readAddressSpace,
  SyscallError,
  unmapLarge,
  viewAt,
} from '../../../sys/index.ts';
import {
  HOST_MEMORY,
  HOST_WINDOW_BYTES_MAX,
  type HostRange,
  PhysicalMemory,
} from '../../device/memory/physical-memory.ts';

/** Pinned pages. */
export class PinnedPages {
  readonly memory: PhysicalMemory;
  readonly #release: () => void;

  /** @param release releases the resources that make the pages accessible */
  constructor(memory: PhysicalMemory, release: () => void = () => {}) {
    this.memory = memory;
    this.#release = release;
  }

  /** Unpins the pages. Call this when no engine accesses them any more. */
  unpin(): void {
    this.memory.forget();
    this.#release();
  }
}

/** Information from another process about the pages that the current ioctl pins. */
export interface ForeignPages {
  /** Whether the process has populated the pages, which only it can do. */
  readonly populated: boolean;
  /** The mapped file, of checked and sealed length, and the offset of the first page in it; undefined for private memory. */
  readonly file?: { readonly fd: number; readonly offset: number } | undefined;
}

/**
 * Pins whole pages of this process: populates them and checks that they are mapped and writable. Returns undefined if one is not. Same rules as the driver
 * of Linux 6.2 and newer (FOLL_WRITE without FOLL_FORCE), which are stricter than those of older kernels.
 */
export function pinOwnPages(address: number, byteLength: number): PinnedPages | undefined {
  if (!populateWritable(address, byteLength)) return undefined;
  // Real pinned pages stay valid when their memory is unmapped; a process cannot pin its own pages in this way. For memory that may be unmapped, such as
  // an ArrayBuffer that the program transfers and that is then collected, the kernel copies: it returns an error where a memcpy would end the process.
  if (!isOwnMapping(address, byteLength)) {
    return new PinnedPages(new PhysicalMemory(HOST_MEMORY, { address, byteLength, space: OWN_ADDRESS_SPACE }));
  }
  const makeWindow = (offset: number, length: number): Uint8Array => new Uint8Array(viewAt(address + offset, length));
  return new PinnedPages(new PhysicalMemory(HOST_MEMORY, { address, byteLength }, windowed(byteLength, makeWindow)));
}

/**
 * Pins whole pages of another process: pages of a file through a mapping in this process, others by their address. Checks that the latter are readable,
 * page by page up to a limit, beyond it by samples. Returns undefined if a page is not mapped.
 * @param tid the pinning thread of the process
 * @throws SyscallError ENOMEM
 */
export function pinForeignPages(
  spaces: AddressSpaces,
  [process, tid]: readonly [number, number],
  { address, byteLength }: HostRange,
  pages: ForeignPages,
): PinnedPages | undefined {
  if (!pages.populated) return undefined;
  if (pages.file !== undefined) return pinFile(pages.file.fd, pages.file.offset, byteLength);
  if (!isProcessMemoryReadable(tid, address, byteLength)) return undefined;
  const acquired = spaces.acquire(process, tid, (space) => isAccessible(space, address));
  if (acquired === undefined) return undefined;
  const memory = new PhysicalMemory(HOST_MEMORY, { address, byteLength, space: acquired.space });
  return new PinnedPages(memory, () => acquired.release());
}

/** Whether a byte is accessible in an address space. */
function isAccessible(space: number, address: number): boolean {
  const byte = allocateScratch(1);
  const isRead = readAddressSpace(space, address, byte.address, 1) === 1;
  byte.free();
  return isRead;
}

function pinFile(fd: number, offset: number, byteLength: number): PinnedPages {
  if (byteLength > HOST_WINDOW_BYTES_MAX) {
    const address = mapLarge(fd, byteLength, offset);
    const memory = new PhysicalMemory(HOST_MEMORY, { address, byteLength });
    return new PinnedPages(memory, () => unmapLarge(address, byteLength));
  }
  const mapping: MappedMemory = mapFile(fd, byteLength, offset);
  const memory = new PhysicalMemory(HOST_MEMORY, { address: mapping.address, byteLength }, () => mapping.u8);
  return new PinnedPages(memory, () => mapping.close());
}

function windowed<F>(byteLength: number, makeWindow: F): F | undefined {
  return byteLength <= HOST_WINDOW_BYTES_MAX ? makeWindow : undefined;
}

/** An open address space with a reference count. */
export class AddressSpace {
  /** Handle for readAddressSpace and writeAddressSpace. */
  readonly space: number;
  users = 0;
  readonly #onUnused: () => void;

  constructor(space: number, onUnused: () => void) {
    this.space = space;
    this.#onUnused = onUnused;
  }

  /** Releases one reference; the last one closes it. */
  release(): void {
    this.users -= 1;
    if (this.users > 0) return;
    this.#onUnused();
    close(this.space);
  }
}

/** The open address spaces, by process. */
export class AddressSpaces {
  readonly #known: Map<number, AddressSpace> = new Map();

  /**
   * The address space of a process, with a reference.
   * @param tid a running thread of the process, which pins
   * @param isThere whether the memory to pin is accessible in an address space: not in the cached one, if the process has executed another program or
   * reuses the number of an earlier process
   * @returns undefined if access is not permitted: EFAULT
   * @throws SyscallError ENOMEM if this process has no free descriptor
   */
  acquire(process: number, tid: number, isThere: (space: number) => boolean): AddressSpace | undefined {
    let open = this.#known.get(process);
    if (open === undefined || !isThere(open.space)) {
      const space = openSpace(tid);
      if (space === undefined) return undefined;
      open = this.#add(process, space);
    }
    open.users += 1;
    return open;
  }

  #add(process: number, space: number): AddressSpace {
    const open = new AddressSpace(space, () => {
      if (this.#known.get(process) === open) this.#known.delete(process);
    });
    this.#known.set(process, open);
    return open;
  }
}

function openSpace(tid: number): number | undefined {
  try {
    return openAddressSpace(tid);
  } catch (error) {
    if (!isSyscallError(error, Errno.EMFILE) && !isSyscallError(error, Errno.ENFILE)) return undefined;
    throw new SyscallError('pin', Errno.ENOMEM, `no free descriptor for the memory of thread ${tid}`, { cause: error });
  }
}
