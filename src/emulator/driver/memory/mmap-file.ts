/**
 * One sparse file with all buffers and blocks of a context that a user may map, each at its mmap cookie as the offset. For device nodes that the kernel
 * maps directly (FUSE passthrough): it maps the offset that the program passes, and reports neither mapping nor unmapping to the driver.
 *
 * The id of a handle is the number of the first page of its buffer, counted from the offset of the handle type. So the pages of two buffers must not overlap.
 */

import type { DriverMapping } from '../../../driver/port.ts';
import {
  addSeals,
  close,
  close as closeFd,
  Errno,
  ftruncate,
  type MappedMemory,
  mapFile,
  memfdCreate,
  type ProcessMapping,
  ProcessMaps,
  punchHole,
  SealFlag,
  SyscallError,
} from '../../../sys/index.ts';
import { HandleType, PAGE_SIZE, packHandle, unpackHandle } from '../../../uapi/index.ts';
import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';

/** Type of timestamp buffers in the cookies of this file. The driver's type (0x10) does not fit, because file offsets are signed. */
const TIMESTAMP_TYPE = 0x6 as HandleType;
const FILE_BYTES: bigint = 2n ** 63n - BigInt(PAGE_SIZE);

/** A process that maps the file. */
interface User {
  readonly maps: ProcessMaps;
  /** Mappings of the device node that existed before: inherited ones, or those of an earlier context. */
  readonly earlier: ReadonlySet<string>;
}

export class MmapFile {
  readonly fd: number;
  /** The processes that map the file: its owner and those that received the descriptor. */
  readonly #users: Map<number, User> = new Map();
  readonly #ino: number;

  /**
   * @param owner the process that maps the file
   * @param ino inode number of the device node that the process maps: /proc shows it instead of the inode of the file behind it
   * @throws SyscallError EMFILE, ENFILE
   */
  constructor(owner: number, ino: number) {
    this.#ino = ino;
    this.fd = memfdCreate('gaudi-mmap');
    try {
      ftruncate(this.fd, FILE_BYTES);
    } catch (error) {
      close(this.fd);
      throw error;
    }
    this.addProcess(owner);
  }

  /** The type in cookies of this file for a type of the driver. */
  typeOf(type: HandleType): HandleType {
    return type === HandleType.TS ? TIMESTAMP_TYPE : type;
  }

  /** The offset of a page of a type: the mmap cookie of the buffer or block that starts there. */
  cookie(type: HandleType, page: number): bigint {
    return packHandle(this.typeOf(type), page);
  }

  /** Called before a process maps the file. */
  addProcess(pid: number): void {
    if (this.#users.has(pid)) return;
    const maps = new ProcessMaps(pid);
    this.#users.set(pid, { maps, earlier: new Set(maps.ofFile(this.#ino).map(identity)) });
  }

  /** Whether a range of a process is mapped writable. */
  isWritable(pid: number, address: number, byteLength: number): boolean {
    this.addProcess(pid);
    return this.#users.get(pid)!.maps.isWritable(address, byteLength);
  }

  /** Whether any buffer is mapped. */
  get hasMappings(): boolean {
    return this.#mappings().some(({ offset }) => unpackHandle(offset).type !== HandleType.HW_BLOCK);
  }

  /** Whether any block of registers is mapped. */
  get hasBlocks(): boolean {
    return this.#mappings().some(({ offset }) => unpackHandle(offset).type === HandleType.HW_BLOCK);
  }

  /** Returns a function that tells whether any page of a range of the file is mapped now. Inherited mappings and those of an earlier context do not count. */
  mapped(): (offset: bigint, byteLength: number) => boolean {
    const mappings = this.#mappings();
    return (offset, byteLength) =>
      mappings.some((each) => each.offset < offset + BigInt(byteLength) && each.offset + lengthOf(each) > offset);
  }

  #mappings(): readonly ProcessMapping[] {
    const found: ProcessMapping[] = [];
    for (const [pid, { maps, earlier }] of this.#users) {
      if (!maps.exists) this.#removeProcess(pid);
      else found.push(...maps.ofFile(this.#ino).filter((each) => !earlier.has(identity(each))));
    }
    return found;
  }

  #removeProcess(pid: number): void {
    this.#users.get(pid)!.maps.close();
    this.#users.delete(pid);
  }

  /** Closes the file; its mappings stay. */
  close(): void {
    for (const pid of [...this.#users.keys()]) this.#removeProcess(pid);
    close(this.fd);
  }
}

function lengthOf({ start, end }: ProcessMapping): bigint {
  return BigInt(end - start);
}

/** Equal for two listings of one mapping. */
function identity({ start, end, offset }: ProcessMapping): string {
  return `${start} ${end} ${offset}`;
}

/** Pages of the file: a buffer id is the number of its first page in an mmap file, and ids are 32-bit. */
const PAGES_MAX = 2 ** 32;
/** Pages per window: 4 MiB, twice the largest command buffer. A larger buffer has a separate window. */
const WINDOW_PAGES = 1024;
const WINDOW_BYTES: number = WINDOW_PAGES * PAGE_SIZE;

/** A mapped buffer for the driver port, with a callback on close. */
export class BufferMapping implements DriverMapping {
  readonly address: number;
  readonly byteLength: number;
  readonly buffer: ArrayBuffer;
  readonly #memory: MappedMemory;
  readonly #onClose: () => void;

  constructor(memory: MappedMemory, onClose: () => void) {
    this.address = memory.address;
    this.byteLength = memory.byteLength;
    this.buffer = memory.buffer;
    this.#memory = memory;
    this.#onClose = onClose;
  }

  close(): void {
    if (this.#memory.closed) return;
    this.#memory.close();
    this.#onClose();
  }
}

/** Pages of the driver that another process maps. */
export class SharedPages {
  /** Descriptor of a file that cannot shrink; valid until the file that shared it is closed. */
  readonly fd: number;
  /** Offset of the pages in the file. */
  readonly offset: number;
  readonly byteLength: number;
  readonly #onRelease: () => void;

  /** @param onRelease called by every {@link release} */
  constructor(fd: number, offset: number, byteLength: number, onRelease: () => void = () => {}) {
    this.fd = fd;
    this.offset = offset;
    this.byteLength = byteLength;
    this.#onRelease = onRelease;
  }

  /** Called when the process has unmapped the pages. Idempotent. */
  release(): void {
    this.#onRelease();
  }
}

/** The memory of a buffer. */
export interface BufferRange {
  /** Number of its first page. */
  readonly page: number;
  readonly fd: number;
  /** Offset in the file. */
  readonly offset: number | bigint;
  /** Address of the driver's mapping. */
  readonly address: number;
  /** The driver's mapping, whole pages. */
  readonly bytes: Uint8Array<ArrayBuffer>;
}

/**
 * The memory of all driver buffers of a context: one file, which the driver maps in windows, so that a buffer needs neither a descriptor nor a mapping.
 * See buffer-table.ts for handles.
 */
export class BufferPages {
  readonly #mmapFile: MmapFile | undefined;
  readonly #pages: RangeAllocator = new RangeAllocator(PAGES_MAX);
  /** Windows by number, combined with the number of the type if types have different offsets. */
  readonly #windows: Map<number, MappedMemory> = new Map();
  /** Windows of large buffers by first page. */
  readonly #large: Map<number, MappedMemory> = new Map();
  #fd = -1;

  /** @param mmapFile the file to use, owned by the caller; undefined to create a file for the first buffer */
  constructor(mmapFile?: MmapFile) {
    this.#mmapFile = mmapFile;
    // Handles start at id 1.
    this.#pages.reserve(0, 1);
  }

  /**
   * Allocates zeroed pages.
   * @throws SyscallError ENOMEM, EMFILE
   */
  allocate(type: HandleType, byteLength: number): BufferRange {
    const fd = this.#file();
    const count = Math.ceil(byteLength / PAGE_SIZE);
    // Aligned to its size, rounded up to a power of two, a buffer is within one window.
    const page = this.#pages.allocate(count, count > WINDOW_PAGES ? 1 : 2 ** Math.ceil(Math.log2(count)));
    if (page < 0)
      throw new SyscallError(
        'mmap',
        Errno.ENOMEM,
        `no range of mmap offsets is left for a driver buffer of ${byteLength} bytes`,
      );
    try {
      const bytes = this.#map(type, page, count);
      return { page, fd, offset: this.#offset(type, page), address: bytes.address, bytes: bytes.view };
    } catch (error) {
      this.#pages.free(page);
      throw error;
    }
  }

  /** Frees pages, which then read as zeros. */
  free({ page, offset }: BufferRange): void {
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

/** Other processes receive the descriptor: if the file could shrink, accesses through the driver's mapping would crash this process. */
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
