/**
 * One sparse file that contains all buffers and blocks of a context that a user may map, each at its mmap cookie as the offset. For device nodes that the
 * kernel maps by itself (FUSE passthrough): it maps the offset that the program passes, and reports neither mapping nor unmapping to the driver.
 *
 * Therefore the pages of two handles must not overlap: an id is the number of the first page below the offset of its type.
 */

import { readFileSync } from 'node:fs';
import { close, ftruncate, memfdCreate } from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';

/** Type of timestamp buffers in the cookies of this file. The type of the driver (0x10) does not fit: file offsets are signed. */
const TIMESTAMP_TYPE = 0x6 as HandleType;
const FILE_BYTES: bigint = 2n ** 63n - BigInt(PAGE_SIZE);

/** The file. */
export class MmapFile {
  readonly fd: number;
  readonly #owner: number;
  readonly #inode: string;
  /** Lines of /proc for mappings of the device node that existed before this file: they belong to an earlier context. */
  readonly #earlier: ReadonlySet<string>;

  /**
   * @param owner the process that maps it
   * @param inode number of the device node that the process maps: /proc shows this inode, not that of the file behind it
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
    this.#earlier = new Set(this.#mappings());
  }

  /** The type in the cookies of this file for a type of the driver. */
  typeOf(type: HandleType): HandleType {
    return type === HandleType.TS ? TIMESTAMP_TYPE : type;
  }

  /** The offset of a page in the part of a type: the mmap cookie of the buffer or block that begins there. */
  cookie(type: HandleType, page: number): bigint {
    return packHandle(this.typeOf(type), page);
  }

  /** Whether the process has mapped any buffer. */
  get hasMappings(): boolean {
    return [...this.mappedOffsets()].some((offset) => unpackHandle(offset).type !== HandleType.HW_BLOCK);
  }

  /** The offsets at which mappings of the process begin. Processes that have inherited a mapping do not count. */
  mappedOffsets(): ReadonlySet<bigint> {
    const mappings = this.#mappings().filter((line) => !this.#earlier.has(line));
    return new Set(mappings.map((line) => BigInt(`0x${line.split(' ')[2]}`)));
  }

  /** The lines of its mappings of the device node in /proc. */
  #mappings(): readonly string[] {
    let maps: string;
    try {
      maps = readFileSync(`/proc/${this.#owner}/maps`, 'latin1');
    } catch {
      return []; // The process has ended.
    }
    return maps.split('\n').filter((line) => line.includes(this.#inode));
  }

  /** Closes the file; mappings of it stay. */
  close(): void {
    close(this.fd);
  }
}
