/**
 * Files and descriptors by number. Control path: a read that fails costs microseconds. Mapping is in mapped-memory.ts.
 */

import * as fs from 'node:fs';
import { closeDescriptor } from './descriptor.ts';
import { Errno } from './errno.ts';
import { errno, fcntlCall, flock, isInterrupted, openCall, pipe2Call, pollCall } from './libc.ts';
import { allocateScratch, type ScratchBlock } from './scratch.ts';
import { SyscallError } from './syscall-error.ts';
import { noteDescriptor } from './thread-descriptors.ts';

const F_GETFD = 1;
const F_SETFD = 2;
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

/** The longest wait of one call: neither process.exit() nor worker.terminate() can interrupt one. */
export const POLL_TIMEOUT_MS_MAX = 100;

/** Events of {@link pollNow}: `include/uapi/asm-generic/poll.h`. */
export const PollEvent = { IN: 0x01, PRI: 0x02, OUT: 0x04, ERR: 0x08, HUP: 0x10, NVAL: 0x20, RDHUP: 0x2000 } as const;

/** What tells two descriptors of the same file from two files. */
export interface FileIdentity {
  /** Device that holds the inode. */
  readonly dev: bigint;
  readonly ino: bigint;
  /** Device that the inode is, for device nodes; 0 otherwise. */
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
 * Closes a descriptor that came from this folder; what node:fs opened, node:fs must close.
 * @throws SyscallError EBADF: a double close, which is a bug of the caller
 */
export function close(fd: number): void {
  const result = closeDescriptor(fd);
  // Linux has closed it also where a signal interrupts the call: the number may be in use again.
  if (result !== 0 && !isInterrupted(result)) throw new SyscallError('close', errno(), `fd ${fd}`);
}

/** Reads at the file position into `target`. Returns bytes, 0 at the end, or -errno (-EAGAIN when nothing is there yet). */
export function read(fd: number, target: Uint8Array): number {
  return negativeErrno(() => fs.readSync(fd, target));
}

/** Reads at `offset` into `target`. Returns bytes, 0 at the end, or -errno. */
export function pread(fd: number, target: Uint8Array, offset: number): number {
  return negativeErrno(() => fs.readSync(fd, target, 0, target.byteLength, offset));
}

/** Writes at the file position. Returns bytes, maybe fewer than given, or -errno. */
export function write(fd: number, source: Uint8Array): number {
  return negativeErrno(() => fs.writeSync(fd, source));
}

/** Writes at `offset`. Returns bytes, maybe fewer than given, or -errno. */
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

/** Whether the descriptor is closed when a program is executed. Throws SyscallError EBADF. */
export function isCloexec(fd: number): boolean {
  return (fcntl(fd, F_GETFD, 0) & FD_CLOEXEC) !== 0;
}

/** Sets whether the descriptor is closed when a program is executed. Throws SyscallError EBADF. */
export function setCloexec(fd: number, cloexec: boolean): void {
  fcntl(fd, F_SETFD, cloexec ? FD_CLOEXEC : 0);
}

/** The identity of the file behind a descriptor. Throws SyscallError EBADF. */
export function fstat(fd: number): FileIdentity {
  try {
    const { dev, ino, rdev } = fs.fstatSync(fd, { bigint: true });
    return { dev, ino, rdev };
  } catch (error) {
    throw new SyscallError('fstat', errnoOf(error), `fd ${fd}`, error);
  }
}

/**
 * Takes the exclusive lock of an open file, without waiting. It ends with the last descriptor of the open file, however the process ends.
 * @returns false when another open file has it
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
 * Which of `events` are there, without waiting.
 * @param events bits of {@link PollEvent}
 * @returns the bits that are set (ERR, HUP and NVAL unasked): never negative, so that it can be tested as a mask. A signal has no effect.
 */
export function pollNow(fd: number, events: number): number {
  let ready = pollOnce(fd, events, 0);
  while (ready < 0) ready = pollOnce(fd, events, 0);
  return ready;
}

/**
 * Waits until one of `events` is there. Blocks the thread with its event loop: for short times.
 * @param timeoutMs milliseconds, at most {@link POLL_TIMEOUT_MS_MAX}
 * @returns the bits that are set (ERR, HUP and NVAL unasked): never negative; 0 after the time, or earlier where a signal ends the wait
 */
export function pollFor(fd: number, events: number, timeoutMs: number): number {
  return Math.max(pollOnce(fd, events, Math.min(timeoutMs, POLL_TIMEOUT_MS_MAX)), 0);
}

/** One call: the bits, or -1 when a signal has interrupted it. A descriptor that is not open is no failure: NVAL. */
function pollOnce(fd: number, events: number, timeoutMs: number): number {
  pollRecord ??= allocateScratch(8);
  pollRecord.words[0] = fd;
  pollRecord.words[1] = events;
  const count = pollCall(pollRecord.address, 1, timeoutMs);
  if (count >= 0) return pollRecord.words[1]! >>> 16;
  if (!isInterrupted(count)) throw new SyscallError('poll', errno(), `fd ${fd}`);
  return -1;
}

/** How many descriptors this process has open: equal before and after a test that leaks none. */
export function openFileDescriptors(): number {
  // Listing the folder opens one.
  return fs.readdirSync('/proc/self/fd').length - 1;
}

/** The errno that Node put into an error of node:fs; other errors, such as a bad argument, are thrown on. */
export function errnoOf(error: unknown): number {
  if (error instanceof Error && 'errno' in error && typeof error.errno === 'number') return Math.abs(error.errno);
  throw error;
}

/** Made again after a signal: libuv does that for writing, but not for reading. */
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
