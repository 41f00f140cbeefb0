/** Flush of an endpoint or of a worker: waits for the operations in flight, then runs the flushes of its parts. Also the barrier for operations after a fence. */

import { Parts } from '../../api/operation/completion.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { StepStart } from './staged/staging.ts';

/** The flushes of what an endpoint has given to libucp and to the transports of the node. */
export function partsOf(endpoint: EngineEndpoint): readonly StepStart[] {
  return [(params) => endpoint.flushUcp(params), (params) => endpoint.openNodeEndpoint?.flushNbx(params) ?? Status.OK];
}

/** A flush. */
export class DeviceFlush extends DeviceOperation {
  readonly #before: readonly DeviceOperation[];
  readonly #parts: readonly StepStart[];

  /**
   * @param endpoint undefined for all endpoints
   * @param request undefined for a barrier
   */
  constructor(
    tracker: OperationTracker,
    endpoint: EngineEndpoint | undefined,
    request: UcpRequest | undefined,
    parts: readonly StepStart[],
  ) {
    const before = tracker.of(endpoint);
    super(tracker, endpoint, request);
    this.#before = before;
    this.#parts = parts;
  }

  protected override begin(): void {
    const awaited = new Parts(this.wait(() => this.#flush()));
    for (const operation of this.#before) operation.addWaiter(awaited.add());
    awaited.complete(Status.OK);
  }

  #flush(): void {
    for (const part of this.#parts) this.run(part);
  }
}
