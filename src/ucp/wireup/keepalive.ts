/**
 * Keepalive: whether the peers of connections live, by looking at regular times and by what transports tell at once. What happens to those that do not is
 * the worker's business.
 */

import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface, UctEndpoint } from '../../uct/api/iface.ts';
import type { PeerConnection } from '../base/peer-connection.ts';

/** What is looked at. */
export interface KeepaliveOwner {
  readonly ifaces: readonly Iface[];
  /** The connections that are to be watched. */
  watched(): readonly PeerConnection[];
  onPeerGone(connection: PeerConnection, status: Status): void;
}

/** The keepalive of one worker. */
export class Keepalive {
  readonly #owner: KeepaliveOwner;
  readonly #clock: Clock;
  readonly #intervalNs: number;
  #timer: Timer | undefined;
  #closed = false;

  /** @param intervalNs time between two looks; Infinity for never */
  constructor(owner: KeepaliveOwner, clock: Clock, intervalNs: number) {
    this.#owner = owner;
    this.#clock = clock;
    this.#intervalNs = intervalNs;
    for (const iface of owner.ifaces) iface.setErrorHandler?.((endpoint, status) => this.#onFailed(endpoint, status));
  }

  /** There is something to watch. */
  start(): void {
    if (this.#timer !== undefined || this.#closed || this.#intervalNs === Number.POSITIVE_INFINITY) return;
    this.#timer = this.#clock.setTimer(this.#intervalNs, () => {
      this.#timer = undefined;
      this.#check();
    });
  }

  close(): void {
    this.#closed = true;
    this.#timer?.cancel();
  }

  /** A transport has lost a peer. */
  #onFailed(failed: UctEndpoint, status: Status): void {
    const watched = this.#owner.watched();
    const connection = watched.find(({ lanes }) => lanes.some(({ endpoint }) => endpoint === failed));
    if (connection !== undefined) this.#owner.onPeerGone(connection, status);
  }

  #check(): void {
    const watched = this.#owner.watched();
    // First: what is called below is the application's, and may throw.
    if (watched.length > 0) this.start();
    for (const connection of watched) {
      const statuses = connection.lanes.map(({ endpoint }) => endpoint.check());
      const failed = statuses.find((status) => status !== Status.OK);
      if (failed !== undefined) this.#owner.onPeerGone(connection, failed);
    }
  }
}
