/**
 * The connection manager over TCP: listeners, their clients, and attempts to connect, over nonblocking sockets in one event set. It does not transfer
 * data of transports.
 *
 * It carries the private data of both sides. Without a handshake (channel.ts) every program that can connect to the address of a listener can send it
 * a request.
 */

import { allocateScratch, type ScratchBlock } from '../../../sys/index.ts';
import { UnauthenticatedPeers } from '../../../ucs/datastruct/unauthenticated-peers.ts';
import { LimitedLog } from '../../../ucs/debug/limited-log.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { createRandom, type Random, systemRandomBytes } from '../../../ucs/sys/random.ts';
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
import { TCP_CM_CONFIG_TABLE, type TcpCmConfig } from '../config.ts';
import type { Security } from '../secure/security.ts';
import { type AttemptOwner, ClientAttempt } from './client.ts';
import { CmCounters, Watch } from './conversation.ts';
import { FRAME_BYTES_MAX } from './layout.ts';
import { Listening, type ListeningOwner, type ServerClient } from './server.ts';

const BACKLOG_MAX = 65_535;
const PORT_MAX = 65_535;

/**
 * Makes the connection manager of a worker.
 * @param security required of clients and listeners; none if undefined
 * @throws SyscallError EMFILE
 */
export function tcpConnectionManager(services: ComponentServices, security?: Security): ConnectionManager {
  return new TcpConnectionManager(services, security);
}

class TcpConnectionManager implements ConnectionManager, ListeningOwner, AttemptOwner {
  readonly name: string = 'tcp';
  readonly clock: Clock;
  readonly log: LimitedLog;
  readonly config: TcpCmConfig;
  readonly counters: CmCounters = new CmCounters();
  readonly watch: Watch;
  readonly staging: ScratchBlock;
  readonly security: Security | undefined;
  readonly random: Random = createRandom(new DataView(systemRandomBytes(4).buffer).getUint32(0));
  readonly received: Uint8Array = new Uint8Array(FRAME_BYTES_MAX);
  readonly #listeners: Set<Listening> = new Set();
  readonly #clients: Set<ServerClient> = new Set();
  readonly #waiting: Set<ServerClient> = new Set();
  readonly unauthenticatedPeers: UnauthenticatedPeers<ServerClient>;
  readonly #attempts: Set<ClientAttempt> = new Set();
  /** Attempts that have failed without a descriptor: progress reports them. */
  readonly #failed: ClientAttempt[] = [];
  #closed = false;

  constructor({ clock, log, config }: ComponentServices, security: Security | undefined) {
    this.security = security;
    this.clock = clock;
    this.log = new LimitedLog(log, clock);
    this.config = config.get(TCP_CM_CONFIG_TABLE);
    this.unauthenticatedPeers = new UnauthenticatedPeers(this.config.MAX_CLIENTS);
    this.watch = new Watch(clock);
    this.staging = allocateScratch(FRAME_BYTES_MAX);
  }

  get outstanding(): number {
    return this.#listeners.size + this.#clients.size + this.#attempts.size;
  }

  get waitingClients(): number {
    return this.#waiting.size;
  }

  get timeoutNs(): number {
    return this.config.TIMEOUT;
  }

  listen(address: SocketAddress, backlog: number, onRequest: (request: ClientRequest) => void): SocketListener {
    this.#checkOpen();
    if (!Number.isInteger(backlog) || backlog < 1 || backlog > BACKLOG_MAX) {
      throw invalidParam('backlog', `must be an integer from 1 to ${BACKLOG_MAX}`, backlog);
    }
    checkPlace(address);
    checkHandler(onRequest, 'onRequest');
    const listener = new Listening(this, address, backlog, onRequest);
    this.#listeners.add(listener);
    return listener;
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
    const attempt = new ClientAttempt(this, address, privateData, onAnswer);
    this.#attempts.add(attempt);
    return attempt;
  }

  progress(): number {
    if (this.#closed) return 0;
    let count = 0;
    for (let attempt = this.#failed.shift(); attempt !== undefined; attempt = this.#failed.shift()) {
      count += attempt.report();
    }
    return count + (this.#closed ? 0 : this.watch.poll());
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    if (this.outstanding === 0 || this.#failed.length > 0) return Promise.resolve();
    return this.watch.wait(timeoutNs);
  }

  stats(): StatsNode {
    return this.counters.node(this.name);
  }

  close(): void {
    if (this.#closed) return;
    for (const listener of this.#listeners) listener.close();
    for (const client of this.#waiting) client.reject(Status.CANCELED, 'the worker that listens has closed');
    this.#closed = true;
    for (const client of this.#clients) client.close();
    for (const attempt of this.#attempts) attempt.cancel();
    this.log.tellLeft();
    this.watch.close();
    this.staging.free();
  }

  // Functions for listeners, clients and attempts.

  clientCame(client: ServerClient): void {
    this.#clients.add(client);
    this.unauthenticatedPeers.add(client, client.clientAddress.address);
  }

  clientWaits(client: ServerClient): void {
    this.#waiting.add(client);
    this.unauthenticatedPeers.delete(client);
  }

  clientAnswered(client: ServerClient): void {
    this.#waiting.delete(client);
  }

  clientLingers(client: ServerClient): void {
    this.unauthenticatedPeers.delete(client);
    this.unauthenticatedPeers.add(client, client.clientAddress.address);
  }

  clientGone(client: ServerClient): void {
    this.unauthenticatedPeers.delete(client);
    this.#clients.delete(client);
  }

  listenerClosed(listener: Listening): void {
    this.#listeners.delete(listener);
  }

  attemptFailed(attempt: ClientAttempt): void {
    this.#failed.push(attempt);
  }

  attemptOver(attempt: ClientAttempt): void {
    this.#attempts.delete(attempt);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('connection manager');
  }
}

function checkPlace(place: SocketAddress): void {
  checkOptions(place, 'address');
  if (typeof place.address !== 'string') throw invalidParam('address', 'must be a text', place.address);
}
