/**
 * An operation on memory of cards that takes several steps, and the tracker of those in flight: flushes wait for them, and closing their endpoint
 * ends them.
 *
 * ```
 * STARTING --start() returns--> RUNNING --end(): the request ends too--> ENDED
 *     '---- end(): the caller of start() gets the result -----------------^
 * ```
 */

import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { UcpRequest } from '../request/request.ts';
import type { Staging } from './staged/staging.ts';

/** Waits for operations to end. */
export interface OperationWaiter {
  operationEnded(): void;
}

/** State of an operation: see the diagram above. */
const OperationState = { STARTING: 0, RUNNING: 1, ENDED: 2 } as const;
type OperationState = (typeof OperationState)[keyof typeof OperationState];

/** An operation. */
export abstract class DeviceOperation {
  readonly endpoint: EngineEndpoint;
  /** Undefined for an internal operation. */
  readonly request: UcpRequest | undefined;
  /** OK until it fails. */
  failure: Status = Status.OK;
  readonly staging: Staging;
  readonly #tracker: OperationTracker;
  #waiters: OperationWaiter[] | undefined;
  #state: OperationState = OperationState.STARTING;
  #isScheduled = false;

  constructor(tracker: OperationTracker, endpoint: EngineEndpoint, request: UcpRequest | undefined) {
    this.#tracker = tracker;
    this.staging = tracker.staging;
    this.endpoint = endpoint;
    this.request = request;
    tracker.add(this);
  }

  /** Whether it has ended. If {@link start} ended it, the request has not. */
  get hasEnded(): boolean {
    return this.#state === OperationState.ENDED;
  }

  /** Starts as much as possible. */
  start(): void {
    this.advance();
    if (!this.hasEnded) this.#state = OperationState.RUNNING;
  }

  /** Executes the next steps, and calls {@link end} when there are none left. */
  protected abstract advance(): void;

  /** Called when the endpoint has failed or is closed: nothing may be started on it any more. Steps in flight end by themselves. */
  abort(status: Status): void {
    if (this.failure === Status.OK) this.failure = status;
    this.wake();
  }

  /** Schedules {@link advance}. May be called from anywhere, including calls of C. */
  wake(): void {
    if (this.#isScheduled || this.hasEnded) return;
    this.#isScheduled = true;
    this.staging.schedule(() => {
      this.#isScheduled = false;
      if (!this.hasEnded) this.advance();
    });
  }

  /** Ends it with its failure, or OK. */
  protected end(): void {
    const isStarting = this.#state === OperationState.STARTING;
    this.#state = OperationState.ENDED;
    this.#tracker.remove(this);
    for (const waiter of this.#waiters ?? []) waiter.operationEnded();
    if (!isStarting) this.request?.end(this.failure);
  }

  /** Adds a waiter that is called at the end. */
  addWaiter(waiter: OperationWaiter): void {
    this.#waiters ??= [];
    this.#waiters.push(waiter);
  }
}

/** The operations of one worker. */
export class OperationTracker {
  readonly staging: Staging;
  readonly #ofEndpoints: Map<EngineEndpoint, Set<DeviceOperation>> = new Map();

  constructor(staging: Staging) {
    this.staging = staging;
  }

  get isEmpty(): boolean {
    return this.#ofEndpoints.size === 0;
  }

  /** Endpoints with operations in flight. */
  endpoints(): readonly EngineEndpoint[] {
    return [...this.#ofEndpoints.keys()];
  }

  /** Operations of an endpoint in flight. */
  of(endpoint: EngineEndpoint): readonly DeviceOperation[] {
    return [...(this.#ofEndpoints.get(endpoint) ?? [])];
  }

  add(operation: DeviceOperation): void {
    const { endpoint } = operation;
    endpoint.unconfirmed += 1;
    const operations = this.#ofEndpoints.get(endpoint);
    if (operations === undefined) this.#ofEndpoints.set(endpoint, new Set([operation]));
    else operations.add(operation);
  }

  remove(operation: DeviceOperation): void {
    const { endpoint } = operation;
    endpoint.unconfirmed -= 1;
    const operations = this.#ofEndpoints.get(endpoint)!;
    operations.delete(operation);
    if (operations.size === 0) this.#ofEndpoints.delete(endpoint);
  }

  /** See {@link DeviceOperation.abort}, for all operations of an endpoint. */
  abort(endpoint: EngineEndpoint, status: Status): void {
    for (const operation of this.of(endpoint)) operation.abort(status);
  }
}
