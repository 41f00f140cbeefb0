/** Keepalive: detects failed peers, by periodic checks and by immediate reports of transports. */

import { progressInBackground } from '../../api/progress/progressable.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface, UctEndpoint } from '../../uct/api/iface.ts';
import type { Connection } from '../base/connection.ts';

/** The owner of the connections. */
export interface KeepaliveOwner {
  readonly ifaces: readonly Iface[];
  /** Connections to check. */
  watched(): readonly Connection[];
  /** Connections with cancelled requests that stopped peers block. */
  heldUp(): ReadonlySet<Connection>;
  /** Handles messages that have arrived, a few of each peer; returns how many. */
  progress(): number;
  onPeerGone(connection: Connection, status: Status): void;
}

/** Progress calls needed to drain the longest posix ring: 65536 messages, 32 in a call. */
const CALLS_MAX = 2048;

export class Keepalive {
  readonly #owner: KeepaliveOwner;
  readonly #clock: Clock;
  readonly #intervalNs: number;
  #timer: Timer | undefined;
  #closed = false;
  /** Blocked connections as of the last check: a peer that is still stopped at the next check counts as failed. */
  #heldUp: ReadonlySet<Connection> = new Set();

  /** @param intervalNs time between two checks; Infinity for no checks */
  constructor(owner: KeepaliveOwner, clock: Clock, intervalNs: number) {
    this.#owner = owner;
    this.#clock = clock;
    this.#intervalNs = intervalNs;
    for (const iface of owner.ifaces) iface.setErrorHandler?.((endpoint, status) => this.#onFailed(endpoint, status));
  }

  /** Called when there is a connection to check. */
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

  /** Called when a transport has lost a peer. */
  #onFailed(failed: UctEndpoint, status: Status): void {
    const watched = this.#owner.watched();
    const connection = watched.find(({ lanes }) => lanes.some(({ endpoint }) => endpoint === failed));
    if (connection !== undefined) this.#owner.onPeerGone(connection, status);
  }

  #check(): void {
    const watched = this.#owner.watched();
    if (watched.length > 0) this.start();
    const heldBefore = this.#heldUp;
    this.#heldUp = this.#owner.heldUp();
    const isLost = (connection: Connection): boolean => heldBefore.has(connection) && this.#heldUp.has(connection);
    const failureOf = (connection: Connection): Status =>
      isLost(connection) ? Status.ENDPOINT_TIMEOUT : laneFailureOf(connection);
    const lost = watched.filter((connection) => failureOf(connection) !== Status.OK);
    if (lost.length === 0) return;
    // A peer that has closed has sent its close message before it exited, behind its other messages. The limit is for peers that never stop sending.
    for (let calls = 0; calls < CALLS_MAX && progressInBackground(this.#owner) > 0; calls++);
    for (const connection of this.#owner.watched()) {
      const failure = lost.includes(connection) ? failureOf(connection) : Status.OK;
      if (failure !== Status.OK) this.#owner.onPeerGone(connection, failure);
    }
  }
}

/** The first failure that a lane of a connection reports; OK for none. */
function laneFailureOf({ lanes }: Connection): Status {
  for (const { endpoint } of lanes) {
    const status = endpoint.check();
    if (status !== Status.OK) return status;
  }
  return Status.OK;
}
