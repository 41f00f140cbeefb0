/**
 * Memory outside the JavaScript heap: anonymous or of a file, mapped shared and read-write, with views that are made once. For memory owned by other code there
 * is {@link viewAt}.
 *
 * A view cannot be detached, and accessing one after `munmap` is a SIGSEGV. So `close()` maps private zero pages over the range (the *graveyard*): stale views
 * read zeros and reach no memory. The addresses are released when the ArrayBuffer has been collected. A mapping that is never closed stays mapped while its
 * thread lives: {@link mappedMemoryStatistics} shows such a leak, and code that kept only the address does not crash. Mappings of an ended worker thread are
 * released later (thread-resources.ts).
 */

import { isMainThread } from 'node:worker_threads';
import { IntervalMap } from '../../ucs/datastruct/interval-map.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { addressOfView, errno, mmap, munmap, viewOfMemory } from './libc.ts';
import { SyscallError } from './syscall-error.ts';
import { forgetMapping, MappingKind, noteMapping } from './thread-resources.ts';

/** Bytes in a page of x86-64. */
export const PAGE_SIZE = 4096;

/** The longest view: V8 aborts the process above it, without an exception. */
export const VIEW_LENGTH_MAX: number = 2 ** 32;

/** Protection bits of `mmap`: `include/uapi/asm-generic/mman-common.h`. */
export const PROT_READ_WRITE = 0x3;
/** Flag bits of `mmap`: `include/uapi/linux/mman.h`, `include/uapi/asm-generic/mman-common.h`. */
export const MapFlag = {
  SHARED: 0x01,
  PRIVATE: 0x02,
  FIXED: 0x10,
  ANONYMOUS: 0x20,
  NORESERVE: 0x4000,
  POPULATE: 0x8000,
} as const;

/** Counters of this thread; a test without leaks leaves them unchanged. */
export interface MappedMemoryStatistics {
  /** Number of mappings that are not closed. */
  readonly liveMappings: number;
  /** Bytes of these mappings. */
  readonly liveBytes: number;
  /** Number of closed mappings whose views are not yet collected: address space without memory. */
  readonly graveyardMappings: number;
}

/** The live mappings of this thread, in whole pages. */
const live: IntervalMap<true> = new IntervalMap();

/**
 * Whether a range is inside one mapping of this module and thread. Such memory stays mapped until it is closed, and is then replaced by zero pages, while a
 * collector or an allocator can unmap any other memory of the process at any time, in particular that of ArrayBuffers.
 */
export function isOwnMapping(address: number, byteLength: number): boolean {
  return live.covering(address, address + byteLength) === true;
}

/**
 * Whether memory stays mapped when this thread ends. When a worker thread is terminated, Node.js frees its ArrayBuffers, whose memory may be reused at once,
 * while peers that have the address may still copy to it (process_vm_writev). The main thread ends with its process.
 */
export function outlivesThread(bytes: Uint8Array): boolean {
  return isMainThread || isOwnMapping(addressOfView(bytes), bytes.byteLength);
}

function pageEnd(address: number, byteLength: number): number {
  return address + Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE;
}

const counters = { liveMappings: 0, liveBytes: 0, graveyardMappings: 0 };

/** Counts a new mapping (1) or a removed one (-1). */
export function countMapping(byteLength: number, sign: 1 | -1): void {
  counters.liveMappings += sign;
  counters.liveBytes += sign * byteLength;
}

/** The current counters of this thread. */
export function mappedMemoryStatistics(): MappedMemoryStatistics {
  return { ...counters };
}

interface Grave {
  readonly address: number;
  readonly byteLength: number;
  /** Entry in the table of thread mappings. */
  readonly entry: number;
}

const graveyard = new FinalizationRegistry<Grave>((grave) => {
  forgetMapping(grave.entry);
  munmap(grave.address, grave.byteLength);
  counters.graveyardMappings--;
});

/** One mapping. Made by {@link mapAnonymous} and {@link mapFile}. */
export class MappedMemory implements Disposable {
  /** Host virtual address of the first byte; page aligned, below 2^47. */
  readonly address: number;
  /** Requested size in bytes; the mapping itself ends at the next page boundary. */
  readonly byteLength: number;
  /** External memory: postMessage and structuredClone with transfer copy it without an error. Atomics.wait rejects it, other Atomics work. */
  readonly buffer: ArrayBuffer;
  readonly u8: Uint8Array;
  /** The mapping as 32-bit words, whole words only. */
  readonly words: Uint32Array;
  readonly view: DataView;
  readonly #entry: number;
  #closed = false;

  /** Takes ownership of a mapping of at most {@link VIEW_LENGTH_MAX} bytes. */
  constructor(address: number, byteLength: number, kind: MappingKind = MappingKind.SHARED) {
    this.#entry = noteMapping(address, byteLength, kind);
    this.address = address;
    this.byteLength = byteLength;
    this.buffer = viewOfMemory(address, byteLength);
    this.u8 = new Uint8Array(this.buffer);
    this.words = new Uint32Array(this.buffer, 0, Math.floor(byteLength / 4));
    this.view = new DataView(this.buffer);
    live.insert(address, pageEnd(address, byteLength), true);
    countMapping(byteLength, 1);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Unmaps the memory. From now on views read zeros, and writes to them are lost. Idempotent, never fails. Other threads and devices must have stopped using
   * the address: only views of this thread keep the addresses reserved.
   */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    const flags = MapFlag.PRIVATE | MapFlag.ANONYMOUS | MapFlag.FIXED | MapFlag.NORESERVE;
    // After a failure (ENOMEM at the limit of mappings) the memory stays in place: still safe for views, and unmapped with them.
    mmap(this.address, this.byteLength, PROT_READ_WRITE, flags, -1, 0);
    graveyard.register(this.buffer, { address: this.address, byteLength: this.byteLength, entry: this.#entry });
    live.delete(this.address);
    countMapping(this.byteLength, -1);
    counters.graveyardMappings++;
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

export interface AnonymousOptions {
  /** Populate every page now instead of at its first access, which costs 2 to 12 us per page. */
  readonly populate?: boolean;
  /** Share with children forked later (MAP_SHARED) instead of copying on write. */
  readonly shared?: boolean;
  /** Do not count the pages against the overcommit limit. */
  readonly noReserve?: boolean;
  /** How the mapping is released after its thread has ended. Default SHARED, because peers may have its address. */
  readonly kind?: MappingKind;
}

/**
 * Maps zeroed memory.
 * @param byteLength bytes, 1 to 4 GiB
 * @throws UcxError ERR_INVALID_PARAM for a bad length; SyscallError ENOMEM
 */
export function mapAnonymous(byteLength: number, options: AnonymousOptions = {}): MappedMemory {
  checkViewLength(byteLength);
  let flags: number = MapFlag.ANONYMOUS | (options.shared === true ? MapFlag.SHARED : MapFlag.PRIVATE);
  if (options.populate === true) flags |= MapFlag.POPULATE;
  if (options.noReserve === true) flags |= MapFlag.NORESERVE;
  return new MappedMemory(mapOrThrow(byteLength, flags, -1, 0), byteLength, options.kind);
}

export interface FileMappingOptions {
  /** Populate every page now instead of at its first access, which costs 2 to 12 us per page. */
  readonly populate?: boolean;
}

/**
 * Maps a range of a file, memfd, dma-buf or device shared and read-write. The fd may be closed afterwards. Never shrink a mapped file: accessing a page beyond
 * its end is a SIGBUS.
 * @param byteLength bytes, 1 to 4 GiB
 * @param offset in the file, or the mmap cookie of a device: a multiple of the page size below 2^64
 * @throws UcxError ERR_INVALID_PARAM for an invalid length or offset; SyscallError EBADF, EACCES, EINVAL, ENODEV, ENOMEM, ...
 */
export function mapFile(
  fd: number,
  byteLength: number,
  offset: number | bigint,
  options: FileMappingOptions = {},
): MappedMemory {
  checkViewLength(byteLength);
  const flags = MapFlag.SHARED | (options.populate === true ? MapFlag.POPULATE : 0);
  return new MappedMemory(mapOrThrow(byteLength, flags, fd, signedOffset(offset)), byteLength);
}

/**
 * A view of memory owned by other code, without a copy.
 *
 * DANGER: the view does not keep the memory mapped. If the owner unmaps it, accessing the view is a SIGSEGV, which no `catch` handles. Make the view once and
 * keep it (660 ns, and V8 counts its length as external memory).
 * @throws UcxError ERR_INVALID_PARAM for a length outside 1 to 4 GiB or an address outside user memory
 */
export function viewAt(address: number, byteLength: number): ArrayBuffer {
  if (!Number.isSafeInteger(address) || address < PAGE_SIZE || address >= 2 ** 47) {
    throw invalidParam('address', 'must be a user address below 2^47', address);
  }
  checkViewLength(byteLength);
  return viewOfMemory(address, byteLength);
}

/** Throws ERR_INVALID_PARAM for an invalid length of a view. */
export function checkViewLength(byteLength: number): void {
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('byteLength', 'must be a positive integer', byteLength);
  }
  if (byteLength > VIEW_LENGTH_MAX) throw invalidParam('byteLength', 'must be at most 4 GiB', byteLength);
}

/** Converts an unsigned 64-bit offset to off_t: cookies of the habanalabs driver use the top bits. Throws ERR_INVALID_PARAM. */
export function signedOffset(offset: number | bigint, argument = 'offset'): number | bigint {
  if (typeof offset === 'number') {
    if (Number.isSafeInteger(offset) && offset >= 0) return offset;
    throw invalidParam(argument, 'must be a safe integer of at least 0 (pass larger values as bigint)', offset);
  }
  if (offset < 0n || offset >= 1n << 64n) throw invalidParam(argument, 'must fit in 64 unsigned bits', offset);
  return BigInt.asIntN(64, offset);
}

/** Maps, or throws SyscallError. */
export function mapOrThrow(byteLength: number, flags: number, fd: number, offset: number | bigint): number {
  const address = mmap(0, byteLength, PROT_READ_WRITE, flags, fd, offset);
  if (address === -1) {
    const what = fd === -1 ? `${byteLength} anonymous bytes` : `${byteLength} bytes of fd ${fd} at ${offset}`;
    throw new SyscallError('mmap', errno(), what);
  }
  return address;
}
