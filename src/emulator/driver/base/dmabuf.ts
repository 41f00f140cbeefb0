/**
 * The dma-bufs of an emulated node: device memory behind real file descriptors, which are passed between files, cards and processes.
 *
 * A dma-buf is the read end of a pipe: like a dma-buf of the driver, it has a separate inode and cannot be mapped. The driver keeps the write end, on
 * which poll reports when every copy of the read end is closed. No data goes through the pipe.
 */

import { close, descriptorFile, Errno, OpenFlag, PollEvent, pipe2, pollNow, setCloexec } from '../../../sys/index.ts';
import type { PhysicalMemory } from '../../device/memory/physical-memory.ts';

/** A contiguous range of physical device memory. */
export interface MemoryRun {
  readonly offset: number;
  readonly byteLength: number;
}

/** The range `[offset, offset + byteLength)` of consecutive runs. */
export function cutRuns(runs: readonly MemoryRun[], offset: number, byteLength: number): MemoryRun[] {
  const cut: MemoryRun[] = [];
  let before = 0;
  for (const run of runs) {
    const from = Math.max(offset, before);
    const to = Math.min(offset + byteLength, before + run.byteLength);
    if (from < to) cut.push({ offset: run.offset + from - before, byteLength: to - from });
    before += run.byteLength;
  }
  return cut;
}

/**
 * Calls `move` for the contiguous slices of a range of consecutive runs, in order, until it returns false.
 * @param move receives the offset of a slice, the number of bytes before it, and its length
 * @returns whether the whole range was moved
 */
export function forEachRun(
  runs: readonly MemoryRun[],
  offset: number,
  byteLength: number,
  move: (at: number, done: number, bytes: number) => boolean,
): boolean {
  let from = offset;
  let done = 0;
  for (const run of runs) {
    if (done === byteLength) break;
    if (from >= run.byteLength) {
      from -= run.byteLength;
      continue;
    }
    const bytes = Math.min(run.byteLength - from, byteLength - done);
    if (!move(run.offset + from, done, bytes)) return false;
    done += bytes;
    from = 0;
  }
  return done === byteLength;
}

export interface DmabufSource {
  /** Device memory of the card. */
  readonly memory: PhysicalMemory;
  readonly minor: number;
  readonly runs: readonly MemoryRun[];
}

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
  /** Callbacks of RDMA devices, which access the memory over the bus. */
  readonly #devices: Set<() => void> = new Set();
  #isOnBus = true;
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

  /** True while a descriptor of the dma-buf is open, including those of importers. Never becomes true again. */
  get alive(): boolean {
    if (this.#closed) return false;
    if ((pollNow(this.#writeEnd, PollEvent.OUT) & PollEvent.ERR) === 0) return true;
    this.#close();
    return false;
  }

  /** False once the card was closed, reset or removed: RDMA devices and other cards cannot access the memory, and neither can the exporter. */
  get isOnBus(): boolean {
    return this.#isOnBus;
  }

  /** Registers a callback of an RDMA device, called when it loses access to the memory, before the memory is reused. */
  attachDevice(onLost: () => void): void {
    this.#devices.add(onLost);
  }

  detachDevice(onLost: () => void): void {
    this.#devices.delete(onLost);
  }

  /** Called when the card leaves the bus, by a reset or removal: RDMA devices and importing cards lose access. */
  leaveBus(): void {
    this.#isOnBus = false;
    for (const onLost of this.#devices) onLost();
    this.#devices.clear();
    for (const onRevoked of this.#importers) onRevoked();
    this.#importers.clear();
  }

  /** Registers a callback of an importing card, called when it loses access to the memory. */
  attach(onRevoked: () => void): void {
    this.#importers.add(onRevoked);
  }

  detach(onRevoked: () => void): void {
    this.#importers.delete(onRevoked);
  }

  /** Called when the exporter is closed: importers lose access. Descriptors that are still open refer to no memory. */
  revoke(): void {
    if (this.#closed) return;
    this.leaveBus();
    this.#close();
  }

  #close(): void {
    this.#closed = true;
    close(this.#writeEnd);
    this.#onClose();
  }
}

/** The dma-bufs of a node, by inode. */
export class DmabufRegistry {
  readonly #known: Map<string, ExportedDmabuf> = new Map();

  /** Number of dma-bufs that are open or imported. */
  get count(): number {
    return [...this.#known.values()].filter((dmabuf) => dmabuf.alive).length;
  }

  /**
   * Creates a dma-buf.
   * @param flags O_* flags of the descriptor: O_CLOEXEC or none
   * @returns the descriptor, which the user owns, and the driver's end
   * @throws SyscallError EMFILE, ENFILE
   */
  create(source: DmabufSource, flags: number): { readonly fd: number; readonly dmabuf: ExportedDmabuf } {
    const [fd, writeEnd] = pipe2(OpenFlag.CLOEXEC);
    if ((flags & OpenFlag.CLOEXEC) === 0) setCloexec(fd, false);
    const key = inodeKey(fd)!;
    const dmabuf = new ExportedDmabuf(source, writeEnd, () => this.#known.delete(key));
    this.#known.set(key, dmabuf);
    return { fd, dmabuf };
  }

  /** The dma-buf of a descriptor, or an errno: EBADF for a closed descriptor, EINVAL for one that no card of this node exported. */
  find(fd: number): ExportedDmabuf | number {
    const key = inodeKey(fd);
    if (key === undefined) return Errno.EBADF;
    const dmabuf = this.#known.get(key);
    return dmabuf?.alive === true ? dmabuf : Errno.EINVAL;
  }
}

/**
 * Device and inode of a descriptor; undefined if it is not open. The open write end prevents reuse of the inode number while the dma-buf is registered.
 * The lookup does not call the file system of the file, which this process may serve.
 */
function inodeKey(fd: number): string | undefined {
  const file = descriptorFile('self', fd);
  return file === undefined ? undefined : `${file.device}:${file.ino}`;
}
