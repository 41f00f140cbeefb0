/** The pool of requests of one worker: acquires requests with parameters for libucp, starts and frees them. */

import type { Request, RequestParams } from '../../api/contract/request.ts';
import { CoarseClock } from '../../api/snapshot/summary.ts';
import { ObjectPool } from '../../ucs/datastruct/object-pool.ts';
import { operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { type Carrier, RequestQuery } from '../c/queries.ts';
import { OperationCounters } from './counters.ts';
import { ParameterBlock } from './parameters.ts';
import { Polling } from './polling.ts';
import {
  ALONE,
  type PlainCall,
  RequestKind,
  type RequestOwner,
  RequestState,
  TRANSPORT,
  UcpRequest,
} from './request.ts';

export class Requests implements RequestOwner {
  readonly operations: OperationCounters;
  innerDepth = 0;
  /** Parameters of the operation that is being started. */
  readonly parameters: ParameterBlock = new ParameterBlock();
  readonly polling: Polling;
  readonly #query: RequestQuery;
  /** Clock for the start times of requests in snapshots. */
  readonly coarse: CoarseClock;
  /** Limit of requests in use. */
  readonly max: number;
  readonly #events: Readonly<Record<'onFreed' | 'onDue' | 'onStarted', () => void>>;
  readonly #worker: number;
  readonly #functions: LibucpFunctions;
  readonly #pool: ObjectPool<UcpRequest>;
  /** Requests by index. */
  readonly #all: (UcpRequest | undefined)[] = [];
  /** Indices of requests that the pool did not keep. */
  readonly #freeIndices: number[] = [];
  /** Number of endpoints that have failed or are being closed: libucp must not be queried about their requests. */
  #lost = 0;

  /**
   * @param worker the handle of libucp
   * @param services the clock; the log for a trace; the limit of requests in use, beyond which operations return NO_RESOURCE: see UCX_REQUESTS_MAX
   * @param events onFreed: a request was freed; onDue: {@link polling} has work that libucp does not report; onStarted: an operation continues after its
   * call
   */
  constructor(
    functions: LibucpFunctions,
    worker: number,
    { clock, log, requestsMax }: { readonly clock: Clock; readonly log: Log; readonly requestsMax: number },
    events: Readonly<Record<'onFreed' | 'onDue' | 'onStarted', () => void>>,
  ) {
    this.operations = new OperationCounters(clock, log);
    this.coarse = new CoarseClock(clock);
    this.max = requestsMax;
    this.#worker = worker;
    this.#events = events;
    this.#functions = functions;
    this.polling = new Polling(functions, this.#all, clock, { onDue: events.onDue, onQuiet: () => this.coarse.look() });
    this.#pool = new ObjectPool(requestsMax, () => {
      const index = this.#freeIndices.pop() ?? this.#all.length;
      const request = new UcpRequest(this, index);
      this.#all[index] = request;
      return request;
    });
    this.#query = new RequestQuery(functions);
  }

  /** Requests by index, in use or not; undefined for unused indices. */
  get all(): readonly (UcpRequest | undefined)[] {
    return this.#all;
  }

  get inUse(): number {
    return this.#pool.inUse;
  }

  /** Acquires a request with {@link parameters} for an operation of libucp; undefined at the limit. */
  begin(kind: RequestKind, protocol: string): UcpRequest | undefined {
    const request = this.#pool.get();
    if (request === undefined) return undefined;
    const { parameters, polling } = this;
    const isPolled = polling.polls(kind);
    request.begin(kind, isPolled ? RequestState.POLLED : RequestState.REPORTED, protocol);
    request.lostBefore = this.#lost;
    if (isPolled) parameters.reset();
    else parameters.resetTo(polling.callbackOf[kind]!, request.index);
    // libucp 1.13 returns the tag of a receive that completes at once only in a request.
    if (kind === RequestKind.TAG_RECV || this.#isObserved(request)) parameters.requireRequest();
    else if (kind !== RequestKind.SEND) parameters.setReceiveInfo(polling.info);
    return request;
  }

  /**
   * True if an operation on plain memory may be started with {@link ParameterBlock.plainFor}: a request will be available, and can be polled.
   * @param isImmediate false if the program requires a request
   */
  canStartWithoutRequest(kind: RequestKind, isImmediate: boolean): boolean {
    // Observed operations always have a request.
    if (operationEnd.hasSubscribers) return false;
    return isImmediate && this.polling.canFollow(kind) && this.#pool.inUse < this.#pool.capacity;
  }

  /**
   * Handles the result of an operation that was started with {@link ParameterBlock.plainFor}.
   * @param pointer 0 or a failure if the operation has ended, else the libucp request
   * @param operation its local memory stays pinned until it ends
   */
  startedWithoutRequest(kind: RequestKind, pointer: number, protocol: string, operation: PlainCall): Status | Request {
    const { local, byteLength, rkey, params } = operation;
    if (pointer <= 0) {
      if (this.innerDepth === 0) this.operations.count(protocol, kind === RequestKind.TAG_RECV, byteLength, pointer);
      return statusOf(pointer);
    }
    const request = this.#pool.get()!;
    request.begin(kind, RequestState.POLLED, protocol);
    request.lostBefore = this.#lost;
    request.transport = TRANSPORT;
    request.pin(local, byteLength);
    if (rkey !== undefined) request.pinKey(rkey);
    this.polling.follow(request, pointer);
    return this.adopt(request, params);
  }

  /** Acquires a request for a composite operation; undefined at the limit. */
  beginComposite(protocol: string): UcpRequest | undefined {
    const request = this.#pool.get();
    request?.begin(RequestKind.COMPOSITE, RequestState.REPORTED, protocol);
    return request;
  }

  /** Runs code that starts suboperations, which are neither counted nor observed. */
  runInner<T>(run: () => T): T {
    this.innerDepth += 1;
    try {
      return run();
    } finally {
      this.innerDepth -= 1;
    }
  }

  /**
   * Handles the result of starting an operation.
   * @param pointer 0 or a failure if the operation has ended, else the libucp request
   */
  started(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer <= 0) return this.endedAtOnce(request, statusOf(pointer), params);
    if (request.state === RequestState.POLLED && this.#isObserved(request)) {
      const status = this.#functions.ucp_request_check_status(pointer);
      if (status !== Status.INPROGRESS) {
        request.spend(pointer);
        return this.endedAtOnce(request, status, params);
      }
    }
    this.polling.follow(request, pointer);
    return this.adopt(request, params);
  }

  /** {@link started} for a receive of a tagged message, which may have matched at once. */
  receiveStarted(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer > 0 && request.state === RequestState.POLLED) {
      const status = this.#functions.ucp_tag_recv_request_test(pointer, this.polling.info);
      if (status !== Status.INPROGRESS) {
        this.polling.takeTagInfo(request);
        this.#functions.ucp_request_free(pointer);
        return this.endedAtOnce(request, status, params);
      }
    }
    return this.started(request, pointer, params);
  }

  /** Returns a pending operation to the application. */
  adopt(request: UcpRequest, params: RequestParams | undefined): Request {
    request.startMs = this.coarse.nowMs;
    this.#events.onStarted();
    if (!request.isInner) this.operations.countRequest();
    if (params !== undefined) {
      request.callback = params.callback;
      request.userData = params.userData;
    }
    return request;
  }

  /** Handles an operation that completed in its call. */
  endedAtOnce(request: UcpRequest, status: Status, params: RequestParams | undefined): Status | Request {
    if (request.deferEnd?.(request, status) === true) return this.adopt(request, params);
    if (params?.noImmediateCompletion !== true) {
      request.end(status);
      const final = request.status;
      this.#recycle(request);
      return final;
    }
    request.callback = params.callback;
    request.userData = params.userData;
    if (!request.isInner) this.operations.countRequest();
    request.end(status);
    // The callback may have freed it.
    return request.state === RequestState.FREE ? request.status : request;
  }

  /** The carrier of a succeeded operation; undefined if libucp does not report it, or must not be queried any more. */
  carrierOf({ spent, status, lostBefore }: UcpRequest): Carrier | undefined {
    const isThere = spent !== 0 && status === Status.OK && lostBefore === this.#lost;
    return isThere ? this.#query.carrierOf(spent) : undefined;
  }

  /** Called when an endpoint has failed or is being closed. */
  endpointLost(): void {
    this.#lost += 1;
  }

  /** Whether an observer will read the carrier of an operation: it then needs a libucp request, even if it completes at once. */
  #isObserved({ kind, protocol, startNs }: UcpRequest): boolean {
    return startNs >= 0 && kind === RequestKind.SEND && protocol.endsWith(ALONE);
  }

  /** Requests cancellation by libucp. @returns true if it has ended with CANCELED; false if it will still end, completed or canceled */
  cancel(request: UcpRequest): boolean {
    if (request.isCompleted) return false;
    request.isCanceled = true;
    if (request.abandon !== undefined) return request.abandon();
    if (request.handle === 0) return false;
    this.#functions.ucp_request_cancel(this.#worker, request.handle);
    if (!this.polling.takeCanceled(request)) return false;
    if (request.deferEnd?.(request, Status.CANCELED) === true) return false;
    request.end(Status.CANCELED);
    return true;
  }

  cancelAll(): void {
    for (const request of this.#all)
      if (request !== undefined && request.state !== RequestState.FREE) this.cancel(request);
  }

  /** See Request.free. */
  free(request: UcpRequest): void {
    if (request.state === RequestState.FREE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted)
      throw statusError(Status.BUSY, 'cannot free a request that has not ended (wait for it, or cancel it first)');
    this.#recycle(request);
    this.#events.onFreed();
  }

  /** Releases a request that was never started. */
  discard(request: UcpRequest): void {
    request.callback = undefined;
    request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** Call this when libucp has no requests any more. */
  close(): void {
    this.polling.close();
    this.#query.close();
    this.parameters.close();
  }

  #recycle(request: UcpRequest): void {
    this.polling.release(request);
    request.state = RequestState.FREE;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    // A request in the pool must not keep memory of the program alive.
    request.deferEnd = undefined;
    if (this.#pool.put(request)) return;
    this.#all[request.index] = undefined;
    this.#freeIndices.push(request.index);
  }
}
