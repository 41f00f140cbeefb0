/**
 * A request of the engine over libucp.
 *
 * ```
 * FREE --begin()--> POLLED or REPORTED --libucp has ended it--> ENDED --end()--> COMPLETED --free()--> FREE
 *                        '---- ended in its call, or by its owner --------------------^
 * ```
 */

import {
  type Request as ApiRequest,
  checkCallback,
  type RequestCallback,
  type RequestParams,
  showRequests,
  TAG_MASK_FULL,
  type Tag,
} from '../../api/contract/request.ts';
import type { ScratchBlock } from '../../sys/index.ts';
import { joinBig } from '../../ucs/type/int64.ts';
import { Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { Carrier } from '../c/queries.ts';
import { type LocalBuffer, pin, unpin } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import type { OperationCounters } from './counters.ts';
import type { Registration } from './message-registrations.ts';

/** Transport name of requests whose lane libucp does not report: receives, failed operations, and operations that completed in their call. */
export const TRANSPORT = 'libucp';

/** Suffix of the protocols of operations that libucp executes alone. */
export const ALONE = '/libucp';

export const STREAM_RECEIVE = 'stream/recv';

/** State of a request: see the diagram above. */
export const RequestState = {
  FREE: 0,
  /** It is being started, or libucp has not ended it: progress polls it. */
  POLLED: 1,
  /** Like POLLED, but a callback of libucp reports its end, or its owner ends it. */
  REPORTED: 2,
  /** Its callback has not run. */
  ENDED: 3,
  /** Its status is final. */
  COMPLETED: 4,
} as const;
export type RequestState = (typeof RequestState)[keyof typeof RequestState];

/** An operation that libucp has started without a request of this engine. */
export interface PlainCall {
  readonly local: LocalBuffer;
  readonly byteLength: number;
  /** The key of a put or get. */
  readonly rkey: UcpRemoteKey | undefined;
  readonly params: RequestParams | undefined;
}

/** Selects the callback that reports the end of a request. */
export const RequestKind = { SEND: 0, TAG_RECV: 1, AM_RECV: 2, COMPOSITE: 3 } as const;
export type RequestKind = (typeof RequestKind)[keyof typeof RequestKind];

/** The services that a worker provides to its requests. */
export interface RequestOwner {
  /** See Request.free and Request.cancel. */
  free(request: UcpRequest): void;
  cancel(request: UcpRequest): boolean;
  /** Counts and reports operations of the program. */
  readonly operations: OperationCounters;
  /** The carrier of an ended operation; undefined if unknown. */
  carrierOf(request: UcpRequest): Carrier | undefined;
  /** Above 0 while the engine starts suboperations. */
  innerDepth: number;
}

export interface RequestEndpoint {
  /** Status with which it has failed. */
  readonly status: Status;
  /** Known cause of its failure, for the errors of its requests. */
  readonly cause: unknown;
  /** Identifies the worker of the peer: its native address, one character per byte. Empty if unknown. */
  readonly peerId: string;
  /** Whether libucp created it for a peer, and frees it without a report. */
  readonly isBorrowed: boolean;
  /** Fails its connection, because a message cannot be completed. */
  onFailed(status: Status): void;
  /** Closes its libucp handle by force, which ends its operations. @returns false if that is not possible, or was done before */
  dropHandle(): boolean;
}

export class UcpRequest implements ApiRequest {
  readonly thread: symbol = THREAD_BOUND;
  /** Index that libucp passes to callbacks. */
  readonly index: number;
  kind: RequestKind = RequestKind.COMPOSITE;
  state: RequestState = RequestState.FREE;
  status: Status = Status.OK;
  error: unknown = undefined;
  #callback: RequestCallback | undefined = undefined;
  userData: unknown = undefined;
  byteLength = 0;
  receivedBytes = 0;
  /** Tag of the received message, as two words. */
  tagLow = 0;
  tagHigh = 0;
  atomicResult = 0n;
  /** When it became pending, in milliseconds of the coarse clock of its worker: for snapshots. */
  startMs = 0;
  /** When it was started, for events; -1 if nothing observes it. */
  startNs = -1;
  /** Whether it is a suboperation of an operation of the program. */
  isInner = false;
  /** Number of libucp transfers: 1, or those of a list; 0 if the native interfaces have counted the transfer. */
  transfers = 1;
  /** Bytes that the native interfaces have moved and counted. */
  nativeBytes = 0;
  protocol = '';
  /** The libucp request; 0 if there is none. */
  handle = 0;
  /** The libucp request of an ended operation, until this request is freed; 0 if it is lent. */
  spent = 0;
  /** Whether the libucp request is in memory of the engine, in {@link scratch}, so that libucp does not free it. */
  isLent = false;
  /** Number of endpoints that were lost before its start. */
  lostBefore = 0;
  /** The status with which libucp has ended it, before {@link end}. */
  outcome: Status = Status.OK;
  /** Failure status of a send before it is passed to libucp, because a card cannot read its memory. */
  startFailure: Status = Status.OK;
  /** The tag that a receive waits for, and its mask; undefined once it is matched. */
  wantedTag: Tag | undefined = undefined;
  wantedMask: Tag = TAG_MASK_FULL;
  /** Whether its cancellation was requested. */
  isCanceled = false;
  /** The endpoint that sends a message: it fails if the message cannot be read. */
  sender: RequestEndpoint | undefined = undefined;
  /** The endpoint of an operation that libucp executes: its requests end with it. */
  endpoint: RequestEndpoint | undefined = undefined;
  /** Local memory in the form that libucp needs: address, and number of bytes or of datatype elements. */
  address = 0;
  count = 0;
  /** Local memory, which must be neither collected nor unmapped before the end. */
  pinned: LocalBuffer | undefined = undefined;
  /** The remote key, which must not be destroyed before the end. */
  rkey: UcpRemoteKey | undefined = undefined;
  /** Memory that libucp reads or writes until the end: lists, headers, words of atomic operations. */
  scratch: ScratchBlock | undefined = undefined;
  /** The handle for the memory of a message, used until the end. */
  registration: Registration | undefined = undefined;
  /** The header of an active message, used until the end. */
  header: ScratchBlock | undefined = undefined;
  /** Called at the end, before the callback: stores results and releases the resources of the operation. May change the status. */
  settle: ((request: UcpRequest, status: Status) => Status) | undefined = undefined;
  /** Called before {@link settle}: returns true if the operation continues without libucp; its owner then ends it. */
  deferEnd: ((request: UcpRequest, status: Status) => boolean) | undefined = undefined;
  /** Ends a composite operation early; returns false if it is too late. */
  abandon: (() => boolean) | undefined = undefined;
  #transport: string | undefined = undefined;
  #device: string | undefined = undefined;
  /** Whether libucp was queried for its carrier. */
  #isQueried = false;
  readonly #owner: RequestOwner;

  constructor(owner: RequestOwner, index: number) {
    this.#owner = owner;
    this.index = index;
  }

  get callback(): RequestCallback | undefined {
    return this.#callback;
  }

  set callback(callback: RequestCallback | undefined) {
    checkCallback('callback', callback);
    this.#callback = callback;
  }

  get isCompleted(): boolean {
    return this.status !== Status.INPROGRESS;
  }

  get transport(): string | undefined {
    this.#queryCarrier();
    return this.#transport;
  }

  set transport(name: string | undefined) {
    this.#transport = name;
  }

  get device(): string | undefined {
    this.#queryCarrier();
    return this.#device;
  }

  set device(name: string | undefined) {
    this.#device = name;
  }

  get isReceive(): boolean {
    const { kind, protocol } = this;
    return kind === RequestKind.TAG_RECV || kind === RequestKind.AM_RECV || protocol === STREAM_RECEIVE;
  }

  /** Bytes moved, once it has ended. */
  get movedBytes(): number {
    return this.isReceive ? this.receivedBytes : this.byteLength;
  }

  get senderTag(): bigint {
    return joinBig(this.tagLow, this.tagHigh);
  }

  free(): void {
    this.#owner.free(this);
  }

  cancel(): boolean {
    return this.#owner.cancel(this);
  }

  /** Initializes the request for a new operation. */
  begin(kind: RequestKind, state: RequestState, protocol: string): void {
    this.kind = kind;
    this.state = state;
    this.protocol = protocol;
    this.isInner = this.#owner.innerDepth > 0;
    this.transfers = 1;
    this.nativeBytes = 0;
    this.startNs = this.isInner ? -1 : this.#owner.operations.startNs();
    this.status = Status.INPROGRESS;
    this.error = undefined;
    this.callback = undefined;
    this.userData = undefined;
    this.byteLength = 0;
    this.receivedBytes = 0;
    this.#transport = undefined;
    this.#device = undefined;
    this.#isQueried = false;
    this.address = 0;
    this.count = 0;
    this.handle = 0;
    this.isLent = false;
    this.wantedTag = undefined;
    this.isCanceled = false;
    this.startFailure = Status.OK;
    this.sender = undefined;
    this.endpoint = undefined;
    this.settle = undefined;
    this.deferEnd = undefined;
    this.abandon = undefined;
  }

  /** Records that libucp has ended its operation. @param handle the libucp request */
  spend(handle: number): void {
    if (!this.isLent) this.spent = handle;
  }

  /** Uses local memory until the end. */
  pin(local: LocalBuffer, byteLength: number): void {
    this.byteLength = byteLength;
    this.pinned = local;
    pin(local);
  }

  /** Uses a remote key until the end. */
  pinKey(rkey: UcpRemoteKey): void {
    this.rkey = rkey;
    rkey.pin();
  }

  /** Ends the request, exactly once. */
  end(status: Status): void {
    let final = status;
    if (this.settle !== undefined) {
      final = this.settle(this, status);
      this.settle = undefined;
    }
    this.status = final;
    this.state = RequestState.COMPLETED;
    this.abandon = undefined;
    if (this.pinned !== undefined) {
      unpin(this.pinned);
      this.pinned = undefined;
    }
    if (this.rkey !== undefined) {
      this.rkey.unpin();
      this.rkey = undefined;
    }
    if (this.scratch !== undefined) {
      this.scratch.free();
      this.scratch = undefined;
    }
    if (this.registration !== undefined) {
      this.registration.free();
      this.registration = undefined;
    }
    if (this.header !== undefined) {
      this.header.free();
      this.header = undefined;
    }
    if (!this.isInner) this.#owner.operations.ended(this, final);
    if (this.callback !== undefined) this.#call(this.callback, final);
  }

  /** Queries the carrier from libucp on the first read. */
  #queryCarrier(): void {
    if (this.spent === 0 || this.#isQueried || !this.isCompleted) return;
    this.#isQueried = true;
    if (this.kind !== RequestKind.SEND || this.#transport !== TRANSPORT) return;
    const carrier = this.#owner.carrierOf(this);
    if (carrier === undefined) return;
    this.#transport = carrier.transport;
    this.#device = carrier.device;
  }

  /** Operations that the callback of a program starts are not suboperations. */
  #call(callback: RequestCallback, status: Status): void {
    const owner = this.#owner;
    const depth = owner.innerDepth;
    if (this.isInner || depth === 0) {
      callback(this, status);
      return;
    }
    owner.innerDepth = 0;
    try {
      callback(this, status);
    } finally {
      owner.innerDepth = depth;
    }
  }
}

/** Records the endpoint of an operation that may have ended. */
export function ofEndpoint(endpoint: RequestEndpoint, started: Status | ApiRequest): Status | ApiRequest {
  if (typeof started !== 'number') (started as UcpRequest).endpoint = endpoint;
  return started;
}

showRequests(UcpRequest);
