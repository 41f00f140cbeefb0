/**
 * Linux system calls for Node.js: the one folder that knows the FFI. Re-exports only.
 */

export { Errno, type ErrnoName, errnoName, errnoText } from './errno.ts';
export { ioctl, ioctlAsync } from './ioctl.ts';
export {
  type AnonymousOptions,
  type FileMappingOptions,
  MappedMemory,
  type MappedMemoryStatistics,
  mapAnonymous,
  mapFile,
  mappedMemoryStatistics,
  PAGE_SIZE,
  VIEW_LENGTH_MAX,
  viewAt,
} from './mapped-memory.ts';
export {
  addressOf,
  copyFromProcess,
  copyToProcess,
  isMapped,
  isReadable,
  MadviseAdvice,
  madvise,
  memcmp,
  memcpy,
  memmove,
  memset,
} from './memory.ts';
export { allocateScratch, ScratchBlock, type ScratchStatistics, scratchStatistics } from './scratch.ts';
export { isSyscallError, SyscallError, statusOfErrno } from './syscall-error.ts';
