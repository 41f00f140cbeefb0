/**
 * An operation executed by another one: a put or get by the transports of the node, or an operation that waits for the barrier of a fence. Its result
 * becomes the result of the request.
 *
 * ```
 * BLOCKED --barrier ended--> WAITING --begin--> RUNNING --callback--> DONE
 *    |                          |  ^--NO_RESOURCE--'
 *    '-------- failure ---------'-----------------------------------> DONE
 * ```
 */

import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import { DeviceOperation, type OperationTracker, type OperationWaiter } from './operation.ts';

/** Starts the operation itself. */
export type InnerStart = (params: RequestParams) => Status | Request;

/** State of the operation: see the diagram above. */
const InnerState = { BLOCKED: 0, WAITING: 1, RUNNING: 2, DONE: 3 } as const;
type InnerState = (typeof InnerState)[keyof typeof InnerState];

/** The operation. */
export class InnerOperation extends DeviceOperation implements OperationWaiter {
  readonly #begin: InnerStart;
  #state: InnerState;

  /** @param barrier operation that has to end first; undefined to begin at once */
  constructor(
    tracker: OperationTracker,
    [endpoint, request]: readonly [EngineEndpoint, UcpRequest],
    begin: InnerStart,
    barrier?: DeviceOperation,
  ) {
    super(tracker, endpoint, request);
    this.#begin = begin;
    this.#state = barrier === undefined ? InnerState.WAITING : InnerState.BLOCKED;
    barrier?.addWaiter(this);
  }

  operationEnded(): void {
    if (this.#state === InnerState.BLOCKED) this.#state = InnerState.WAITING;
    this.wake();
  }

  protected override advance(): void {
    if (this.#state === InnerState.WAITING && this.failure === Status.OK) this.#start();
    else if (this.#state < InnerState.RUNNING && this.failure !== Status.OK) this.#state = InnerState.DONE;
    if (this.#state === InnerState.DONE) this.end();
  }

  #start(): void {
    this.#state = InnerState.RUNNING;
    const started = this.#tryBegin();
    if (typeof started !== 'number') return;
    if (started === Status.NO_RESOURCE) {
      this.#state = InnerState.WAITING;
      this.wake();
      return;
    }
    if (started < 0) this.failure = started;
    this.#state = InnerState.DONE;
  }

  #tryBegin(): Status | Request {
    const { endpoint } = this;
    const { isFenced } = endpoint;
    // It passes the barriers of later fences: those wait for it.
    endpoint.isFenced = false;
    try {
      return this.#begin({ noImmediateCompletion: true, callback: this.#onEnd });
    } catch (error) {
      // After a barrier, keys and memory may be released, and the endpoint may be closing.
      this.request!.error = error;
      return isUcxError(error) ? error.status : Status.IO_ERROR;
    } finally {
      endpoint.isFenced = isFenced;
    }
  }

  /** Also called inside calls of C. */
  readonly #onEnd = (ended: Request, status: Status): void => {
    const request = this.request!;
    request.transport = ended.transport;
    request.device = ended.device;
    request.protocol = ended.protocol;
    request.atomicResult = ended.atomicResult;
    request.error = ended.error;
    ended.free();
    if (status < 0) this.failure = status;
    this.#state = InnerState.DONE;
    this.wake();
  };
}
