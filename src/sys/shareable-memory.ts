/**
 * Memory of this process that another one may map as well: a sealed memfd behind a mapping, found again by address. For memory that a
 * service in another process reads and writes often; whether it is handed over is the owner's decision.
 */

import { closeDescriptor } from './descriptor.ts';
import { checkViewLength, MapFlag, MappedMemory, mapOrThrow, PAGE_SIZE } from './mapped-memory.ts';
import { addSeals, ftruncate, memfdCreate, SealFlag } from './memfd.ts';

/** All of this thread whose file is open. */
const open = new Set<ShareableMemory>();

/** Such memory. Made by {@link mapShareable}. */
export class ShareableMemory extends MappedMemory {
  #fd: number;

  /** Takes ownership of the descriptor and of a mapping of all of its file. */
  constructor(fd: number, address: number, byteLength: number) {
    super(address, byteLength);
    this.#fd = fd;
    open.add(this);
  }

  /** The file behind it, whose length is sealed; -1 once it is closed. */
  get fd(): number {
    return this.#fd;
  }

  /** Closes the file: no other process can map the memory from now on. Idempotent. */
  closeFile(): void {
    if (this.#fd < 0) return;
    open.delete(this);
    closeDescriptor(this.#fd);
    this.#fd = -1;
  }

  /** Gives the memory back; other processes that have mapped the file keep it. Idempotent. */
  override close(): void {
    this.closeFile();
    super.close();
  }
}

/** A range of memory as a part of a file. */
export interface FileRange {
  /** Owned by the memory. */
  readonly fd: number;
  readonly offset: number;
}

/**
 * Maps zeroed memory that can be shared. Every page is backed now.
 * @param byteLength bytes, 1 to 4 GiB
 * @throws UcxError ERR_INVALID_PARAM; SyscallError EMFILE, ENFILE, ENOMEM
 */
export function mapShareable(byteLength: number): ShareableMemory {
  checkViewLength(byteLength);
  const fd = memfdCreate('gaudi-shareable', { sealing: true });
  try {
    ftruncate(fd, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE);
    // A process that maps it relies on its length: touching what was cut off would end the process.
    addSeals(fd, SealFlag.SHRINK | SealFlag.GROW | SealFlag.SEAL);
    return new ShareableMemory(fd, mapOrThrow(byteLength, MapFlag.SHARED | MapFlag.POPULATE, fd, 0), byteLength);
  } catch (error) {
    closeDescriptor(fd);
    throw error;
  }
}

/** The file range behind a range of addresses; undefined unless all of its pages are of one shareable memory. */
export function shareableRange(address: number, byteLength: number): FileRange | undefined {
  for (const memory of open) {
    const offset = address - memory.address;
    const end = Math.ceil(memory.byteLength / PAGE_SIZE) * PAGE_SIZE;
    if (offset >= 0 && offset + byteLength <= end) return { fd: memory.fd, offset };
  }
  return undefined;
}
