/** Failed endpoints until their failure handler is called, which never happens within a call of an operation. */

import type { Status } from '../../ucs/type/status.ts';
import type { EndpointErrorHandler, UctEndpoint } from '../api/iface.ts';

/** The reports. */
export class FailureReports {
  /** Undefined without a handler. */
  handler: EndpointErrorHandler | undefined = undefined;
  readonly #failed: Map<UctEndpoint, Status> = new Map();

  /** Number of endpoints whose failure is not reported yet. */
  get size(): number {
    return this.#failed.size;
  }

  /** Adds an endpoint that has lost its connection. */
  add(endpoint: UctEndpoint, status: Status): void {
    if (this.handler !== undefined) this.#failed.set(endpoint, status);
  }

  /** Removes an endpoint that was closed: its failure is not reported. */
  delete(endpoint: UctEndpoint): void {
    this.#failed.delete(endpoint);
  }

  /** Reports all of them; returns how many. */
  deliver(): number {
    let count = 0;
    for (const [endpoint, status] of this.#failed) {
      // First, because the handler may make progress, close endpoints, or throw.
      this.#failed.delete(endpoint);
      count += 1;
      this.handler?.(endpoint, status);
    }
    return count;
  }
}
