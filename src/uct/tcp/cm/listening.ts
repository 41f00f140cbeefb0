/**
 * A listening socket of the connection manager: accepts connections, and handles the lack of descriptors. The request of a client is read in
 * server-client.ts.
 */

import {
  Errno,
  errnoReason,
  isSyscallError,
  printAddress,
  ReadyFor,
  setKeepalive,
  tcpAccept,
  tcpClose,
  tcpListen,
  tcpLocalAddress,
  tcpRemoteAddress,
} from '../../../sys/index.ts';
import type { UnauthenticatedPeers } from '../../../ucs/datastruct/unauthenticated-peers.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { ClientRequest, SocketAddress, SocketListener } from '../../api/connection-manager.ts';
import { ReserveDescriptor } from '../../base/reserve-descriptor.ts';
import { type ChannelOwner, openChannel } from './channel.ts';
import { CmCounter } from './counters.ts';
import { type ClientOwner, ServerClient } from './server-client.ts';
import type { Watched } from './watch.ts';

/** Maximum number of connections accepted in one call, so that other descriptors are served too. */
const ACCEPTS_MAX = 64;
/** Pause of a listener that can neither accept nor reject clients, in nanoseconds. */
const PAUSE_NS = 100e6;
/** Seconds between two keepalive probes to a silent client, and the maximum number without an answer. */
const KEEPALIVE_S = 10;
const KEEPALIVE_PROBES = 3;

const OUT_OF_DESCRIPTORS: readonly number[] = [Errno.EMFILE, Errno.ENFILE];
const NO_CLIENT: readonly number[] = [Errno.EAGAIN, Errno.EINTR];
/** The connection failed before it was accepted; the next one may succeed: see accept(2). */
const LOST: readonly number[] = [Errno.ECONNABORTED, Errno.ENETUNREACH, Errno.EHOSTUNREACH, Errno.EPERM];

/** The manager behind a listener. */
export interface ListeningOwner extends ClientOwner, ChannelOwner {
  /** Clients that have not sent their request, and those that were rejected. */
  readonly unauthenticatedPeers: UnauthenticatedPeers<ServerClient>;
  clientCame(client: ServerClient): void;
  listenerClosed(listener: Listening): void;
}

/** A listening socket. */
export class Listening implements SocketListener, Watched {
  readonly address: SocketAddress;
  deadlineNs: number = Number.POSITIVE_INFINITY;
  readonly #owner: ListeningOwner;
  readonly #onRequest: (request: ClientRequest) => void;
  readonly #fd: number;
  readonly #token: number;
  readonly #reserve: ReserveDescriptor;
  #closed = false;

  /** @throws UcxError ERR_INVALID_PARAM; SyscallError */
  constructor(
    owner: ListeningOwner,
    address: SocketAddress,
    backlog: number,
    onRequest: (request: ClientRequest) => void,
  ) {
    this.#owner = owner;
    this.#onRequest = (request) => {
      // The client was accepted before the listener closed, and its request has arrived only now.
      if (this.#closed) request.reject(Status.REJECTED, 'the listener has closed');
      else onRequest(request);
    };
    this.#fd = tcpListen(address, backlog, owner.config.REUSEADDR);
    let reserve: ReserveDescriptor | undefined;
    try {
      this.address = tcpLocalAddress(this.#fd);
      reserve = new ReserveDescriptor(this.#fd);
      this.#reserve = reserve;
      this.#token = owner.watch.add(this.#fd, ReadyFor.READ, this);
    } catch (error) {
      reserve?.close();
      tcpClose(this.#fd);
      throw error;
    }
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#owner.watch.remove(this.#fd, this.#token);
    this.#reserve.close();
    tcpClose(this.#fd);
    this.#owner.listenerClosed(this);
  }

  onReady(): number {
    let count = 0;
    for (let i = 0; i < ACCEPTS_MAX && !this.#closed; i++) {
      const fd = tcpAccept(this.#fd);
      if (fd >= 0) count += this.#take(fd);
      else if (NO_CLIENT.includes(-fd) || !this.#continuesAfter(-fd)) break;
    }
    return count;
  }

  /** Ends the pause. */
  onDeadline(): number {
    this.deadlineNs = Number.POSITIVE_INFINITY;
    this.#owner.watch.modify(this.#fd, ReadyFor.READ, this.#token);
    return 0;
  }

  #take(fd: number): number {
    const channel = openChannel(fd, this.#owner, 'accepting');
    try {
      const clientAddress = tcpRemoteAddress(fd);
      const { unauthenticatedPeers } = this.#owner;
      const { address } = clientAddress;
      let count = 0;
      for (
        let oldest = unauthenticatedPeers.excess(address);
        oldest !== undefined;
        oldest = unauthenticatedPeers.excess(address)
      ) {
        count += oldest.evict();
      }
      // Closed by the program in its callback for a request.
      if (this.#closed) {
        channel.close();
        return count;
      }
      const addresses = { clientAddress, serverAddress: tcpLocalAddress(fd) };
      // A waiting client may vanish without closing the connection.
      setKeepalive(fd, KEEPALIVE_S, KEEPALIVE_S, KEEPALIVE_PROBES);
      const client = new ServerClient(this.#owner, channel, addresses, this.#onRequest);
      this.#owner.counters.count(CmCounter.CLIENTS);
      this.#owner.clientCame(client);
      return count + client.sendHello();
    } catch (error) {
      // The client has disconnected, or cannot be watched.
      channel.close();
      if (!isSyscallError(error)) throw error;
      this.#owner.log.diag(`a client of ${printAddress(this.address)} was lost: ${error.message}`);
      return 0;
    }
  }

  /** Handles an error of accept; returns whether the next connection can be accepted. */
  #continuesAfter(code: number): boolean {
    if (LOST.includes(code)) return true;
    const { log, watch, clock, counters } = this.#owner;
    const left = OUT_OF_DESCRIPTORS.includes(code) ? this.#reserve.acceptAndClose() : -code;
    // Without descriptors accept fails before it checks whether a client waits.
    if (NO_CLIENT.includes(-left)) return false;
    if (left >= 0) {
      counters.count(CmCounter.CLIENTS_SENT_AWAY);
      log.warn(`a client of ${printAddress(this.address)} was sent away: ${errnoReason(code)}`);
      return true;
    }
    log.warn(`${printAddress(this.address)} takes no clients for a moment: ${errnoReason(code)}`);
    // Without this, readiness would be reported continuously.
    watch.modify(this.#fd, 0, this.#token);
    this.deadlineNs = clock.nowNs() + PAUSE_NS;
    watch.due(this.deadlineNs);
    return false;
  }
}
