/**
 * What a descriptor refers to and how large it is; named pipes, and files that are backed before they are mapped. Opening and reading
 * are in file.ts.
 */

import * as fs from 'node:fs';
import { Errno } from './errno.ts';
import { errnoOf } from './file.ts';
import { errno, fallocate, mkfifoCall } from './libc.ts';
import { PAGE_SIZE } from './mapped-memory.ts';
import { SyscallError } from './syscall-error.ts';

/** What {@link reserveFile} asks for in one call: a millisecond and less. A power of two. */
const RESERVE_BYTES_MAX = 2 ** 21;

/** Kinds of files, as far as callers tell them apart. */
export const FileKind = { FILE: 'file', FIFO: 'fifo', OTHER: 'other' } as const;
export type FileKind = (typeof FileKind)[keyof typeof FileKind];

/** What {@link fileStatus} tells. */
export interface FileStatus {
  readonly kind: FileKind;
  /** User that owns it. */
  readonly uid: number;
  /** Permission bits. */
  readonly mode: number;
  readonly byteLength: number;
}

/** Kind, owner and size of an open file. Throws SyscallError EBADF. */
export function fileStatus(fd: number): FileStatus {
  let stats: fs.Stats;
  try {
    stats = fs.fstatSync(fd);
  } catch (error) {
    throw new SyscallError('fstat', errnoOf(error), `fd ${fd}`, error);
  }
  const kind = stats.isFile() ? FileKind.FILE : stats.isFIFO() ? FileKind.FIFO : FileKind.OTHER;
  return { kind, uid: stats.uid, mode: stats.mode & 0o7777, byteLength: stats.size };
}

/**
 * Makes a named pipe.
 * @param mode permissions
 * @throws SyscallError EEXIST, ENOENT, EACCES, ENOSPC, ...
 */
export function mkfifo(path: string, mode = 0o600): void {
  if (mkfifoCall(path, mode) !== 0) throw new SyscallError('mkfifo', errno(), path);
}

/**
 * Extends a file to `byteLength` bytes and backs all of it: a mapping of it can be touched without a SIGBUS for lack of space.
 * @throws SyscallError ENOSPC, EFBIG, EBADF, EOPNOTSUPP
 */
export function reserveFile(fd: number, byteLength: number): void {
  let pieceBytes = RESERVE_BYTES_MAX;
  for (let done = 0; done < byteLength; ) {
    const length = Math.min(pieceBytes, byteLength - done);
    if (fallocate(fd, 0, done, length) === 0) {
      done += length;
      continue;
    }
    const code = errno();
    if (code !== Errno.EINTR) throw new SyscallError('fallocate', code, `${byteLength} bytes of fd ${fd}`);
    // The kernel gives back what an interrupted call has reserved: with signals that come faster than a piece takes, only shorter ones end.
    pieceBytes = Math.max(pieceBytes / 2, PAGE_SIZE);
  }
}
