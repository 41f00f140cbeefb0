/** Endpoints whose connection has ended, until the failure handler was called: never within an operation's own call. */

import type { Status } from '../../ucs/type/status.ts';
import type { EndpointErrorHandler, UctEndpoint } from '../api/iface.ts';

/** The reports. */
export class FailureReports {
  /** Undefined without a handler. */
  handler: EndpointErrorHandler | undefined = undefined;
  readonly #failed: Map<UctEndpoint, Status> = new Map();

  /** Endpoints that have not been told of. */
  get size(): number {
    return this.#failed.size;
  }

  /** An endpoint has lost its connection. */
  add(endpoint: UctEndpoint, status: Status): void {
    if (this.handler !== undefined) this.#failed.set(endpoint, status);
  }

  /** An endpoint was closed: its failure is not reported any more. */
  delete(endpoint: UctEndpoint): void {
    this.#failed.delete(endpoint);
  }

  /** Tells of all of them; returns of how many. */
  deliver(): number {
    let count = 0;
    for (const [endpoint, status] of this.#failed) {
      // First: the handler may make progress, close endpoints, or throw.
      this.#failed.delete(endpoint);
      count += 1;
      this.handler!(endpoint, status);
    }
    return count;
  }
}
