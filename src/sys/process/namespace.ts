/** Identity of this process's environment: the boot of the machine, and the namespaces of the process. */

import * as fs from 'node:fs';
import { SyscallError } from '../base/syscall-error.ts';
import { errnoOf } from '../file/file.ts';

const BOOT_ID = '/proc/sys/kernel/random/boot_id';
const IPC_NAMESPACE = '/proc/self/ns/ipc';
const NETWORK_NAMESPACE = '/proc/self/ns/net';
const PID_NAMESPACE = '/proc/self/ns/pid';
const USER_NAMESPACE = '/proc/self/ns/user';
/** PROC_USER_INIT_INO of include/linux/proc_ns.h, Linux 6.12. */
const INITIAL_USER_NAMESPACE = 'user:[4026531837]';
/** Cached: it never changes, and is also needed when no descriptor is free. */
let bootText: string | undefined;

/**
 * Bytes that identify this boot of the machine: equal in all its processes and containers.
 * @returns 16 bytes
 * @throws SyscallError ENOENT without /proc; EMFILE at the first call
 */
export function bootId(): Uint8Array<ArrayBuffer> {
  bootText ??= fromProc(BOOT_ID, () => fs.readFileSync(BOOT_ID, 'latin1'));
  return new Uint8Array(Buffer.from(bootText.trim().replaceAll('-', ''), 'hex'));
}

/** Identifies the pid namespace of this process; unsigned 32 bits. Throws SyscallError ENOENT without /proc. */
export function pidNamespace(): number {
  return namespaceOf(PID_NAMESPACE);
}

/**
 * Whether this process is in the initial user namespace: capabilities in other namespaces do not affect global state. Throws SyscallError ENOENT without /proc.
 */
export function isInitialUserNamespace(): boolean {
  return fromProc(USER_NAMESPACE, () => fs.readlinkSync(USER_NAMESPACE)) === INITIAL_USER_NAMESPACE;
}

/** Identifies the network namespace of this process, which determines its interfaces and ports; unsigned 32 bits. Throws SyscallError ENOENT without /proc. */
export function networkNamespace(): number {
  return namespaceOf(NETWORK_NAMESPACE);
}

/** Identifies the IPC namespace of this process, which determines its System V segments; unsigned 32 bits. Throws SyscallError ENOENT without /proc. */
export function ipcNamespace(): number {
  return namespaceOf(IPC_NAMESPACE);
}

/** The device number of the file system of a path; undefined if the path does not exist. */
export function deviceOfPath(path: string): bigint | undefined {
  return fs.statSync(path, { bigint: true, throwIfNoEntry: false })?.dev;
}

/** Identifies a folder or file for all processes of the machine, whatever its path: 64 bits of device and inode. Undefined if it does not exist. */
export function pathIdentity(path: string): bigint | undefined {
  const found = fs.statSync(path, { bigint: true, throwIfNoEntry: false });
  return found === undefined ? undefined : BigInt.asUintN(64, (found.dev << 32n) ^ found.ino);
}

function namespaceOf(path: string): number {
  const link = fromProc(path, () => fs.readlinkSync(path));
  return Number(/\d+/.exec(link)?.[0] ?? 0) >>> 0;
}

function fromProc<T>(path: string, read: () => T): T {
  try {
    return read();
  } catch (error) {
    throw new SyscallError('open', errnoOf(error), path, { cause: error });
  }
}
