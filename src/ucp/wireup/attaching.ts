/**
 * The halves of connections that a listening program has accepted, until their clients have attached to them: bounded in number for each listener and for each
 * address of clients, and in time. A client that asks and does not come costs no more than that.
 */

import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import type { PeerConnection } from '../base/peer-connection.ts';

/** Halves of one listener that wait for their clients, at most; further clients are rejected with BUSY. */
export const ATTACHING_MAX = 1024;
/** The same of clients with one address. */
export const ATTACHING_PER_CLIENT_MAX = 512;

/** A half that waits. */
interface Waiting {
  readonly connection: PeerConnection;
  readonly listener: object;
  readonly client: string;
  readonly deadlineNs: number;
}

/** The halves. */
export class Attaching {
  readonly #clock: Clock;
  readonly #onLate: (connection: PeerConnection) => void;
  /** In the order of their deadlines. */
  readonly #waiting: Map<PeerConnection, Waiting> = new Map();
  readonly #byListener: Map<object, number> = new Map();
  readonly #byClient: Map<string, number> = new Map();
  #timer: Timer | undefined;

  /** @param onLate called for a half whose client has not attached in time */
  constructor(clock: Clock, onLate: (connection: PeerConnection) => void) {
    this.#clock = clock;
    this.#onLate = onLate;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Why a client cannot be accepted now; undefined if it can. */
  refusalOf(listener: object, client: string): string | undefined {
    const count = this.#byListener.get(listener) ?? 0;
    if (count >= ATTACHING_MAX) return `${count} clients that were accepted have not come`;
    const same = this.#byClient.get(client) ?? 0;
    if (same >= ATTACHING_PER_CLIENT_MAX) return `${same} clients of ${client} that were accepted have not come`;
    return undefined;
  }

  /** A client was accepted. @param timeoutNs time that it has; Infinity for no bound */
  add(connection: PeerConnection, listener: object, client: string, timeoutNs: number): void {
    this.#waiting.set(connection, { connection, listener, client, deadlineNs: this.#clock.nowNs() + timeoutNs });
    change(this.#byListener, listener, 1);
    change(this.#byClient, client, 1);
    this.#arm();
  }

  /** Removes a half whose client has attached, or that has ended. Idempotent. */
  delete(connection: PeerConnection): void {
    const waiting = this.#waiting.get(connection);
    if (waiting === undefined) return;
    this.#waiting.delete(connection);
    change(this.#byListener, waiting.listener, -1);
    change(this.#byClient, waiting.client, -1);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#waiting.clear();
  }

  #arm(): void {
    const [first] = this.#waiting.values();
    if (this.#timer !== undefined || first === undefined || first.deadlineNs === Number.POSITIVE_INFINITY) return;
    const restNs = Math.max(1, first.deadlineNs - this.#clock.nowNs());
    this.#timer = this.#clock.setTimer(restNs, () => {
      this.#timer = undefined;
      this.#expire();
    });
  }

  #expire(): void {
    const nowNs = this.#clock.nowNs();
    const late: PeerConnection[] = [];
    for (const { connection, deadlineNs } of this.#waiting.values()) {
      if (deadlineNs > nowNs) break;
      if (connection.remoteId === NO_ENDPOINT && connection.failure === Status.OK) late.push(connection);
      this.delete(connection);
    }
    // First, because the callbacks below are the application's.
    this.#arm();
    for (const connection of late) this.#onLate(connection);
  }
}

function change<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}
