/** Anonymous files in memory, for sharing between processes and for mapping; and capture of the output that a C function writes to a stream (FILE *). */

import {
  addressOfView,
  errno,
  fallocate,
  fclose,
  fcntlCall,
  free,
  ftruncateCall,
  isInterrupted,
  memcpy,
  memfdCreateCall,
  openMemstream,
} from '../base/libc.ts';
import { signedOffset } from '../base/mapped-memory.ts';
import { allocateScratch } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-resources.ts';

const MFD_CLOEXEC = 1;
const MFD_ALLOW_SEALING = 2;
const F_ADD_SEALS = 1033;
const F_GET_SEALS = 1034;
const FALLOC_FL_KEEP_SIZE_PUNCH_HOLE = 3;

/** Seals of a memfd: `include/uapi/linux/fcntl.h`. */
export const SealFlag = {
  SEAL: 0x01,
  SHRINK: 0x02,
  GROW: 0x04,
  WRITE: 0x08,
  FUTURE_WRITE: 0x10,
} as const;

export interface MemfdOptions {
  /** Close it on exec. Default true. */
  readonly cloexec?: boolean;
  /** Allow {@link addSeals}. Default false. */
  readonly sealing?: boolean;
}

/**
 * Creates an empty file in memory, which exists as long as a descriptor or a mapping of it.
 * @param name shown in /proc/<pid>/maps, at most 249 bytes, need not be unique
 * @returns the fd, which the caller owns
 * @throws SyscallError EMFILE, ENFILE, EINVAL (name too long), ENOMEM
 */
export function memfdCreate(name: string, options: MemfdOptions = {}): number {
  const flags = (options.cloexec === false ? 0 : MFD_CLOEXEC) | (options.sealing === true ? MFD_ALLOW_SEALING : 0);
  const fd = noteDescriptor(memfdCreateCall(name, flags));
  if (fd < 0) throw new SyscallError('memfd_create', errno(), name);
  return fd;
}

/**
 * Sets the length of a file; added bytes read as zeros and take no memory. Shrinking a mapped file causes a SIGBUS in processes that access it.
 * @param byteLength up to 2^63 - 1; above 2^53 as bigint
 * @throws SyscallError EBADF, EINVAL, EPERM (sealed), EFBIG
 */
export function ftruncate(fd: number, byteLength: number | bigint): void {
  const length = signedOffset(byteLength, 'byteLength');
  let result: number;
  do result = ftruncateCall(fd, length);
  while (isInterrupted(result));
  if (result !== 0) {
    throw new SyscallError('ftruncate', errno(), `fd ${fd} to ${byteLength} bytes`);
  }
}

/**
 * Frees the memory of a range of a file, which reads as zeros afterwards, also through mappings. The length of the file does not change.
 * @throws SyscallError EBADF, EINVAL, EPERM (sealed against writing), EOPNOTSUPP
 */
export function punchHole(fd: number, offset: number | bigint, byteLength: number | bigint): void {
  const [start, length] = [signedOffset(offset), signedOffset(byteLength, 'byteLength')];
  let result: number;
  do result = fallocate(fd, FALLOC_FL_KEEP_SIZE_PUNCH_HOLE, start, length);
  while (isInterrupted(result));
  if (result !== 0) {
    throw new SyscallError('fallocate', errno(), `hole of ${byteLength} bytes at ${offset} in fd ${fd}`);
  }
}

/**
 * Prohibits kinds of changes permanently, see {@link SealFlag}.
 * @throws SyscallError EBADF, EPERM (made without `sealing`, or sealed by SEAL), EBUSY (WRITE while mapped writable), EINVAL
 */
export function addSeals(fd: number, seals: number): void {
  if (fcntlCall(fd, F_ADD_SEALS, seals) !== 0) {
    throw new SyscallError('fcntl', errno(), `add seals 0x${seals.toString(16)} to fd ${fd}`);
  }
}

/** The seals of a memfd. Throws SyscallError EBADF, EINVAL (not a memfd). */
export function getSeals(fd: number): number {
  const seals = fcntlCall(fd, F_GET_SEALS, 0);
  if (seals < 0) throw new SyscallError('fcntl', errno(), `seals of fd ${fd}`);
  return seals;
}

/**
 * Returns the output that a function writes to a stream.
 * @param write receives the address of the stream, which is valid during the call
 * @throws SyscallError ENOMEM; exceptions of `write`
 */
export function textWrittenBy(write: (stream: number) => void): string {
  // Where the C library stores the address and the length of the output.
  using place = allocateScratch(16);
  place.u8.fill(0);
  const stream = openMemstream(place.address, place.address + 8);
  if (stream === 0) throw new SyscallError('open_memstream', errno(), 'memory');
  try {
    try {
      write(stream);
    } finally {
      fclose(stream);
    }
    const bytes = new Uint8Array(Number(place.view.getBigUint64(8, true)));
    if (bytes.byteLength > 0) memcpy(addressOfView(bytes), Number(place.view.getBigUint64(0, true)), bytes.byteLength);
    return Buffer.from(bytes.buffer).toString('utf8');
  } finally {
    free(Number(place.view.getBigUint64(0, true)));
  }
}
