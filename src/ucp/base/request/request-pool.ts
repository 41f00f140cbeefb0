/** The requests of one worker, with a pool for each kind: creates, starts and recycles them. The protocol that takes a request defines its operation. */

import type { RequestParams } from '../../../api/contract/request.ts';
import { checkedList, checkLocal, isRangeOfBytes } from '../../../api/memory/local.ts';
import { ObjectPool } from '../../../ucs/datastruct/object-pool.ts';
import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { MemAccess } from '../../../uct/api/memory-domain.ts';
import type { LocalBuffer, LocalMemory } from '../../mem/memory-handle.ts';
import type { Connection } from '../connection.ts';
import { RequestState, start } from '../queued.ts';
import { ListRequest } from './list-request.ts';
import { AtomicRequest, ReceiveRequest, RmaRequest, SendRequest } from './operation-requests.ts';
import { ConnectRequest, FlushRequest, type Request, type RequestOwner } from './request.ts';

/** Maximum number of requests for sends. The others remain for receives: if two workers send to each other, a send may need a receive of its worker to end. */
export function sendsMaxOf(requestsMax: number): number {
  return Math.ceil((requestsMax * 3) / 4);
}

export class RequestPool {
  readonly rmas: ObjectPool<RmaRequest>;
  readonly lists: ObjectPool<ListRequest>;
  readonly atomics: ObjectPool<AtomicRequest>;
  readonly sends: ObjectPool<SendRequest>;
  readonly receives: ObjectPool<ReceiveRequest>;
  readonly flushes: ObjectPool<FlushRequest>;
  readonly connects: ObjectPool<ConnectRequest>;
  /** All request objects, used or free, in any order. */
  readonly created: Request[] = [];
  /** Maximum number of requests in use. */
  readonly max: number;
  readonly #context: object;
  #inUse = 0;

  /**
   * @param context the context whose mapped memory can be received into
   * @param requestsMax maximum number of requests in use, beyond which operations return NO_RESOURCE: see UCX_REQUESTS_MAX
   */
  constructor(owner: RequestOwner, context: object, requestsMax: number) {
    this.#context = context;
    this.max = requestsMax;
    this.rmas = this.#poolOf(requestsMax, () => new RmaRequest(owner));
    this.lists = this.#poolOf(requestsMax, () => new ListRequest(owner));
    this.atomics = this.#poolOf(requestsMax, () => new AtomicRequest(owner));
    this.sends = this.#poolOf(sendsMaxOf(requestsMax), () => new SendRequest(owner));
    this.receives = this.#poolOf(requestsMax, () => new ReceiveRequest(owner));
    this.flushes = this.#poolOf(requestsMax, () => new FlushRequest(owner));
    this.connects = this.#poolOf(requestsMax, () => new ConnectRequest(owner));
  }

  /** Number of freed requests that had failed, and how many of those were cancelled. */
  failures = 0;
  canceled = 0;

  /** Requests in use. */
  get inUse(): number {
    return this.#inUse;
  }

  /** Takes a request of a pool; undefined if that pool, or all pools together, reached the limit. */
  take<R extends Request>(pool: ObjectPool<R>): R | undefined {
    const request = this.#inUse < this.max ? pool.get() : undefined;
    if (request !== undefined) this.#inUse += 1;
    return request;
  }

  /**
   * A receive into checked local memory; undefined at the limit.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED for memory that is unmapped
   */
  takeReceive(
    connection: Connection | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
  ): ReceiveRequest | undefined {
    const pieces = checkedList(this.#context, local, MemAccess.LOCAL_WRITE);
    // Fast path: a contiguous byte array.
    if (pieces === undefined && !isRangeOfBytes(local, localOffset, byteLength)) {
      const range = { local: local as LocalMemory, localOffset, byteLength };
      checkLocal(this.#context, range, MemAccess.LOCAL_WRITE);
    }
    const request = this.take(this.receives);
    if (request === undefined) return undefined;
    request.begin(connection, connection?.amLane);
    if (pieces === undefined) request.setMemory(local as LocalMemory, localOffset, byteLength);
    else request.setPieces(pieces);
    return request;
  }

  /** Starts an initialized request whose parameters are checked; see Endpoint.putNbx for the result. */
  start(request: Request, params: RequestParams | undefined, isBlocked: boolean): Status | Request {
    const { connection } = request;
    const waits = isBlocked || (connection?.hasPending === true && !(request instanceof ReceiveRequest));
    const status = waits ? Status.NO_RESOURCE : start(request);
    if (request.error !== undefined && status < 0) {
      const { error } = request;
      request.callback = undefined;
      // End it first, so that observers are notified.
      if (!request.isCompleted) request.end(status);
      this.discard(request);
      throw error;
    }
    if (status === Status.NO_RESOURCE) connection?.queue(request);
    const goesOn = status === Status.NO_RESOURCE || (status === Status.INPROGRESS && !request.isCompleted);
    const wantsRequest = params?.noImmediateCompletion === true;
    if (goesOn || wantsRequest) {
      request.callback = params?.callback;
      request.userData = params?.userData;
    }
    return goesOn ? request : this.#ended(request, status, wantsRequest);
  }

  /** Frees an ended request; see Request.free. */
  free(request: Request): void {
    if (request.state === RequestState.FREE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted)
      throw statusError(Status.BUSY, 'cannot free a request that has not ended (wait for it, or cancel it first)');
    this.#countEnd(request.status);
    this.#recycle(request);
  }

  /** Frees the request of an operation that failed before it was started. */
  discard(request: Request): void {
    this.failures += 1;
    request.callback = undefined;
    if (!request.isCompleted) request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** Called if a request ended within its start. */
  #ended(request: Request, status: Status, wantsRequest: boolean): Status | Request {
    // Some requests end within their start, before the callback is set.
    if (request.isCompleted) request.runCallback(request.status);
    else request.end(status);
    // The callback may have freed the request.
    if (request.state === RequestState.FREE) return status === Status.INPROGRESS ? Status.OK : status;
    if (wantsRequest) return request;
    const final = request.status;
    this.#countEnd(final);
    this.#recycle(request);
    return final;
  }

  #countEnd(status: Status): void {
    if (status < 0) this.failures += 1;
    if (status === Status.CANCELED) this.canceled += 1;
  }

  #recycle(request: Request): void {
    request.state = RequestState.FREE;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    this.#inUse -= 1;
    if (request.pool?.put(request) === false) this.#forget(request);
  }

  /** Removes a request that its pool did not keep. */
  #forget(request: Request): void {
    const last = this.created.pop()!;
    if (last === request) return;
    this.created[request.slot] = last;
    last.slot = request.slot;
  }

  #poolOf<R extends Request>(capacity: number, create: () => R): ObjectPool<R> {
    const pool: ObjectPool<R> = new ObjectPool(capacity, () => {
      const request = create();
      request.pool = pool;
      request.slot = this.created.length;
      this.created.push(request);
      return request;
    });
    return pool;
  }
}
