/** Identity of a process for its peers: pid, start time and pid namespace, packed into a fixed number of bytes for names, keys and addresses. */

import { pidNamespace } from './namespace.ts';
import { getpid, isProcessAlive, processStartTime } from './process.ts';

/** Bytes of a packed identity: namespace, pid, start time. */
export const PROCESS_IDENTITY_BYTES = 16;

export interface ProcessIdentity {
  /** Inode of the pid namespace. */
  readonly pidNamespace: number;
  readonly pid: number;
  /** Clock ticks since boot; unique together with the pid. */
  readonly startTime: number;
}

let own: ProcessIdentity | undefined;

/** The identity of this process. Throws SyscallError ENOENT on a machine without /proc. */
export function ownIdentity(): ProcessIdentity {
  own ??= { pidNamespace: pidNamespace(), pid: getpid(), startTime: processStartTime(getpid()) ?? 0 };
  return own;
}

/** Whether an identity is that of this process. */
export function isOwn(identity: ProcessIdentity): boolean {
  const { pidNamespace: namespace, pid, startTime } = ownIdentity();
  return identity.pidNamespace === namespace && identity.pid === pid && identity.startTime === startTime;
}

/** Whether the process has certainly ended; false for a process of another pid namespace, whose state is unknown. */
export function hasEnded(identity: ProcessIdentity): boolean {
  if (isOwn(identity) || identity.pidNamespace !== ownIdentity().pidNamespace) return false;
  return !isProcessAlive(identity.pid, identity.startTime);
}

/** Writes {@link PROCESS_IDENTITY_BYTES} bytes at `offset`. */
export function packIdentity(identity: ProcessIdentity, target: Uint8Array, offset: number): void {
  const view = new DataView(target.buffer, target.byteOffset + offset, PROCESS_IDENTITY_BYTES);
  view.setUint32(0, identity.pidNamespace, true);
  view.setUint32(4, identity.pid, true);
  view.setBigUint64(8, BigInt(identity.startTime), true);
}

/** Reads an identity; the caller has checked the length. An impossible start time gives an identity that matches no process. */
export function unpackIdentity(bytes: Uint8Array, offset: number): ProcessIdentity {
  const view = new DataView(bytes.buffer, bytes.byteOffset + offset, PROCESS_IDENTITY_BYTES);
  return {
    pidNamespace: view.getUint32(0, true),
    pid: view.getUint32(4, true),
    startTime: Number(view.getBigUint64(8, true)),
  };
}
