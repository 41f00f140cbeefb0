import { readFileSync } from 'node:fs';
import { describe, expect, it } from 'vitest';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { Errno } from './errno.ts';
import { isSyscallError, SyscallError, statusOfErrno } from './syscall-error.ts';

describe('SyscallError', () => {
  it('contains call, number, name, text and arguments', () => {
    const error = new SyscallError('mmap', Errno.ENOMEM, '4096 bytes of fd 7 at 0');
    expect(error.message).toBe('mmap: ENOMEM (cannot allocate memory): 4096 bytes of fd 7 at 0');
    expect(error).toMatchObject({
      name: 'SyscallError',
      code: 'ERR_SYSCALL_ENOMEM',
      status: Status.NO_MEMORY,
      errno: 12,
      errnoName: 'ENOMEM',
      syscall: 'mmap',
    });
    expect(isUcxError(error)).toBe(true);
  });

  it('has the limit of open files if the process has reached it', () => {
    const limit = /^Max open files +(\d+)/m.exec(readFileSync('/proc/self/limits', 'latin1'))![1];
    expect(new SyscallError('open', Errno.EMFILE, '/dev/null').message).toBe(
      `open: EMFILE (too many open files, ulimit -n is ${limit}): /dev/null`,
    );
  });

  it('is recognised by its number', () => {
    const error = new SyscallError('open', Errno.ENODEV, '/dev/accel/accel0');
    expect(isSyscallError(error)).toBe(true);
    expect(isSyscallError(error, Errno.ENODEV)).toBe(true);
    expect(isSyscallError(error, Errno.ENOENT)).toBe(false);
    expect(isSyscallError(new TypeError('x'))).toBe(false);
    const details = { errno: Errno.ENODEV };
    const other = new UcxError({ code: 'ERR_NO_DEVICE', status: Status.NO_DEVICE, message: 'no card', details });
    expect([isSyscallError(other), isSyscallError(other, Errno.ENODEV)]).toEqual([false, false]);
  });
});

describe('statusOfErrno', () => {
  it.each([
    [0, Status.OK],
    [Errno.ENOMEM, Status.NO_MEMORY],
    [Errno.EINVAL, Status.INVALID_PARAM],
    [Errno.EFAULT, Status.INVALID_ADDR],
    [Errno.EBUSY, Status.BUSY],
    [Errno.EAGAIN, Status.NO_RESOURCE],
    [Errno.ENODEV, Status.NO_DEVICE],
    [Errno.EADDRINUSE, Status.BUSY],
    [Errno.ECONNREFUSED, Status.REJECTED],
    [Errno.ECONNRESET, Status.CONNECTION_RESET],
    [Errno.ETIMEDOUT, Status.TIMED_OUT],
    [Errno.EACCES, Status.IO_ERROR],
    [4095, Status.IO_ERROR],
  ])('maps %d to %d', (errno, status) => {
    expect(statusOfErrno(errno)).toBe(status);
  });
});
