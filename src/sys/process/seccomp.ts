/**
 * System calls executed by a supervisor (seccomp user notification, Linux 5.9 and newer). The caller provides the filter and the results.
 *
 * Source: include/uapi/linux/seccomp.h and kernel/seccomp.c, Linux 6.12.
 */

import { readlinkSync } from 'node:fs';
import { Errno } from '../base/errno.ts';
import { errno, ioctlCall, seccompCall } from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { noteDescriptor } from '../base/thread-resources.ts';
import { OpenFlag } from '../file/file.ts';

const SYS_SECCOMP = 317;
const SECCOMP_SET_MODE_FILTER = 1;
const FLAG_NEW_LISTENER = 0x08;
/** With this flag, non-fatal signals can interrupt a call only until the supervisor has received it (Linux 5.19). */
const FLAG_WAIT_KILLABLE_RECV = 0x20;
const NOTIF_RECV = 0xc050_2100;
const NOTIF_SEND = 0xc018_2101;
const NOTIF_ID_VALID = 0x4008_2102;
const NOTIF_ADDFD = 0x4018_2103;
const NOTIF_SET_FLAGS = 0x4008_2104;
/** The supervisor runs on the processor of the caller, which waits for it (Linux 6.6). */
const SYNC_WAKE_UP = 1;
const USER_NOTIF_FLAG_CONTINUE = 1;

/** Offsets and sizes of struct seccomp_notif, seccomp_notif_resp and seccomp_notif_addfd. */
/** Bytes of a {@link SeccompListener.record}. */
export const CALL_RECORD_BYTES = 80;
const NOTIF = { ID: 0, PID: 8, NUMBER: 16, ARGS: 32, BYTES: CALL_RECORD_BYTES } as const;
const RESPONSE = { ID: 0, VALUE: 8, ERROR: 16, FLAGS: 20, BYTES: 24 } as const;
const ADDFD = { ID: 0, FLAGS: 8, SOURCE: 12, TARGET: 16, TARGET_FLAGS: 20, BYTES: 24 } as const;
const INSTRUCTION_BYTES = 8;
/** Target of the /proc link of a supervisor's descriptor. */
const LISTENER_LINK = 'anon_inode:seccomp notify';

/** Whether a descriptor is that of a supervisor, as returned by {@link installSeccompFilter}. */
export function isSeccompListener(fd: number): boolean {
  return readlinkSync(`/proc/self/fd/${fd}`) === LISTENER_LINK;
}

/** An instruction of a classic BPF program: struct sock_filter. */
export interface BpfInstruction {
  readonly code: number;
  readonly jumpTrue: number;
  readonly jumpFalse: number;
  readonly value: number;
}

/**
 * Installs a filter for this thread and the processes that it starts, which also survives execve. It cannot be removed.
 * @returns the descriptor of the supervisor, close-on-exec. When it is closed, the filtered calls fail with ENOSYS.
 * @throws SyscallError EACCES without CAP_SYS_ADMIN, EBUSY if a filter of this thread has a supervisor, EINVAL for an invalid filter or before Linux 5.0
 */
export function installSeccompFilter(program: readonly BpfInstruction[]): number {
  using block = allocateScratch(16 + program.length * INSTRUCTION_BYTES);
  const { view, address } = block;
  view.setUint16(0, program.length, true);
  view.setBigUint64(8, BigInt(address + 16), true);
  for (const [index, { code, jumpTrue, jumpFalse, value }] of program.entries()) {
    const at = 16 + index * INSTRUCTION_BYTES;
    view.setUint16(at, code, true);
    view.setUint8(at + 2, jumpTrue);
    view.setUint8(at + 3, jumpFalse);
    view.setUint32(at + 4, value, true);
  }
  for (const flags of [FLAG_NEW_LISTENER | FLAG_WAIT_KILLABLE_RECV, FLAG_NEW_LISTENER]) {
    const fd = seccompCall(SYS_SECCOMP, SECCOMP_SET_MODE_FILTER, flags, address);
    if (fd >= 0) {
      // Unknown before Linux 6.6, where a call costs a wake-up on another processor.
      ioctlCall(fd, NOTIF_SET_FLAGS, SYNC_WAKE_UP);
      return noteDescriptor(fd);
    }
    const code = errno();
    // Before Linux 5.19 the second flag is invalid.
    if (code !== Errno.EINVAL || flags === FLAG_NEW_LISTENER) {
      throw new SyscallError('seccomp', code, 'SECCOMP_SET_MODE_FILTER');
    }
  }
  throw new SyscallError('seccomp', Errno.EINVAL, 'SECCOMP_SET_MODE_FILTER');
}

/** The supervisor's end of filters: receives calls and replies to them. */
export class SeccompListener {
  /** Descriptor for poll, owned by this object: readable while calls are waiting. */
  readonly fd: number;
  readonly #notif: ScratchBlock = allocateScratch(NOTIF.BYTES);
  readonly #response: ScratchBlock = allocateScratch(RESPONSE.BYTES);
  readonly #addfd: ScratchBlock = allocateScratch(ADDFD.BYTES);
  /** Thread and number of the call that {@link receive} has received last. */
  tid = 0;
  number = 0;
  #id = 0n;

  /** Takes ownership of the descriptor. */
  constructor(fd: number) {
    this.fd = fd;
  }

  /** Receives one waiting call; false if none is waiting. Poll first. */
  receive(): boolean {
    const { u8, address } = this.#notif;
    u8.fill(0);
    if (ioctlCall(this.fd, NOTIF_RECV, address) !== 0) return false;
    this.#read();
    return true;
  }

  /** The received call as bytes, with which another process that has the descriptor can {@link take} it over. */
  get record(): Uint8Array {
    return this.#notif.u8;
  }

  /** Takes over a call that another process has received. */
  take(record: Uint8Array): void {
    this.#notif.u8.set(record);
    this.#read();
  }

  /** Whether the call of a record still waits for its result. */
  isWaiting(record: Uint8Array): boolean {
    const { u8, address } = this.#response;
    u8.set(record.subarray(NOTIF.ID, NOTIF.ID + 8));
    return ioctlCall(this.fd, NOTIF_ID_VALID, address) === 0;
  }

  /** An argument of the received call as an unsigned number; exact below 2^53. */
  argument(index: number): number {
    return Number(this.bigArgument(index));
  }

  /** An argument of the received call, unsigned. */
  bigArgument(index: number): bigint {
    return this.#notif.view.getBigUint64(NOTIF.ARGS + 8 * index, true);
  }

  /** Makes the kernel run the call as if there were no filter. */
  proceed(): void {
    this.#respond(0, 0, USER_NOTIF_FLAG_CONTINUE);
  }

  /** Completes the call: with `value`, or with an errno if `error` is not 0. */
  answer(value: number, error: number): void {
    this.#respond(value, error, 0);
  }

  /**
   * Gives the caller a descriptor of an open file of this process.
   * @returns its number in the caller; or -errno: -EMFILE, -ENOENT if the caller no longer waits
   */
  addDescriptor(fd: number, cloexec: boolean): number {
    const { view, address } = this.#addfd;
    view.setBigUint64(ADDFD.ID, this.#id, true);
    view.setUint32(ADDFD.FLAGS, 0, true);
    view.setInt32(ADDFD.SOURCE, fd, true);
    view.setInt32(ADDFD.TARGET, 0, true);
    view.setUint32(ADDFD.TARGET_FLAGS, cloexec ? OpenFlag.CLOEXEC : 0, true);
    const given = ioctlCall(this.fd, NOTIF_ADDFD, address);
    return given >= 0 ? given : -errno();
  }

  /** Frees the memory of this object; the descriptor stays open. */
  free(): void {
    for (const block of [this.#notif, this.#response, this.#addfd]) block.free();
  }

  #read(): void {
    const { view } = this.#notif;
    this.#id = view.getBigUint64(NOTIF.ID, true);
    this.tid = view.getUint32(NOTIF.PID, true);
    this.number = view.getInt32(NOTIF.NUMBER, true);
  }

  #respond(value: number, error: number, flags: number): void {
    const { view, address } = this.#response;
    view.setBigUint64(RESPONSE.ID, this.#id, true);
    view.setBigInt64(RESPONSE.VALUE, BigInt(value), true);
    view.setInt32(RESPONSE.ERROR, -error, true);
    view.setUint32(RESPONSE.FLAGS, flags, true);
    // ENOENT is ignored: the caller was killed meanwhile and needs no reply.
    ioctlCall(this.fd, NOTIF_SEND, address);
  }
}
