/**
 * The requests of one worker: hands them out, starts them, and takes them back. What they do is set by who describes them.
 */

import { ObjectPool } from '../../ucs/datastruct/object-pool.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { RequestParams } from '../api/request.ts';
import { type PeerConnection, start } from './peer-connection.ts';
import { Request, RequestKind, type RequestOwner } from './request.ts';

/** Requests of one worker that may be in use; beyond it operations return NO_RESOURCE. */
export const REQUESTS_MAX = 4096;

/** Of these, sends of messages: their ends may need receives of both workers, which need requests too. */
export const SENDS_MAX: number = (REQUESTS_MAX * 3) / 4;

/** The requests. */
export class RequestPool {
  readonly #pool: ObjectPool<Request>;
  #sends = 0;

  constructor(owner: RequestOwner) {
    this.#pool = new ObjectPool(REQUESTS_MAX, () => new Request(owner));
  }

  /** Requests in use. */
  get inUse(): number {
    return this.#pool.inUse;
  }

  /** A request, or undefined at the bound. */
  get(): Request | undefined {
    return this.#pool.get();
  }

  /** A request that sends a message, or undefined at its bound. */
  getSend(): Request | undefined {
    if (this.#sends >= SENDS_MAX) return undefined;
    const request = this.#pool.get();
    if (request === undefined) return undefined;
    request.isSend = true;
    this.#sends += 1;
    return request;
  }

  /** Starts a described request; see Endpoint.putNbx for what is returned. */
  start(request: Request, params: RequestParams | undefined): Status | Request {
    if (params?.callback !== undefined && typeof params.callback !== 'function') {
      this.discard(request);
      throw invalidParam('callback', 'must be a function', params.callback);
    }
    const connection = request.connection as PeerConnection | undefined;
    const waits = connection?.hasPending === true && request.kind !== RequestKind.RECEIVE;
    const status = waits ? Status.NO_RESOURCE : start(request);
    if (request.error !== undefined && status < 0) {
      const { error } = request;
      request.callback = undefined;
      // Those who look on hear how it ended.
      if (!request.isCompleted) request.end(status);
      this.discard(request);
      throw error;
    }
    if (status === Status.NO_RESOURCE) connection!.queue(request);
    const goesOn = status === Status.NO_RESOURCE || (status === Status.INPROGRESS && !request.isCompleted);
    const wantsRequest = params?.noImmediateCompletion === true;
    if (goesOn || wantsRequest) {
      request.callback = params?.callback;
      request.userData = params?.userData;
    }
    return goesOn ? request : this.#ended(request, status, wantsRequest);
  }

  /** Gives back a request that has ended; see Request.free. */
  free(request: Request): void {
    if (request.kind === RequestKind.NONE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted) throw statusError(Status.BUSY, 'free a request that has not ended');
    this.#recycle(request);
  }

  /** Gives back a request that was never started. */
  discard(request: Request): void {
    request.callback = undefined;
    if (!request.isCompleted) request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** A request that has ended while it was started. */
  #ended(request: Request, status: Status, wantsRequest: boolean): Status | Request {
    // Some end themselves inside their start, before anybody could listen.
    if (request.isCompleted) request.callback?.(request, request.status);
    else request.end(status);
    // The callback may have freed it.
    if (request.kind === RequestKind.NONE) return status === Status.INPROGRESS ? Status.OK : status;
    if (wantsRequest) return request;
    const final = request.status;
    this.#recycle(request);
    return final;
  }

  #recycle(request: Request): void {
    request.kind = RequestKind.NONE;
    if (request.isSend) this.#sends -= 1;
    request.isSend = false;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    this.#pool.put(request);
  }
}
