/** The exception for a failed system call, and the status of an error number on the data path. Frequent calls return `-errno` instead of throwing. */

import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { Errno, errnoName, errnoText } from './errno.ts';
import { sysconf } from './libc.ts';

/** Argument of sysconf for the soft limit of open files. */
const SC_OPEN_MAX = 4;

const STATUS_OF_ERRNO = new Map<number, Status>([
  [Errno.ENOENT, Status.NO_ELEM],
  [Errno.ESRCH, Status.NO_ELEM],
  [Errno.ENXIO, Status.NO_DEVICE],
  [Errno.ENODEV, Status.NO_DEVICE],
  [Errno.EAGAIN, Status.NO_RESOURCE],
  [Errno.EINTR, Status.NO_PROGRESS],
  [Errno.ENOMEM, Status.NO_MEMORY],
  [Errno.ENOBUFS, Status.NO_MEMORY],
  [Errno.ENOSPC, Status.NO_MEMORY],
  [Errno.EFAULT, Status.INVALID_ADDR],
  [Errno.EBUSY, Status.BUSY],
  [Errno.EEXIST, Status.ALREADY_EXISTS],
  // As in UCX.
  [Errno.EADDRINUSE, Status.BUSY],
  [Errno.EINVAL, Status.INVALID_PARAM],
  [Errno.EBADF, Status.INVALID_PARAM],
  [Errno.EDOM, Status.INVALID_PARAM],
  [Errno.ERANGE, Status.OUT_OF_RANGE],
  [Errno.EOVERFLOW, Status.OUT_OF_RANGE],
  [Errno.EMFILE, Status.EXCEEDS_LIMIT],
  [Errno.ENFILE, Status.EXCEEDS_LIMIT],
  [Errno.EMSGSIZE, Status.EXCEEDS_LIMIT],
  [Errno.ENOSYS, Status.UNSUPPORTED],
  [Errno.ENOTTY, Status.UNSUPPORTED],
  [Errno.EOPNOTSUPP, Status.UNSUPPORTED],
  [Errno.EPIPE, Status.CONNECTION_RESET],
  [Errno.ECONNRESET, Status.CONNECTION_RESET],
  [Errno.ECONNABORTED, Status.CONNECTION_RESET],
  [Errno.ESHUTDOWN, Status.CONNECTION_RESET],
  [Errno.ENOTCONN, Status.NOT_CONNECTED],
  [Errno.ECONNREFUSED, Status.REJECTED],
  [Errno.ENETUNREACH, Status.UNREACHABLE],
  [Errno.EHOSTUNREACH, Status.UNREACHABLE],
  [Errno.EADDRNOTAVAIL, Status.UNREACHABLE],
  [Errno.ETIMEDOUT, Status.TIMED_OUT],
  [Errno.ETIME, Status.TIMED_OUT],
  [Errno.EINPROGRESS, Status.INPROGRESS],
  [Errno.ECANCELED, Status.CANCELED],
]);

/** The {@link Status} of a positive error number: IO_ERROR for every number without a closer match (EIO, EPERM, EACCES, ...), OK for 0. */
export function statusOfErrno(errno: number): Status {
  return errno === 0 ? Status.OK : (STATUS_OF_ERRNO.get(errno) ?? Status.IO_ERROR);
}

/** The text of a positive error number. If the process has reached a limit, with that limit: `too many open files, ulimit -n is 64`. */
export function errnoReason(errno: number): string {
  const text = errnoText(errno);
  return errno === Errno.EMFILE ? `${text}, ulimit -n is ${openFilesMax()}` : text;
}

/** Number of descriptors that this process may have open: the soft limit of `ulimit -n`; Infinity if there is no limit. */
export function openFilesMax(): number {
  const limit = sysconf(SC_OPEN_MAX);
  return limit < 0 ? Number.POSITIVE_INFINITY : limit;
}

/**
 * A system call that failed. Code `ERR_SYSCALL_<errno name>`, status by {@link statusOfErrno},
 * message such as `mmap: ENOMEM (cannot allocate memory): 4096 bytes of fd 7 at 0`.
 */
export class SyscallError extends UcxError {
  /** The positive error number, see {@link Errno}. */
  readonly errno: number;
  /** Its name such as `"ENOMEM"`. */
  readonly errnoName: string;
  /** The system call such as `"mmap"`. */
  readonly syscall: string;

  /**
   * @param syscall name of the system call
   * @param errno positive error number
   * @param summary purpose of the call, in a few words
   * @param options `cause`: the error that led to this one; `reason`: text of the error number instead of {@link errnoReason}
   */
  constructor(syscall: string, errno: number, summary: string, options: { cause?: unknown; reason?: string } = {}) {
    const { cause, reason = errnoReason(errno) } = options;
    const name = errnoName(errno);
    super({
      code: `ERR_SYSCALL_${name}`,
      status: statusOfErrno(errno),
      message: `${syscall}: ${name} (${reason}): ${summary}`,
      details: { syscall, errno, errnoName: name },
      cause,
    });
    this.name = 'SyscallError';
    this.errno = errno;
    this.errnoName = name;
    this.syscall = syscall;
  }
}

/** True if `value` is a {@link SyscallError}, also from another copy of this module, with the given error number if one is passed. */
export function isSyscallError(value: unknown, errno?: number): value is SyscallError {
  if (!isUcxError(value) || !value.code.startsWith('ERR_SYSCALL_')) return false;
  return errno === undefined || value.details['errno'] === errno;
}
