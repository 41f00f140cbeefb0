/**
 * Memory of an address space, by system calls: safe for all addresses. The address space of another process is a descriptor of its /proc/<pid>/mem, which stays
 * with it when its threads end, when its process starts another program, and when its number is given to another process: then nothing is accessible any more.
 */

import { errno, isInterrupted, openCall, preadCall, pwriteCall } from '../base/libc.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-descriptors.ts';
import { copyFromProcess, copyToProcess } from './memory.ts';

const O_RDWR = 0x2;
const O_CLOEXEC = 0x80000;

/** The address space of this process, which needs no descriptor. */
export const OWN_ADDRESS_SPACE = -1;

/**
 * Opens the address space of a process of the same user.
 * @param tid a thread of it that runs; another one may have ended
 * @returns a descriptor: close it
 * @throws SyscallError ENOENT if there is no such thread, EACCES, EMFILE, ENFILE
 */
export function openAddressSpace(tid: number): number {
  const path = `/proc/${tid}/mem`;
  const fd = openCall(path, O_RDWR | O_CLOEXEC, 0);
  if (fd < 0) throw new SyscallError('open', errno(), path);
  return noteDescriptor(fd);
}

/**
 * Copies from an address space to an address of this process.
 * @param space a result of {@link openAddressSpace}, or {@link OWN_ADDRESS_SPACE}
 * @returns bytes copied: fewer than `byteLength` if a page is not mapped, or the process has ended
 */
export function readAddressSpace(space: number, address: number, target: number, byteLength: number): number {
  if (space === OWN_ADDRESS_SPACE) return Math.max(0, copyFromProcess(process.pid, address, target, byteLength));
  return move(preadCall, space, address, target, byteLength);
}

/** Copies from an address of this process to an address space. Returns like {@link readAddressSpace}. */
export function writeAddressSpace(space: number, address: number, source: number, byteLength: number): number {
  if (space === OWN_ADDRESS_SPACE) return Math.max(0, copyToProcess(process.pid, address, source, byteLength));
  return move(pwriteCall, space, address, source, byteLength);
}

function move(call: typeof preadCall, fd: number, address: number, local: number, byteLength: number): number {
  let done = 0;
  while (done < byteLength) {
    const moved = call(fd, local + done, byteLength - done, address + done);
    if (moved > 0) done += moved;
    else if (!isInterrupted(moved)) break;
  }
  return done;
}
