/** The endpoints of one worker by libucp handle, and their failures, which libucp reports inside its calls. */

import { NativeCallback } from '../../sys/index.ts';
import { endpointFail } from '../../ucs/debug/diagnostics.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { TRANSPORT } from '../request/request.ts';
import type { Requests } from '../request/requests.ts';
import type { EndedPeers } from './ended-peers.ts';

export class EndpointRegistry {
  /** Called by libucp when an endpoint fails. */
  readonly errorCallback: NativeCallback;
  readonly #requests: Requests;
  readonly #ended: EndedPeers;
  readonly #endpoints: Map<number, EngineEndpoint> = new Map();
  /** Failures that libucp reported during a call of C, until the next progress. */
  #failed: [EngineEndpoint, Status, boolean][] = [];
  /** Notices of peers received during a call of C, until the next progress. */
  #notices: [EngineEndpoint, number][] = [];

  constructor(requests: Requests, ended: EndedPeers) {
    this.#requests = requests;
    this.#ended = ended;
    this.errorCallback = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'uint64_t', 'int8_t'],
      call: (_argument: number, ep: number, status: Status) => this.#noteFailure(ep, status, false),
    });
  }

  get all(): readonly EngineEndpoint[] {
    return [...this.#endpoints.values()];
  }

  get size(): number {
    return this.#endpoints.size;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#failed.length > 0 || this.#notices.length > 0;
  }

  add(endpoint: EngineEndpoint): void {
    this.#endpoints.set(endpoint.handle, endpoint);
  }

  /** The endpoint with a libucp handle. */
  get(handle: number): EngineEndpoint | undefined {
    return this.#endpoints.get(handle);
  }

  forget(endpoint: EngineEndpoint): void {
    this.#ended.forget(endpoint);
    // The handle may be reused for another peer by now.
    if (this.#endpoints.get(endpoint.handle) === endpoint) this.#endpoints.delete(endpoint.handle);
  }

  /** The peer sent a notice, or closed its endpoint (undefined). Called inside a callback of C. */
  noticed(ep: number, notice: number | undefined): void {
    if (notice === undefined) {
      this.#noteFailure(ep, Status.CONNECTION_RESET, true);
      return;
    }
    const endpoint = this.#endpoints.get(ep);
    if (endpoint !== undefined) this.#notices.push([endpoint, notice]);
  }

  /** Passes notices and failures to their endpoints. */
  progress(): number {
    let count = 0;
    for (let noticed = this.#notices.shift(); noticed !== undefined; noticed = this.#notices.shift()) {
      const [endpoint, notice] = noticed;
      endpoint.onNotice(notice);
      count += 1;
    }
    for (let failed = this.#failed.shift(); failed !== undefined; failed = this.#failed.shift()) {
      const [endpoint, status, closedByPeer] = failed;
      if (closedByPeer) endpoint.onLeft();
      else endpoint.onFailed(status);
      // The lanes of a failed endpoint cannot be queried.
      if (endpointFail.hasSubscribers) endpointFail.publish({ transports: [TRANSPORT], status });
      count += 1;
    }
    return count;
  }

  /** Call this when libucp can no longer call the callback. */
  close(): void {
    this.errorCallback.close();
  }

  /** Records a failure inside a callback of C; progress reports it afterwards. */
  #noteFailure(ep: number, status: Status, closedByPeer: boolean): void {
    const endpoint = this.#endpoints.get(ep);
    this.#requests.endpointLost();
    if (endpoint === undefined) return;
    this.#failed.push([endpoint, status, closedByPeer]);
    // The handle may be reused for the next peer before this call of C returns.
    if (endpoint.isBorrowed) this.forget(endpoint);
  }
}
