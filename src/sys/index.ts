/** Linux system calls for Node.js. Only this folder uses the FFI. */

export {
  DynamicLibrary,
  functionAt,
  lastErrno,
  NativeCallback,
  type NativeCallbackFunction,
  type NativeCallbackInit,
  type NativeType,
  openNativeCallbacks,
  textAt,
} from './base/dynamic-library.ts';
export { Errno, type ErrnoName, errnoName, errnoText } from './base/errno.ts';
export {
  type AnonymousOptions,
  type FileMappingOptions,
  isOwnMapping,
  MappedMemory,
  type MappedMemoryStatistics,
  mapAnonymous,
  mapFile,
  mappedMemoryStatistics,
  outlivesThread,
  PAGE_SIZE,
  VIEW_LENGTH_MAX,
  viewAt,
} from './base/mapped-memory.ts';
export { allocateScratch, ScratchBlock, type ScratchStatistics, scratchStatistics } from './base/scratch.ts';
export { errnoReason, isSyscallError, openFilesMax, SyscallError, statusOfErrno } from './base/syscall-error.ts';
export { forgetDescriptor, isThreadAlive, noteDescriptor, releaseAbandonedMappings } from './base/thread-resources.ts';
export { EventFd } from './event/event-fd.ts';
export { EVENTS_MAX, EventSet, ReadyFor } from './event/event-set.ts';
export { FUTEX_TIMEOUT_NS_MAX, futexWait, futexWake } from './event/futex.ts';
export { EventAlarm, PollSubscription, pollReadable } from './event/poll.ts';
export {
  close,
  dup,
  errnoOf,
  type FileIdentity,
  fcntl,
  fstat,
  ioctl,
  ioctlAsync,
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
  readlink,
  setCloexec,
  tryLockFile,
  write,
} from './file/file.ts';
export {
  type DescriptorFile,
  descriptorFile,
  FileKind,
  type FileStatus,
  fileStatus,
  mkfifo,
  pathFile,
  reserveFile,
  STATX,
} from './file/file-status.ts';
export { closeBacking, isFuse, openBacking, openFuse, readFuse, writeFuse } from './file/fuse.ts';
export {
  type MountEntry,
  MountFlag,
  type MountOptions,
  mount,
  readMounts,
  unmount,
  unshareMounts,
} from './file/mount.ts';
export { type HostDmabufDevice, Udmabuf } from './file/udmabuf.ts';
export { attachSegment, detachSegment, ForeignMemory } from './memory/foreign-memory.ts';
export {
  addSeals,
  ftruncate,
  getSeals,
  type MemfdOptions,
  memfdCreate,
  punchHole,
  SealFlag,
  textWrittenBy,
} from './memory/memfd.ts';
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
  OWN_ADDRESS_SPACE,
  openAddressSpace,
  populateWritable,
  readAddressSpace,
  writeAddressSpace,
} from './memory/memory.ts';
export { type ProcessMapping, ProcessMaps } from './memory/process-maps.ts';
export {
  type FileRange,
  mapLarge,
  mapShareable,
  mapSharedWindow,
  ShareableMemory,
  type SharedWindow,
  shareableAt,
  shareableRange,
  unmapLarge,
} from './memory/shared-window.ts';
export {
  bootId,
  deviceOfPath,
  ipcNamespace,
  isInitialUserNamespace,
  networkNamespace,
  pathIdentity,
  pidNamespace,
} from './process/namespace.ts';
export {
  allowMemoryAccess,
  avoidOomKiller,
  clockMonotonicRawNs,
  execute,
  getEnvironment,
  getpid,
  gettid,
  isProcessAlive,
  isProcessStopped,
  isProcessTraced,
  pidfdGetfd,
  pidfdOpen,
  processCommand,
  processExists,
  processOfThread,
  processStartTime,
  schedGetAffinity,
  schedSetAffinity,
  schedYield,
  setEnvironment,
  setParentDeathSignal,
  waitAtSignals,
  withEnvironmentLock,
} from './process/process.ts';
export {
  hasEnded,
  isOwn,
  ownIdentity,
  PROCESS_IDENTITY_BYTES,
  type ProcessIdentity,
  packIdentity,
  unpackIdentity,
} from './process/process-identity.ts';
export {
  type BpfInstruction,
  CALL_RECORD_BYTES,
  installSeccompFilter,
  isSeccompListener,
  SeccompListener,
} from './process/seccomp.ts';
export { hasWorker, startWorker } from './process/worker-thread.ts';
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
} from './socket/inet-address.ts';
export {
  getSocketOption,
  SocketOption,
  setKeepalive,
  setSocketOption,
  sourceAddressTo,
  TCP_PIECES_MAX,
  TcpPieces,
  tcpAccept,
  tcpAckedMs,
  tcpBind,
  tcpClose,
  tcpConnect,
  tcpConnectError,
  tcpError,
  tcpIsEstablished,
  tcpListen,
  tcpLocalAddress,
  tcpRecv,
  tcpRemoteAddress,
  tcpSend,
  tcpShutdown,
  tcpSocket,
  tcpUnreadBytes,
} from './socket/tcp-socket.ts';
export {
  connectUnix,
  listenUnix,
  MESSAGE_BYTES_MAX,
  MESSAGE_FDS_MAX,
  PATH_BYTES_MAX,
  type PeerCredentials,
  SocketType,
  UnixListener,
  UnixSocket,
  unixSocketPair,
} from './socket/unix-socket.ts';
