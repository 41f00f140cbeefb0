/**
 * The other workers that one worker has connections with, and which connection is the n-th of each. Bounded: of those without connections the oldest
 * are forgotten. The connections of a worker with requests that lack resources: progress starts them again. Requests of peers to connect for which
 * this process lacks descriptors or memory: kept until connections.ts tries them again.
 */

import { createHash } from 'node:crypto';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Connection } from '../base/connection.ts';
import type { WorkerAddress } from '../lane/worker-address.ts';

/** Workers without connections that are remembered, so that the next connection has the number that both ends expect. */
export const IDLE_PEERS_MAX = 4096;

/** One other worker. */
export interface Peer {
  readonly key: string;
  /** Number of the next connection that this end makes. */
  next: number;
  /** Connections that this end made, by number, and those that the peer made and this end has not asked for yet. */
  readonly own: Map<number, Connection>;
  readonly passive: Map<number, Connection>;
}

/** The other workers, by their whole address: one that has the id of another and interfaces of its own is another worker. */
export class Peers {
  readonly #peers: Map<string, Peer> = new Map();
  /** Those without connections, the oldest first. */
  readonly #idle: Set<Peer> = new Set();

  /** Workers that are remembered. */
  get size(): number {
    return this.#peers.size;
  }

  /** The worker with this address, if it is known. */
  find(packedAddress: Uint8Array): Peer | undefined {
    return this.#peers.get(keyOf(packedAddress));
  }

  /**
   * The worker with this address.
   * @param next number of the next connection with an unknown worker: the number in its request, if it asks
   */
  get(packedAddress: Uint8Array, next = 0): Peer {
    const key = keyOf(packedAddress);
    const known = this.#peers.get(key);
    if (known !== undefined) {
      this.#idle.delete(known);
      return known;
    }
    const peer: Peer = { key, next, own: new Map(), passive: new Map() };
    this.#peers.set(key, peer);
    return peer;
  }

  /** Called when a worker may have lost its last connection. */
  release(peer: Peer): void {
    if (peer.own.size + peer.passive.size > 0) return;
    this.#idle.add(peer);
    const [oldest] = this.#idle;
    if (oldest === undefined || this.#idle.size <= IDLE_PEERS_MAX) return;
    this.#idle.delete(oldest);
    this.#peers.delete(oldest.key);
  }
}

function keyOf(packedAddress: Uint8Array): string {
  return createHash('sha256').update(packedAddress).digest('base64');
}

/** The connections. */
export class PendingConnections {
  readonly #connections: Set<Connection>;
  readonly #onFailed: (connection: Connection) => void;

  /** @param connections add themselves; @param onFailed called for those that have failed within a call */
  constructor(connections: Set<Connection>, onFailed: (connection: Connection) => void) {
    this.#connections = connections;
    this.#onFailed = onFailed;
  }

  get size(): number {
    return this.#connections.size;
  }

  delete(connection: Connection): void {
    this.#connections.delete(connection);
  }

  /** Starts waiting requests, as far as there are resources; returns how many were started or ended. */
  restart(): number {
    let started = 0;
    for (const connection of this.#connections) {
      started += connection.restart();
      if (connection.isDrained) this.#connections.delete(connection);
      if (!connection.isUnreported) continue;
      connection.isUnreported = false;
      this.#onFailed(connection);
    }
    return started;
  }
}

/** Time between two tries. */
const RETRY_NS = 5e6;

/** The connection that a peer asks for. */
export interface PeerRequest {
  readonly packed: Uint8Array;
  readonly address: WorkerAddress;
  /** Number of the connection among those between the two workers. */
  readonly number: number;
  /** Id of the peer's half. */
  readonly remoteId: number;
  /** Bytes that the peer accepts before it asks for them. */
  readonly windowBytes: number;
}

/** The requests of one worker. */
export class DeferredRequests {
  readonly #clock: Clock;
  #requests: PeerRequest[] = [];
  #dueNs = 0;

  constructor(clock: Clock) {
    this.#clock = clock;
  }

  get count(): number {
    return this.#requests.length;
  }

  add(request: PeerRequest): void {
    this.#requests.push(request);
    this.#dueNs = this.#clock.nowNs() + RETRY_NS;
  }

  /** Hands out all requests once it is time to try again. */
  takeDue(): readonly PeerRequest[] {
    if (this.#requests.length === 0 || this.#clock.nowNs() < this.#dueNs) return [];
    const due = this.#requests;
    this.#requests = [];
    return due;
  }
}
