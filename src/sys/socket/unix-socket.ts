/**
 * Unix-domain sockets that transfer descriptors (SCM_RIGHTS) and report the peer's credentials (SO_PEERCRED). Nonblocking; to wait, see pollReadable. For small
 * control messages: every message goes through one staging buffer of 64 KiB.
 */

import { rmSync } from 'node:fs';
import { closedError, invalidParam } from '../../ucs/type/error.ts';
import { Errno } from '../base/errno.ts';
import {
  accept4,
  bind,
  connect,
  errno,
  getsockopt,
  isInterrupted,
  listen,
  recvmsg,
  sendmsg,
  socket,
  socketpair,
} from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, noteDescriptor } from '../base/thread-resources.ts';

const AF_UNIX = 1;
const SOCK_NONBLOCK_CLOEXEC = 0o2004000;
const SOL_SOCKET = 1;
const SCM_RIGHTS = 1;
const SO_PEERCRED = 17;
const MSG_CTRUNC = 0x08;
const MSG_TRUNC = 0x20;
const MSG_NOSIGNAL = 0x4000;
const MSG_CMSG_CLOEXEC = 0x40000000;
/** Maximum number of bytes of the path of a socket. */
export const PATH_BYTES_MAX = 107;

/** Maximum number of descriptors in one message (SCM_MAX_FD of Linux). */
export const MESSAGE_FDS_MAX = 253;
/** Maximum number of bytes in one message here. */
export const MESSAGE_BYTES_MAX = 65536;

/** Kinds of sockets: `include/linux/net.h`. SEQPACKET keeps the boundaries of messages. */
export const SocketType = { STREAM: 1, DGRAM: 2, SEQPACKET: 5 } as const;
/** One of the values of {@link SocketType}. */
export type SocketType = (typeof SocketType)[keyof typeof SocketType];

/** Credentials of the peer, as reported by the kernel. */
export interface PeerCredentials {
  readonly pid: number;
  readonly uid: number;
  readonly gid: number;
}

// Layout of the staging block: struct msghdr (56 bytes), struct iovec (16), struct cmsghdr (16) with its descriptors, the bytes.
const IOVEC = 64;
const CONTROL = 128;
const CONTROL_HEADER_BYTES = 16;
const CONTROL_BYTES_MAX = CONTROL_HEADER_BYTES + 4 * MESSAGE_FDS_MAX + 4;
const PAYLOAD = 2048;
let staging: ScratchBlock | undefined;

/** A connected socket. */
export class UnixSocket implements Disposable {
  /** Descriptor for poll; owned by this object. */
  readonly fd: number;
  readonly type: SocketType;
  #closed = false;

  /** Takes ownership of a connected, nonblocking descriptor. */
  constructor(fd: number, type: SocketType) {
    this.fd = fd;
    this.type = type;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /**
   * Sends bytes and descriptors. The receiver gets duplicates of the descriptors; the sender keeps and closes its own.
   * @param data at least one byte; at most {@link MESSAGE_BYTES_MAX} for SEQPACKET, more is sent in part for STREAM
   * @param fds at most {@link MESSAGE_FDS_MAX}
   * @returns bytes sent, for STREAM possibly fewer than given (the descriptors are sent with the first); or -errno: -EAGAIN if the
   * receiver's queue is full, -EPIPE or -ECONNRESET if it has closed, -EBADF for an invalid descriptor, -ETOOMANYREFS
   * @throws UcxError ERR_CLOSED, ERR_INVALID_PARAM
   */
  sendmsg(data: Uint8Array, fds: readonly number[] = []): number {
    if (this.#closed) throw closedError('UnixSocket');
    if (data.byteLength === 0) throw invalidParam('data', 'must have at least one byte', data.byteLength);
    if (data.byteLength > MESSAGE_BYTES_MAX && this.type === SocketType.SEQPACKET) {
      throw invalidParam('data', `must have at most ${MESSAGE_BYTES_MAX} bytes`, data.byteLength);
    }
    if (fds.length > MESSAGE_FDS_MAX) throw invalidParam('fds', `must be at most ${MESSAGE_FDS_MAX}`, fds.length);
    const block = stage();
    const byteLength = Math.min(data.byteLength, MESSAGE_BYTES_MAX);
    block.u8.set(byteLength === data.byteLength ? data : data.subarray(0, byteLength), PAYLOAD);
    const controlBytes = fds.length === 0 ? 0 : CONTROL_HEADER_BYTES + 4 * fds.length;
    setMessage(block, byteLength, controlBytes);
    if (controlBytes !== 0) {
      block.view.setBigUint64(CONTROL, BigInt(controlBytes), true);
      block.view.setInt32(CONTROL + 8, SOL_SOCKET, true);
      block.view.setInt32(CONTROL + 12, SCM_RIGHTS, true);
      for (const [index, fd] of fds.entries()) {
        block.view.setInt32(CONTROL + CONTROL_HEADER_BYTES + 4 * index, fd, true);
      }
    }
    let sent: number;
    do sent = sendmsg(this.fd, block.address, MSG_NOSIGNAL);
    while (isInterrupted(sent));
    return sent >= 0 ? sent : -errno();
  }

  /**
   * Receives one message (SEQPACKET) or the available bytes (STREAM).
   * @param target for the bytes; the rest of a longer message is lost, see -EMSGSIZE
   * @param fds the received descriptors are appended: close-on-exec, owned by the caller
   * @returns bytes, 0 if the peer has closed; or -errno: -EAGAIN if nothing is available, -ECONNRESET, -EMSGSIZE if `target` was too short for the message or
   *   not all of its descriptors could be received (those received are closed, and none is appended)
   * @throws UcxError ERR_CLOSED
   */
  recvmsg(target: Uint8Array, fds: number[]): number {
    if (this.#closed) throw closedError('UnixSocket');
    const block = stage();
    setMessage(block, Math.min(target.byteLength, MESSAGE_BYTES_MAX), CONTROL_BYTES_MAX);
    let received: number;
    do received = recvmsg(this.fd, block.address, MSG_CMSG_CLOEXEC);
    while (isInterrupted(received));
    if (received < 0) return -errno();
    const flags = block.view.getInt32(48, true);
    const arrived = receivedDescriptors(block);
    if ((flags & (MSG_CTRUNC | MSG_TRUNC)) !== 0) {
      for (const fd of arrived) closeDescriptor(fd);
      return -Errno.EMSGSIZE;
    }
    for (const fd of arrived) fds.push(fd);
    target.set(block.u8.subarray(PAYLOAD, PAYLOAD + received));
    return received;
  }

  /** The process that made the other end, recorded at connect, listen or socketpair. Throws UcxError ERR_CLOSED, SyscallError. */
  peerCredentials(): PeerCredentials {
    if (this.#closed) throw closedError('UnixSocket');
    const block = stage();
    const { view, address } = block;
    view.setUint32(0, 12, true);
    if (getsockopt(this.fd, SOL_SOCKET, SO_PEERCRED, address + IOVEC, address) !== 0) {
      throw new SyscallError('getsockopt', errno(), `SO_PEERCRED of fd ${this.fd}`);
    }
    return {
      pid: view.getInt32(IOVEC, true),
      uid: view.getUint32(IOVEC + 4, true),
      gid: view.getUint32(IOVEC + 8, true),
    };
  }

  /** Closes the socket; the peer reads an end of file after the sent data. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeDescriptor(this.fd);
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** A listening socket. Made by {@link listenUnix}. */
export class UnixListener implements Disposable {
  /** Descriptor for poll: readable when a client is waiting. Owned by this object. */
  readonly fd: number;
  readonly path: string;
  readonly type: SocketType;
  #closed = false;

  constructor(fd: number, path: string, type: SocketType) {
    this.fd = fd;
    this.path = path;
    this.type = type;
  }

  /**
   * Accepts the next connection.
   * @returns undefined if no client is waiting
   * @throws UcxError ERR_CLOSED; SyscallError EMFILE, ENFILE, ENOMEM
   */
  accept(): UnixSocket | undefined {
    if (this.#closed) throw closedError('UnixListener');
    let fd: number;
    do fd = accept4(this.fd, 0, 0, SOCK_NONBLOCK_CLOEXEC);
    while (isInterrupted(fd));
    if (fd >= 0) return new UnixSocket(noteDescriptor(fd), this.type);
    const code = errno();
    if (code === Errno.EAGAIN || code === Errno.ECONNABORTED) return undefined;
    throw new SyscallError('accept4', code, this.path);
  }

  /** Stops listening and removes the path. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    closeDescriptor(this.fd);
    if (!isAbstract(this.path)) rmSync(this.path, { force: true });
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/** Two sockets that are connected to each other. Throws SyscallError EMFILE, ENFILE. */
export function unixSocketPair(type: SocketType): [UnixSocket, UnixSocket] {
  const block = stage();
  if (socketpair(AF_UNIX, type | SOCK_NONBLOCK_CLOEXEC, 0, block.address) !== 0) {
    throw new SyscallError('socketpair', errno(), `type ${type}`);
  }
  return [new UnixSocket(noteDescriptor(block.words[0]!), type), new UnixSocket(noteDescriptor(block.words[1]!), type)];
}

/**
 * Listens at a path, whose permissions decide which users may connect, or at an abstract name (first character `\0`), to which any user may connect.
 * @throws UcxError ERR_INVALID_PARAM (path longer than 107 bytes); SyscallError EADDRINUSE (the path exists), EACCES, ENOENT
 */
export function listenUnix(path: string, type: SocketType, backlog = 128): UnixListener {
  const addressBytes = setAddress(path);
  const fd = newSocket(type);
  const code = bind(fd, stage().address, addressBytes) === 0 && listen(fd, backlog) === 0 ? 0 : errno();
  if (code !== 0) {
    closeDescriptor(fd);
    throw new SyscallError('bind', code, path);
  }
  return new UnixListener(fd, path, type);
}

/**
 * Connects to a listener. Does not wait.
 * @throws UcxError ERR_INVALID_PARAM; SyscallError ENOENT, ECONNREFUSED (no listener), EAGAIN (its backlog is full), EACCES, EPROTOTYPE (it has another socket
 *   type)
 */
export function connectUnix(path: string, type: SocketType): UnixSocket {
  const addressBytes = setAddress(path);
  const fd = newSocket(type);
  let result: number;
  // An interrupted call leaves nothing queued, so it can be repeated: a Unix socket connects within the call.
  do result = connect(fd, stage().address, addressBytes);
  while (isInterrupted(result));
  const code = result === 0 ? 0 : errno();
  if (code !== 0) {
    closeDescriptor(fd);
    throw new SyscallError('connect', code, path);
  }
  return new UnixSocket(fd, type);
}

function newSocket(type: SocketType): number {
  const fd = noteDescriptor(socket(AF_UNIX, type | SOCK_NONBLOCK_CLOEXEC, 0));
  if (fd < 0) throw new SyscallError('socket', errno(), `AF_UNIX type ${type}`);
  return fd;
}

function isAbstract(path: string): boolean {
  return path.startsWith('\0');
}

/** Writes the struct sockaddr_un of `path` to the start of the staging block. Returns its length. */
function setAddress(path: string): number {
  const bytes = Buffer.from(path);
  if (bytes.byteLength === 0 || bytes.byteLength > PATH_BYTES_MAX) {
    throw invalidParam('path', `must have 1 to ${PATH_BYTES_MAX} bytes`, path);
  }
  const { u8, view } = stage();
  view.setUint16(0, AF_UNIX, true);
  u8.set(bytes, 2);
  u8[2 + bytes.byteLength] = 0;
  return 2 + bytes.byteLength + (isAbstract(path) ? 0 : 1);
}

function stage(): ScratchBlock {
  staging ??= allocateScratch(PAYLOAD + MESSAGE_BYTES_MAX);
  return staging;
}

/** Fills the struct msghdr and its single iovec. */
function setMessage({ view, address }: ScratchBlock, byteLength: number, controlBytes: number): void {
  view.setBigUint64(0, 0n, true);
  view.setUint32(8, 0, true);
  view.setBigUint64(16, BigInt(address + IOVEC), true);
  view.setBigUint64(24, 1n, true);
  view.setBigUint64(32, controlBytes === 0 ? 0n : BigInt(address + CONTROL), true);
  view.setBigUint64(40, BigInt(controlBytes), true);
  view.setInt32(48, 0, true);
  view.setBigUint64(IOVEC, BigInt(address + PAYLOAD), true);
  view.setBigUint64(IOVEC + 8, BigInt(byteLength), true);
}

/** The descriptors in the control messages of a received message. */
function receivedDescriptors({ view }: ScratchBlock): number[] {
  const fds: number[] = [];
  const end = CONTROL + Number(view.getBigUint64(40, true));
  let header = CONTROL;
  while (header + CONTROL_HEADER_BYTES <= end) {
    const length = Number(view.getBigUint64(header, true));
    if (length < CONTROL_HEADER_BYTES) break;
    if (view.getInt32(header + 8, true) === SOL_SOCKET && view.getInt32(header + 12, true) === SCM_RIGHTS) {
      for (let at = header + CONTROL_HEADER_BYTES; at + 4 <= header + length; at += 4)
        fds.push(noteDescriptor(view.getInt32(at, true)));
    }
    header += Math.ceil(length / 8) * 8;
  }
  return fds;
}
