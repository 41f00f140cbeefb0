/** The system calls of the kernel driver port, as an object that tests replace. Callers retry and handle errors. */

import { readdirSync, realpathSync } from 'node:fs';
import { close, ioctl, ioctlAsync, mapFile, open, read, schedYield } from '../../sys/index.ts';
import { nextTurn } from '../../ucs/sys/next-turn.ts';
import type { DriverMapping } from '../port.ts';

/** The system calls that discovery and open files use. */
export interface SystemCalls {
  /** Opens close-on-exec. Returns the fd. Throws SyscallError. */
  open(path: string, flags: number): number;
  /** Closes a descriptor. Throws SyscallError EBADF. */
  close(fd: number): void;
  /** Reads a file. Returns the number of bytes, 0 at the end, or -errno. */
  read(fd: number, target: Uint8Array): number;
  /** Names in a folder, in any order; empty for a folder that does not exist or is not readable. */
  namesIn(path: string): string[];
  /** The path without symbolic links; undefined for a broken link. */
  realPath(path: string): string | undefined;
  /** Runs an ioctl; blocks as long as the driver does. Returns 0 or more, or -errno. */
  ioctl(fd: number, request: number, address: number): number;
  /** Runs an ioctl on the libuv pool. */
  ioctlAsync(fd: number, request: number, address: number): Promise<number>;
  /** Maps a file shared and read-write. Throws SyscallError. */
  mapFile(fd: number, byteLength: number, offset: bigint): DriverMapping;
  /** Yields the CPU to another runnable thread. */
  schedYield(): void;
  /** Resolves after the event loop has handled all other ready events. */
  yieldToEventLoop(): Promise<void>;
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    // ENOENT, ENOTDIR and EACCES mean the same for discovery: there are no visible cards.
    return [];
  }
}

function realPath(path: string): string | undefined {
  try {
    return realpathSync(path);
  } catch {
    return undefined;
  }
}

/** The system calls of this machine. */
export const linuxSystemCalls: SystemCalls = {
  open,
  close,
  read,
  namesIn,
  realPath,
  ioctl,
  ioctlAsync,
  mapFile,
  schedYield,
  yieldToEventLoop: nextTurn,
};
