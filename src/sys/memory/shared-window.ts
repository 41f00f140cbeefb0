/**
 * Shared mappings of files: as a real SharedArrayBuffer for worker threads, of hundreds of GiB without a view, and as shareable memory. Shareable memory is a
 * mapped and sealed memfd, which is found by its address. Its owner can share it: another process, such as a service that often accesses memory of this
 * process, then maps the file too.
 */

import { invalidParam } from '../../ucs/type/error.ts';
import { Errno } from '../base/errno.ts';
import { addressOfView, errno, mmap, munmap } from '../base/libc.ts';
import {
  checkViewLength,
  countMapping,
  MapFlag,
  MappedMemory,
  mapOrThrow,
  PAGE_SIZE,
  PROT_READ_WRITE,
  signedOffset,
  VIEW_LENGTH_MAX,
} from '../base/mapped-memory.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, forgetMapping, MappingKind, noteMapping } from '../base/thread-resources.ts';
import { addSeals, ftruncate, memfdCreate, SealFlag } from './memfd.ts';

/** Bytes in a page of a WebAssembly.Memory. */
const WASM_PAGE_SIZE = 65536;
const LARGE_LENGTH_MAX = 2 ** 46;
/** Large mappings of this thread by address, each with its entry in the table of thread mappings. */
const largeMappings = new Map<number, number>();

/** The only class of WebAssembly used here; the compiler declares it only with the browser types. */
interface WasmMemoryConstructor {
  new (descriptor: { initial: number; maximum: number; shared: true }): { readonly buffer: SharedArrayBuffer };
}
declare const WebAssembly: { readonly Memory: WasmMemoryConstructor };

/** A range of a file as a SharedArrayBuffer. */
export interface SharedWindow {
  /** Host virtual address of the first byte; valid in all threads, as long as any of them references `buffer`. */
  readonly address: number;
  /** Can be posted to workers without a copy; Atomics.wait and notify work between threads. Its `byteLength` is a multiple of 64 KiB. */
  readonly buffer: SharedArrayBuffer;
  /** Bytes of the file that are mapped; the rest of the buffer is private zero pages. */
  readonly byteLength: number;
}

/**
 * Maps a range of a file shared and read-write as a SharedArrayBuffer.
 *
 * There is no close: V8 removes the mapping when the last thread has dropped the buffer. A window takes 50 us to make and about 10 GiB of address space (of 128
 * TiB), whatever its length. `TypedArray.fill` on it is slow: use memset.
 * @param byteLength bytes, a multiple of the page size, at most 4 GiB
 * @param fileOffset a multiple of the page size below 2^64
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EBADF, EACCES, EINVAL, ENODEV, ENOMEM (also for lack of address space)
 */
export function mapSharedWindow(fd: number, byteLength: number, fileOffset: number | bigint): SharedWindow {
  checkLength(byteLength, VIEW_LENGTH_MAX);
  const offset = signedOffset(fileOffset, 'fileOffset');
  const pages = Math.ceil(byteLength / WASM_PAGE_SIZE);
  const what = `${byteLength} bytes of fd ${fd} at ${fileOffset}`;
  let buffer: SharedArrayBuffer;
  try {
    // Only the SharedArrayBuffer of a WebAssembly memory is page aligned and never moves.
    buffer = new WebAssembly.Memory({ initial: pages, maximum: pages, shared: true }).buffer;
  } catch (error) {
    throw new SyscallError('mmap', Errno.ENOMEM, `address space for ${what}`, { cause: error });
  }
  const address = addressOfView(new Uint8Array(buffer, 0, 1));
  const flags = MapFlag.SHARED | MapFlag.FIXED | MapFlag.NORESERVE;
  if (mmap(address, byteLength, PROT_READ_WRITE, flags, fd, offset) !== address) {
    throw new SyscallError('mmap', errno(), what);
  }
  return { address, buffer, byteLength };
}

/**
 * Maps a file shared and read-write without a view, for memcpy by address. Counted in `mappedMemoryStatistics()`.
 * @param byteLength bytes, a multiple of the page size, at most 64 TiB
 * @param fileOffset a multiple of the page size below 2^64
 * @returns the host virtual address; {@link unmapLarge} unmaps it
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EBADF, EACCES, EINVAL, ENODEV, ENOMEM
 */
export function mapLarge(fd: number, byteLength: number, fileOffset: number | bigint = 0): number {
  checkLength(byteLength, LARGE_LENGTH_MAX);
  const address = mmap(
    0,
    byteLength,
    PROT_READ_WRITE,
    MapFlag.SHARED | MapFlag.NORESERVE,
    fd,
    signedOffset(fileOffset, 'fileOffset'),
  );
  if (address === -1) throw new SyscallError('mmap', errno(), `${byteLength} bytes of fd ${fd} at ${fileOffset}`);
  countMapping(byteLength, 1);
  largeMappings.set(address, noteMapping(address, byteLength, MappingKind.LOCAL));
  return address;
}

/**
 * Removes a mapping of {@link mapLarge}.
 *
 * DANGER: takes effect at once. All threads must have stopped using its address and views of it (viewAt).
 * @throws SyscallError EINVAL for an address that is not such a mapping
 */
export function unmapLarge(address: number, byteLength: number): void {
  forgetMapping(largeMappings.get(address) ?? 0);
  largeMappings.delete(address);
  if (munmap(address, byteLength) !== 0) {
    throw new SyscallError('munmap', errno(), `${byteLength} bytes at 0x${address.toString(16)}`);
  }
  countMapping(byteLength, -1);
}

function checkLength(byteLength: number, max: number): void {
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0 || byteLength % PAGE_SIZE !== 0) {
    throw invalidParam('byteLength', `must be a positive multiple of ${PAGE_SIZE}`, byteLength);
  }
  if (byteLength > max) throw invalidParam('byteLength', `must be at most ${max}`, byteLength);
}

/** The shareable memories of this thread whose file is open. */
const open = new Set<ShareableMemory>();

/** Shareable memory. Made by {@link mapShareable}. */
export class ShareableMemory extends MappedMemory {
  #fd: number;

  /** Takes ownership of the descriptor and of a mapping of the whole file. */
  constructor(fd: number, address: number, byteLength: number) {
    super(address, byteLength);
    this.#fd = fd;
    open.add(this);
  }

  /** The file, whose length is sealed; -1 after it was closed. */
  get fd(): number {
    return this.#fd;
  }

  /** Closes the file, so that other processes can no longer map the memory. Idempotent. */
  closeFile(): void {
    if (this.#fd < 0) return;
    open.delete(this);
    closeDescriptor(this.#fd);
    this.#fd = -1;
  }

  /** Unmaps the memory; other processes that have mapped the file keep their mappings. Idempotent. */
  override close(): void {
    this.closeFile();
    super.close();
  }
}

/** The file range behind a range of memory. */
export interface FileRange {
  /** Descriptor, owned by the memory. */
  readonly fd: number;
  readonly offset: number;
}

/**
 * Maps zeroed memory that can be shared, and populates every page.
 * @param byteLength bytes, 1 to 4 GiB
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EMFILE, ENFILE, ENOMEM
 */
export function mapShareable(byteLength: number): ShareableMemory {
  checkViewLength(byteLength);
  const fd = memfdCreate('gaudi-shareable', { sealing: true });
  try {
    ftruncate(fd, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE);
    // A process that maps the file relies on its length: accessing truncated pages would crash that process.
    addSeals(fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
    return new ShareableMemory(fd, mapOrThrow(byteLength, MapFlag.SHARED | MapFlag.POPULATE, fd, 0), byteLength);
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}

/** The shareable memory whose pages contain a range of addresses; undefined for other memory. */
export function shareableAt(address: number, byteLength: number): ShareableMemory | undefined {
  for (const memory of open) {
    const offset = address - memory.address;
    const end = Math.ceil(memory.byteLength / PAGE_SIZE) * PAGE_SIZE;
    if (offset >= 0 && offset + byteLength <= end) return memory;
  }
  return undefined;
}

/** The file range of a range of addresses; undefined unless all of its pages belong to the same shareable memory. */
export function shareableRange(address: number, byteLength: number): FileRange | undefined {
  const memory = shareableAt(address, byteLength);
  return memory === undefined ? undefined : { fd: memory.fd, offset: address - memory.address };
}
