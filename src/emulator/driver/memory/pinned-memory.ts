/**
 * Pinning: how memory of a caller becomes memory that the engines reach. It does not give it device addresses (host-mappings.ts).
 */

import {
  Errno,
  isOwnMapping,
  isProcessMemoryReadable,
  isReadable,
  MadviseAdvice,
  type MappedMemory,
  madvise,
  mapFile,
  mapLarge,
  unmapLarge,
  viewAt,
} from '../../../sys/index.ts';
import { HOST_MEMORY, HOST_WINDOW_BYTES_MAX, PhysicalMemory } from '../../device/physical-memory.ts';

/** Pinned pages. */
export interface PinnedPages {
  readonly memory: PhysicalMemory;
  /** Gives them back. No engine touches them any more. */
  unpin(): void;
}

/** What another process says of the pages that it wants pinned by the ioctl at hand. */
export interface ForeignPages {
  /** It has backed them: only the process itself can. */
  readonly populated: boolean;
  /** The file that is mapped there, of checked and sealed length, and the byte of it at the first page; undefined for private memory. */
  readonly file?: { readonly fd: number; readonly offset: number } | undefined;
}

/** Pins whole pages of this process: each is there, backed and writable. Undefined when one is not. */
export function pinOwnPages(address: number, byteLength: number): PinnedPages | undefined {
  const result = madvise(address, byteLength, MadviseAdvice.POPULATE_WRITE);
  // Kernels before 5.14 do not know the advice.
  const isThere = result === 0 || (result === -Errno.EINVAL && isReadable(address, byteLength));
  if (!isThere) return undefined;
  // Pages that are pinned stay although their memory is unmapped, which no process can do for itself. Where that can happen, because the program has
  // given an ArrayBuffer away and it was collected, the kernel copies: it stops where a memcpy would end the process.
  if (!isOwnMapping(address, byteLength)) {
    return pinned(new PhysicalMemory(HOST_MEMORY, address, byteLength, undefined, process.pid), () => {});
  }
  const makeWindow = (offset: number, length: number): ArrayBuffer => viewAt(address + offset, length);
  return pinned(new PhysicalMemory(HOST_MEMORY, address, byteLength, windowed(byteLength, makeWindow)), () => {});
}

/**
 * Pins whole pages of another process: those of a file through a mapping of it here, others by their address there. Of the latter this
 * checks what the process says, page by page up to a number, and then samples. Undefined when a page is not there.
 * @throws SyscallError ENOMEM
 */
export function pinForeignPages(
  pid: number,
  address: number,
  byteLength: number,
  pages: ForeignPages,
): PinnedPages | undefined {
  if (!pages.populated) return undefined;
  if (pages.file !== undefined) return pinFile(pages.file.fd, pages.file.offset, byteLength);
  if (!isProcessMemoryReadable(pid, address, byteLength)) return undefined;
  return pinned(new PhysicalMemory(HOST_MEMORY, address, byteLength, undefined, pid), () => {});
}

function pinFile(fd: number, offset: number, byteLength: number): PinnedPages {
  if (byteLength > HOST_WINDOW_BYTES_MAX) {
    const address = mapLarge(fd, byteLength, offset);
    const memory = new PhysicalMemory(HOST_MEMORY, address, byteLength, undefined);
    return pinned(memory, () => unmapLarge(address, byteLength));
  }
  const mapping: MappedMemory = mapFile(fd, byteLength, offset);
  const memory = new PhysicalMemory(HOST_MEMORY, mapping.address, byteLength, () => mapping.buffer);
  return pinned(memory, () => mapping.close());
}

function windowed<F>(byteLength: number, makeWindow: F): F | undefined {
  return byteLength <= HOST_WINDOW_BYTES_MAX ? makeWindow : undefined;
}

function pinned(memory: PhysicalMemory, release: () => void): PinnedPages {
  return {
    memory,
    unpin: () => {
      memory.forget();
      release();
    },
  };
}
