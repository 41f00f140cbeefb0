/**
 * The connection manager over TCP: listeners, their clients, and connection attempts, over nonblocking sockets in one event set.
 *
 * It transfers the private data of both sides. Without a handshake (channel.ts) every program that can connect to the address of a listener can send it a
 * request.
 */

import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import { checkOptions } from '../../../ucs/type/check-options.ts';
import { closedError, invalidParam } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import {
  type ClientRequest,
  type ConnectAttempt,
  type ConnectionManager,
  type OnConnectAnswer,
  PRIVATE_DATA_BYTES_MAX,
  type SocketAddress,
  type SocketListener,
} from '../../api/connection-manager.ts';
import type { ComponentServices } from '../../api/memory-domain.ts';
import { checkHandler, checkTimeout } from '../../base/checks.ts';
import type { Security } from '../secure/security.ts';
import { Attempts, ClientAttempt } from './client.ts';
import { CmShared } from './conversation.ts';
import { Clients, Listening } from './server.ts';

const BACKLOG_MAX = 65_535;
const PORT_MAX = 65_535;

/**
 * Creates the connection manager of a worker.
 * @param security required of clients and listeners; none if undefined
 * @throws SyscallError EMFILE
 */
export function tcpConnectionManager(services: ComponentServices, security?: Security): ConnectionManager {
  return new TcpConnectionManager(services, security);
}

class TcpConnectionManager implements ConnectionManager {
  readonly name: string = 'tcp';
  readonly #shared: CmShared;
  readonly #clients: Clients;
  readonly #attempts: Attempts;
  #closed = false;

  constructor(services: ComponentServices, security: Security | undefined) {
    this.#shared = new CmShared(services, security);
    this.#clients = new Clients(this.#shared);
    this.#attempts = new Attempts(this.#shared);
  }

  get outstanding(): number {
    return this.#clients.listeners.size + this.#clients.all.size + this.#attempts.all.size;
  }

  get timeoutNs(): number {
    return this.#shared.config.TIMEOUT;
  }

  listen(address: SocketAddress, backlog: number, onRequest: (request: ClientRequest) => void): SocketListener {
    this.#checkOpen();
    if (!Number.isInteger(backlog) || backlog < 1 || backlog > BACKLOG_MAX) {
      throw invalidParam('backlog', `must be an integer from 1 to ${BACKLOG_MAX}`, backlog);
    }
    checkPlace(address);
    checkHandler(onRequest, 'onRequest');
    return new Listening(this.#clients, address, backlog, onRequest);
  }

  connect(address: SocketAddress, privateData: Uint8Array, onAnswer: OnConnectAnswer): ConnectAttempt {
    this.#checkOpen();
    checkPlace(address);
    checkHandler(onAnswer, 'onAnswer');
    const { port } = address;
    if (!Number.isInteger(port) || port < 1 || port > PORT_MAX) {
      throw invalidParam('port', `must be an integer from 1 to ${PORT_MAX}`, port);
    }
    if (!(privateData instanceof Uint8Array) || privateData.byteLength > PRIVATE_DATA_BYTES_MAX) {
      throw invalidParam('privateData', `must be a Uint8Array of at most ${PRIVATE_DATA_BYTES_MAX} bytes`, privateData);
    }
    return new ClientAttempt(this.#attempts, address, privateData, onAnswer);
  }

  progress(): number {
    if (this.#closed) return 0;
    let count = 0;
    const { failed } = this.#attempts;
    for (let attempt = failed.shift(); attempt !== undefined; attempt = failed.shift()) {
      count += attempt.report();
    }
    return count + (this.#closed ? 0 : this.#shared.watch.poll());
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    if (this.outstanding === 0 || this.#attempts.failed.length > 0) return Promise.resolve();
    return this.#shared.watch.wait(timeoutNs);
  }

  stats(): StatsNode {
    return this.#shared.counters.node(this.name);
  }

  close(): void {
    if (this.#closed) return;
    const { listeners, waiting, all } = this.#clients;
    for (const listener of listeners) listener.close();
    for (const client of waiting) client.reject(Status.CANCELED, 'the worker that listens has closed');
    this.#closed = true;
    for (const client of all) client.close();
    for (const attempt of this.#attempts.all) attempt.cancel();
    this.#shared.close();
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('connection manager');
  }
}

function checkPlace(place: SocketAddress): void {
  checkOptions(place, 'address');
  if (typeof place.address !== 'string') throw invalidParam('address', 'must be a string', place.address);
}
