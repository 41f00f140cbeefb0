/**
 * The C library: declarations of the functions that sys/ calls. Internal to sys/. Arguments are unchecked: a wrong address is a SIGSEGV. The wrapping
 * modules repeat calls that a signal interrupts, so that callers of sys/ see EINTR only from {@link futex} and ioctl.
 *
 * Pointers are integers, and addresses JavaScript Numbers: the fastest form (16 ns a call), without an allocation. So a failed
 * `mmap` returns -1. Variadic functions are declared with the fixed arguments used here (sound on x86-64).
 * Binding is eager: 13 us per function, less than a millisecond for all, compared to 12 ms for loading koffi itself.
 */

import './platform.ts';
import { readFileSync } from 'node:fs';
import { isMainThread } from 'node:worker_threads';
import type Koffi from 'koffi';
import { requireDependency } from '../../ucs/sys/package.ts';
import { Errno } from './errno.ts';

/* The FFI. Loaded without an import, which a bundler would follow, and omit the native code. */

/** The exports of koffi. */
export const koffi: typeof Koffi = requireDependency('koffi') as typeof Koffi;

/*
 * Keeps the FFI in memory until the process ends. Node.js unloads an addon with the last thread that uses it, and afterwards runs the thread's remaining
 * callbacks, such as those for descriptors that the addon polls. If only worker threads use the FFI, such a callback would crash the process at the end of a
 * thread.
 */

const ADDON = /\/.*\/koffi\.node$/gm;
const RTLD_NOW = 2;

if (!isMainThread) {
  const dlopen = koffi.load(null).func('dlopen', 'int64_t', ['str', 'int']);
  // Never closed: the loader counts the handle.
  for (const path of new Set(readFileSync('/proc/self/maps', 'utf8').match(ADDON))) dlopen(path, RTLD_NOW);
}

const library = koffi.load('libc.so.6');

const POINTER = 'uint64_t';
const SIZE = 'uint64_t';

function declare<F>(name: string, result: string, parameters: string[]): F {
  return library.func(name, result, parameters) as F;
}

/** The value of `errno`. Valid only in the statement after a failed call: anything may overwrite it. */
export const errno: () => number = koffi.errno;

/** True if a signal interrupted the call (EINTR) before it had an effect: repeat the call. */
export function isInterrupted(result: number): boolean {
  return result < 0 && errno() === Errno.EINTR;
}

export const mmap: (
  address: number,
  length: number,
  protection: number,
  flags: number,
  fd: number,
  offset: number | bigint,
) => number = declare('mmap', 'int64_t', [POINTER, SIZE, 'int', 'int', 'int', 'int64_t']);
export const munmap: (address: number, length: number) => number = declare('munmap', 'int', [POINTER, SIZE]);
export const shmat: (id: number, address: number, flags: number) => number = declare('shmat', 'int64_t', [
  'int',
  POINTER,
  'int',
]);
export const shmdt: (address: number) => number = declare('shmdt', 'int', [POINTER]);
export const madvise: (address: number, length: number, advice: number) => number = declare('madvise', 'int', [
  POINTER,
  SIZE,
  'int',
]);
export const msync: (address: number, length: number, flags: number) => number = declare('msync', 'int', [
  POINTER,
  SIZE,
  'int',
]);
export const memcpy: (destination: number, source: number, byteLength: number) => void = declare('memcpy', 'void', [
  POINTER,
  POINTER,
  SIZE,
]);
export const memmove: (destination: number, source: number, byteLength: number) => void = declare('memmove', 'void', [
  POINTER,
  POINTER,
  SIZE,
]);
export const memset: (destination: number, byte: number, byteLength: number) => void = declare('memset', 'void', [
  POINTER,
  'int',
  SIZE,
]);
export const memcmp: (left: number, right: number, byteLength: number) => number = declare('memcmp', 'int', [
  POINTER,
  POINTER,
  SIZE,
]);

/** The address of the first byte a view covers; 0 for an empty view. */
export function addressOfView(view: ArrayBufferView): number {
  return Number(koffi.address(view));
}

/** An ArrayBuffer over memory owned by other code. Check the length before: more than 2^32 bytes abort the process. */
export function viewOfMemory(address: number, byteLength: number): ArrayBuffer {
  return koffi.view(address, byteLength);
}

export const ioctlCall: ((fd: number, request: number, address: number) => number) & {
  async(fd: number, request: number, address: number, done: (error: unknown, result: number) => void): void;
} = declare('ioctl', 'int', ['int', 'uint64_t', POINTER]);
export const read: (fd: number, address: number, byteLength: number) => number = declare('read', 'int64_t', [
  'int',
  POINTER,
  SIZE,
]);
export const write: (fd: number, address: number, byteLength: number) => number = declare('write', 'int64_t', [
  'int',
  POINTER,
  SIZE,
]);
/** Reads at an offset of the file; in /proc/<pid>/mem the offset is an address. */
export const preadCall: (fd: number, address: number, byteLength: number, offset: number) => number = declare(
  'pread64',
  'int64_t',
  ['int', POINTER, SIZE, 'int64_t'],
);
export const pwriteCall: (fd: number, address: number, byteLength: number, offset: number) => number = declare(
  'pwrite64',
  'int64_t',
  ['int', POINTER, SIZE, 'int64_t'],
);
type ProcessVm = (
  pid: number,
  localIov: number,
  localCount: number,
  remoteIov: number,
  remoteCount: number,
  flags: number,
) => number;
const PROCESS_VM_PARAMETERS = ['int', POINTER, SIZE, POINTER, SIZE, 'uint64_t'];
export const processVmReadv: ProcessVm = declare('process_vm_readv', 'int64_t', PROCESS_VM_PARAMETERS);
export const processVmWritev: ProcessVm = declare('process_vm_writev', 'int64_t', PROCESS_VM_PARAMETERS);

/*
 * Descriptors are opened and closed here and never by node:fs. In a worker thread, node:fs keeps a list of the descriptors that it opened, warns if it closes
 * others, and at the end of the thread closes those left on the list, even if the number belongs to another file by then.
 */
export const openCall: (path: string, flags: number, mode: number) => number = declare('open', 'int', [
  'str',
  'int',
  'uint32_t',
]);
export const closeCall: (fd: number) => number = declare('close', 'int', ['int']);
export const mkfifoCall: (path: string, mode: number) => number = declare('mkfifo', 'int', ['str', 'uint32_t']);

export const memfdCreateCall: (name: string, flags: number) => number = declare('memfd_create', 'int', [
  'str',
  'uint32_t',
]);
export const ftruncateCall: (fd: number, byteLength: number | bigint) => number = declare('ftruncate', 'int', [
  'int',
  'int64_t',
]);
export const fallocate: (fd: number, mode: number, offset: number | bigint, byteLength: number | bigint) => number =
  declare('fallocate', 'int', ['int', 'int', 'int64_t', 'int64_t']);
export const fcntlCall: (fd: number, command: number, argument: number) => number = declare('fcntl', 'int', [
  'int',
  'int',
  'int64_t',
]);
export const flock: (fd: number, operation: number) => number = declare('flock', 'int', ['int', 'int']);
export const pipe2Call: (address: number, flags: number) => number = declare('pipe2', 'int', [POINTER, 'int']);
export const pollCall: (address: number, count: number, timeoutMs: number) => number = declare('poll', 'int', [
  POINTER,
  SIZE,
  'int',
]);
export const eventfd: (initial: number, flags: number) => number = declare('eventfd', 'int', ['uint32_t', 'int']);
export const epollCreate: (flags: number) => number = declare('epoll_create1', 'int', ['int']);
export const epollControl: (epoll: number, operation: number, fd: number, event: number) => number = declare(
  'epoll_ctl',
  'int',
  ['int', 'int', 'int', POINTER],
);
export const epollWait: (epoll: number, events: number, count: number, timeoutMs: number) => number = declare(
  'epoll_wait',
  'int',
  ['int', POINTER, 'int', 'int'],
);
/** `syscall(SYS_futex, ...)`: the C library has no wrapper for it. */
export const futex: (
  number: number,
  address: number,
  operation: number,
  value: number,
  timeout: number,
  address2: number,
  value3: number,
) => number = declare('syscall', 'int64_t', ['int64_t', POINTER, 'int', 'uint32_t', POINTER, POINTER, 'uint32_t']);

export const socket: (domain: number, type: number, protocol: number) => number = declare('socket', 'int', [
  'int',
  'int',
  'int',
]);
export const socketpair: (domain: number, type: number, protocol: number, address: number) => number = declare(
  'socketpair',
  'int',
  ['int', 'int', 'int', POINTER],
);
export const bind: (fd: number, address: number, byteLength: number) => number = declare('bind', 'int', [
  'int',
  POINTER,
  'uint32_t',
]);
export const connect: (fd: number, address: number, byteLength: number) => number = declare('connect', 'int', [
  'int',
  POINTER,
  'uint32_t',
]);
export const listen: (fd: number, backlog: number) => number = declare('listen', 'int', ['int', 'int']);
export const accept4: (fd: number, address: number, byteLength: number, flags: number) => number = declare(
  'accept4',
  'int',
  ['int', POINTER, POINTER, 'int'],
);
export const sendmsg: (fd: number, message: number, flags: number) => number = declare('sendmsg', 'int64_t', [
  'int',
  POINTER,
  'int',
]);
export const recvmsg: (fd: number, message: number, flags: number) => number = declare('recvmsg', 'int64_t', [
  'int',
  POINTER,
  'int',
]);
export const getsockopt: (fd: number, level: number, option: number, value: number, length: number) => number = declare(
  'getsockopt',
  'int',
  ['int', 'int', 'int', POINTER, POINTER],
);

export const setsockopt: (fd: number, level: number, option: number, value: number, length: number) => number = declare(
  'setsockopt',
  'int',
  ['int', 'int', 'int', POINTER, 'uint32_t'],
);
export const getsockname: (fd: number, address: number, length: number) => number = declare('getsockname', 'int', [
  'int',
  POINTER,
  POINTER,
]);
export const getpeername: (fd: number, address: number, length: number) => number = declare('getpeername', 'int', [
  'int',
  POINTER,
  POINTER,
]);
export const send: (fd: number, address: number, byteLength: number, flags: number) => number = declare(
  'send',
  'int64_t',
  ['int', POINTER, SIZE, 'int'],
);
export const recv: (fd: number, address: number, byteLength: number, flags: number) => number = declare(
  'recv',
  'int64_t',
  ['int', POINTER, SIZE, 'int'],
);
export const shutdownCall: (fd: number, how: number) => number = declare('shutdown', 'int', ['int', 'int']);
export const inetPton: (family: number, text: string, address: number) => number = declare('inet_pton', 'int', [
  'int',
  'str',
  POINTER,
]);
/** The result, a pointer or 0, is not used: the string is in the target. */
export const inetNtop: (family: number, address: number, target: number, byteLength: number) => number = declare(
  'inet_ntop',
  'uint64_t',
  ['int', POINTER, POINTER, 'uint32_t'],
);
export const ifNameToIndex: (name: string) => number = declare('if_nametoindex', 'uint32_t', ['str']);
export const ifIndexToName: (index: number, target: number) => number = declare('if_indextoname', 'uint64_t', [
  'uint32_t',
  POINTER,
]);

export const sysconf: (name: number) => number = declare('sysconf', 'int64_t', ['int']);
export const prctl: (option: number, argument: number) => number = declare('prctl', 'int', ['int', 'uint64_t']);
export const gettidCall: () => number = declare('gettid', 'int', []);
export const schedYieldCall: () => number = declare('sched_yield', 'int', []);
export const schedSetaffinityCall: (tid: number, byteLength: number, mask: number) => number = declare(
  'sched_setaffinity',
  'int',
  ['int', SIZE, POINTER],
);
export const schedGetaffinityCall: (tid: number, byteLength: number, mask: number) => number = declare(
  'sched_getaffinity',
  'int',
  ['int', SIZE, POINTER],
);
/** `syscall(SYS_pidfd_open, ...)`: the C library has a wrapper only since 2.36. */
export const pidfdOpenCall: (number: number, pid: number, flags: number) => number = declare('syscall', 'int64_t', [
  'int64_t',
  'int',
  'uint32_t',
]);
/** Value of an environment variable; null if it is not set. */
export const getenv: (name: string) => string | null = declare('getenv', 'str', ['str']);
export const setenv: (name: string, value: string, overwrite: number) => number = declare('setenv', 'int', [
  'str',
  'str',
  'int',
]);
export const unsetenv: (name: string) => number = declare('unsetenv', 'int', ['str']);
/** Opens a stream that writes to a growing buffer; 0 on failure. */
export const openMemstream: (text: number, byteLength: number) => number = declare('open_memstream', 'int64_t', [
  POINTER,
  POINTER,
]);
export const fclose: (stream: number) => number = declare('fclose', 'int', ['int64_t']);
export const free: (address: number) => void = declare('free', 'void', [POINTER]);
export const kill: (pid: number, signal: number) => number = declare('kill', 'int', ['int', 'int']);
export const clockGettime: (clock: number, address: number) => number = declare('clock_gettime', 'int', [
  'int',
  POINTER,
]);

type Text = string | null;
export const mountCall: (source: Text, target: string, type: Text, flags: number, data: Text) => number = declare(
  'mount',
  'int',
  ['str', 'str', 'str', 'uint64_t', 'str'],
);
export const umount2: (target: string, flags: number) => number = declare('umount2', 'int', ['str', 'int']);
export const unshareCall: (flags: number) => number = declare('unshare', 'int', ['int']);
export const signalCall: (signal: number, handler: number) => number = declare('signal', 'int64_t', ['int', 'int64_t']);
/** Returns only if it fails. */
export const execvp: (file: string, argv: number) => number = declare('execvp', 'int', ['str', POINTER]);
/** `syscall(SYS_pidfd_getfd, ...)`: the C library has a wrapper only since 2.36. */
export const pidfdGetfdCall: (number: number, pidfd: number, fd: number, flags: number) => number = declare(
  'syscall',
  'int64_t',
  ['int64_t', 'int', 'int', 'uint32_t'],
);
export const statxCall: (directory: number, path: string, flags: number, mask: number, address: number) => number =
  declare('statx', 'int', ['int', 'str', 'int', 'uint32_t', POINTER]);
/** `syscall(SYS_seccomp, ...)`: the C library has no wrapper for it. */
export const seccompCall: (number: number, operation: number, flags: number, address: number) => number = declare(
  'syscall',
  'int64_t',
  ['int64_t', 'uint32_t', 'uint32_t', POINTER],
);
/** Address of a loaded function, with library 0; 0 if there is no such function. Looked up in the process, because libc.so.6 has it only since glibc 2.34. */
export const dlsym: (library: number, name: string) => number = koffi
  .load(null)
  .func('dlsym', 'int64_t', ['int64_t', 'str']);
