/**
 * The system calls that the kernel driver port makes, as a record that tests replace. No policy: retries and errors are the callers'.
 */

import { readdirSync, realpathSync } from 'node:fs';
import { setImmediate } from 'node:timers/promises';
import { close, ioctl, ioctlAsync, mapFile, open, read, schedYield } from '../../sys/index.ts';
import type { DriverMapping } from '../port.ts';

/** What discovery and open files need of Linux. */
export interface SystemCalls {
  /** Opens close-on-exec. Returns the fd. Throws SyscallError. */
  open(path: string, flags: number): number;
  /** Throws SyscallError EBADF. */
  close(fd: number): void;
  /** Returns bytes read, 0 at the end, or -errno. */
  read(fd: number, target: Uint8Array): number;
  /** Names in a folder, in any order; empty for a folder that does not exist or may not be read. */
  namesIn(path: string): string[];
  /** The path without symbolic links; undefined for one that leads nowhere. */
  realPath(path: string): string | undefined;
  /** Blocks as the driver blocks. Returns 0 or more, or -errno. */
  ioctl(fd: number, request: number, address: number): number;
  /** The same on the libuv pool. */
  ioctlAsync(fd: number, request: number, address: number): Promise<number>;
  /** Maps shared and read-write. Throws SyscallError. */
  mapFile(fd: number, byteLength: number, offset: bigint): DriverMapping;
  /** Gives the CPU to another thread that is ready. */
  schedYield(): void;
  /** Resolves after the event loop has looked at everything else that is ready. */
  eventLoopTurn(): Promise<void>;
}

function namesIn(path: string): string[] {
  try {
    return readdirSync(path);
  } catch {
    // ENOENT, ENOTDIR and EACCES mean the same to discovery: no cards to be seen there.
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
  eventLoopTurn: () => setImmediate(),
};
