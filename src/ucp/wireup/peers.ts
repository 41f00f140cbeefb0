/**
 * The workers with which one worker has connections, and the numbering of the connections with each. Bounded: of workers without connections, the oldest are
 * forgotten. Also retries the requests of connections that wait for resources, and keeps connection requests of peers for which this process lacks
 * descriptors or memory until connections.ts retries them.
 */

import { createHash } from 'node:crypto';
import type { Clock } from '../../ucs/sys/clock.ts';
import type { Connection } from '../base/connection.ts';
import type { WorkerAddress } from '../lane/worker-address.ts';

/** Maximum number of remembered workers without connections. They are remembered so that the next connection has the number that both sides expect. */
export const IDLE_PEERS_MAX = 4096;

export interface Peer {
  readonly key: string;
  /** Number of the next connection made by this side. */
  next: number;
  /** Connections made by this side, and those that only the peer has requested, both by number. */
  readonly own: Map<number, Connection>;
  readonly passive: Map<number, Connection>;
}

/** The other workers, by their whole address: a worker with the id of another but different interfaces is a different worker. */
export class Peers {
  readonly #peers: Map<string, Peer> = new Map();
  /** Workers without connections, the oldest first. */
  readonly #idle: Set<Peer> = new Set();

  /** Number of remembered workers. */
  get size(): number {
    return this.#peers.size;
  }

  /** The worker with this address, if it is known. */
  find(packedAddress: Uint8Array): Peer | undefined {
    return this.#peers.get(keyOf(packedAddress));
  }

  /**
   * The worker with this address.
   * @param next number of the next connection with an unknown worker: the number in its request, if it sent one
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

/** Connections with requests that wait for resources. */
export class PendingConnections {
  readonly #connections: Set<Connection>;
  readonly #onFailed: (connection: Connection) => void;

  /** @param connections add themselves; @param onFailed called for connections that have failed within a call */
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

  /** Restarts queued requests as far as there are resources; returns how many were started or ended. */
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

/** Time between two retries. */
const RETRY_NS = 5e6;

/** A connection request of a peer. */
export interface PeerRequest {
  readonly packed: Uint8Array;
  readonly address: WorkerAddress;
  /** Number of the connection between the two workers. */
  readonly number: number;
  /** Id of the peer's half. */
  readonly remoteId: number;
  /** Bytes that the peer accepts before it requests them. */
  readonly windowBytes: number;
}

/** The deferred connection requests of one worker. */
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

  /** Removes and returns all requests if it is time to retry. */
  takeDue(): readonly PeerRequest[] {
    if (this.#requests.length === 0 || this.#clock.nowNs() < this.#dueNs) return [];
    const due = this.#requests;
    this.#requests = [];
    return due;
  }
}
