/**
 * The environment of the C libraries. In a worker thread, process.env is a separate copy and never reaches C; in the main thread
 * both are the same.
 */

import { isMainThread } from 'node:worker_threads';
import { invalidParam } from '../../ucs/type/error.ts';
import { errno, getenv, setenv, unsetenv } from '../base/libc.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { close, lockFile, OpenFlag, open } from '../file/file.ts';

/** A file that each process has one of. */
const LOCK_PATH = '/proc/self/status';
/** Number of calls of {@link withEnvironmentLock} that this thread is in. */
let depth = 0;

/**
 * Runs code that changes the environment of C for a while, or reads it: one thread of the process at a time. The lock is of the kernel, so that it ends with
 * its thread.
 * @throws SyscallError if /proc is not mounted, or there are no descriptors
 */
export function withEnvironmentLock<T>(run: () => T): T {
  const fd = depth === 0 ? lockEnvironment() : undefined;
  depth += 1;
  try {
    return run();
  } finally {
    depth -= 1;
    if (fd !== undefined) close(fd);
  }
}

function lockEnvironment(): number {
  const fd = open(LOCK_PATH, OpenFlag.RDONLY);
  try {
    lockFile(fd);
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** The value of a variable; undefined if it is not set. */
export function getEnvironment(name: string): string | undefined {
  return getenv(name) ?? undefined;
}

/**
 * Sets a variable, or removes it (undefined). In the main thread, Node.js blocks its other threads meanwhile: a thread that starts copies the environment,
 * and could read freed memory. A call in a worker thread blocks none, and C threads are never blocked: call it only while they do not read it.
 * @throws UcxError ERR_INVALID_PARAM for a name that is empty or contains `=` or a zero byte, or a value with a zero byte; SyscallError ENOMEM
 */
export function setEnvironment(name: string, value: string | undefined): void {
  if (name === '' || name.includes('=') || name.includes('\0')) {
    throw invalidParam('name', 'must not be empty nor have = or a zero byte', name);
  }
  if (value?.includes('\0')) throw invalidParam('value', 'must not have a zero byte', value);
  if (isMainThread) {
    if (value === undefined) delete process.env[name];
    else process.env[name] = value;
    return;
  }
  const result = value === undefined ? unsetenv(name) : setenv(name, value, 1);
  if (result !== 0) throw new SyscallError(value === undefined ? 'unsetenv' : 'setenv', errno(), name);
}
