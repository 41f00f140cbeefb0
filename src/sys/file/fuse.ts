/** The kernel connection of a user-space file system (/dev/fuse), and its backing files for passthrough. */

import { fstatSync } from 'node:fs';
import { Errno } from '../base/errno.ts';
import { errno, ioctlCall, read, write } from '../base/libc.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { OpenFlag, open } from './file.ts';

const FUSE_DEVICE = '/dev/fuse';
/** Device number of /dev/fuse: character device 10:229 (`Documentation/admin-guide/devices.txt`). */
const FUSE_NUMBER = (10 << 8) | 229;
/** `include/uapi/linux/fuse.h`: _IOW(229, 1, struct fuse_backing_map) and _IOW(229, 2, uint32_t). */
const FUSE_DEV_IOC_BACKING_OPEN = 0x4010_e501;
const FUSE_DEV_IOC_BACKING_CLOSE = 0x4004_e502;
const BACKING_MAP_BYTES = 16;

/** Opens a new connection, which does not block. Throws SyscallError ENOENT, EACCES, ENODEV without the module. */
export function openFuse(): number {
  return open(FUSE_DEVICE, OpenFlag.RDWR | OpenFlag.NONBLOCK);
}

/** Whether a descriptor is of /dev/fuse, by whatever path it was opened. */
export function isFuse(fd: number): boolean {
  const status = fstatSync(fd);
  return status.isCharacterDevice() && status.rdev === FUSE_NUMBER;
}

/**
 * Reads one request of the kernel.
 * @returns the number of bytes; 0 if there is no request now; -ENODEV after the file system was unmounted, or another -errno
 */
export function readFuse(fd: number, address: number, byteLength: number): number {
  for (;;) {
    const count = read(fd, address, byteLength);
    if (count >= 0) return count;
    const code = errno();
    if (code === Errno.EAGAIN) return 0;
    // ENOENT: the kernel withdrew the request while it was being read.
    if (code !== Errno.EINTR && code !== Errno.ENOENT) return -code;
  }
}

/** Writes one reply. Returns 0, or -errno: -ENOENT if the kernel no longer waits for it. */
export function writeFuse(fd: number, address: number, byteLength: number): number {
  for (;;) {
    if (write(fd, address, byteLength) >= 0) return 0;
    const code = errno();
    if (code !== Errno.EINTR) return -code;
  }
}

/**
 * Registers a backing file for files that are opened with passthrough.
 * @returns the id for the reply to OPEN
 * @throws SyscallError EPERM without CAP_SYS_ADMIN; EOPNOTSUPP, ENOTTY before Linux 6.9
 */
export function openBacking(fuse: number, file: number): number {
  using map = allocateScratch(BACKING_MAP_BYTES);
  map.view.setInt32(0, file, true);
  const id = ioctlCall(fuse, FUSE_DEV_IOC_BACKING_OPEN, map.address);
  if (id < 0) throw new SyscallError('ioctl', errno(), 'FUSE_DEV_IOC_BACKING_OPEN');
  return id;
}

/** Releases a registration. Files opened with it keep the backing file. No effect after the file system was unmounted. */
export function closeBacking(fuse: number, id: number): void {
  using word = allocateScratch(4);
  word.words[0] = id;
  ioctlCall(fuse, FUSE_DEV_IOC_BACKING_CLOSE, word.address);
}
