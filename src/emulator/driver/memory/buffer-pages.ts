/**
 * The memory of all driver buffers of a context: one file, mapped by the driver in windows. A buffer costs neither a descriptor nor a mapping; handles
 * are in buffer-table.ts.
 */

import {
  addSeals,
  close as closeFd,
  Errno,
  ftruncate,
  type MappedMemory,
  mapFile,
  memfdCreate,
  punchHole,
  SealFlag,
  SyscallError,
} from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';
import type { MmapFile } from './mmap-file.ts';

/** Pages of the file: ids of buffers, which are their first pages in an mmap file, are 32-bit numbers. */
const PAGES_MAX = 2 ** 32;
/** Pages of a window of the driver: 4 MiB, twice the largest command buffer. A larger buffer has a window of its own. */
const WINDOW_PAGES = 1024;
const WINDOW_BYTES: number = WINDOW_PAGES * PAGE_SIZE;

/** Pages of the driver that another process maps. */
export interface SharedPages {
  /** The driver's own descriptor of a file that cannot shrink; valid until the file that shared it is closed. */
  readonly fd: number;
  /** Where the pages begin in the file. */
  readonly offset: number;
  readonly byteLength: number;
  /** Notifies that the process has unmapped the pages. Idempotent. */
  release(): void;
}

/** The memory of a buffer. */
export interface BufferPlace {
  /** Number of its first page. */
  readonly page: number;
  readonly fd: number;
  /** Where it begins in the file. */
  readonly offset: number | bigint;
  /** Address of the driver's mapping. */
  readonly address: number;
  /** The driver's mapping, whole pages. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/** The file. */
export class BufferPages {
  readonly #mmapFile: MmapFile | undefined;
  readonly #pages: RangeAllocator = new RangeAllocator(PAGES_MAX);
  /** Windows by their number, and by the number of the type where types have different offsets. */
  readonly #windows: Map<number, MappedMemory> = new Map();
  /** Windows of large buffers, by the page of the buffer. */
  readonly #large: Map<number, MappedMemory> = new Map();
  #fd = -1;

  /** @param mmapFile the file to use, owned by the caller; undefined for an own file, which is created for the first buffer */
  constructor(mmapFile?: MmapFile) {
    this.#mmapFile = mmapFile;
    // No handle has id 0.
    this.#pages.reserve(0, 1);
  }

  /**
   * Allocates zeroed pages.
   * @throws SyscallError ENOMEM, EMFILE
   */
  allocate(type: HandleType, byteLength: number): BufferPlace {
    const fd = this.#file();
    const count = Math.ceil(byteLength / PAGE_SIZE);
    // Aligned to its size rounded up to a power of two, a buffer lies in one window.
    const page = this.#pages.allocate(count, count > WINDOW_PAGES ? 1 : 2 ** Math.ceil(Math.log2(count)));
    if (page < 0) throw new SyscallError('mmap', Errno.ENOMEM, `${byteLength} bytes of driver buffers`);
    try {
      const bytes = this.#map(type, page, count);
      return { page, fd, offset: this.#offset(type, page), address: bytes.address, bytes: bytes.view };
    } catch (error) {
      this.#pages.free(page);
      throw error;
    }
  }

  /** Frees pages: they read as zeros from now on. */
  free({ page, offset }: BufferPlace): void {
    const large = this.#large.get(page);
    this.#large.delete(page);
    large?.close();
    punchHole(this.#file(), offset, this.#pages.free(page) * PAGE_SIZE);
  }

  /** Removes the driver's mappings; those of users keep their contents. */
  close(): void {
    for (const windows of [this.#windows, this.#large]) {
      for (const window of windows.values()) window.close();
      windows.clear();
    }
    if (this.#fd >= 0) closeFd(this.#fd);
    this.#fd = -1;
  }

  #map(type: HandleType, page: number, count: number): { address: number; view: Uint8Array<ArrayBuffer> } {
    if (count > WINDOW_PAGES) {
      const memory = mapFile(this.#file(), count * PAGE_SIZE, this.#offset(type, page));
      this.#large.set(page, memory);
      return { address: memory.address, view: memory.u8 as Uint8Array<ArrayBuffer> };
    }
    const number = Math.floor(page / WINDOW_PAGES);
    const key = number + (this.#mmapFile !== undefined && type === HandleType.TS ? PAGES_MAX : 0);
    let window = this.#windows.get(key);
    if (window === undefined) {
      window = mapFile(this.#file(), WINDOW_BYTES, this.#offset(type, number * WINDOW_PAGES));
      this.#windows.set(key, window);
    }
    const at = (page % WINDOW_PAGES) * PAGE_SIZE;
    return { address: window.address + at, view: new Uint8Array(window.buffer, at, count * PAGE_SIZE) };
  }

  #offset(type: HandleType, page: number): number | bigint {
    return this.#mmapFile?.cookie(type, page) ?? page * PAGE_SIZE;
  }

  #file(): number {
    if (this.#mmapFile !== undefined) return this.#mmapFile.fd;
    if (this.#fd < 0) this.#fd = newFile();
    return this.#fd;
  }
}

/** Other processes receive the descriptor: a file that shrinks under the driver's mapping would end this process. */
function newFile(): number {
  const fd = memfdCreate('gaudi-buffers', { sealing: true });
  try {
    ftruncate(fd, PAGES_MAX * PAGE_SIZE);
    addSeals(fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
    return fd;
  } catch (error) {
    closeFd(fd);
    throw error;
  }
}
