/** The endpoints of one worker, by their handles of libucp, and their failures, which libucp reports inside its calls. It creates no handles. */

import { NativeCallback } from '../../sys/index.ts';
import { endpointConnect, endpointFail } from '../../ucs/debug/diagnostics.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EndpointHandling, EngineEndpoint } from '../engine/engine.ts';
import type { Senders } from '../request/arrivals.ts';
import { TRANSPORT } from '../request/request.ts';
import { Endpoint } from './endpoint.ts';
import type { EndpointRegistry, EndpointWorker } from './endpoint-worker.ts';

/** The endpoints. */
export class EndpointTable implements EndpointRegistry, Senders {
  readonly errorCallback: NativeCallback;
  readonly #worker: EndpointWorker;
  readonly #endpoints: Map<number, Endpoint> = new Map();
  /** Endpoints that libucp has reported as failed, during a call of C. */
  #failed: [Endpoint, Status, boolean][] = [];
  /** Notices of the peers of endpoints, during a call of C. */
  #notices: [Endpoint, number][] = [];

  constructor(worker: EndpointWorker) {
    this.#worker = worker;
    this.errorCallback = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'uint64_t', 'int8_t'],
      call: (_argument: number, ep: number, status: Status) => this.#noteFailure(ep, status, false),
    });
  }

  get all(): readonly Endpoint[] {
    return [...this.#endpoints.values()];
  }

  get size(): number {
    return this.#endpoints.size;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#failed.length > 0 || this.#notices.length > 0;
  }

  adopt(handle: number, nodeAddress: Uint8Array, handling: EndpointHandling): Endpoint {
    const endpoint = new Endpoint(this.#worker, handle, nodeAddress, handling);
    this.#endpoints.set(handle, endpoint);
    if (endpointConnect.hasSubscribers) endpointConnect.publish({ transports: endpoint.transports, status: Status.OK });
    return endpoint;
  }

  forget(endpoint: EngineEndpoint): void {
    // Its handle may be that of another peer by now.
    if (this.#endpoints.get(endpoint.handle) === endpoint) this.#endpoints.delete(endpoint.handle);
  }

  /** The endpoint of a handle of libucp; one that the peer has initiated is registered. */
  endpointOf(handle: number): Endpoint {
    const handling = { options: {}, isWatched: false, isBorrowed: true };
    return this.#endpoints.get(handle) ?? this.adopt(handle, new Uint8Array(0), handling);
  }

  left(ep: number): void {
    this.#noteFailure(ep, Status.CONNECTION_RESET, true);
  }

  noticed(ep: number, notice: number): void {
    const endpoint = this.#endpoints.get(ep);
    if (endpoint !== undefined) this.#notices.push([endpoint, notice]);
  }

  /** Reports notices and failures to their endpoints. */
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
      // The lanes of a failed endpoint are not queried.
      if (endpointFail.hasSubscribers) endpointFail.publish({ transports: [TRANSPORT], status });
      count += 1;
    }
    return count;
  }

  /** Releases the callback, which libucp does not call any more. */
  close(): void {
    this.errorCallback.close();
  }

  /** Records a failure during a call of C: progress reports it afterwards. */
  #noteFailure(ep: number, status: Status, closedByPeer: boolean): void {
    const endpoint = this.#endpoints.get(ep);
    this.#worker.requests.endpointLost();
    if (endpoint === undefined) return;
    this.#failed.push([endpoint, status, closedByPeer]);
    // The next peer may get the same handle, before this call of C returns.
    if (endpoint.isBorrowed) this.forget(endpoint);
  }
}
