/**
 * The requests of one worker: their parameters for C, and the detection of their end. A few are polled in every progress, which is fastest; callbacks of libucp
 * report the others. Callbacks of the application never run inside calls of C.
 */

import { allocateScratch, memcpy, NativeCallback, type ScratchBlock } from '../../sys/index.ts';
import { OwnedMemory } from '../../ucp/api/memory/owned-memory.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import { CoarseClock } from '../../ucp/api/snapshot/coarse-clock.ts';
import { ObjectPool } from '../../ucs/datastruct/object-pool.ts';
import { operationEnd } from '../../ucs/debug/diagnostics.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import { Status, statusOf } from '../../ucs/type/status.ts';
import { UCP_OP_ATTR_FIELD, UCP_OP_ATTR_FLAG, UCP_REQUEST_PARAM, UCP_TAG_RECV_INFO } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { type LocalBuffer, pin } from '../mem/memory-handle.ts';
import { RequestKind, type RequestOwner, TRANSPORT, UcpRequest } from './request.ts';

/** Maximum number of requests that are polled in progress: 16 ns each, compared to 70 ns for a callback. */
const POLLED_MAX = 4;
/** Maximum number of polled requests, including those of sends that did not end at once. */
const FOLLOWED_MAX = 32;
/** Number of ended requests of libucp that are freed together, when there is nothing else to do. */
const SPENT_MAX = 16;
/** Progress calls without a report of libucp after which the polled requests are tested all the same. A power of two. */
const QUIET_CALLS_MASK = 63;

const WORD = 4;
const { at: PARAM } = UCP_REQUEST_PARAM;
const MASK = PARAM.op_attr_mask / WORD;
const FLAGS = PARAM.flags / WORD;
const CALLBACK = PARAM.cb / WORD;
const DATATYPE = PARAM.datatype / WORD;
const USER_DATA = PARAM.user_data / WORD;
const REPLY_BUFFER = PARAM.reply_buffer / WORD;
const MEMORY_TYPE = PARAM.memory_type / WORD;
const MEMH = PARAM.memh / WORD;
const RECV_INFO = PARAM.recv_info / WORD;
const CALLBACK_BITS = UCP_OP_ATTR_FIELD.CALLBACK | UCP_OP_ATTR_FIELD.USER_DATA;

/** The requests of one worker. */
export class Requests {
  /** The parameters of the operation that is being started (ucp_request_param_t). */
  readonly param: number;
  /** Empty parameters: bytes, and no callback. For sends that usually end at once, which then need no request. */
  readonly plainParam: number;
  /** The same with the handle of mapped memory. */
  readonly #mappedParam: number;
  readonly #mappedWords: Uint32Array;
  /** The handle in these parameters. */
  #memh = 0;
  /** Memory for the result of a receive that ends at once: a tag and a length, or a length. */
  readonly info: number;
  readonly #words: Uint32Array;
  readonly #infoWords: Uint32Array;
  readonly #blocks: readonly ScratchBlock[];
  /** When requests start, for snapshots. */
  readonly coarse: CoarseClock;
  /** Requests in use at most. */
  readonly max: number;
  readonly #owner: RequestOwner;
  readonly #functions: LibucpFunctions;
  readonly #pool: ObjectPool<UcpRequest>;
  /** Requests by index. */
  readonly #all: (UcpRequest | undefined)[] = [];
  /** Indices of requests that the pool has not kept. */
  readonly #freeIndices: number[] = [];
  readonly #callbacks: readonly NativeCallback[];
  /** Addresses of the callbacks, by the kind of the request. */
  readonly #callbackOf: readonly number[];
  readonly #polled: UcpRequest[] = [];
  /** Ended requests of libucp that have not been freed: waiters continue before that. */
  readonly #spent: number[] = [];
  /** Requests that ended inside a call of C, with the status in {@link #statuses}: their callbacks have not run. */
  #ended: UcpRequest[] = [];
  #statuses: Status[] = [];
  #progressCalls = 0;
  #inProgress = 0;

  /** @param requestsMax maximum number of requests in use; beyond it operations return NO_RESOURCE: see UCX_REQUESTS_MAX */
  constructor(functions: LibucpFunctions, owner: RequestOwner, clock: Clock, requestsMax: number) {
    this.coarse = new CoarseClock(clock);
    this.max = requestsMax;
    this.#owner = owner;
    this.#functions = functions;
    this.#pool = new ObjectPool(requestsMax, () => {
      const index = this.#freeIndices.pop() ?? this.#all.length;
      const request = new UcpRequest(owner, index);
      this.#all[index] = request;
      return request;
    });
    const param = allocateScratch(UCP_REQUEST_PARAM.size);
    const info = allocateScratch(UCP_TAG_RECV_INFO.size);
    const plain = allocateScratch(UCP_REQUEST_PARAM.size);
    const mapped = allocateScratch(UCP_REQUEST_PARAM.size);
    this.#blocks = [param, plain, mapped, info];
    this.plainParam = plain.address;
    this.#mappedParam = mapped.address;
    this.#mappedWords = mapped.words;
    this.#mappedWords[MASK] = UCP_OP_ATTR_FIELD.MEMH;
    this.param = param.address;
    this.info = info.address;
    this.#words = param.words;
    this.#infoWords = info.words;
    const send = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'int8_t', 'uint64_t'],
      call: (handle: number, status: Status, index: number) => this.#onEnd(handle, index, status),
    });
    const tagReceive = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'int8_t', 'uint64_t', 'uint64_t'],
      call: (handle: number, status: Status, received: number, index: number) => {
        memcpy(this.info, received, UCP_TAG_RECV_INFO.size);
        this.takeTagInfo(this.#all[index]!);
        this.#onEnd(handle, index, status);
      },
    });
    const receive = new NativeCallback({
      result: 'void',
      parameters: ['uint64_t', 'int8_t', 'uint64_t', 'uint64_t'],
      call: (handle: number, status: Status, byteLength: number, index: number) => {
        this.#all[index]!.receivedBytes = byteLength;
        this.#onEnd(handle, index, status);
      },
    });
    this.#callbacks = [send, tagReceive, receive];
    this.#callbackOf = [0, send.address, tagReceive.address, receive.address];
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
    request.begin(kind, protocol);
    const words = this.#words;
    if (kind <= RequestKind.TAG_RECV && this.#polled.length < POLLED_MAX) {
      request.isPolled = true;
      words[MASK] = 0;
    } else {
      const address = this.#callbackOf[kind]!;
      words[MASK] = CALLBACK_BITS;
      words[CALLBACK] = address;
      words[CALLBACK + 1] = highOf(address);
      words[USER_DATA] = request.index;
    }
    // A receive that ends at once does not return its tag (1.13); a request does.
    if (kind === RequestKind.TAG_RECV) words[MASK]! |= UCP_OP_ATTR_FLAG.NO_IMM_CMPL;
    else if (kind !== RequestKind.SEND) this.#setAddress(UCP_OP_ATTR_FIELD.RECV_INFO, RECV_INFO, this.info);
    return request;
  }

  /** {@link plainParam}, with the memory handle of libucp if there is one: libucp then registers nothing. */
  plainParamFor(local: LocalBuffer): number {
    if (!(local instanceof OwnedMemory) || local.memh === 0) return this.plainParam;
    if (local.memh !== this.#memh) {
      this.#memh = local.memh;
      this.#mappedWords[MEMH] = local.memh;
      this.#mappedWords[MEMH + 1] = highOf(local.memh);
    }
    return this.#mappedParam;
  }

  /** True if an operation on plain memory may be started with {@link plainParamFor}: a request will be available, and polled in progress. */
  canFollow(kind: RequestKind, params: RequestParams | undefined): boolean {
    const most = kind === RequestKind.TAG_RECV ? POLLED_MAX : FOLLOWED_MAX;
    // Every observed operation has a request.
    if (operationEnd.hasSubscribers) return false;
    return (
      this.#polled.length < most && this.#pool.inUse < this.#pool.capacity && params?.noImmediateCompletion !== true
    );
  }

  /**
   * Handles the result of an operation that was started with {@link plainParamFor}.
   * @param pointer 0 or a failure if the operation has ended, else the request of libucp
   * @param local stays pinned until the end
   */
  follow(
    kind: RequestKind,
    pointer: number,
    protocol: string,
    local: LocalBuffer,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request {
    if (pointer <= 0) {
      if (this.#owner.innerDepth === 0)
        this.#owner.operations.count(protocol, kind === RequestKind.TAG_RECV, byteLength, pointer);
      return statusOf(pointer);
    }
    const request = this.#pool.get()!;
    request.begin(kind, protocol);
    request.transport = TRANSPORT;
    request.byteLength = byteLength;
    request.pinned = local;
    pin(local);
    request.isPolled = true;
    request.handle = pointer;
    this.#inProgress += 1;
    this.#polled.push(request);
    return this.adopt(request, params);
  }

  /** A request for an operation made of several operations; undefined at the limit. */
  beginComposite(protocol: string): UcpRequest | undefined {
    const request = this.#pool.get();
    request?.begin(RequestKind.COMPOSITE, protocol);
    return request;
  }

  /** Runs what starts parts of operations: these are neither counted nor observed. */
  runInner<T>(run: () => T): T {
    const owner = this.#owner;
    owner.innerDepth += 1;
    try {
      return run();
    } finally {
      owner.innerDepth -= 1;
    }
  }

  /** Adds flags to the parameters. */
  setFlags(flags: number): void {
    this.#words[MASK]! |= UCP_OP_ATTR_FIELD.FLAGS;
    this.#words[FLAGS] = flags;
  }

  setDatatype(datatype: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.DATATYPE, DATATYPE, datatype);
  }

  /** Sets the memory type in the numbering of libucp. */
  setMemoryType(memoryType: number): void {
    this.#words[MASK]! |= UCP_OP_ATTR_FIELD.MEMORY_TYPE;
    this.#words[MEMORY_TYPE] = memoryType;
  }

  /** Sets the memory handle of the operation; 0 for none. */
  setMemh(memh: number): void {
    if (memh !== 0) this.#setAddress(UCP_OP_ATTR_FIELD.MEMH, MEMH, memh);
  }

  setReplyBuffer(address: number): void {
    this.#setAddress(UCP_OP_ATTR_FIELD.REPLY_BUFFER, REPLY_BUFFER, address);
  }

  /**
   * Handles the result of starting an operation.
   * @param pointer 0 or a failure if the operation has ended, else the request of libucp
   */
  started(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer <= 0) return this.endedAtOnce(request, statusOf(pointer), params);
    this.#inProgress += 1;
    // Its callback may have run inside the call.
    if (!request.hasEnded) request.handle = pointer;
    if (request.isPolled) this.#polled.push(request);
    return this.adopt(request, params);
  }

  /** Like {@link started} for a receive of a tagged message, which may have matched a message that had arrived. */
  receiveStarted(request: UcpRequest, pointer: number, params: RequestParams | undefined): Status | Request {
    if (pointer > 0 && request.isPolled) {
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
    request.end(status);
    // The callback may have freed it.
    return request.kind === RequestKind.NONE ? request.status : request;
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
    if (this.#progressCalls === 0) this.coarse.look();
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
    return this.#ended.length > 0;
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
        this.#spent.push(request.handle);
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
    this.#spent.push(request.handle);
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
    const request = this.#all[index]!;
    request.hasEnded = true;
    this.#functions.ucp_request_free(handle);
    this.#note(request, status);
  }

  /** Records the end of an operation: its callback runs when libucp has returned. */
  #note(request: UcpRequest, status: Status): void {
    request.handle = 0;
    this.#inProgress -= 1;
    this.#ended.push(request);
    this.#statuses.push(status);
  }

  #freeSpent(): void {
    for (let pointer = this.#spent.pop(); pointer !== undefined; pointer = this.#spent.pop()) {
      this.#functions.ucp_request_free(pointer);
    }
  }

  /** Runs the callbacks. If one throws, progress throws, and the next progress runs the others. */
  #runCallbacks(): number {
    let count = 0;
    for (; this.#ended.length > 0; count++) {
      const request = this.#ended.shift()!;
      const status = this.#statuses.shift()!;
      if (request.deferEnd?.(request, status) !== true) request.end(status);
    }
    return count;
  }

  /** Requests cancellation by libucp. @returns true if it has ended with CANCELED; else it ends by itself, completed or canceled */
  cancel(worker: number, request: UcpRequest): boolean {
    if (request.isCompleted) return false;
    request.isCanceled = true;
    if (request.abandon !== undefined) return request.abandon();
    if (request.handle === 0) return false;
    this.#functions.ucp_request_cancel(worker, request.handle);
    if (request.isPolled) this.#poll();
    const at = this.#ended.indexOf(request);
    if (at < 0 || this.#statuses[at] !== Status.CANCELED) return false;
    this.#ended.splice(at, 1);
    this.#statuses.splice(at, 1);
    if (request.deferEnd?.(request, Status.CANCELED) === true) return false;
    request.end(Status.CANCELED);
    return true;
  }

  /** Requests cancellation of all matching requests. */
  cancelAll(worker: number, isMeant: (request: UcpRequest) => boolean): void {
    for (const request of this.#all) {
      if (request !== undefined && request.kind !== RequestKind.NONE && isMeant(request)) this.cancel(worker, request);
    }
  }

  /** Ends all operations with CANCELED, when libucp makes no progress any more. Returns how many of each kind. */
  abandonAll(): { readonly sends: number; readonly others: number } {
    this.#freeSpent();
    const abandoned = this.#all.filter(
      (request): request is UcpRequest => request !== undefined && request.handle !== 0,
    );
    this.#polled.length = 0;
    for (const request of abandoned) this.#note(request, Status.CANCELED);
    const sends = abandoned.filter(({ kind }) => kind === RequestKind.SEND).length;
    return { sends, others: abandoned.length - sends };
  }

  /** See Request.free. */
  free(request: UcpRequest): void {
    if (request.kind === RequestKind.NONE) throw invalidParam('request', 'must not be freed twice', request.protocol);
    if (!request.isCompleted) throw statusError(Status.BUSY, 'free a request that has not ended');
    this.#recycle(request);
  }

  /** Releases a request that was never started. */
  discard(request: UcpRequest): void {
    request.callback = undefined;
    request.end(Status.CANCELED);
    this.#recycle(request);
  }

  /** Releases the callbacks; libucp has no request any more. */
  close(): void {
    for (const callback of this.#callbacks) callback.close();
    for (const block of this.#blocks) block.free();
  }

  #setAddress(bit: number, word: number, address: number): void {
    const words = this.#words;
    words[MASK]! |= bit;
    words[word] = address;
    words[word + 1] = highOf(address);
  }

  #recycle(request: UcpRequest): void {
    request.kind = RequestKind.NONE;
    request.callback = undefined;
    request.userData = undefined;
    request.error = undefined;
    if (this.#pool.put(request)) return;
    this.#all[request.index] = undefined;
    this.#freeIndices.push(request.index);
  }
}
