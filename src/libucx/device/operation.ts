/**
 * A composite operation on device memory, and the tracker of those in flight: a flush waits for them, and closing their endpoint ends them. An operation
 * consists of steps (copies and calls of libucp, which always end), and waits for messages of the peer, which are given up when the operation fails.
 *
 * ```
 * STARTING --start() returns--> RUNNING --last part ends: the request ends too--> ENDED
 * '---- last part ends: the caller of start() gets the result -----------------^
 * ```
 */

import type { Request } from '../../api/contract/request.ts';
import { CountedCompletion, Parts } from '../../api/operation/completion.ts';
import { Status } from '../../ucs/type/status.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import { UcpRequest } from '../request/request.ts';
import type { CardSteps, StepDone, StepStart } from './steps.ts';

/** State of an operation: see the diagram above. */
const OperationState = { STARTING: 0, RUNNING: 1, ENDED: 2 } as const;
type OperationState = (typeof OperationState)[keyof typeof OperationState];

export abstract class DeviceOperation extends CountedCompletion {
  /** Counts {@link start} as the first part. */
  override count = 1;
  /** Undefined for an operation on all endpoints. */
  readonly endpoint: EngineEndpoint | undefined;
  /** Undefined for an internal operation. */
  readonly request: UcpRequest | undefined;
  readonly staging: CardSteps;
  readonly #tracker: OperationTracker;
  /** Called with OK when the operation ends, also if it failed. */
  #waiters: ((status: Status) => void)[] | undefined;
  /** Functions that end the pending waits. */
  #waits: Set<() => void> | undefined;
  #state: OperationState = OperationState.STARTING;

  constructor(tracker: OperationTracker, endpoint: EngineEndpoint | undefined, request: UcpRequest | undefined) {
    super();
    this.#tracker = tracker;
    this.staging = tracker.staging;
    this.endpoint = endpoint;
    this.request = request;
    tracker.add(this);
  }

  /** Whether it has ended. If it ended in {@link start}, the request has not. */
  get hasEnded(): boolean {
    return this.#state === OperationState.ENDED;
  }

  /** Starts as many parts as possible. */
  start(): void {
    this.begin();
    this.complete(Status.OK);
    if (!this.hasEnded) this.#state = OperationState.RUNNING;
  }

  protected abstract begin(): void;

  /** Called when the endpoint has failed or is closed: no more parts start. Steps in flight still complete. */
  abort(status: Status): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    this.staging.schedule(() => this.onFailed());
  }

  /** Cancels the parts that were not started, if the operation supports it: a task ends it with CANCELED when the steps in flight have completed. */
  cancel(): void {}

  /** Adds a function that a task calls when the operation has ended. */
  addWaiter(waiter: (status: Status) => void): void {
    if (this.hasEnded) {
      this.staging.schedule(() => waiter(Status.OK));
      return;
    }
    this.#waiters ??= [];
    this.#waiters.push(waiter);
  }

  /** Ends the operation with the first failure, or OK. */
  onComplete(): void {
    const isStarting = this.#state === OperationState.STARTING;
    this.#state = OperationState.ENDED;
    this.#tracker.remove(this);
    for (const waiter of this.#waiters ?? []) this.staging.schedule(() => waiter(Status.OK));
    if (!isStarting) this.request?.end(this.failure);
  }

  /**
   * Starts a step, unless the operation has failed: see CardSteps.run.
   * @param done called before a failure of the step fails the operation
   */
  protected run(start: StepStart, done?: StepDone): boolean {
    this.count += 1;
    return this.staging.run(
      (params) => this.#tryStart(start, params),
      (status, error, ended) => {
        done?.(status, error, ended);
        this.fail(status, error);
        this.complete(Status.OK);
      },
    );
  }

  /** Starts a wait. @returns a function that ends it and, unless the operation has failed, calls `then` */
  protected wait(then: () => void): () => void {
    this.count += 1;
    const end = (): void => {
      if (this.#waits?.delete(end) !== true) return;
      if (this.failure === Status.OK) then();
      this.complete(Status.OK);
    };
    this.#waits ??= new Set();
    this.#waits.add(end);
    return end;
  }

  /** Records the first failure. */
  protected fail(status: Status, error?: unknown): void {
    if (status >= 0 || this.failure !== Status.OK) return;
    this.failure = status;
    if (this.request !== undefined) this.request.error ??= error;
    this.onFailed();
  }

  /** Called by a task or by {@link fail} after the first failure. */
  protected onFailed(): void {
    for (const end of [...(this.#waits ?? [])]) end();
  }

  #tryStart(start: StepStart, params: Parameters<StepStart>[0]): ReturnType<StepStart> {
    const { endpoint } = this;
    if (this.failure !== Status.OK) return this.failure;
    if (endpoint?.isFenced !== true) return start(params);
    // The operation began before the barriers of later fences, so those wait for it.
    endpoint.isFenced = false;
    try {
      return start(params);
    } finally {
      endpoint.isFenced = true;
    }
  }
}

export class OperationTracker {
  readonly staging: CardSteps;
  readonly #ofEndpoints: Map<EngineEndpoint | undefined, Set<DeviceOperation>> = new Map();

  constructor(staging: CardSteps) {
    this.staging = staging;
  }

  get isEmpty(): boolean {
    return this.#ofEndpoints.size === 0;
  }

  /** Operations in flight of an endpoint; undefined selects those of the whole worker. */
  of(endpoint: EngineEndpoint | undefined): readonly DeviceOperation[] {
    if (endpoint !== undefined) return [...(this.#ofEndpoints.get(endpoint) ?? [])];
    return [...this.#ofEndpoints.values()].flatMap((operations) => [...operations]);
  }

  add(operation: DeviceOperation): void {
    const { endpoint } = operation;
    if (endpoint !== undefined) endpoint.unconfirmed += 1;
    const operations = this.#ofEndpoints.get(endpoint);
    if (operations === undefined) this.#ofEndpoints.set(endpoint, new Set([operation]));
    else operations.add(operation);
  }

  remove(operation: DeviceOperation): void {
    const { endpoint } = operation;
    if (endpoint !== undefined) endpoint.unconfirmed -= 1;
    const operations = this.#ofEndpoints.get(endpoint);
    if (operations?.delete(operation) === true && operations.size === 0) this.#ofEndpoints.delete(endpoint);
  }

  abort(endpoint: EngineEndpoint, status: Status): void {
    for (const operation of this.of(endpoint)) operation.abort(status);
  }
}

/*
 * Flush of an endpoint or of a worker: waits for the operations in flight, then runs the flushes of its parts. Also the barrier for operations after
 * a fence.
 */

/** The flushes of everything that an endpoint passed to libucp and to the native transports. */
export function partsOf(endpoint: EngineEndpoint): readonly StepStart[] {
  return [
    (params) => endpoint.flushUcp(params),
    (params) => endpoint.openNativeEndpoint?.flushNbx(params) ?? Status.OK,
  ];
}

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

  override cancel(): void {
    this.abort(Status.CANCELED);
  }

  #flush(): void {
    for (const part of this.#parts) this.run(part);
  }
}

/*
 * An operation executed by another one, whose result becomes its own: a put or get by the native transports, or an operation that waits for the
 * barrier of a fence.
 */

export class InnerOperation extends DeviceOperation {
  declare readonly request: UcpRequest;
  readonly #start: StepStart;
  readonly #barrier: DeviceOperation | undefined;
  #inner: Request | undefined;

  /** @param barrier operation that must end first; undefined to start at once */
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

  override cancel(): void {
    if (this.#inner !== undefined) this.#inner.cancel();
    else this.abort(Status.CANCELED);
  }

  #run(): void {
    this.run(
      (params) => {
        const started = this.#start({ ...params, noImmediateCompletion: true });
        if (typeof started !== 'number') this.#inner = started;
        return started;
      },
      (_status, _error, ended) => {
        this.#inner = undefined;
        if (ended !== undefined) this.#take(ended);
      },
    );
  }

  #take(ended: Request): void {
    const { request } = this;
    const { transport, device, protocol, atomicResult } = ended;
    request.transfers = ended instanceof UcpRequest ? ended.transfers : 0;
    request.nativeBytes = ended instanceof UcpRequest ? ended.nativeBytes : request.byteLength;
    request.transport = transport;
    request.device = device;
    request.protocol = protocol;
    request.atomicResult = atomicResult;
  }
}
