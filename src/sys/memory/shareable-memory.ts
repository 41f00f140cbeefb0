/**
 * Memory of this process that another one may also map: a mapped and sealed memfd, found by address. For memory that a
 * service in another process reads and writes frequently; the owner decides whether to share it.
 */

import { closeDescriptor } from '../base/descriptor.ts';
import { checkViewLength, MapFlag, MappedMemory, mapOrThrow, PAGE_SIZE } from '../base/mapped-memory.ts';
import { addSeals, ftruncate, memfdCreate, SealFlag } from './memfd.ts';

/** All shareable memories of this thread whose file is open. */
const open = new Set<ShareableMemory>();

/** Shareable memory. Made by {@link mapShareable}. */
export class ShareableMemory extends MappedMemory {
  #fd: number;

  /** Takes ownership of the descriptor and of a mapping of all of its file. */
  constructor(fd: number, address: number, byteLength: number) {
    super(address, byteLength);
    this.#fd = fd;
    open.add(this);
  }

  /** Its file, whose length is sealed; -1 once it is closed. */
  get fd(): number {
    return this.#fd;
  }

  /** Closes the file: other processes cannot map the memory any more. Idempotent. */
  closeFile(): void {
    if (this.#fd < 0) return;
    open.delete(this);
    closeDescriptor(this.#fd);
    this.#fd = -1;
  }

  /** Unmaps the memory; other processes that have mapped the file keep it. Idempotent. */
  override close(): void {
    this.closeFile();
    super.close();
  }
}

/** A range of memory as a part of a file. */
export interface FileRange {
  /** Descriptor, owned by the memory. */
  readonly fd: number;
  readonly offset: number;
}

/**
 * Maps zeroed memory that can be shared. Every page is populated now.
 * @param byteLength bytes, 1 to 4 GiB
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EMFILE, ENFILE, ENOMEM
 */
export function mapShareable(byteLength: number): ShareableMemory {
  checkViewLength(byteLength);
  const fd = memfdCreate('gaudi-shareable', { sealing: true });
  try {
    ftruncate(fd, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE);
    // A process that maps it relies on its length: accessing truncated pages would end the process.
    addSeals(fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
    return new ShareableMemory(fd, mapOrThrow(byteLength, MapFlag.SHARED | MapFlag.POPULATE, fd, 0), byteLength);
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}

/** The shareable memory with pages that contain a range of addresses; undefined for other memory. */
export function shareableAt(address: number, byteLength: number): ShareableMemory | undefined {
  for (const memory of open) {
    const offset = address - memory.address;
    const end = Math.ceil(memory.byteLength / PAGE_SIZE) * PAGE_SIZE;
    if (offset >= 0 && offset + byteLength <= end) return memory;
  }
  return undefined;
}

/** The file range of a range of addresses; undefined unless all of its pages belong to one shareable memory. */
export function shareableRange(address: number, byteLength: number): FileRange | undefined {
  const memory = shareableAt(address, byteLength);
  return memory === undefined ? undefined : { fd: memory.fd, offset: address - memory.address };
}
