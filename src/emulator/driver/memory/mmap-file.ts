/**
 * One sparse file with everything of a context that a user may map, each at the offset that is its mmap cookie. For device nodes whose mappings the kernel
 * makes by itself (FUSE passthrough): it maps the offset that the program passes, and tells the driver of no mapping and no unmapping.
 *
 * Therefore the pages of two handles must not overlap: an id is the number of the first page below the offset of its type.
 */

import { readFileSync } from 'node:fs';
import { close, Errno, ftruncate, memfdCreate, punchHole, SyscallError } from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';

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
  readonly #owner: number;
  readonly #inode: string;
  /** Mappings of the device node that are older than this file: those of an earlier context. */
  readonly #earlier: ReadonlySet<string>;
  readonly #pages: RangeAllocator = new RangeAllocator(PAGES_MAX);

  /**
   * @param owner the process that maps it
   * @param inode number of the file that it maps: in /proc the kernel shows that one
   * @throws SyscallError EMFILE, ENFILE
   */
  constructor(owner: number, inode: number) {
    this.#owner = owner;
    this.#inode = ` ${inode} `;
    this.fd = memfdCreate('gaudi-mmap');
    try {
      ftruncate(this.fd, FILE_BYTES);
    } catch (error) {
      close(this.fd);
      throw error;
    }
    this.#pages.reserve(0, 1);
    this.#earlier = new Set(this.#mappings());
  }

  /** The type in the cookies of this file for a type of the driver. */
  typeOf(type: HandleType): HandleType {
    return type === HandleType.TS ? TIMESTAMP_TYPE : type;
  }

  /** Allocates the pages of a buffer. Throws SyscallError ENOMEM. */
  allocate(type: HandleType, byteLength: number): MmapPlace {
    const id = this.#pages.allocate(Math.ceil(byteLength / PAGE_SIZE));
    if (id < 0) throw new SyscallError('mmap', Errno.ENOMEM, `${byteLength} bytes of the mmap file`);
    return this.at(type, id);
  }

  /** The pages of a fixed id, which the caller chooses. */
  at(type: HandleType, id: number): MmapPlace {
    return { id, fd: this.fd, offset: packHandle(this.typeOf(type), id) };
  }

  /** Frees the pages of a buffer: they read as zeros from now on. */
  free({ id, offset }: MmapPlace): void {
    punchHole(this.fd, offset, this.#pages.free(id) * PAGE_SIZE);
  }

  /** Whether the process has mapped the pages. Processes that have inherited the mapping do not count. */
  isMapped({ offset }: MmapPlace): boolean {
    return this.#mappedOffsets().includes(offset);
  }

  /** Whether the process has mapped any buffer. */
  get hasMappings(): boolean {
    return this.#mappedOffsets().some((offset) => unpackHandle(offset).type !== HandleType.HW_BLOCK);
  }

  /** The offsets at which mappings of the process begin. */
  #mappedOffsets(): readonly bigint[] {
    const mappings = this.#mappings().filter((line) => !this.#earlier.has(line));
    return mappings.map((line) => BigInt(`0x${line.split(' ')[2]}`));
  }

  /** The lines of its mappings of the device node in /proc. */
  #mappings(): readonly string[] {
    let maps: string;
    try {
      maps = readFileSync(`/proc/${this.#owner}/maps`, 'latin1');
    } catch {
      return []; // It has ended.
    }
    return maps.split('\n').filter((line) => line.includes(this.#inode));
  }

  /** Closes the file; mappings of it stay. */
  close(): void {
    close(this.fd);
  }
}
