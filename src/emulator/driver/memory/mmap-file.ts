/**
 * One sparse file that contains all buffers and blocks of a context that a user may map, each at its mmap cookie as the offset. For device nodes that the
 * kernel maps by itself (FUSE passthrough): it maps the offset that the program passes, and reports neither mapping nor unmapping to the driver.
 *
 * Therefore the pages of two handles must not overlap: an id is the number of the first page below the offset of its type.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { close, ftruncate, memfdCreate } from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';

/** Type of timestamp buffers in the cookies of this file. The type of the driver (0x10) does not fit: file offsets are signed. */
const TIMESTAMP_TYPE = 0x6 as HandleType;
const FILE_BYTES: bigint = 2n ** 63n - BigInt(PAGE_SIZE);

/** Bytes of the file that a process has mapped. */
interface Range {
  readonly start: bigint;
  readonly end: bigint;
}

/** The file. */
export class MmapFile {
  readonly fd: number;
  /**
   * The processes that map it, its owner and those that were given the descriptor, with the lines of /proc for mappings of the device node that each had before:
   * these were inherited, or belong to an earlier context.
   */
  readonly #earlier: Map<number, ReadonlySet<string>> = new Map();
  readonly #inode: string;

  /**
   * @param owner the process that maps it
   * @param inode number of the device node that the process maps: /proc shows this inode, not that of the file behind it
   * @throws SyscallError EMFILE, ENFILE
   */
  constructor(owner: number, inode: number) {
    this.#inode = ` ${inode} `;
    this.fd = memfdCreate('gaudi-mmap');
    try {
      ftruncate(this.fd, FILE_BYTES);
    } catch (error) {
      close(this.fd);
      throw error;
    }
    this.addProcess(owner);
  }

  /** The type in the cookies of this file for a type of the driver. */
  typeOf(type: HandleType): HandleType {
    return type === HandleType.TS ? TIMESTAMP_TYPE : type;
  }

  /** The offset of a page in the part of a type: the mmap cookie of the buffer or block that begins there. */
  cookie(type: HandleType, page: number): bigint {
    return packHandle(this.typeOf(type), page);
  }

  /** A process is about to map it. */
  addProcess(pid: number): void {
    if (!this.#earlier.has(pid)) this.#earlier.set(pid, new Set(mapsOf(pid).filter((line) => this.#isMapping(line))));
  }

  /** Whether any buffer is mapped. */
  get hasMappings(): boolean {
    return this.#ranges().some(({ start }) => unpackHandle(start).type !== HandleType.HW_BLOCK);
  }

  /** Tells whether any page of a range of the file is mapped now. Mappings that a process has inherited, and those of an earlier context, do not count. */
  mapped(): (offset: bigint, byteLength: number) => boolean {
    const ranges = this.#ranges();
    return (offset, byteLength) => ranges.some(({ start, end }) => start < offset + BigInt(byteLength) && end > offset);
  }

  #ranges(): readonly Range[] {
    const ranges: Range[] = [];
    for (const [pid, earlier] of this.#earlier) {
      const lines = mapsOf(pid);
      if (lines.length === 0) this.#earlier.delete(pid);
      for (const line of lines) if (this.#isMapping(line) && !earlier.has(line)) ranges.push(rangeOf(line));
    }
    return ranges;
  }

  /** Whether a line of /proc is about a mapping of the device node. */
  #isMapping(line: string): boolean {
    return line.includes(this.#inode);
  }

  /** Closes the file; mappings of it stay. */
  close(): void {
    close(this.fd);
  }
}

/** What a line of /proc has mapped: addresses, permissions, offset in the file. */
function rangeOf(line: string): Range {
  const [addresses = '', , offset] = line.split(' ');
  const [from, to] = addresses.split('-').map((address) => BigInt(`0x${address}`));
  const start = BigInt(`0x${offset}`);
  return { start, end: start + to! - from! };
}

/** The lines of /proc/<pid>/maps; none for a process that has ended. Only running threads have them, and the first one may have ended. */
function mapsOf(pid: number): readonly string[] {
  try {
    const maps = readFileSync(`/proc/${pid}/maps`, 'latin1');
    if (maps !== '') return maps.split('\n');
    for (const tid of readdirSync(`/proc/${pid}/task`)) {
      const lines = readFileSync(`/proc/${pid}/task/${tid}/maps`, 'latin1').split('\n');
      if (lines.length > 1) return lines;
    }
    return [];
  } catch {
    return [];
  }
}
