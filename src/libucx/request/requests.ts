/**
 * The requests of one worker, and the detection of their end. A few are polled in every progress, which is fastest; callbacks of libucp
 * report the others. Callbacks of the application never run inside calls of C.
 */

import type { Request, RequestParams } from '../../api/contract/request.ts';
import { CoarseClock } from '../../api/snapshot/summary.ts';
import { allocateScratch, memcpy, type ScratchBlock } from '../../sys/index.ts';
import { ObjectPool } from '../../ucs/datastruct/object-pool.ts';
import { operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { joinWords } from '../../ucs/type/int64.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import { UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { type Carrier, RequestQuery } from '../c/queries.ts';
import { OperationCounters } from './counters.ts';
import { EndCallbacks } from './end-callbacks.ts';
import { OverdueRequests } from './overdue-requests.ts';
import { OperationParameters } from './parameters.ts';
import {
  ALONE,
  type PlainCall,
  RequestKind,
  type RequestOwner,
  RequestState,
  TRANSPORT,
  UcpRequest,
} from './request.ts';

/** Maximum number of requests that are polled in progress: 16 ns each, compared to 70 ns for a callback. */
const POLLED_MAX = 4;
/** Maximum number of polled requests, including those of sends that did not end at once. */
const FOLLOWED_MAX = 32;
/** Number of ended requests of libucp that are freed together, when there is nothing else to do. */
const SPENT_MAX = 16;
/** Statuses of operations whose peer cannot be reached any more. */
const LOST: readonly Status[] = [Status.CONNECTION_RESET, Status.ENDPOINT_TIMEOUT];
/** Mask for the number of progress calls: the polled requests are tested at every 64th one, even without a report of libucp. */
const QUIET_CALLS_MASK = 63;

/** The requests of one worker. */
export class Requests extends OperationParameters implements RequestOwner {
  readonly operations: OperationCounters;
  innerDepth = 0;
  /** Memory for the result of a receive that ends at once: a tag and a length, or a length. */
  readonly info: number;
  readonly #infoWords: Uint32Array;
  readonly #infoBlock: ScratchBlock;
  readonly #query: RequestQuery;
  /** The clock for the starts of requests, for snapshots. */
  readonly coarse: CoarseClock;
  /** Requests in use at most. */
  readonly max: number;
  readonly #events: Readonly<Record<'onFreed' | 'onDue' | 'onStarted', () => void>>;
  readonly overdue: OverdueRequests;
  /** The handle of libucp's worker. */
  readonly #worker: number;
  readonly #functions: LibucpFunctions;
  readonly #pool: ObjectPool<UcpRequest>;
  /** Requests by index. */
  readonly #all: (UcpRequest | undefined)[] = [];
  /** Indices of requests that the pool has not kept. */
  readonly #freeIndices: number[] = [];
  readonly #callbacks: EndCallbacks;
  /** Addresses of the callbacks, by the kind of the request. */
  readonly #callbackOf: readonly number[];
  readonly #polled: UcpRequest[] = [];
  /** Requests of libucp whose operations have ended and are not needed any more: waiters continue before they are freed. */
  readonly #spent: number[] = [];
  /** Requests that ended inside a call of C, with the status in `outcome`: their callbacks have not run. */
  #ended: UcpRequest[] = [];
  #progressCalls = 0;
  #inProgress = 0;
  /** Number of endpoints that have failed or are being closed: libucp may not be asked about their requests. */
  #lost = 0;

  /**
   * @param worker the handle of libucp
   * @param services the clock; the log for a trace; the maximum number of requests in use, beyond which operations return NO_RESOURCE: see UCX_REQUESTS_MAX
   * @param events onFreed: a request was freed; onDue: there is work for {@link progress} that libucp does not report; onStarted: an operation goes on
   * after its call
   */
  constructor(
    functions: LibucpFunctions,
    worker: number,
    { clock, log, requestsMax }: { readonly clock: Clock; readonly log: Log; readonly requestsMax: number },
    events: Readonly<Record<'onFreed' | 'onDue' | 'onStarted', () => void>>,
  ) {
    super();
    this.operations = new OperationCounters(clock, log);
    this.coarse = new CoarseClock(clock);
    this.max = requestsMax;
    this.#worker = worker;
    this.#events = events;
    this.#functions = functions;
    this.overdue = new OverdueRequests(functions, this.#all, clock, events.onDue);
    this.#pool = new ObjectPool(requestsMax, () => {
      const index = this.#freeIndices.pop() ?? this.#all.length;
      const request = new UcpRequest(this, index);
      this.#all[index] = request;
      return request;
    });
    const info = allocateScratch(UCP_TAG_RECV_INFO.size);
    this.info = info.address;
    this.#infoBlock = info;
    this.#infoWords = info.words;
    this.#query = new RequestQuery(functions);
    this.#callbacks = new EndCallbacks({
      onEnd: (handle, index, status) => this.#onEnd(handle, index, status),
      onTagEnd: (handle, index, status, received) => {
        memcpy(this.info, received, UCP_TAG_RECV_INFO.size);
        this.takeTagInfo(this.#all[index]!);
        this.#onEnd(handle, index, status);
      },
      onReceiveEnd: (handle, index, status, byteLength) => {
        if (!this.overdue.has(handle)) this.#all[index]!.receivedBytes = byteLength;
        this.#onEnd(handle, index, status);
      },
    });
    this.#callbackOf = this.#callbacks.addresses;
  }

  /** Requests by index, in use or not; undefined for indices without one. */
  get all(): readonly (UcpRequest | undefined)[] {
    return this.#all;
  }

  /** Number of requests in use. */
  get inUse(): number {
    return this.#pool.inUse;
  }

  /** Number of operations that libucp has not ended. */
  get inProgress(): number {
    return this.#inProgress;
  }

  /** True if requests have ended without their callbacks having run. */
  get hasEnded(): boolean {
    return this.#ended.length > 0;
  }

  /** A request for an operation of libucp, with its parameters in {@link param}; undefined at the limit. */
  begin(kind: RequestKind, protocol: string): UcpRequest | undefined {
    const request = this.#pool.get();
    if (request === undefined) return undefined;
    const isPolled = kind <= RequestKind.TAG_RECV && this.#polled.length < POLLED_MAX;
    request.begin(kind, isPolled ? RequestState.POLLED : RequestState.REPORTED, protocol);
    request.lostBefore = this.#lost;
    if (isPolled) this.resetParam();
    else this.resetParamTo(this.#callbackOf[kind]!, request.index);
    // A receive that ends at once does not return its tag (1.13); a request does.
    if (kind === RequestKind.TAG_RECV || this.#isAsked(request)) this.requireRequest();
    else if (kind !== RequestKind.SEND) this.setReceiveInfo(this.info);
    return request;
  }

  /**
   * True if an operation on plain memory may be started with {@link plainParameters}: a request will be available, and polled in progress.
   * @param isImmediate false if the program wants a request in any case
   */
  canStartWithoutRequest(kind: RequestKind, isImmediate: boolean): boolean {
    const most = kind === RequestKind.TAG_RECV ? POLLED_MAX : FOLLOWED_MAX;
    // Every observed operation has a request.
    if (operationEnd.hasSubscribers) return false;
    return isImmediate && this.#polled.length < most && this.#pool.inUse < this.#pool.capacity;
  }

  /**
   * Handles the result of an operation that was started with {@link plainParameters}.
   * @param pointer 0 or a failure if the operation has ended, else the request of libucp
   * @param operation its local memory stays pinned until the end
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
    request.handle = pointer;
    this.#inProgress += 1;
    this.#polled.push(request);
    return this.adopt(request, params);
  }

  /** A request for an operation made of several operations; undefined at the limit. */
  beginComposite(protocol: string): UcpRequest | undefined {
    const request = this.#pool.get();
    request?.begin(RequestKind.COMPOSITE, RequestState.REPORTED, protocol);
    return request;
  }

  /** Runs code that starts parts of operations, which are neither counted nor observed. */
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
   * @param pointer 0 or a failure if the operation has ended, else the request of libucp
   */
  started(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer <= 0) return this.endedAtOnce(request, statusOf(pointer), params);
    if (request.state === RequestState.POLLED && this.#isAsked(request)) {
      const status = this.#functions.ucp_request_check_status(pointer);
      if (status !== Status.INPROGRESS) {
        request.spend(pointer);
        return this.endedAtOnce(request, status, params);
      }
    }
    this.#inProgress += 1;
    // Its callback may have run inside the call.
    if (request.state < RequestState.ENDED) request.handle = pointer;
    if (request.state === RequestState.POLLED) this.#polled.push(request);
    return this.adopt(request, params);
  }

  /** Like {@link started} for a receive of a tagged message, which may have matched a message that had arrived. */
  receiveStarted(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer > 0 && request.state === RequestState.POLLED) {
      const status = this.#functions.ucp_tag_recv_request_test(pointer, this.info);
      if (status !== Status.INPROGRESS) {
        this.takeTagInfo(request);
        this.#functions.ucp_request_free(pointer);
        return this.endedAtOnce(request, status, params);
      }
    }
    return this.started(request, pointer, params);
  }

  /** Returns a continuing operation to the application. */
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

  /** Handles an operation that ended while it was started. */
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

  /** Reads the tag and the length of a received message from {@link info}. */
  takeTagInfo(request: UcpRequest): void {
    const words = this.#infoWords;
    request.tagLow = words[0]!;
    request.tagHigh = words[1]!;
    request.receivedBytes = joinWords(words[2]!, words[3]!);
  }

  /**
   * Ends the requests that libucp has ended, after it has made progress.
   * @param events number of events that libucp has reported
   */
  progress(events: number): number {
    let count = 0;
    this.#progressCalls = (this.#progressCalls + 1) & QUIET_CALLS_MASK;
    if (this.#progressCalls === 0) {
      this.coarse.look();
      this.overdue.poll();
    }
    if (this.overdue.isDue) this.overdue.progress(this.#endOverdue);
    if (this.#polled.length > 0 && (events > 0 || this.#progressCalls === 0)) {
      count += this.#polled.length === 1 && this.#ended.length === 0 ? this.#endOnly(this.#polled[0]!) : this.#poll();
    }
    if (this.#ended.length > 0) count += this.#runCallbacks();
    if (this.#spent.length > 0 && (events === 0 || this.#spent.length >= SPENT_MAX)) this.#freeSpent();
    return count;
  }

  /** Checks for ended operations before sleeping. */
  checkEnded(): boolean {
    if (this.#polled.length > 0) this.#poll();
    return this.#ended.length > 0 || this.overdue.isDue;
  }

  /** Polls the polled requests now: also a call that starts an operation may have ended others. */
  #poll(): number {
    const polled = this.#polled;
    let kept = 0;
    for (let i = 0; i < polled.length; i++) {
      const request = polled[i]!;
      const status = this.#statusOf(request);
      if (status === Status.INPROGRESS) {
        polled[kept++] = request;
      } else {
        request.spend(request.handle);
        this.#note(request, status);
      }
    }
    const count = polled.length - kept;
    // Not by setting the length, which releases the memory of an empty array.
    for (let i = 0; i < count; i++) polled.pop();
    return count;
  }

  /** Like {@link #poll} and {@link #runCallbacks} for a single request: the usual case of waiting for one message. */
  #endOnly(request: UcpRequest): number {
    const status = this.#statusOf(request);
    if (status === Status.INPROGRESS) return 0;
    this.#polled.pop();
    request.spend(request.handle);
    if (status < 0) {
      this.#note(request, status);
      return 0;
    }
    request.handle = 0;
    this.#inProgress -= 1;
    if (request.deferEnd?.(request, status) !== true) request.end(status);
    return 1;
  }

  #statusOf(request: UcpRequest): Status {
    if (request.kind !== RequestKind.TAG_RECV) return this.#functions.ucp_request_check_status(request.handle);
    const status = this.#functions.ucp_tag_recv_request_test(request.handle, this.info);
    if (status !== Status.INPROGRESS) this.takeTagInfo(request);
    return status;
  }

  /** A callback of C. */
  #onEnd(handle: number, index: number, status: Status): void {
    if (this.overdue.has(handle)) {
      if (this.overdue.ended(handle)) this.#spent.push(handle);
      return;
    }
    const request = this.#all[index]!;
    request.spend(handle);
    this.#note(request, status);
  }

  /** Records the end of an operation: its callback runs when libucp has returned. */
  #note(request: UcpRequest, status: Status): void {
    const { endpoint } = request;
    request.state = RequestState.ENDED;
    request.handle = 0;
    this.#inProgress -= 1;
    request.outcome = status;
    this.#ended.push(request);
    if (status >= 0 || endpoint === undefined) return;
    // After a failure, closing by force cancels.
    if (endpoint.status !== Status.OK && !request.isCanceled) {
      request.outcome = endpoint.status;
      request.error = endpoint.cause;
    }
    // The only report of the failure.
    else if (endpoint.isBorrowed && LOST.includes(status)) this.overdue.expect(endpoint, status);
  }

  /** Ends a request that libucp has not ended in time. */
  readonly #endOverdue = (request: UcpRequest, status: Status): void => {
    const at = this.#polled.indexOf(request);
    if (at >= 0) this.#polled.splice(at, 1);
    this.#note(request, status);
  };

  #freeSpent(): void {
    for (let pointer = this.#spent.pop(); pointer !== undefined; pointer = this.#spent.pop()) {
      this.#functions.ucp_request_free(pointer);
    }
  }

  /** Runs the callbacks. If one throws, progress throws, and the next progress runs the others. */
  #runCallbacks(): number {
    let count = 0;
    for (let request = this.#ended.shift(); request !== undefined; request = this.#ended.shift()) {
      const { outcome } = request;
      count += 1;
      if (request.deferEnd?.(request, outcome) !== true) request.end(outcome);
    }
    return count;
  }

  /** What carried an operation that has succeeded; undefined if libucp does not say, or may not be asked any more. */
  carrierOf({ spent, status, lostBefore }: UcpRequest): Carrier | undefined {
    const isThere = spent !== 0 && status === Status.OK && lostBefore === this.#lost;
    return isThere ? this.#query.carrierOf(spent) : undefined;
  }

  /** Called when an endpoint has failed or is being closed. */
  endpointLost(): void {
    this.#lost += 1;
  }

  /** Whether an observer will ask what carried an operation: then it needs a request of libucp, even if it ends at once. */
  #isAsked({ kind, protocol, startNs }: UcpRequest): boolean {
    return startNs >= 0 && kind === RequestKind.SEND && protocol.endsWith(ALONE);
  }

  /** Requests cancellation by libucp. @returns true if it has ended with CANCELED; else it ends by itself, completed or canceled */
  cancel(request: UcpRequest): boolean {
    if (request.isCompleted) return false;
    request.isCanceled = true;
    if (request.abandon !== undefined) return request.abandon();
    if (request.handle === 0) return false;
    this.#functions.ucp_request_cancel(this.#worker, request.handle);
    if (request.state === RequestState.POLLED) this.#poll();
    const at = this.#ended.indexOf(request);
    if (at < 0 || request.outcome !== Status.CANCELED) return false;
    this.#ended.splice(at, 1);
    if (request.deferEnd?.(request, Status.CANCELED) === true) return false;
    request.end(Status.CANCELED);
    return true;
  }

  /** Requests cancellation of all requests. */
  cancelAll(): void {
    for (const request of this.#all)
      if (request !== undefined && request.state !== RequestState.FREE) this.cancel(request);
  }

  /** Ends all operations with CANCELED, when libucp makes no progress any more. Returns how many of each kind. */
  abandonAll(): { readonly sends: number; readonly others: number } {
    for (const request of this.#all) if (request !== undefined) this.#release(request);
    this.#freeSpent();
    const abandoned = this.#all.filter(
      (request): request is UcpRequest => request !== undefined && request.handle !== 0,
    );
    this.#polled.length = 0;
    for (const request of abandoned) this.#note(request, Status.CANCELED);
    const sends = abandoned.filter(({ kind }) => kind === RequestKind.SEND).length;
    return { sends: sends + this.overdue.size, others: abandoned.length - sends };
  }

  /** See Request.free. */
  free(request: UcpRequest): void {
    if (request.state === RequestState.FREE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted) throw statusError(Status.BUSY, 'free a request that has not ended');
    this.#recycle(request);
    this.#events.onFreed();
  }

  /** Releases a request that was never started. */
  discard(request: UcpRequest): void {
    request.callback = undefined;
    request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** Releases the callbacks; libucp has no request any more. */
  close(): void {
    this.overdue.close();
    this.#callbacks.close();
    this.#infoBlock.free();
    this.#query.close();
    this.freeParam();
  }

  /** Releases the request of libucp, once its operation has ended. */
  #release(request: UcpRequest): void {
    if (request.spent === 0) return;
    this.#spent.push(request.spent);
    request.spent = 0;
  }

  #recycle(request: UcpRequest): void {
    this.#release(request);
    request.state = RequestState.FREE;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    // A request in the pool keeps no memory of the program.
    request.deferEnd = undefined;
    if (this.#pool.put(request)) return;
    this.#all[request.index] = undefined;
    this.#freeIndices.push(request.index);
  }
}
