/**
 * TCP sockets by descriptor, nonblocking: connect, listen, accept, send and receive by address, options. Frequent calls return `-errno` and allocate
 * nothing.
 *
 * Source of constants: Linux `include/linux/socket.h`, `include/uapi/asm-generic/socket.h`, `include/uapi/linux/tcp.h`.
 */

import { highOf } from '../../ucs/type/int64.ts';
import { Errno } from '../base/errno.ts';
import {
  accept4,
  bind,
  connect,
  errno,
  getpeername,
  getsockname,
  getsockopt,
  ioctlCall,
  isInterrupted,
  listen,
  recv,
  recvmsg,
  send,
  sendmsg,
  setsockopt,
  shutdownCall,
  socket,
} from '../base/libc.ts';
import { allocateScratch, type ScratchBlock } from '../base/scratch.ts';
import { SyscallError } from '../base/syscall-error.ts';
import { closeDescriptor, noteDescriptor } from '../base/thread-resources.ts';
import { close } from '../file/file.ts';
import {
  AddressFamily,
  familyOf,
  type InetAddress,
  isUnspecified,
  packSockaddr,
  printAddress,
  unpackSockaddr,
} from './inet-address.ts';

const SOCK_STREAM = 1;
const SOCK_DGRAM = 2;
const SOCK_NONBLOCK_CLOEXEC = 0o2004000;
const MSG_DONTWAIT = 0x40;
const MSG_NOSIGNAL = 0x4000;
const SHUT_RDWR = 2;
const FIONREAD = 0x541b;
const TCP_INFO = 11;
/** Offsets in struct tcp_info, and the size of its part that every kernel has. */
const TCP_ESTABLISHED = 1;
const TCPI_UNACKED = 24;
const TCPI_LAST_ACK_RECV = 56;
const TCP_INFO_BYTES = 104;

const SOL_SOCKET = 1;
const IPPROTO_TCP = 6;
const IPPROTO_IPV6 = 41;
const SO_ERROR = 4;

/** Options of keepalive (SO_KEEPALIVE, TCP_KEEPIDLE, TCP_KEEPINTVL, TCP_KEEPCNT). */
const KEEPALIVE: SocketOption = [SOL_SOCKET, 9];
const KEEPIDLE: SocketOption = [IPPROTO_TCP, 4];
const KEEPINTVL: SocketOption = [IPPROTO_TCP, 5];
const KEEPCNT: SocketOption = [IPPROTO_TCP, 6];

/** Options with an integer value, as level and name. */
export const SocketOption: Readonly<Record<SocketOptionName, SocketOption>> = {
  REUSEADDR: [SOL_SOCKET, 2],
  SNDBUF: [SOL_SOCKET, 7],
  RCVBUF: [SOL_SOCKET, 8],
  V6ONLY: [IPPROTO_IPV6, 26],
  NODELAY: [IPPROTO_TCP, 1],
};
/** Level and name. */
export type SocketOption = readonly [number, number];
type SocketOptionName = 'REUSEADDR' | 'SNDBUF' | 'RCVBUF' | 'V6ONLY' | 'NODELAY';

/** Maximum number of ranges in {@link TcpPieces}. */
export const TCP_PIECES_MAX = 64;

// Layout of the staging block: a struct sockaddr, followed by a length for the kernel, an option value, or struct tcp_info.
const LENGTH = 64;
const VALUE = 72;
let staging: ScratchBlock | undefined;

function stage(): ScratchBlock {
  staging ??= allocateScratch(256);
  return staging;
}

/** Makes a socket. @throws SyscallError EMFILE, EAFNOSUPPORT */
export function tcpSocket(family: AddressFamily): number {
  const fd = noteDescriptor(socket(family, SOCK_STREAM | SOCK_NONBLOCK_CLOEXEC, 0));
  if (fd < 0) throw new SyscallError('socket', errno(), 'TCP');
  return fd;
}

/**
 * Binds a socket to an address of this machine.
 * @throws SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES; UcxError ERR_INVALID_PARAM
 */
export function tcpBind(fd: number, address: InetAddress): void {
  const block = stage();
  if (bind(fd, block.address, packSockaddr(address, block)) !== 0) {
    throw new SyscallError('bind', errno(), printAddress(address));
  }
}

/**
 * Starts to connect. The attempt continues after a signal.
 * @returns true if connected; false if in progress: when the socket becomes writable, call {@link tcpError}
 * @throws SyscallError ECONNREFUSED, ENETUNREACH, EADDRNOTAVAIL; UcxError ERR_INVALID_PARAM
 */
export function tcpConnect(fd: number, address: InetAddress): boolean {
  const block = stage();
  if (connect(fd, block.address, packSockaddr(address, block)) === 0) return true;
  const code = errno();
  if (code === Errno.EINPROGRESS || code === Errno.EINTR) return false;
  throw tcpConnectError(code, address);
}

/** The error of an attempt to connect that has failed with an errno, with the remedy if nothing listens at the address. */
export function tcpConnectError(code: number, address: InetAddress): SyscallError {
  const remedy =
    code === Errno.ECONNREFUSED ? ': nothing listens there, start the listener first or check the port' : '';
  return new SyscallError('connect', code, `${printAddress(address)}${remedy}`);
}

/**
 * Makes a listening socket. A socket of the IPv6 address `::` also accepts IPv4.
 * @param address port 0 for any free port
 * @param reuse whether the port may be used while connections of an earlier socket are still closing (SO_REUSEADDR)
 * @throws SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE; UcxError ERR_INVALID_PARAM
 */
export function tcpListen(address: InetAddress, backlog: number, reuse = true): number {
  const family = familyOf(address.address) ?? AddressFamily.INET;
  const fd = tcpSocket(family);
  try {
    setSocketOption(fd, SocketOption.REUSEADDR, reuse ? 1 : 0);
    if (family === AddressFamily.INET6)
      setSocketOption(fd, SocketOption.V6ONLY, isUnspecified(address.address) ? 0 : 1);
    tcpBind(fd, address);
    if (listen(fd, backlog) !== 0) throw new SyscallError('listen', errno(), printAddress(address));
    return fd;
  } catch (error) {
    close(fd);
    throw error;
  }
}

/** Accepts a connection. Returns its descriptor; or -errno: -EAGAIN for none, -EMFILE, -ECONNABORTED. */
export function tcpAccept(fd: number): number {
  let accepted: number;
  do accepted = accept4(fd, 0, 0, SOCK_NONBLOCK_CLOEXEC);
  while (isInterrupted(accepted));
  return accepted >= 0 ? noteDescriptor(accepted) : -errno();
}

/** The local address of a socket. @throws SyscallError */
export function tcpLocalAddress(fd: number): InetAddress {
  return addressFrom('getsockname', getsockname, fd);
}

/** The remote address of a socket. @throws SyscallError ENOTCONN */
export function tcpRemoteAddress(fd: number): InetAddress {
  return addressFrom('getpeername', getpeername, fd);
}

function addressFrom(
  name: string,
  call: (fd: number, address: number, length: number) => number,
  fd: number,
): InetAddress {
  const block = stage();
  block.view.setUint32(LENGTH, LENGTH, true);
  if (call(fd, block.address, block.address + LENGTH) !== 0) throw new SyscallError(name, errno(), `fd ${fd}`);
  return unpackSockaddr(block) ?? { address: '', port: 0 };
}

/** Reads and clears the pending error of a socket (SO_ERROR): a positive error number, 0 for none. */
export function tcpError(fd: number): number {
  return socketOption(fd, SOL_SOCKET, SO_ERROR);
}

/** Reads an integer option. @throws SyscallError */
export function getSocketOption(fd: number, [level, name]: SocketOption): number {
  return socketOption(fd, level, name);
}

/** Sets an integer option. @throws SyscallError */
export function setSocketOption(fd: number, [level, name]: SocketOption, value: number): void {
  const { view, address } = stage();
  view.setInt32(VALUE, value, true);
  if (setsockopt(fd, level, name, address + VALUE, 4) !== 0) {
    throw new SyscallError('setsockopt', errno(), `option ${level}/${name} of fd ${fd} to ${value}`);
  }
}

/**
 * Makes the kernel probe whether the peer's host is alive.
 * @param idleSeconds without data before the first probe
 * @param intervalSeconds between two probes
 * @param probes number of unanswered probes after which the connection fails
 * @throws SyscallError
 */
export function setKeepalive(fd: number, idleSeconds: number, intervalSeconds: number, probes: number): void {
  setSocketOption(fd, KEEPIDLE, idleSeconds);
  setSocketOption(fd, KEEPINTVL, intervalSeconds);
  setSocketOption(fd, KEEPCNT, probes);
  setSocketOption(fd, KEEPALIVE, 1);
}

function socketOption(fd: number, level: number, name: number): number {
  const { view, address } = stage();
  view.setUint32(LENGTH, 4, true);
  if (getsockopt(fd, level, name, address + VALUE, address + LENGTH) !== 0) {
    throw new SyscallError('getsockopt', errno(), `option ${level}/${name} of fd ${fd}`);
  }
  return view.getInt32(VALUE, true);
}

/**
 * Milliseconds since the peer's host last acknowledged data (tcpi_last_ack_recv), if there is unacknowledged data; 0 otherwise. A process that does not read
 * has no effect, because its kernel acknowledges.
 */
export function tcpAckedMs(fd: number): number {
  const info = readInfo(fd);
  return info.getUint32(VALUE + TCPI_UNACKED, true) === 0 ? 0 : info.getUint32(VALUE + TCPI_LAST_ACK_RECV, true);
}

function readInfo(fd: number): DataView {
  const { view, address } = stage();
  view.setUint32(LENGTH, TCP_INFO_BYTES, true);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, address + VALUE, address + LENGTH) !== 0) {
    throw new SyscallError('getsockopt', errno(), `TCP_INFO of fd ${fd}`);
  }
  return view;
}

/** Whether a connection is established in both directions: as far as this host can tell, the peer has neither closed it nor ended. */
export function tcpIsEstablished(fd: number): boolean {
  return readInfo(fd).getUint8(VALUE) === TCP_ESTABLISHED;
}

/** Number of received bytes that have not been read. */
export function tcpUnreadBytes(fd: number): number {
  const { view, address } = stage();
  view.setInt32(VALUE, 0, true);
  return ioctlCall(fd, FIONREAD, address + VALUE) === 0 ? view.getInt32(VALUE, true) : 0;
}

/**
 * Sends bytes by address. Takes at least 1 us.
 * @returns bytes sent, possibly fewer; or -errno: -EAGAIN, -EPIPE, -ECONNRESET
 */
export function tcpSend(fd: number, address: number, byteLength: number): number {
  for (;;) {
    const sent = send(fd, address, byteLength, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent >= 0) return sent;
    const code = errno();
    if (code !== Errno.EINTR) return -code;
  }
}

/** Receives bytes to an address. Returns their number, 0 if the peer has closed; or -errno: -EAGAIN, -ECONNRESET. */
export function tcpRecv(fd: number, address: number, byteLength: number): number {
  for (;;) {
    const received = recv(fd, address, byteLength, MSG_DONTWAIT);
    if (received >= 0) return received;
    const code = errno();
    if (code !== Errno.EINTR) return -code;
  }
}

/** Shuts down both directions; the peer reads an end of file. For a socket that is still polled elsewhere. */
export function tcpShutdown(fd: number): void {
  shutdownCall(fd, SHUT_RDWR);
}

/** Closes a socket. */
export function tcpClose(fd: number): void {
  closeDescriptor(fd);
}

/**
 * The address of this machine from which the kernel would send to `address`, from a lookup in the routing table. Sends nothing.
 * @returns undefined without a route
 */
export function sourceAddressTo(address: string): string | undefined {
  const family = familyOf(address);
  if (family === undefined) return undefined;
  const fd = noteDescriptor(socket(family, SOCK_DGRAM | SOCK_NONBLOCK_CLOEXEC, 0));
  if (fd < 0) throw new SyscallError('socket', errno(), 'UDP');
  try {
    const block = stage();
    // Any port will do: connecting a datagram socket sends nothing.
    if (connect(fd, block.address, packSockaddr({ address, port: 9 }, block)) !== 0) return undefined;
    return tcpLocalAddress(fd).address;
  } finally {
    closeDescriptor(fd);
  }
}

/** Ranges of memory that one call sends or receives: an iovec list at a fixed address. */
export class TcpPieces {
  readonly #block: ScratchBlock = allocateScratch(64 + 16 * TCP_PIECES_MAX);
  #count = 0;

  constructor() {
    const { view, address } = this.#block;
    view.setBigUint64(16, BigInt(address + 64), true);
  }

  clear(): void {
    this.#count = 0;
  }

  /** Adds a range; at most {@link TCP_PIECES_MAX}. */
  add(address: number, byteLength: number): void {
    const { words } = this.#block;
    const at = 16 + 4 * this.#count;
    words[at] = address;
    words[at + 1] = highOf(address);
    words[at + 2] = byteLength;
    words[at + 3] = highOf(byteLength);
    this.#count += 1;
  }

  /** Sends the added ranges. Returns like {@link tcpSend}. */
  send(fd: number): number {
    this.#block.words[6] = this.#count;
    for (;;) {
      const sent = sendmsg(fd, this.#block.address, MSG_DONTWAIT | MSG_NOSIGNAL);
      if (sent >= 0) return sent;
      const code = errno();
      if (code !== Errno.EINTR) return -code;
    }
  }

  /** Receives into the added ranges, in their order. Returns like {@link tcpRecv}. */
  receive(fd: number): number {
    this.#block.words[6] = this.#count;
    for (;;) {
      const received = recvmsg(fd, this.#block.address, MSG_DONTWAIT);
      if (received >= 0) return received;
      const code = errno();
      if (code !== Errno.EINTR) return -code;
    }
  }

  free(): void {
    this.#block.free();
  }
}
