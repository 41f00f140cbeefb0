/**
 * The dma-bufs of an emulated node: device memory behind real file descriptors, which travel between files, cards and processes.
 *
 * A dma-buf is the reading end of a pipe: a descriptor of its own inode that cannot be mapped, as the driver's cannot. The driver keeps the writing
 * end and learns by poll when every copy of the other one is closed. No bytes go through the pipe.
 */

import {
  close,
  Errno,
  fstat,
  isSyscallError,
  OpenFlag,
  PollEvent,
  pipe2,
  pollNow,
  setCloexec,
} from '../../../sys/index.ts';
import type { PhysicalMemory } from '../../device/physical-memory.ts';

/** A contiguous piece of physical device memory. */
export interface MemoryRun {
  readonly offset: number;
  readonly byteLength: number;
}

/** Memory that a card exports. */
export interface DmabufSource {
  /** Device memory of the card. */
  readonly memory: PhysicalMemory;
  readonly minor: number;
  readonly runs: readonly MemoryRun[];
}

/** Memory that was exported. */
export class ExportedDmabuf {
  /** Device memory of the exporting card. */
  readonly memory: PhysicalMemory;
  /** The exporting card. */
  readonly minor: number;
  readonly runs: readonly MemoryRun[];
  readonly byteLength: number;
  readonly #writeEnd: number;
  readonly #onClose: () => void;
  readonly #importers: Set<() => void> = new Set();
  #closed = false;

  constructor(source: DmabufSource, writeEnd: number, onClose: () => void) {
    const { memory, minor, runs } = source;
    this.memory = memory;
    this.minor = minor;
    this.runs = runs;
    this.byteLength = runs.reduce((sum, run) => sum + run.byteLength, 0);
    this.#writeEnd = writeEnd;
    this.#onClose = onClose;
  }

  /** True while a descriptor of it is open; importers count, because they hold one. Once false, it is gone. */
  get alive(): boolean {
    if (this.#closed) return false;
    if ((pollNow(this.#writeEnd, PollEvent.OUT) & PollEvent.ERR) === 0) return true;
    this.#close();
    return false;
  }

  /** Tells `onRevoked` when the exporter takes the memory away. */
  attach(onRevoked: () => void): void {
    this.#importers.add(onRevoked);
  }

  detach(onRevoked: () => void): void {
    this.#importers.delete(onRevoked);
  }

  /** The exporter is gone: importers lose the memory. Descriptors that are still open lead nowhere. */
  revoke(): void {
    if (this.#closed) return;
    for (const onRevoked of this.#importers) onRevoked();
    this.#importers.clear();
    this.#close();
  }

  #close(): void {
    this.#closed = true;
    close(this.#writeEnd);
    this.#onClose();
  }
}

/** All dma-bufs of a node, by inode. */
export class DmabufRegistry {
  readonly #known: Map<string, ExportedDmabuf> = new Map();

  /** Dma-bufs that are still open or imported. */
  get count(): number {
    return [...this.#known.values()].filter((dmabuf) => dmabuf.alive).length;
  }

  /**
   * Makes a dma-buf.
   * @param flags O_* flags of the descriptor: O_CLOEXEC or none
   * @returns the descriptor, which the user owns, and the driver's side of it
   * @throws SyscallError EMFILE, ENFILE
   */
  create(source: DmabufSource, flags: number): { readonly fd: number; readonly dmabuf: ExportedDmabuf } {
    const [fd, writeEnd] = pipe2(OpenFlag.CLOEXEC);
    if ((flags & OpenFlag.CLOEXEC) === 0) setCloexec(fd, false);
    const key = inodeKey(fd);
    const dmabuf = new ExportedDmabuf(source, writeEnd, () => this.#known.delete(key));
    this.#known.set(key, dmabuf);
    return { fd, dmabuf };
  }

  /** The dma-buf of a descriptor; or an errno: EBADF for a closed one, EINVAL for what no card of this node exported. */
  find(fd: number): ExportedDmabuf | number {
    try {
      const dmabuf = this.#known.get(inodeKey(fd));
      return dmabuf?.alive === true ? dmabuf : Errno.EINVAL;
    } catch (error) {
      return isSyscallError(error) ? error.errno : Errno.EBADF;
    }
  }
}

/** Device and inode: the writing end keeps the number from being reused while the dma-buf is known. */
function inodeKey(fd: number): string {
  const { dev, ino } = fstat(fd);
  return `${dev}:${ino}`;
}
