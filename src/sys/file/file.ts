/** Files and descriptors by number, for the control path: a read that fails takes microseconds. ioctl is not retried: the caller handles EINTR and EAGAIN. */

import * as fs from 'node:fs';
import { asError } from '../../ucs/type/error.ts';
import { Errno } from '../base/errno.ts';
import { errno, fcntlCall, flock, ioctlCall, isInterrupted, openCall, pipe2Call, pollCall } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, noteDescriptor } from '../base/thread-resources.ts';

const F_GETFD = 1;
const F_SETFD = 2;
const F_GETFL = 3;
const F_SETFL = 4;
const F_DUPFD_CLOEXEC = 1030;
const FD_CLOEXEC = 1;
const LOCK_EX = 2;
const LOCK_NB = 4;

/** Flags of {@link open} and {@link pipe2}: `include/uapi/asm-generic/fcntl.h`. */
export const OpenFlag = {
  RDONLY: 0,
  WRONLY: 1,
  RDWR: 2,
  CREAT: 0o100,
  EXCL: 0o200,
  TRUNC: 0o1000,
  APPEND: 0o2000,
  NONBLOCK: 0o4000,
  NOFOLLOW: 0o400000,
  CLOEXEC: 0o2000000,
  PATH: 0o10000000,
} as const;

/** Maximum wait of one call: neither process.exit() nor worker.terminate() can interrupt it. */
export const POLL_TIMEOUT_MS_MAX = 100;

/** Events of {@link pollNow}: `include/uapi/asm-generic/poll.h`. */
export const PollEvent = { IN: 0x01, PRI: 0x02, OUT: 0x04, ERR: 0x08, HUP: 0x10, NVAL: 0x20, RDHUP: 0x2000 } as const;

/** Identity of a file, the same for all its descriptors. */
export interface FileIdentity {
  /** Device that holds the inode. */
  readonly dev: bigint;
  readonly ino: bigint;
  /** Device number of a device node; 0 for other files. */
  readonly rdev: bigint;
}

/**
 * Opens a file; always close-on-exec.
 * @param mode permissions of a file that is created
 * @returns the fd, which the caller owns
 * @throws SyscallError as open(2)
 */
export function open(path: string, flags: number, mode = 0o600): number {
  let fd: number;
  do fd = openCall(path, flags | OpenFlag.CLOEXEC, mode);
  while (isInterrupted(fd));
  if (fd < 0) throw new SyscallError('open', errno(), path);
  return noteDescriptor(fd);
}

/**
 * Closes a descriptor opened by this folder; descriptors opened by node:fs must be closed by node:fs.
 * @throws SyscallError EBADF: a double close, which is a bug of the caller
 */
export function close(fd: number): void {
  const result = closeDescriptor(fd);
  // Even if a signal interrupts the call, Linux has closed the descriptor: its number may be in use again.
  if (result !== 0 && !isInterrupted(result)) throw new SyscallError('close', errno(), `fd ${fd}`);
}

/** Reads at the file position into `target`. Returns the number of bytes, 0 at the end, or -errno (-EAGAIN if no data is available). */
export function read(fd: number, target: Uint8Array): number {
  return negativeErrno(() => fs.readSync(fd, target));
}

/** Reads at `offset` into `target`. Returns the number of bytes, 0 at the end, or -errno. */
export function pread(fd: number, target: Uint8Array, offset: number): number {
  return negativeErrno(() => fs.readSync(fd, target, 0, target.byteLength, offset));
}

/** Writes at the file position. Returns the number of bytes, possibly fewer than given, or -errno. */
export function write(fd: number, source: Uint8Array): number {
  return negativeErrno(() => fs.writeSync(fd, source));
}

/** Writes at `offset`. Returns the number of bytes, possibly fewer than given, or -errno. */
export function pwrite(fd: number, source: Uint8Array, offset: number): number {
  return negativeErrno(() => fs.writeSync(fd, source, 0, source.byteLength, offset));
}

/** A new close-on-exec descriptor of the same open file. Throws SyscallError EBADF, EMFILE. */
export function dup(fd: number): number {
  return noteDescriptor(fcntl(fd, F_DUPFD_CLOEXEC, 0));
}

/** Runs one fcntl with an integer argument. Returns its result. Throws SyscallError. */
export function fcntl(fd: number, command: number, argument: number): number {
  const result = fcntlCall(fd, command, argument);
  if (result < 0) throw new SyscallError('fcntl', errno(), `command ${command} of fd ${fd}`);
  return result;
}

/** Whether the descriptor is closed on exec. Throws SyscallError EBADF. */
export function isCloexec(fd: number): boolean {
  return (fcntl(fd, F_GETFD, 0) & FD_CLOEXEC) !== 0;
}

/** Sets whether the descriptor is closed on exec. Throws SyscallError EBADF. */
export function setCloexec(fd: number, cloexec: boolean): void {
  fcntl(fd, F_SETFD, cloexec ? FD_CLOEXEC : 0);
}

/** Makes reads and writes of an open file wait, for all its descriptors. Throws SyscallError EBADF. */
export function setBlocking(fd: number): void {
  fcntl(fd, F_SETFL, fcntl(fd, F_GETFL, 0) & ~OpenFlag.NONBLOCK);
}

/** The target of a symbolic link. Throws SyscallError as readlink(2). */
export function readlink(path: string): string {
  try {
    return fs.readlinkSync(path);
  } catch (error) {
    throw new SyscallError('readlink', errnoOf(error), path, { cause: error });
  }
}

/** The identity of the file behind a descriptor. Throws SyscallError EBADF. */
export function fstat(fd: number): FileIdentity {
  try {
    const { dev, ino, rdev } = fs.fstatSync(fd, { bigint: true });
    return { dev, ino, rdev };
  } catch (error) {
    throw new SyscallError('fstat', errnoOf(error), `fd ${fd}`, { cause: error });
  }
}

/**
 * Takes the exclusive lock of an open file, without waiting. The lock ends with the last descriptor of the open file, however the process ends.
 * @returns false if another open file holds it
 * @throws SyscallError EBADF, ENOLCK
 */
export function tryLockFile(fd: number): boolean {
  let result: number;
  do result = flock(fd, LOCK_EX | LOCK_NB);
  while (isInterrupted(result));
  if (result === 0) return true;
  const code = errno();
  if (code === Errno.EAGAIN) return false;
  throw new SyscallError('flock', code, `fd ${fd}`);
}

/**
 * Takes the exclusive lock of an open file: waits until no other open file holds it.
 * @throws SyscallError EBADF, ENOLCK
 */
export function lockFile(fd: number): void {
  let result: number;
  do result = flock(fd, LOCK_EX);
  while (isInterrupted(result));
  if (result !== 0) throw new SyscallError('flock', errno(), `fd ${fd}`);
}

let fdPair: ScratchBlock | undefined;
let pollRecord: ScratchBlock | undefined;

/**
 * Makes a pipe.
 * @param flags of {@link OpenFlag}: CLOEXEC by default, NONBLOCK
 * @returns the reading end and the writing end, which the caller owns
 * @throws SyscallError EMFILE, ENFILE
 */
export function pipe2(flags: number = OpenFlag.CLOEXEC): [number, number] {
  fdPair ??= allocateScratch(8);
  if (pipe2Call(fdPair.address, flags) !== 0) throw new SyscallError('pipe2', errno(), `flags 0o${flags.toString(8)}`);
  return [noteDescriptor(fdPair.words[0]!), noteDescriptor(fdPair.words[1]!)];
}

/**
 * Polls `events` without waiting.
 * @param events bits of {@link PollEvent}
 * @returns the bits that are set (including ERR, HUP and NVAL): never negative, so that the result can be tested as a mask. Signals have no effect.
 */
export function pollNow(fd: number, events: number): number {
  let ready = pollOnce(fd, events, 0);
  while (ready < 0) ready = pollOnce(fd, events, 0);
  return ready;
}

/**
 * Waits for one of `events`. Blocks the thread and its event loop: for short times only.
 * @param timeoutMs milliseconds, at most {@link POLL_TIMEOUT_MS_MAX}
 * @returns the bits that are set (including ERR, HUP and NVAL): never negative; 0 on time-out, or earlier if a signal ends the wait
 */
export function pollFor(fd: number, events: number, timeoutMs: number): number {
  return Math.max(pollOnce(fd, events, Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX)), 0);
}

/** One call: the bits, or -1 if a signal has interrupted it. An invalid descriptor is not a failure: NVAL. */
function pollOnce(fd: number, events: number, timeoutMs: number): number {
  pollRecord ??= allocateScratch(8);
  pollRecord.words[0] = fd;
  pollRecord.words[1] = events;
  const count = pollCall(pollRecord.address, 1, timeoutMs);
  if (count >= 0) return pollRecord.words[1]! >>> 16;
  if (!isInterrupted(count)) throw new SyscallError('poll', errno(), `fd ${fd}`);
  return -1;
}

/** Number of open descriptors of this process; a test without leaks leaves it unchanged. */
export function openFileDescriptors(): number {
  // Reading the folder itself opens one descriptor.
  return fs.readdirSync('/proc/self/fd').length - 1;
}

/** The errno of an error of node:fs; other errors, such as an invalid argument, are rethrown. */
export function errnoOf(error: unknown): number {
  const { errno } = asError(error);
  if (errno !== undefined) return Math.abs(errno);
  throw error;
}

/** Runs a call of node:fs and returns its result or -errno. Repeats it after a signal: libuv does that for writing, but not for reading. */
function negativeErrno(call: () => number): number {
  for (;;) {
    try {
      return call();
    } catch (error) {
      const code = errnoOf(error);
      if (code !== Errno.EINTR) return -code;
    }
  }
}

/**
 * Runs one ioctl, blocking this thread as long as the driver does.
 * @param request the request number, unsigned 32 bits
 * @param address of the argument block, which must not move: scratch memory or a mapping
 * @returns the result of the driver (0 or more), or -errno
 */
export function ioctl(fd: number, request: number, address: number): number {
  const result = ioctlCall(fd, request, address);
  return result >= 0 ? result : -errno();
}

/**
 * Runs an ioctl on the libuv thread pool, for calls that block. Costs 25 us more; four at once by default (UV_THREADPOOL_SIZE). The process cannot exit before
 * the call returns: use bounded time-outs. The call owns the argument block until it settles.
 */
export function ioctlAsync(fd: number, request: number, address: number): Promise<number> {
  return new Promise((resolve, reject) => {
    ioctlCall.async(fd, request, address, (error, result) => {
      // Before the callback, koffi restores the errno of the call.
      if (error) reject(error);
      else resolve(result >= 0 ? result : -errno());
    });
  });
}
