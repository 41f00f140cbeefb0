/** Status of open files; named pipes; and reservation of file space before a file is mapped. */

import * as fs from 'node:fs';
import { Errno } from '../base/errno.ts';
import { errno, fallocate, mkfifoCall, statxCall } from '../base/libc.ts';
import { PAGE_SIZE } from '../base/mapped-memory.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { errnoOf } from './file.ts';

/** Maximum size of one call of {@link reserveFile}, which takes a millisecond at most. A power of two. */
const RESERVE_BYTES_MAX = 2 ** 21;

/** `include/uapi/linux/fcntl.h` and `stat.h`. */
const AT_FDCWD = -100;
const AT_SYMLINK_NOFOLLOW = 0x100;
const AT_NO_AUTOMOUNT = 0x800;
const AT_STATX_DONT_SYNC = 0x4000;
const STATX_INO = 0x100;
/** Offsets in struct statx: `include/uapi/linux/stat.h`. */
export const STATX = {
  MASK: 0,
  BLOCK_SIZE: 4,
  LINKS: 16,
  MODE: 28,
  INO: 32,
  RDEV_MAJOR: 128,
  RDEV_MINOR: 132,
  DEV_MAJOR: 136,
  DEV_MINOR: 140,
  BYTES: 256,
} as const;

/** Kinds of files that callers need to distinguish. */
export const FileKind = { FILE: 'file', FIFO: 'fifo', OTHER: 'other' } as const;
export type FileKind = (typeof FileKind)[keyof typeof FileKind];

export interface FileStatus {
  readonly kind: FileKind;
  /** User id of the owner. */
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
    throw new SyscallError('fstat', errnoOf(error), `fd ${fd}`, { cause: error });
  }
  const kind = stats.isFile() ? FileKind.FILE : stats.isFIFO() ? FileKind.FIFO : FileKind.OTHER;
  return { kind, uid: stats.uid, mode: stats.mode & 0o7777, byteLength: stats.size };
}

export interface DescriptorFile {
  /** Device number of the file system, as in /proc/PID/mountinfo: `0:52`. */
  readonly device: string;
  readonly ino: number;
}

/**
 * The file behind a descriptor of a thread or of this process, even after its mount was removed. Never calls the file's file system, so that a process may use
 * it for a file system that it serves.
 * @returns undefined if the descriptor or the thread does not exist
 */
export function descriptorFile(tid: number | 'self', fd: number): DescriptorFile | undefined {
  return pathFile(`/proc/${tid}/fd/${fd}`);
}

/**
 * The file at a path. Never calls its file system, like {@link descriptorFile}, but looks up the names of the path.
 * @param isLink true for the symbolic link itself, if the path is that of one
 */
export function pathFile(path: string, isLink = false): DescriptorFile | undefined {
  using found = allocateScratch(STATX.BYTES);
  const { address, view } = found;
  const flags = AT_STATX_DONT_SYNC | AT_NO_AUTOMOUNT | (isLink ? AT_SYMLINK_NOFOLLOW : 0);
  if (statxCall(AT_FDCWD, path, flags, STATX_INO, address) !== 0) return undefined;
  const [major, minor] = [view.getUint32(STATX.DEV_MAJOR, true), view.getUint32(STATX.DEV_MINOR, true)];
  return { device: `${major}:${minor}`, ino: Number(view.getBigUint64(STATX.INO, true)) };
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
 * Extends a file to `byteLength` bytes and reserves their space, so that accesses to a mapping cannot fail with SIGBUS for lack of space.
 * @param name of the file, for the error
 * @throws SyscallError ENOSPC, EFBIG, EBADF, EOPNOTSUPP
 */
export function reserveFile(fd: number, byteLength: number, name = `fd ${fd}`): void {
  let pieceBytes = RESERVE_BYTES_MAX;
  for (let done = 0; done < byteLength; ) {
    const length = Math.min(pieceBytes, byteLength - done);
    if (fallocate(fd, 0, done, length) === 0) {
      done += length;
      continue;
    }
    const code = errno();
    if (code !== Errno.EINTR) throw new SyscallError('fallocate', code, `${byteLength} bytes of ${name}`);
    // The kernel reverts an interrupted reservation. If signals arrive faster than a call completes, only smaller calls succeed.
    pieceBytes = Math.max(pieceBytes / 2, PAGE_SIZE);
  }
}
