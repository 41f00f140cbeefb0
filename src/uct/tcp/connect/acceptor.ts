/**
 * The listening socket of an interface: its port, and its behaviour if this process has no descriptors left. Also the time limit for connecting, which
 * excludes pauses of this process, in which it does not read messages of the peer.
 */

import {
  Errno,
  isSyscallError,
  SyscallError,
  tcpAccept,
  tcpClose,
  tcpListen,
  tcpLocalAddress,
} from '../../../sys/index.ts';
import type { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { PortRange } from '../config.ts';
import { ReserveDescriptor, type SocketHandler } from '../sockets.ts';

/** Address and ports to listen on. */
interface ListenPlace {
  readonly address: string;
  readonly ports: PortRange;
  readonly backlog: number;
}

export class Acceptor implements SocketHandler {
  token = 0;
  readonly wantsWrite = false;
  readonly fd: number;
  readonly port: number;
  readonly #log: LimitedLog;
  readonly #onPeers: (acceptor: Acceptor) => number;
  readonly #reserve: ReserveDescriptor;
  #hasWarned = false;

  /**
   * Listens on the first free port of a range.
   * @param onPeers called when peers may wait; accepts them, and returns how many
   * @throws SyscallError EADDRINUSE if no port is free, EACCES, EMFILE
   */
  constructor({ address, ports, backlog }: ListenPlace, log: LimitedLog, onPeers: (acceptor: Acceptor) => number) {
    this.#log = log;
    this.#onPeers = onPeers;
    this.fd = listenIn(address, ports, backlog);
    try {
      this.#reserve = new ReserveDescriptor(this.fd);
    } catch (error) {
      tcpClose(this.fd);
      throw error;
    }
    this.port = tcpLocalAddress(this.fd).port;
  }

  /** Accepts a connection; returns its descriptor, or -1 if none waits. */
  accept(): number {
    const fd = tcpAccept(this.fd);
    if (fd >= 0) {
      this.#hasWarned = false;
      this.#reserve.reclaim();
      return fd;
    }
    if (fd === -Errno.EMFILE || fd === -Errno.ENFILE) this.#refuse();
    return -1;
  }

  onReady(): number {
    return this.#onPeers(this);
  }

  close(): void {
    tcpClose(this.fd);
    this.#reserve.close();
  }

  #refuse(): void {
    this.#reserve.acceptAndClose();
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#log.warn('peers cannot connect: this process has no descriptors left (EMFILE); raise ulimit -n');
  }
}

function listenIn(address: string, [first, last]: PortRange, backlog: number): number {
  for (let port = first; ; port++) {
    try {
      return tcpListen({ address, port }, backlog);
    } catch (error) {
      if (!isSyscallError(error, Errno.EADDRINUSE)) throw error;
      if (port < last) continue;
      const what = first === 0 ? address : `${address}: every port of UCX_TCP_PORT_RANGE=${first}-${last} is in use`;
      throw new SyscallError('bind', Errno.EADDRINUSE, what);
    }
  }
}

/** Minimum number of polls within a time limit. */
export const POLLS_MIN = 8;

/**
 * Extends a time limit by a pause in which the program has not polled.
 * @param pauseNs by how much the poll is late; a delay of up to 1 / {@link POLLS_MIN} of the limit does not count
 * @param timeoutNs the whole limit: the new one is at most this far from now
 */
export function extended(deadlineNs: number, nowNs: number, pauseNs: number, timeoutNs: number): number {
  return deadlineNs > nowNs ? deadlineNs : Math.min(deadlineNs + pauseNs, nowNs + timeoutNs);
}
