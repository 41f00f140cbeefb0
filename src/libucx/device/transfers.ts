/** Operations on device memory over libucp, for one worker: selects the path of each, tracks those in flight, and ends those of closed endpoints. */

import type { ReceivedMessage } from '../../api/awaited/messages.ts';
import type { MemoryHandle } from '../../api/contract/memory.ts';
import type { Request, RequestParams } from '../../api/contract/request.ts';
import { Operation } from '../../api/operation/call.ts';
import type { WordOperation } from '../../api/operation/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import { requireFeature } from '../c/library.ts';
import type { EngineEndpoint, ListPlan, RemoteTransfer, RemoteWord } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import { type LocalBuffer, UcpMemory } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { type Arrivals, STAGING_AM_ID } from '../request/arrivals.ts';
import { TRANSPORT, type UcpRequest } from '../request/request.ts';
import { CompareSwapLoop } from './atomics.ts';
import { CardDatatype } from './datatype.ts';
import { parseMessage } from './layout.ts';
import { ListOperation } from './list.ts';
import { DeviceFlush, type DeviceOperation, InnerOperation, OperationTracker, partsOf } from './operation.ts';
import { choosePath, DevicePath } from './paths.ts';
import { DataReceives } from './receives.ts';
import { OwnerRequest, OwnerRequests, RemoteOperation } from './remote.ts';
import { DeviceService } from './service.ts';
import { StagedTransfer } from './staged-transfer.ts';
import { CardSteps, type StepStart } from './steps.ts';

/** The operations of one worker that access memory of cards. */
export class DeviceTransfers {
  readonly messages: CardDatatype;
  readonly receives: DataReceives;
  readonly #core: WorkerCore;
  readonly #staging: CardSteps;
  readonly #tracker: OperationTracker;
  readonly #remote: OwnerRequests;
  readonly #service: DeviceService;
  /** Barriers that delayed operations wait for, by endpoint. */
  readonly #barriers: Map<EngineEndpoint, DeviceFlush> = new Map();

  constructor(core: WorkerCore, arrivals: Arrivals) {
    this.#core = core;
    this.#staging = new CardSteps(core);
    this.#tracker = new OperationTracker(this.#staging);
    this.messages = new CardDatatype(this.#staging);
    this.receives = new DataReceives(core, arrivals, this.#staging, this.messages);
    this.#remote = new OwnerRequests(this.receives);
    this.#service = new DeviceService(this.#staging, this.receives);
    arrivals.serve(STAGING_AM_ID, (message) => this.#onMessage(message));
  }

  get isIdle(): boolean {
    const { isCopying, isDue } = this.#staging;
    return this.#tracker.isEmpty && this.#service.isIdle && !isCopying && !isDue;
  }

  /** Whether operations are in flight here or in the native transports: a flush of libucp alone is then not sufficient. */
  get isUsed(): boolean {
    return !this.#tracker.isEmpty || this.#core.native.requestsInUse > 0;
  }

  /** Whether there is work for {@link progress}. */
  get isDue(): boolean {
    return this.#staging.isDue;
  }

  /** Whether copies are in flight: the native worker has to make progress. */
  get isCopying(): boolean {
    return this.#staging.isCopying;
  }

  progress(): number {
    return this.#core.requests.runInner(() => this.#staging.progress());
  }

  atomic(
    endpoint: EngineEndpoint,
    call: WordOperation,
    { rkey, remoteOffset }: RemoteWord,
    params: RequestParams | undefined,
  ): Status | Request {
    const isOfCard = rkey.exportId !== 0;
    if (isOfCard) this.#requireMessages();
    const request = this.#begin(isOfCard ? 'amo/am' : 'amo/libucp', undefined, call.wordBytes, rkey);
    if (request === undefined) return Status.NO_RESOURCE;
    const parts = [endpoint, request] as const;
    const operation = isOfCard
      ? new RemoteOperation(this.#tracker, parts, this.#remote, OwnerRequest.ofWord(call, { rkey, remoteOffset }))
      : new CompareSwapLoop(this.#tracker, parts, call, { rkey, remoteOffset });
    return this.#start(operation, request, params);
  }

  /** Starts a list that was checked. */
  list(endpoint: EngineEndpoint, plan: ListPlan, params: RequestParams | undefined): Status | Request {
    const { operation, blockCount } = plan.list;
    const request = this.#begin(
      blockCount === 0 ? 'notify' : `${operation}/list`,
      undefined,
      plan.list.bytesOf(plan.selected),
    );
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#start(new ListOperation(this.#tracker, [endpoint, request], plan), request, params);
  }

  /** Flushes the operations in flight, libucp and the native transports. */
  flush(endpoint: EngineEndpoint, params: RequestParams | undefined): Status | Request {
    return this.#flush(endpoint, partsOf(endpoint), params);
  }

  /** Like {@link flush}, for all endpoints of the worker. */
  flushAll(params: RequestParams | undefined): Status | Request {
    const worker = this.#core;
    return this.#flush(
      undefined,
      [(inner) => worker.flushUcp(inner), (inner) => worker.native.flushNbx(inner)],
      params,
    );
  }

  /**
   * Orders earlier operations of the endpoint before later ones.
   * @param isAlone true if ucp_worker_fence was not called, so that the fence must also cover operations of libucp
   */
  fence(endpoint: EngineEndpoint, isAlone: boolean): void {
    if (!isAlone && endpoint.unconfirmed === 0 && endpoint.openNativeEndpoint === undefined) return;
    const barrier = new DeviceFlush(this.#tracker, endpoint, undefined, partsOf(endpoint));
    this.#core.requests.runInner(() => barrier.start());
    if (barrier.hasEnded) return;
    this.#barriers.set(endpoint, barrier);
    endpoint.isFenced = true;
    barrier.addWaiter(() => {
      if (this.#barriers.get(endpoint) !== barrier) return;
      this.#barriers.delete(endpoint);
      endpoint.isFenced = false;
    });
  }

  /** Starts an operation when the barrier of its endpoint has ended. */
  defer(
    endpoint: EngineEndpoint,
    protocol: string,
    begin: (params: RequestParams) => Status | Request,
    params: RequestParams | undefined,
  ): Status | Request {
    const request = this.#begin(protocol, undefined, 0);
    if (request === undefined) return Status.NO_RESOURCE;
    const barrier = this.#barriers.get(endpoint);
    return this.#start(new InnerOperation(this.#tracker, [endpoint, request], begin, barrier), request, params);
  }

  /** Called when the endpoint is closed or has failed: operations that wait for its peer end with this status. */
  endpointClosed(endpoint: EngineEndpoint, status: Status): void {
    this.#tracker.abort(endpoint, status);
    this.#service.endpointClosed(endpoint);
  }

  /** Called before the libucp worker is destroyed: no steps are started on it any more. */
  abort(): void {
    for (const operation of this.#tracker.of(undefined)) operation.abort(Status.CANCELED);
  }

  /** Call this when libucp has no messages any more, and the native worker still exists. */
  close(): void {
    this.messages.close();
    this.#staging.close();
  }

  /** Starts a put or get with checked arguments. */
  transfer(transfer: RemoteTransfer, params: RequestParams | undefined): Status | Request {
    const { operation, endpoint, local, byteLength, rkey } = transfer;
    const name = operation === Operation.PUT ? 'put' : 'get';
    const path = choosePath(endpoint, name, local, rkey);
    if (path === DevicePath.DIRECT) return endpoint.moveKnown(operation, transfer, params);
    if (path === DevicePath.REMOTE) this.#requireMessages();
    const request = this.#begin(`${name}/${path === DevicePath.REMOTE ? 'am' : 'staging'}`, local, byteLength, rkey);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#start(this.#operationOf(path, request, transfer), request, params);
  }

  #operationOf(path: DevicePath, request: UcpRequest, transfer: RemoteTransfer): DeviceOperation {
    const { endpoint, local } = transfer;
    if (path === DevicePath.PIPELINE && local instanceof UcpMemory)
      return new StagedTransfer(this.#tracker, request, transfer, local);
    const parts = [endpoint, request] as const;
    const native = path === DevicePath.NATIVE ? startNative(transfer) : undefined;
    if (native !== undefined) return new InnerOperation(this.#tracker, parts, native);
    return new RemoteOperation(this.#tracker, parts, this.#remote, OwnerRequest.ofTransfer(transfer));
  }

  #flush(
    endpoint: EngineEndpoint | undefined,
    parts: readonly StepStart[],
    params: RequestParams | undefined,
  ): Status | Request {
    const request = this.#begin('flush', undefined, 0);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#start(new DeviceFlush(this.#tracker, endpoint, request, parts), request, params);
  }

  #begin(
    protocol: string,
    local: LocalBuffer | undefined,
    byteLength: number,
    rkey?: UcpRemoteKey,
  ): UcpRequest | undefined {
    const request = this.#core.requests.beginComposite(protocol);
    if (request === undefined) return undefined;
    request.transport = TRANSPORT;
    request.byteLength = byteLength;
    if (local !== undefined) request.pin(local, byteLength);
    // Keeps the key between two steps, when no libucp request uses it.
    if (rkey !== undefined) request.pinKey(rkey);
    return request;
  }

  #start(operation: DeviceOperation, request: UcpRequest, params: RequestParams | undefined): Status | Request {
    const { requests } = this.#core;
    requests.runInner(() => operation.start());
    if (!operation.hasEnded) {
      request.abandon = () => {
        operation.cancel();
        return false;
      };
      return requests.adopt(request, params);
    }
    const { error } = request;
    if (error === undefined) return requests.endedAtOnce(request, operation.failure, params);
    // Passes on exceptions of the native transports.
    requests.discard(request);
    throw error;
  }

  /** Cards of other machines are reached by active messages. @throws UcxError ERR_FEATURE_MISSING */
  #requireMessages(): void {
    requireFeature(this.#core.context.features, UCP_FEATURE.AM);
  }

  #onMessage(message: ReceivedMessage): void {
    const parsed = parseMessage(message.header);
    if (parsed === undefined) return;
    const endpoint = message.sender as EngineEndpoint;
    this.#core.requests.runInner(() => {
      if (parsed.exportId === undefined) this.#remote.onReply(endpoint, parsed, message);
      else this.#service.serve(endpoint, parsed, parsed.exportId, message);
    });
  }
}

/** Starts a put or get by the native transports; undefined if they do not reach the peer. */
function startNative(transfer: RemoteTransfer): StepStart | undefined {
  const { operation, local, localOffset, byteLength, rkey, remoteOffset, endpoint } = transfer;
  const near: MemoryHandle | Uint8Array = local instanceof UcpMemory ? local.nativeHandle : local;
  const { nativeEndpoint: native } = endpoint;
  const { native: key } = rkey;
  if (native === undefined || key === undefined) return undefined;
  return (params) =>
    operation === Operation.PUT
      ? native.putNbx(near, localOffset, byteLength, key, remoteOffset, params)
      : native.getNbx(near, localOffset, byteLength, key, remoteOffset, params);
}
