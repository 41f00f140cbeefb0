/**
 * The C library: declarations of the functions that sys/ calls. Internal to sys/ and, with memory views and fd polling, the only place
 * that names koffi. Not an API: no checks, no retries, no typed errors; a wrong address here is a SIGSEGV.
 *
 * Every pointer is an integer and every address a JavaScript Number: the fastest form (16 ns a call), nothing is allocated
 * and `mmap` fails with -1. Variadic functions are declared with the fixed arguments that we pass (sound on x86-64).
 * Binding is eager: 13 us a function, less than a millisecond for all, against 12 ms for loading koffi itself.
 */

import koffi from 'koffi';

const library = koffi.load('libc.so.6');

const POINTER = 'uint64_t';
const SIZE = 'uint64_t';

function declare<F>(name: string, result: string, parameters: string[]): F {
  return library.func(name, result, parameters) as unknown as F;
}

/** The value of `errno`. Meaningful only in the statement after a call that failed: anything may overwrite it. */
export const errno: () => number = koffi.errno;

export const mmap: (
  address: number,
  length: number,
  protection: number,
  flags: number,
  fd: number,
  offset: number | bigint,
) => number = declare('mmap', 'int64_t', [POINTER, SIZE, 'int', 'int', 'int', 'int64_t']);
export const munmap: (address: number, length: number) => number = declare('munmap', 'int', [POINTER, SIZE]);
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

/** An ArrayBuffer over memory that somebody else owns. More than 2^32 bytes abort the process: check before. */
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
