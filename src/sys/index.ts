/**
 * Linux system calls for Node.js: the one folder that uses the FFI. Re-exports only.
 */

export { DynamicLibrary, type NativeType, textAt } from './dynamic-library.ts';
export { getEnvironment, setEnvironment } from './environment.ts';
export { Errno, type ErrnoName, errnoName, errnoText } from './errno.ts';
export { EventAlarm } from './event-alarm.ts';
export { EventFd } from './event-fd.ts';
export { EVENTS_MAX, EventSet, ReadyFor } from './event-set.ts';
export { execute } from './execute.ts';
export {
  close,
  dup,
  type FileIdentity,
  fcntl,
  fstat,
  isCloexec,
  OpenFlag,
  open,
  openFileDescriptors,
  POLL_TIMEOUT_MS_MAX,
  PollEvent,
  pipe2,
  pollFor,
  pollNow,
  pread,
  pwrite,
  read,
  setCloexec,
  tryLockFile,
  write,
} from './file.ts';
export { FileKind, type FileStatus, fileStatus, mkfifo, reserveFile } from './file-status.ts';
export { ForeignMemory } from './foreign-memory.ts';
export { closeBacking, openBacking, openFuse, readFuse, writeFuse } from './fuse.ts';
export { FUTEX_TIMEOUT_NS_MAX, futexWait, futexWake } from './futex.ts';
export {
  AddressFamily,
  addressBytes,
  addressText,
  familyOf,
  type InetAddress,
  packSockaddr,
  printAddress,
  SOCKADDR_BYTES_MAX,
  unpackSockaddr,
} from './inet-address.ts';
export { ioctl, ioctlAsync } from './ioctl.ts';
export {
  type AnonymousOptions,
  type FileMappingOptions,
  isOwnMapping,
  MappedMemory,
  type MappedMemoryStatistics,
  mapAnonymous,
  mapFile,
  mappedMemoryStatistics,
  PAGE_SIZE,
  VIEW_LENGTH_MAX,
  viewAt,
} from './mapped-memory.ts';
export { addSeals, ftruncate, getSeals, type MemfdOptions, memfdCreate, punchHole, SealFlag } from './memfd.ts';
export {
  addressOf,
  copyFromProcess,
  copyToProcess,
  isMapped,
  isProcessMemoryReadable,
  isReadable,
  MadviseAdvice,
  madvise,
  memcmp,
  memcpy,
  memmove,
  memset,
} from './memory.ts';
export { textWrittenBy } from './memory-stream.ts';
export {
  type MountEntry,
  MountFlag,
  type MountOptions,
  mount,
  readMounts,
  unmount,
  unshareMounts,
} from './mount.ts';
export { bootId, deviceOfPath, networkNamespace, pidNamespace } from './namespace.ts';
export {
  NativeCallback,
  type NativeCallbackFunction,
  type NativeCallbackInit,
  openNativeCallbacks,
} from './native-callback.ts';
export { PollSubscription, pollReadable } from './poll.ts';
export {
  allowMemoryAccess,
  clockMonotonicRawNs,
  getpid,
  gettid,
  isProcessAlive,
  pidfdGetfd,
  pidfdOpen,
  processCommand,
  processExists,
  processOfThread,
  processStartTime,
  schedGetAffinity,
  schedSetAffinity,
  schedYield,
  setParentDeathSignal,
} from './process.ts';
export { allocateScratch, ScratchBlock, type ScratchStatistics, scratchStatistics } from './scratch.ts';
export { type BpfInstruction, installSeccompFilter, SeccompListener } from './seccomp.ts';
export { type FileRange, mapShareable, ShareableMemory, shareableRange } from './shareable-memory.ts';
export { mapLarge, mapSharedWindow, type SharedWindow, unmapLarge } from './shared-window.ts';
export { isSyscallError, SyscallError, statusOfErrno } from './syscall-error.ts';
export {
  GATHER_MAX,
  getSocketOption,
  SocketOption,
  setKeepalive,
  setSocketOption,
  sourceAddressTo,
  TcpGather,
  tcpAccept,
  tcpAckedMs,
  tcpBind,
  tcpClose,
  tcpConnect,
  tcpError,
  tcpIsEstablished,
  tcpListen,
  tcpLocalAddress,
  tcpReceivedMs,
  tcpRecv,
  tcpRemoteAddress,
  tcpSend,
  tcpShutdown,
  tcpSocket,
  tcpUnreadBytes,
} from './tcp-socket.ts';
export { closeAbandonedDescriptors, isThreadAlive } from './thread-descriptors.ts';
export { type HostDmabufDevice, Udmabuf } from './udmabuf.ts';
export {
  connectUnix,
  listenUnix,
  MESSAGE_BYTES_MAX,
  MESSAGE_FDS_MAX,
  type PeerCredentials,
  SocketType,
  UnixListener,
  UnixSocket,
  unixSocketPair,
} from './unix-socket.ts';
export { startWorker } from './worker-thread.ts';
