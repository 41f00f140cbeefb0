/** The connections of a worker with requests that lack resources: progress starts them again. */

import type { PeerConnection } from '../base/peer-connection.ts';

/** The connections. */
export class PendingConnections {
  readonly #connections: Set<PeerConnection> = new Set();
  readonly #onFailed: (connection: PeerConnection) => void;

  /** @param onFailed called for connections that have failed within a call */
  constructor(onFailed: (connection: PeerConnection) => void) {
    this.#onFailed = onFailed;
  }

  get size(): number {
    return this.#connections.size;
  }

  add(connection: PeerConnection): void {
    this.#connections.add(connection);
  }

  delete(connection: PeerConnection): void {
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
