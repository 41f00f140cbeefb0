/** Requests of peers to connect that this process has no descriptors or memory for now: kept until they are tried again. Who tries is the connections' business. */

import type { Clock } from '../../ucs/sys/clock.ts';
import type { WorkerAddress } from '../lane/worker-address.ts';

/** Time between two tries. */
const RETRY_NS = 5e6;

/** What a peer asks for. */
export interface PeerRequest {
  readonly packed: Uint8Array;
  readonly address: WorkerAddress;
  /** Of the connection among those between the two workers. */
  readonly number: number;
  /** The peer's half. */
  readonly remoteId: number;
  /** What the peer takes without having asked for it. */
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
