/** Dma-bufs of host memory: creation from memfds by /dev/udmabuf, and recognition of their descriptors. */

import { accessSync, constants, fstatSync, statfsSync } from 'node:fs';
import { Errno, errnoName } from '../base/errno.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-resources.ts';
import { close, errnoOf, ioctl, OpenFlag, open } from './file.ts';

/** `_IOW('u', 0x42, struct udmabuf_create)`: `include/uapi/linux/udmabuf.h`. */
const UDMABUF_CREATE = 0x4018_7542;
const UDMABUF_FLAGS_CLOEXEC = 1;
/** `struct udmabuf_create`: memfd, flags, offset, size. */
const CREATE_BYTES = 24;
/** The file system of dma-bufs: `include/uapi/linux/magic.h`. */
const DMA_BUF_MAGIC = 0x444d_4142;

/** Creates and recognises dma-bufs of host memory. */
export interface HostDmabufDevice {
  /** The reason why the device cannot create dma-bufs; undefined if it can. */
  readonly unavailableReason: string | undefined;
  /**
   * Creates a dma-buf of a range of a memfd that is sealed against shrinking. The pages exist as long as the dma-buf.
   * @param offset a multiple of the page size, like `byteLength`
   * @returns a new close-on-exec descriptor, owned by the caller
   * @throws SyscallError ENOENT, EACCES, EMFILE, ENOMEM; EINVAL for a memfd without that seal, and for more bytes than the module allows (size_limit_mb);
   *   EBADFD for a descriptor that is not a memfd
   */
  create(memfd: number, offset: number, byteLength: number): number;
  /**
   * The size of a dma-buf in bytes; undefined for any other descriptor.
   * @throws SyscallError EBADF
   */
  byteLengthOf(fd: number): number | undefined;
}

/** The /dev/udmabuf device of the kernel. */
export class Udmabuf implements HostDmabufDevice {
  readonly #path: string;

  constructor(path = '/dev/udmabuf') {
    this.#path = path;
  }

  get unavailableReason(): string | undefined {
    const path = this.#path;
    try {
      accessSync(path, constants.R_OK | constants.W_OK);
      return undefined;
    } catch (error) {
      const code = errnoOf(error);
      if (code === Errno.ENOENT) return `${path} does not exist: load the udmabuf module`;
      return `this user cannot open ${path} (${errnoName(code)})`;
    }
  }

  create(memfd: number, offset: number, byteLength: number): number {
    const device = open(this.#path, OpenFlag.RDWR | OpenFlag.CLOEXEC);
    const block = allocateScratch(CREATE_BYTES);
    try {
      block.view.setInt32(0, memfd, true);
      block.view.setUint32(4, UDMABUF_FLAGS_CLOEXEC, true);
      block.view.setBigUint64(8, BigInt(offset), true);
      block.view.setBigUint64(16, BigInt(byteLength), true);
      const fd = ioctl(device, UDMABUF_CREATE, block.address);
      if (fd < 0)
        throw new SyscallError('ioctl', -fd, `UDMABUF_CREATE of ${byteLength} bytes at ${offset} on ${this.#path}`);
      return noteDescriptor(fd);
    } finally {
      block.free();
      close(device);
    }
  }

  byteLengthOf(fd: number): number | undefined {
    try {
      // The size of the file equals that of the dma-buf since Linux 5.3.
      const { size } = fstatSync(fd);
      return statfsSync(`/proc/self/fd/${fd}`).type === DMA_BUF_MAGIC ? size : undefined;
    } catch (error) {
      throw new SyscallError('fstat', errnoOf(error), `fd ${fd}`, { cause: error });
    }
  }
}
