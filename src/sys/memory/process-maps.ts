/**
 * The mappings of a process, which the kernel lists in /proc/<pid>/maps. Since Linux 6.11 one mapping is found without reading the list (PROCMAP_QUERY), at a
 * cost that does not depend on the number of mappings; before, the list is read.
 *
 * Source: struct procmap_query of include/uapi/linux/fs.h, and fs/proc/task_mmu.c, Linux 6.12.
 */

import { readdirSync, readFileSync } from 'node:fs';
import { Errno } from '../base/errno.ts';
import { errno, ioctlCall } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { isSyscallError, SyscallError } from '../base/syscall-error.ts';
import { close, OpenFlag, open } from '../file/file.ts';

/** _IOWR('f', 17, struct procmap_query). */
const PROCMAP_QUERY = 0xc068_6611;
const QUERY = {
  SIZE: 0,
  FLAGS: 8,
  ADDRESS: 16,
  START: 24,
  END: 32,
  VMA_FLAGS: 40,
  OFFSET: 56,
  INO: 64,
  BYTES: 104,
} as const;
const COVERING_OR_NEXT = 0x10;
const FILE_BACKED = 0x20;
const VMA_WRITABLE = 0x02;
/** Addresses, permissions, offset, device and inode of a line. */
const LINE = /^([\da-f]+)-([\da-f]+) .(.)\S* ([\da-f]+) \S+ (\d+)/gm;

/** A mapping of a process. */
export interface ProcessMapping {
  readonly start: number;
  /** Address after the last byte. */
  readonly end: number;
  readonly writable: boolean;
  /** Offset in the file; 0 without a file. */
  readonly offset: bigint;
  /** Inode number of the file; 0 without a file. */
  readonly ino: number;
}

/** The mappings of one process. */
export class ProcessMaps {
  readonly #pid: number;
  readonly #query: ScratchBlock = allocateScratch(QUERY.BYTES);
  /** The open list of an address space, which stays the same until the process executes a program; -1 for none. */
  #fd = -1;

  /** @param pid a process, or one of its running threads */
  constructor(pid: number) {
    this.#pid = pid;
  }

  /** Whether mappings cover a range without holes and are writable; false for a process that has ended. Accesses no page. */
  isWritable(address: number, byteLength: number): boolean {
    let checked = address;
    for (const { start, end, writable } of this.#from(address, 0)) {
      if (start > checked || !writable) return false;
      checked = end;
      if (checked >= address + byteLength) return true;
    }
    return false;
  }

  /** The mappings of files with an inode number; none for a process that has ended. */
  ofFile(ino: number): readonly ProcessMapping[] {
    return [...this.#from(0, FILE_BACKED)].filter((mapping) => mapping.ino === ino);
  }

  /** Whether the process runs. */
  get exists(): boolean {
    return !this.#from(0, 0).next().done;
  }

  /** Closes the list. */
  close(): void {
    this.#closeList();
    this.#query.free();
  }

  [Symbol.dispose](): void {
    this.close();
  }

  /** The mappings that end above an address, in ascending order. */
  *#from(address: number, flags: number): Generator<ProcessMapping, void> {
    for (let next = address; ; ) {
      const found = this.#find(next, flags);
      if (found === 'unsupported') {
        yield* this.#read().filter(({ end }) => end > next);
        return;
      }
      if (found === undefined) return;
      yield found;
      next = found.end;
    }
  }

  /** The first mapping that ends above an address; undefined if there is none. */
  #find(address: number, flags: number): ProcessMapping | undefined | 'unsupported' {
    let result = this.#ask(this.#fd, address, flags);
    // The process has executed a program since the list was opened.
    if (result === Errno.ESRCH) {
      this.#closeList();
      this.#fd = this.#openList();
      result = this.#ask(this.#fd, address, flags);
    }
    if (result === Errno.ENOTTY) return 'unsupported';
    if (result === Errno.ENOENT || result === Errno.ESRCH) return undefined;
    if (result !== 0) throw new SyscallError('ioctl', result, 'PROCMAP_QUERY');
    const { view } = this.#query;
    return {
      start: Number(view.getBigUint64(QUERY.START, true)),
      end: Number(view.getBigUint64(QUERY.END, true)),
      writable: (view.getUint32(QUERY.VMA_FLAGS, true) & VMA_WRITABLE) !== 0,
      offset: view.getBigUint64(QUERY.OFFSET, true),
      ino: Number(view.getBigUint64(QUERY.INO, true)),
    };
  }

  /** Asks an open list. Returns 0, or the errno; ESRCH without a list. */
  #ask(fd: number, address: number, flags: number): number {
    if (fd < 0) return Errno.ESRCH;
    const { view, u8 } = this.#query;
    u8.fill(0);
    view.setBigUint64(QUERY.SIZE, BigInt(QUERY.BYTES), true);
    view.setBigUint64(QUERY.FLAGS, BigInt(COVERING_OR_NEXT | flags), true);
    view.setBigUint64(QUERY.ADDRESS, BigInt(address), true);
    return ioctlCall(fd, PROCMAP_QUERY, this.#query.address) === 0 ? 0 : errno();
  }

  /** Opens the list of a thread that has an address space: the first thread may have ended before the others. Returns -1 after the end of all. */
  #openList(): number {
    for (const tid of [this.#pid, ...threadsOf(this.#pid)]) {
      try {
        const fd = open(`/proc/${tid}/maps`, OpenFlag.RDONLY);
        if (this.#ask(fd, 0, 0) !== Errno.ESRCH) return fd;
        close(fd);
      } catch (error) {
        if (!isSyscallError(error) || error.errno === Errno.EMFILE || error.errno === Errno.ENFILE) throw error;
      }
    }
    return -1;
  }

  #closeList(): void {
    if (this.#fd >= 0) close(this.#fd);
    this.#fd = -1;
  }

  /** Reads the list. */
  #read(): readonly ProcessMapping[] {
    const lines = readFileSync(`/proc/self/fd/${this.#fd}`, 'latin1').matchAll(LINE);
    return Array.from(lines, ([, start, end, write, offset, ino]) => ({
      start: Number.parseInt(start!, 16),
      end: Number.parseInt(end!, 16),
      writable: write === 'w',
      offset: BigInt(`0x${offset}`),
      ino: Number(ino),
    }));
  }
}

function threadsOf(pid: number): readonly number[] {
  try {
    return readdirSync(`/proc/${pid}/task`).map(Number);
  } catch {
    return []; // The process has ended, or `pid` is one of its other threads.
  }
}
