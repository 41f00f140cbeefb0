/**
 * Device control by ioctl. No knowledge of devices, no retries: the caller handles EINTR and EAGAIN.
 */

import { errno, ioctlCall } from '../base/libc.ts';

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
 * Runs an ioctl on the libuv thread pool, for calls that block: 25 us more, four at once by default (UV_THREADPOOL_SIZE), and the process
 * cannot exit before the call returns: use bounded time-outs. The argument block belongs to the call until it settles.
 */
export function ioctlAsync(fd: number, request: number, address: number): Promise<number> {
  return new Promise((resolve, reject) => {
    ioctlCall.async(fd, request, address, (error, result) => {
      // koffi restores the errno of the call for its callback.
      if (error) reject(error);
      else resolve(result >= 0 ? result : -errno());
    });
  });
}
