/**
 * Peers on this machine whose process has ended. libucp (1.13) never notices a peer of shared memory that is killed before its first check of it, which follows
 * the connection by up to UCX_KEEPALIVE_INTERVAL: its operations would never end.
 */

import { hasEnded, isOwn, type ProcessIdentity } from '../../sys/index.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { statusError, type UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';

/** Time between two checks; each reads /proc once for each process. */
const INTERVAL_NS = 1e9;

/** The endpoints to a process. */
interface Peer {
  readonly process: ProcessIdentity;
  readonly endpoints: Set<EngineEndpoint>;
  hasEnded: boolean;
  /** Whether the worker has made progress since: its last messages, such as that of a close, are handled first. */
  isHandled: boolean;
  /** Whether its endpoints fail at the next progress. */
  isDue: boolean;
}

/** The endpoints of one worker to processes of this machine. */
export class EndedPeers {
  readonly #clock: Clock;
  readonly #onDue: () => void;
  readonly #check: (process: ProcessIdentity) => boolean;
  /** By pid and start time. */
  readonly #peers: Map<string, Peer> = new Map();
  #timer: Timer | undefined;
  #isDue = false;

  /** @param onDue called when {@link isDue} becomes true @param check whether a process has ended */
  constructor(clock: Clock, onDue: () => void, check: (process: ProcessIdentity) => boolean = hasEnded) {
    this.#clock = clock;
    this.#onDue = onDue;
    this.#check = check;
  }

  /** True if there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#isDue;
  }

  /** Fails an endpoint when this process has ended. */
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

  /** Stops. */
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
  return statusError(Status.ENDPOINT_TIMEOUT, `reach process ${pid} of the peer, which has ended`);
}
