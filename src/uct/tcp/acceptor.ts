/** The listening socket of an interface: where peers connect to, and how it behaves when this process has no descriptors left. */

import {
  close as closeFd,
  Errno,
  isSyscallError,
  OpenFlag,
  open,
  tcpAccept,
  tcpClose,
  tcpListen,
  tcpLocalAddress,
} from '../../sys/index.ts';
import type { LimitedLog } from '../../ucs/limited-log.ts';
import type { PortRange } from './config.ts';
import type { Watched } from './ready-set.ts';

/** What the reserve is made of. */
const NOTHING = '/dev/null';

/** A listening socket. */
export class Acceptor implements Watched {
  token = 0;
  readonly wantsRoom = false;
  readonly fd: number;
  readonly port: number;
  readonly #log: LimitedLog;
  readonly #onPeers: (acceptor: Acceptor) => number;
  /** A descriptor that is given up to refuse a peer when there is no other: a connection that nobody takes would wake this process for ever. */
  #reserve: number;
  #hasWarned = false;

  /**
   * Listens on the first port of a range that is free.
   * @param onPeers called when peers may wait: takes them, and returns how many
   * @throws SyscallError EADDRINUSE when none is, EACCES, EMFILE
   */
  constructor(
    address: string,
    ports: PortRange,
    backlog: number,
    log: LimitedLog,
    onPeers: (acceptor: Acceptor) => number,
  ) {
    this.#log = log;
    this.#onPeers = onPeers;
    this.#reserve = open(NOTHING, OpenFlag.RDONLY);
    try {
      this.fd = listenIn(address, ports, backlog);
    } catch (error) {
      closeFd(this.#reserve);
      throw error;
    }
    this.port = tcpLocalAddress(this.fd).port;
  }

  /** Takes a connection: its descriptor, or -1 when there is none. */
  accept(): number {
    const fd = tcpAccept(this.fd);
    if (fd >= 0) {
      this.#hasWarned = false;
      if (this.#reserve < 0) this.#keepReserve();
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
    if (this.#reserve >= 0) closeFd(this.#reserve);
  }

  #refuse(): void {
    if (this.#reserve >= 0) {
      closeFd(this.#reserve);
      const fd = tcpAccept(this.fd);
      if (fd >= 0) tcpClose(fd);
    }
    this.#keepReserve();
    if (this.#hasWarned) return;
    this.#hasWarned = true;
    this.#log.warn('peers that connect are refused: this process has no descriptors left (EMFILE)');
  }

  /** Takes the reserve back; another part of the process may have been faster. */
  #keepReserve(): void {
    try {
      this.#reserve = open(NOTHING, OpenFlag.RDONLY);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      this.#reserve = -1;
    }
  }
}

function listenIn(address: string, [first, last]: PortRange, backlog: number): number {
  for (let port = first; ; port++) {
    try {
      return tcpListen({ address, port }, backlog);
    } catch (error) {
      if (!isSyscallError(error, Errno.EADDRINUSE) || port >= last) throw error;
    }
  }
}
