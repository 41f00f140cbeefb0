/**
 * One sparse file with everything of a context that a user may map, each at the offset that is its mmap cookie. For device nodes whose mappings the kernel
 * makes by itself (FUSE passthrough): it maps the offset that the program passes, and asks no driver.
 *
 * Therefore the pages of two handles must not overlap: an id is the number of the first page below the offset of its type.
 */

import { close, Errno, ftruncate, memfdCreate, punchHole, SyscallError } from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle } from '../../../uapi/index.ts';

/** Offsets of files are signed: the cookie of the driver for timestamp buffers (0x10) is none. */
const TIMESTAMP_TYPE = 0x6 as HandleType;
const FILE_BYTES: bigint = 2n ** 63n - BigInt(PAGE_SIZE);
/** Ids are 32-bit numbers. */
const PAGES_MAX = 2 ** 32;

/** The pages of a handle in the file. */
export interface MmapPlace {
  readonly id: number;
  readonly fd: number;
  readonly offset: bigint;
}

/** The file. */
export class MmapFile {
  readonly fd: number;
  /** Pages after the last allocated ones. They are reused as late as possible: a program may still have a destroyed buffer mapped. */
  #next = 1;
  /** Number of pages by id. */
  readonly #buffers: Map<number, number> = new Map();

  /** @throws SyscallError EMFILE, ENFILE */
  constructor() {
    this.fd = memfdCreate('gaudi-mmap');
    try {
      ftruncate(this.fd, FILE_BYTES);
    } catch (error) {
      close(this.fd);
      throw error;
    }
  }

  /** The type in the cookies of this file for a type of the driver. */
  typeOf(type: HandleType): HandleType {
    return type === HandleType.TS ? TIMESTAMP_TYPE : type;
  }

  /** Allocates the pages of a buffer. Throws SyscallError ENOMEM. */
  allocate(type: HandleType, byteLength: number): MmapPlace {
    const pages = Math.ceil(byteLength / PAGE_SIZE);
    const id = this.#findFree(this.#next, pages) ?? this.#findFree(1, pages);
    if (id === undefined) throw new SyscallError('mmap', Errno.ENOMEM, `${pages} pages of the mmap file`);
    this.#buffers.set(id, pages);
    this.#next = id + pages;
    return this.at(type, id);
  }

  /** The pages of a fixed id, which the caller chooses. */
  at(type: HandleType, id: number): MmapPlace {
    return { id, fd: this.fd, offset: packHandle(this.typeOf(type), id) };
  }

  /** Frees the pages of a buffer: they read as zeros from now on. */
  free({ id, offset }: MmapPlace): void {
    const pages = this.#buffers.get(id);
    if (pages === undefined) return;
    this.#buffers.delete(id);
    punchHole(this.fd, offset, pages * PAGE_SIZE);
  }

  /** Closes the file; mappings of it stay. */
  close(): void {
    close(this.fd);
  }

  /** The first free pages from `first` on. */
  #findFree(first: number, pages: number): number | undefined {
    let id = first;
    if (first === this.#next) return id + pages <= PAGES_MAX ? id : undefined;
    // The numbers have wrapped around, once in 16 TiB of buffers.
    for (const [used, count] of [...this.#buffers].sort((a, b) => a[0] - b[0])) {
      if (used - id >= pages) return id;
      id = Math.max(id, used + count);
    }
    return id + pages <= PAGES_MAX ? id : undefined;
  }
}
