/** Requests of peers to connect for which this process lacks descriptors or memory: kept until connections.ts tries them again. */

import type { Clock } from '../../ucs/sys/clock.ts';
import type { WorkerAddress } from '../lane/worker-address.ts';

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
