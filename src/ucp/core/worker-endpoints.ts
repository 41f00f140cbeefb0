/**
 * The endpoints of one worker, by connection: creates them, watches their peers, and ends them when a peer has failed. Also lists the peers for which
 * operations wait, for the warning about idle ones.
 */

import type { EndpointOptions } from '../../api/contract/endpoint.ts';
import type { AwaitedPeer } from '../../api/progress/idle-peers.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';
import { RequestState } from '../base/queued.ts';
import { AtomicRequest, RmaRequest, SendRequest } from '../base/request/operation-requests.ts';
import type { Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { ReceiveTransfer } from '../rndv/receive.ts';
import { SendTransfer } from '../rndv/send.ts';
import type { ConnectionEvents } from '../wireup/connections.ts';
import { Keepalive, type KeepaliveOwner } from '../wireup/keepalive.ts';
import { PendingConnections } from '../wireup/peers.ts';
import { Endpoint, type EndpointWorker } from './endpoint.ts';
import { waitReasonOf } from './snapshot.ts';

export class WorkerEndpoints implements ConnectionEvents, KeepaliveOwner {
  /** Connections with requests that wait for resources. */
  readonly pending: PendingConnections;
  readonly ifaces: readonly Iface[];
  readonly #worker: EndpointWorker;
  /** The open endpoints. */
  readonly #endpoints: Map<Connection, Endpoint> = new Map();
  /**
   * Includes closed endpoints: a message that is handled after the close of its endpoint must not be replied to over a new one, whose requests would never
   * end.
   */
  readonly #made: WeakMap<Connection, Endpoint> = new WeakMap();
  readonly #keepalive: Keepalive;
  /** Requests whose cancellation came too late; by now the objects may belong to other operations. */
  readonly #cancelled: Set<Request> = new Set();

  constructor(worker: EndpointWorker) {
    const { context, ifaces } = worker;
    this.#worker = worker;
    this.ifaces = ifaces;
    this.pending = new PendingConnections(worker.pending, (connection) => this.onConnectionFailed(connection));
    this.#keepalive = new Keepalive(this, context.clock, context.keepaliveNs);
  }

  get size(): number {
    return this.#endpoints.size;
  }

  /** True if the program has an endpoint for a connection. */
  has(connection: Connection): boolean {
    return this.#endpoints.has(connection);
  }

  adopt(connection: Connection, options: EndpointOptions): Endpoint {
    const endpoint = this.of(connection);
    endpoint.setOptions(options);
    this.#keepalive.start();
    return endpoint;
  }

  /** The endpoint of a connection, created at the first call. An endpoint that was closed is returned closed. */
  of(connection: Connection): Endpoint {
    const known = this.#made.get(connection);
    if (known !== undefined) return known;
    const endpoint = new Endpoint(this.#worker, connection);
    this.#made.set(connection, endpoint);
    this.#endpoints.set(connection, endpoint);
    return endpoint;
  }

  /** Called when an endpoint was closed. */
  forget(connection: Connection): void {
    this.#endpoints.delete(connection);
    this.#worker.protocols.streams.forget(connection);
  }

  /** Closes all endpoints without waiting for their peers. */
  async close(): Promise<void> {
    for (const endpoint of [...this.#endpoints.values()]) await endpoint.close({ force: true });
  }

  /** Stops watching peers. */
  closeKeepalive(): void {
    this.#keepalive.close();
  }

  progress(): number {
    return this.#worker.progress();
  }

  watched(): readonly Connection[] {
    const { connections } = this.#worker;
    return connections.all.filter((connection) => {
      const isWanted = this.#endpoints.get(connection)?.watchesPeer !== false;
      if (!isWanted || connection.isLoopback) return false;
      return connection.failure === Status.OK || connections.leaves(connection);
    });
  }

  /** Called for a request that cannot be withdrawn: ends it if its peer is stopped and cannot access its memory. @returns true if it has ended */
  awaitCancelled(request: Request): boolean {
    const { connection } = request;
    if (connection === undefined) return false;
    if (connection.isPeerStopped && endWithoutPeer(request, connection)) return request.isCompleted;
    request.isCancelled = true;
    this.#cancelled.add(request);
    return false;
  }

  heldUp(): ReadonlySet<Connection> {
    const held: Set<Connection> = new Set();
    for (const request of this.#cancelled) {
      const { connection, isCompleted, isCancelled } = request;
      const goesOn = isCancelled && !isCompleted && connection !== undefined;
      if (!goesOn) this.#cancelled.delete(request);
      else if (connection.isPeerStopped && !endWithoutPeer(request, connection)) held.add(connection);
    }
    return held;
  }

  onAccepted(): void {
    this.#keepalive.start();
  }

  onAttached(connection: Connection): void {
    this.#worker.sockets.attached(connection);
  }

  onDropped(connection: Connection): void {
    this.forget(connection);
    this.pending.delete(connection);
  }

  onPeerGone(connection: Connection, status: Status): void {
    connection.fail(status);
    this.onConnectionFailed(connection);
  }

  onConnectionFailed(connection: Connection): void {
    const { protocols, connections, promises } = this.#worker;
    protocols.streams.connectionEnded(connection);
    const endpoint = this.#endpoints.get(connection);
    // The worker closes a connection without an endpoint.
    if (endpoint === undefined) connections.close(connection);
    else {
      endpoint.onFailed();
      connection.releaseLanes();
    }
    promises.wake();
  }
}

/** The peer of each request that waits for one, in any order. */
export function* awaitedPeers({ requests, coarse }: WorkerCore): Generator<AwaitedPeer> {
  for (const request of requests.created) {
    const { connection, startMs } = request;
    // Protocol requests have no start time.
    if (request.state === RequestState.FREE || request.isCompleted || startMs < 0) continue;
    if (connection === undefined || connection.isLoopback) continue;
    const reason = waitReasonOf(request);
    if (reason === 'transport') continue;
    yield {
      id: connection.peerWorkerId,
      shownId: Buffer.from(connection.peerWorkerId, 'latin1').toString('hex'),
      isManual: connection.isPeerManual,
      // A message may legitimately wait for its receive.
      owesAnswer: reason === 'connection' || (reason === 'peer' && !(request instanceof SendRequest)),
      place: connection.am?.peerPlace,
      ageMs: coarse.nowMs - startMs,
    };
  }
}

/**
 * Ends a request with CANCELED if it only waits for a reply, or for a message of which the peer has no key. A receive ends when its writes to device
 * memory have ended.
 * @returns false if it still needs the peer, which may write to its memory or has received a part of its message
 */
function endWithoutPeer(request: Request, connection: Connection): boolean {
  const { transfer } = request;
  if (transfer instanceof SendTransfer) return transfer.takeBack(connection);
  if (transfer instanceof ReceiveTransfer) return transfer.stop(Status.CANCELED);
  if (!onlyWaits(request)) return false;
  request.end(Status.CANCELED);
  return true;
}

function onlyWaits(request: Request): boolean {
  if (request.requestId === 0 || request.count > 1) return false;
  // A synchronous send has sent all of its bytes, and only waits for its match.
  if (request instanceof SendRequest) return request.replyHandler !== undefined;
  return request instanceof AtomicRequest || (request instanceof RmaRequest && request.isAsking);
}
