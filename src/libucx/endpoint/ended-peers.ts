/**
 * Detects that the process of a local peer has ended. libucp (1.13) never notices a shared-memory peer that is killed before the first keepalive check, up
 * to UCX_KEEPALIVE_INTERVAL after the connection: operations to it would hang.
 */

import { hasEnded, isOwn, type ProcessIdentity } from '../../sys/index.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { statusError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';

/** Interval of the checks; each reads /proc once per process. */
const INTERVAL_NS = 1e9;

/** A process and the endpoints to it. */
interface Peer {
  readonly process: ProcessIdentity;
  readonly endpoints: Set<EngineEndpoint>;
  hasEnded: boolean;
  /** Whether the worker has made progress since the process ended: its last messages, such as a close message, are handled first. */
  isHandled: boolean;
  /** Whether its endpoints fail in the next progress. */
  isDue: boolean;
}

/** The endpoints of one worker to processes on this machine. */
export class EndedPeers {
  readonly #clock: Clock;
  readonly #onDue: () => void;
  readonly #check: (process: ProcessIdentity) => boolean;
  /** By pid and start time. */
  readonly #peers: Map<string, Peer> = new Map();
  #timer: Timer | undefined;
  #isDue = false;

  /** @param onDue called when {@link isDue} becomes true @param check tells whether a process has ended */
  constructor(clock: Clock, onDue: () => void, check: (process: ProcessIdentity) => boolean = hasEnded) {
    this.#clock = clock;
    this.#onDue = onDue;
    this.#check = check;
  }

  /** True if there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#isDue;
  }

  /** Fails the endpoint after this process has ended. */
  watch(endpoint: EngineEndpoint, process: ProcessIdentity): void {
    if (isOwn(process)) return;
    const key = keyOf(process);
    const known = this.#peers.get(key);
    const peer = known ?? { process, endpoints: new Set(), hasEnded: false, isHandled: false, isDue: false };
    peer.endpoints.add(endpoint);
    this.#peers.set(key, peer);
    this.#timer ??= this.#clock.setTimer(INTERVAL_NS, this.#onInterval);
  }

  forget(endpoint: EngineEndpoint): void {
    for (const [key, { endpoints }] of this.#peers) {
      if (endpoints.delete(endpoint) && endpoints.size === 0) this.#peers.delete(key);
    }
  }

  /** Fails the endpoints to ended processes. Called after progress of libucp. */
  progress(): number {
    this.#isDue = false;
    let count = 0;
    for (const [key, peer] of this.#peers) {
      if (!peer.hasEnded) continue;
      peer.isHandled = true;
      if (!peer.isDue) continue;
      this.#peers.delete(key);
      for (const endpoint of peer.endpoints) {
        if (endpoint.status !== Status.OK) continue;
        endpoint.onFailed(Status.ENDPOINT_TIMEOUT, false, ended(peer.process));
        count += 1;
      }
    }
    return count;
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#peers.clear();
  }

  readonly #onInterval = (): void => {
    for (const peer of this.#peers.values()) {
      peer.isDue = peer.isHandled;
      peer.hasEnded ||= this.#check(peer.process);
      this.#isDue ||= peer.hasEnded;
    }
    this.#timer = this.#peers.size === 0 ? undefined : this.#clock.setTimer(INTERVAL_NS, this.#onInterval);
    if (this.#isDue) this.#onDue();
  };
}

function keyOf({ pid, startTime }: ProcessIdentity): string {
  return `${pid} ${startTime}`;
}

function ended({ pid }: ProcessIdentity): UcxError {
  return statusError(Status.ENDPOINT_TIMEOUT, `cannot reach the peer: its process ${pid} has ended`);
}
