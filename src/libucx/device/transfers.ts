/**
 * What moves memory of cards over libucp, for one worker: chooses the way of each operation, keeps the tracker of those under way, and ends what waits for a peer that
 * is gone. How the bytes move is in device-node.ts, device-pipeline.ts, device-remote.ts and device-messages.ts.
 */

import { isList, type Piece, piecesOf } from '../../ucp/api/local-bytes.ts';
import type { ReceivedMessage } from '../../ucp/api/received-message.ts';
import type { Request, RequestParams } from '../../ucp/api/request.ts';
import type { WordOperation } from '../../ucp/api/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import { requireFeature } from '../c/features.ts';
import type { ArrivedBytes, DeviceOperations, EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import { type LocalBuffer, type LocalMemory, pin } from '../mem/memory-handle.ts';
import type { UcpRemoteKey } from '../mem/remote-key.ts';
import { STAGING_AM_ID } from '../request/arrivals.ts';
import type { DeviceDatatypes } from '../request/buffers.ts';
import { RequestKind, TRANSPORT, type UcpRequest } from '../request/request.ts';
import { SwapLoop } from './atomic-loop.ts';
import { DeferredOperation, DeviceFlush, WorkerFlush } from './flush.ts';
import { DeviceMessages } from './messages.ts';
import { NodeTransfer } from './node.ts';
import { type DeviceOperation, OperationTracker } from './operation.ts';
import { choosePath, DevicePath } from './paths.ts';
import { Pipeline } from './pipeline.ts';
import { RemoteAtomic, RemoteCards, RemoteRead, RemoteWrite } from './remote.ts';
import { DeviceService } from './service.ts';
import { Staging } from './staging.ts';
import type { RemoteTransfer } from './transfer.ts';
import { parseWireHeader, WireKind } from './wire.ts';

/** The operations of one worker that touch memory of cards. */
export class DeviceTransfers implements DeviceOperations, DeviceDatatypes {
  readonly #worker: EngineWorker;
  readonly #staging: Staging;
  readonly #tracker: OperationTracker;
  readonly #messages: DeviceMessages;
  readonly #remote: RemoteCards = new RemoteCards();
  readonly #service: DeviceService;
  /** By endpoint: operations wait for it. */
  readonly #barriers: Map<EngineEndpoint, DeviceFlush> = new Map();
  #flushes = 0;

  constructor(worker: EngineWorker) {
    this.#worker = worker;
    this.#staging = new Staging(worker);
    this.#tracker = new OperationTracker(this.#staging);
    this.#messages = new DeviceMessages(this.#staging);
    this.#service = new DeviceService(this.#staging);
    if ((worker.context.features & UCP_FEATURE.AM) !== 0)
      worker.arrivals.serve(STAGING_AM_ID, (message) => this.#onMessage(message));
  }

  /** Nothing is under way. */
  get isIdle(): boolean {
    const { copies, isDue } = this.#staging;
    return this.#tracker.isEmpty && this.#flushes === 0 && this.#service.isIdle && copies.outstanding === 0 && !isDue;
  }

  /** Operations are under way, here or with the transports of the node: libucp does not know all that a flush waits for. */
  get isUsed(): boolean {
    return !this.#tracker.isEmpty || this.#worker.node.requestsInUse > 0;
  }

  /** There is something to do for {@link progress}. */
  get isDue(): boolean {
    return this.#staging.isDue;
  }

  progress(): number {
    return this.#staging.progress();
  }

  describe(
    request: UcpRequest,
    pieces: readonly Piece<LocalMemory>[],
    byteLength: number,
    isReceived: boolean,
  ): number {
    return this.#messages.describe(request, pieces, byteLength, isReceived);
  }

  put(
    endpoint: EngineEndpoint,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    return this.#transfer({ isPut: true, endpoint, local, localOffset, byteLength, rkey, remoteOffset }, params);
  }

  get(
    endpoint: EngineEndpoint,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    return this.#transfer({ isPut: false, endpoint, local, localOffset, byteLength, rkey, remoteOffset }, params);
  }

  atomic(
    endpoint: EngineEndpoint,
    call: WordOperation,
    rkey: UcpRemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    const isOfCard = rkey.exportId !== 0;
    if (isOfCard) this.#requireMessages();
    const request = this.#begin(isOfCard ? 'amo/am' : 'amo/libucp', undefined, call.wordBytes);
    if (request === undefined) return Status.NO_RESOURCE;
    const parts = [endpoint, request] as const;
    const word = [rkey, remoteOffset] as const;
    const operation = isOfCard
      ? new RemoteAtomic(this.#tracker, parts, this.#remote, call, word)
      : new SwapLoop(this.#tracker, parts, this.#worker, call, word);
    return this.#start(operation, request, params);
  }

  flush(endpoint: EngineEndpoint, params: RequestParams | undefined): Status | Request {
    const request = this.#begin('flush', undefined, 0);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#start(new DeviceFlush(this.#tracker, endpoint, request), request, params);
  }

  /** Flushes libucp, the transports of the node and what is under way on all endpoints. */
  flushAll(params: RequestParams | undefined): Status | Request {
    const request = this.#begin('flush', undefined, 0);
    if (request === undefined) return Status.NO_RESOURCE;
    this.#flushes += 1;
    const { node } = this.#worker;
    const parts = [
      (inner: RequestParams) => this.#worker.flushUcp(inner),
      (inner: RequestParams) => node.flushNbx(inner),
    ];
    new WorkerFlush(this.#tracker, request, parts, () => {
      this.#flushes -= 1;
    });
    return this.#worker.requests.adopt(request, params);
  }

  fence(endpoint: EngineEndpoint, isAlone: boolean): void {
    if (!isAlone && endpoint.unconfirmed === 0 && !endpoint.hasNodeEndpoint) return;
    const barrier = new DeviceFlush(this.#tracker, endpoint, undefined);
    this.#barriers.set(endpoint, barrier);
    endpoint.isFenced = true;
    barrier.addWaiter({
      operationEnded: () => {
        if (this.#barriers.get(endpoint) !== barrier) return;
        this.#barriers.delete(endpoint);
        endpoint.isFenced = false;
      },
    });
    barrier.start();
  }

  defer(
    endpoint: EngineEndpoint,
    protocol: string,
    begin: (params: RequestParams) => Status | Request,
    params: RequestParams | undefined,
  ): Status | Request {
    const request = this.#begin(protocol, undefined, 0);
    if (request === undefined) return Status.NO_RESOURCE;
    const barrier = this.#barriers.get(endpoint)!;
    return this.#start(new DeferredOperation(this.#tracker, request, barrier, begin), request, params);
  }

  copyOut(
    arrived: ArrivedBytes,
    local: LocalBuffer,
    localOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    const { context, requests } = this.#worker;
    const { byteLength, source, dataOffset } = arrived;
    const pieces = piecesOf<LocalMemory>(context, local, localOffset, isList(local) ? 0 : byteLength);
    const request = this.#begin('am/libucp', local, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    arrived.isReceived = true;
    request.receivedBytes = byteLength;
    this.#messages.copyOut(request, pieces, source, dataOffset, byteLength);
    return requests.endedAtOnce(request, Status.OK, params);
  }

  endpointGone(endpoint: EngineEndpoint, status: Status): void {
    this.#tracker.abort(endpoint, status);
    this.#service.endpointGone(endpoint);
  }

  /** libucp knows no message any more, and the node's worker is still there. */
  async close(): Promise<void> {
    this.#messages.close();
    await this.#staging.close();
  }

  #transfer(transfer: RemoteTransfer, params: RequestParams | undefined): Status | Request {
    const { isPut, endpoint, local, byteLength, rkey } = transfer;
    const name = isPut ? 'put' : 'get';
    const way = choosePath(endpoint, name, local, rkey);
    if (way === DevicePath.DIRECT) return this.#direct(transfer, params);
    if (way === DevicePath.REMOTE) this.#requireMessages();
    const request = this.#begin(`${name}/${way === DevicePath.REMOTE ? 'am' : 'staging'}`, local, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.#start(this.#operationOf(way, request, transfer), request, params);
  }

  /** Both memories are known to libucp. */
  #direct(transfer: RemoteTransfer, params: RequestParams | undefined): Status | Request {
    const { isPut, endpoint, local, localOffset, byteLength, rkey, remoteOffset } = transfer;
    const { requests, functions, buffers } = this.#worker;
    const request = requests.begin(RequestKind.SEND, isPut ? 'put/libucp' : 'get/libucp');
    if (request === undefined) return Status.NO_RESOURCE;
    request.transport = TRANSPORT;
    buffers.describe(request, local, localOffset, byteLength, !isPut);
    const start = isPut ? functions.ucp_put_nbx : functions.ucp_get_nbx;
    const remote = rkey.remoteAddress + remoteOffset;
    const started = start(endpoint.handle, buffers.address, byteLength, remote, rkey.handle, requests.param);
    return requests.started(request, started, params);
  }

  #operationOf(way: DevicePath, request: UcpRequest, transfer: RemoteTransfer): DeviceOperation {
    if (way === DevicePath.NODE) return new NodeTransfer(this.#tracker, request, transfer);
    if (way === DevicePath.PIPELINE) return new Pipeline(this.#tracker, request, transfer);
    if (transfer.isPut) return new RemoteWrite(this.#tracker, request, this.#remote, transfer);
    return new RemoteRead(this.#tracker, request, this.#remote, transfer);
  }

  #begin(protocol: string, local: LocalBuffer | undefined, byteLength: number): UcpRequest | undefined {
    const request = this.#worker.requests.beginComposite(protocol);
    if (request === undefined) return undefined;
    request.transport = TRANSPORT;
    request.byteLength = byteLength;
    if (local !== undefined) {
      request.pinned = local;
      pin(local);
    }
    return request;
  }

  #start(operation: DeviceOperation, request: UcpRequest, params: RequestParams | undefined): Status | Request {
    const { requests } = this.#worker;
    operation.start();
    if (!operation.hasEnded) return requests.adopt(request, params);
    const { error } = request;
    if (error === undefined) return requests.endedAtOnce(request, operation.failure, params);
    // What a call of the node's transports throws, this call throws.
    requests.discard(request);
    throw error;
  }

  /** Cards of other nodes are reached by active messages. @throws UcxError ERR_FEATURE_MISSING */
  #requireMessages(): void {
    requireFeature(this.#worker.context.features, UCP_FEATURE.AM);
  }

  #onMessage(message: ReceivedMessage): void {
    const header = parseWireHeader(message.header);
    if (header === undefined) return;
    if (header.kind === WireKind.DONE || header.kind === WireKind.DATA) this.#remote.answered(header, message);
    else if (message.sender !== undefined) this.#service.serve(message.sender as EngineEndpoint, header, message);
  }
}
