/**
 * An operation executed by another one, whose result becomes its own: a put or get by the transports of the node, or an operation that waits for the
 * barrier of a fence.
 */

import type { Request } from '../../api/contract/request.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker } from './operation.ts';
import type { StepStart } from './staged/staging.ts';

/** The operation. */
export class InnerOperation extends DeviceOperation {
  declare readonly request: UcpRequest;
  readonly #start: StepStart;
  readonly #barrier: DeviceOperation | undefined;

  /** @param barrier operation that has to end first; undefined to begin at once */
  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    start: StepStart,
    barrier?: DeviceOperation,
  ) {
    super(tracker, endpoint, request);
    this.#start = start;
    this.#barrier = barrier;
  }

  protected override begin(): void {
    if (this.#barrier === undefined) this.#run();
    else this.#barrier.addWaiter(this.wait(() => this.#run()));
  }

  #run(): void {
    this.run(
      (params) => this.#start({ ...params, noImmediateCompletion: true }),
      (_status, _error, ended) => {
        if (ended !== undefined) this.#take(ended);
      },
    );
  }

  #take(ended: Request): void {
    const { request } = this;
    const { transport, device, protocol, atomicResult } = ended;
    request.transfers = ended instanceof UcpRequest ? ended.transfers : 0;
    request.nodeBytes = ended instanceof UcpRequest ? ended.nodeBytes : request.byteLength;
    request.transport = transport;
    request.device = device;
    request.protocol = protocol;
    request.atomicResult = atomicResult;
  }
}
