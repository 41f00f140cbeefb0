/** An endpoint over libucp: the operations of both tiers on memory that libucp reaches. Operations on memory of cards are passed to device/transfers.ts. */

import { resolveTransfer, resultOf } from '../../ucp/api/awaited/awaited-options.ts';
import { ClosableEndpoint } from '../../ucp/api/awaited/closable-endpoint.ts';
import type {
  Endpoint as ApiEndpoint,
  EndpointAttributes,
  ExplainedOperation,
  RkeyOptions,
  TransferOptions,
  TransferResult,
} from '../../ucp/api/endpoint.ts';
import type { Explanation } from '../../ucp/api/explanation.ts';
import { entriesOf } from '../../ucp/api/list/entries.ts';
import type { ListCheckOptions, ListParams, PreparedList, TransferEntry } from '../../ucp/api/list.ts';
import { isList } from '../../ucp/api/memory/local-bytes.ts';
import { checkRemoteWord } from '../../ucp/api/memory/owned-remote-key.ts';
import { accessesOf, GET_ACCESSES, PUT_ACCESSES } from '../../ucp/api/memory/protection.ts';
import { checkRawMemory } from '../../ucp/api/memory/raw-bytes.ts';
import type { RemoteKey } from '../../ucp/api/memory.ts';
import type {
  AmSendParams,
  AtomicName,
  AtomicParams,
  PutParams,
  Request,
  RequestParams,
  StreamRecvParams,
} from '../../ucp/api/request.ts';
import { type Tag, tagLow } from '../../ucp/api/tag.ts';
import { WordOperation } from '../../ucp/api/word-operation.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { isWrong, requireAtomics, startAtomic } from '../amo/atomic-start.ts';
import { UCP_AM_SEND_FLAG, UCP_EP_CLOSE_FLAG, UCP_FEATURE } from '../c/abi.ts';
import { queryEndpoint } from '../c/endpoint-query.ts';
import { fenceBlocks, requireFeature } from '../c/features.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import type { EndpointHandling, EngineEndpoint, EngineWorker } from '../engine/engine.ts';
import { type LocalBuffer, type LocalMemory, pin } from '../mem/memory-handle.ts';
import { checkSides, readRemoteKey, UcpRemoteKey } from '../mem/remote-key.ts';
import { checkMessage } from '../messages/message-check.ts';
import { EndpointStream } from '../messages/stream-receives.ts';
import { CLOSE_AM_ID } from '../request/arrivals.ts';
import { addressIn, checkKept, isHost } from '../request/buffers.ts';
import { RequestKind, TRANSPORT, type UcpRequest } from '../request/request.ts';
import { EndpointLists, sendOwn } from './endpoint-lists.ts';
import { explainOver } from './explain.ts';

/** Time limit for the close message of a close by force: without it, the peer detects that the endpoint is closed. */
const FORCED_CLOSE_MESSAGE_NS = 50e6;

/** An endpoint. */
export class Endpoint extends ClosableEndpoint implements EngineEndpoint {
  readonly messageTransport: string | undefined = undefined;
  /** The handle of libucp. */
  readonly handle: number;
  /** Number of operations on memory of cards in flight: a flush waits for them. */
  unconfirmed = 0;
  /** Whether operations wait for those before a fence. */
  isFenced = false;
  /** Called first on failure: during connection establishment, the application does not have the endpoint yet. */
  onceFailed: ((status: Status) => void) | undefined = undefined;
  /** Called when it has been closed by force. */
  onceDropped: (() => void) | undefined = undefined;
  readonly #worker: EngineWorker;
  readonly #functions: LibucpFunctions;
  readonly #keys: Set<RemoteKey> = new Set();
  readonly #lists: EndpointLists;
  readonly #stream: EndpointStream;
  /** The worker address of the peer for the transports of the node; empty if unknown. */
  readonly #nodeAddress: Uint8Array;
  #nodeEndpoint: ApiEndpoint | undefined;
  /** Whether libucp has peer error handling for it, and can drop it by force. */
  readonly #isWatched: boolean;
  /** Whether libucp was found to support atomic operations here. */
  #hasAtomics = false;
  #failure: Status = Status.OK;
  closedByPeer: boolean | undefined = undefined;

  /** @param handle of libucp, whose failure is reported to the worker */
  constructor(worker: EngineWorker, handle: number, nodeAddress: Uint8Array, { options, isWatched }: EndpointHandling) {
    super(worker.promises);
    this.#worker = worker;
    this.#functions = worker.functions;
    this.handle = handle;
    this.#nodeAddress = nodeAddress;
    this.errorHandling.set(options);
    this.#isWatched = isWatched;
    this.#stream = new EndpointStream(worker, handle);
    this.#lists = new EndpointLists(worker, this);
  }

  get isDirect(): boolean {
    return this.#worker.context.access.isDirect;
  }

  get status(): Status {
    return this.#failure;
  }

  get transports(): readonly string[] {
    return this.closed ? [] : queryEndpoint(this.#worker.context.libucp, this.handle).transports;
  }

  /** The endpoint to the same peer over the transports of the node; undefined if they do not reach it. */
  get nodeEndpoint(): ApiEndpoint | undefined {
    this.#nodeEndpoint ??= this.#worker.nodeEndpoint(this.#nodeAddress);
    return this.#nodeEndpoint;
  }

  get hasNodeEndpoint(): boolean {
    return this.#nodeEndpoint !== undefined;
  }

  query(): EndpointAttributes {
    this.checkOpen();
    return queryEndpoint(this.#worker.context.libucp, this.handle);
  }

  putNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: PutParams,
  ): Status | Request {
    if (isList(local) || params?.notify !== undefined || params?.notifyId !== undefined) {
      return this.putListNbx(entriesOf(local, localOffset, byteLength, rkey, remoteOffset), params);
    }
    return this.#rma(true, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  getNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    if (isList(local)) {
      return this.getListNbx(entriesOf(local, localOffset, byteLength, rkey, remoteOffset), params);
    }
    return this.#rma(false, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  prepareList(operation: 'put' | 'get', list: readonly TransferEntry[], options: ListCheckOptions = {}): PreparedList {
    this.#require(UCP_FEATURE.RMA);
    return this.#lists.prepare(operation, list, options);
  }

  putListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    this.#require(UCP_FEATURE.RMA, params);
    return this.#lists.start('put', list, params);
  }

  getListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    this.#require(UCP_FEATURE.RMA, params);
    return this.#lists.start('get', list, params);
  }

  notifyNbx(bytes: Uint8Array, params?: RequestParams): Status | Request {
    this.check(params);
    return this.#lists.notify(bytes, params);
  }

  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request {
    const call = new WordOperation();
    call.set(operation, value, params);
    this.#require(call.wordBytes === 4 ? UCP_FEATURE.AMO32 : UCP_FEATURE.AMO64, params);
    checkRemoteWord<UcpRemoteKey>(this, rkey, remoteOffset, call.wordBytes);
    if (this.#failure !== Status.OK) return this.#failure;
    if (rkey.exportId === 0) this.#hasAtomics ||= requireAtomics(this.#worker.context, this.handle, this.#isWatched);
    if (this.isFenced) {
      const begin = (inner: RequestParams): Status | Request =>
        this.atomicNbx(operation, value, rkey, remoteOffset, { ...params, noImmediateCompletion: false, ...inner });
      return this.#worker.devices.defer(this, 'amo/libucp', begin, params);
    }
    if (rkey.exportId !== 0 || isWrong(call, this.#worker.context.libucp)) {
      return this.#worker.devices.atomic(this, call, rkey, remoteOffset, params);
    }
    const isOpen = (): boolean => !this.isForced && this.#failure === Status.OK;
    return startAtomic(this.#worker, this.handle, call, [rkey, remoteOffset], { params, isOpen });
  }

  tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.TAG, params);
    tagLow('tag', tag);
    const { buffers, requests } = this.#worker;
    if (this.#failure === Status.OK && requests.canFollow(RequestKind.SEND, params)) {
      const address = buffers.plainAddress(local, localOffset, byteLength);
      if (address >= 0) {
        const param = requests.plainParamFor(local);
        const sent = this.#functions.ucp_tag_send_nbx(this.handle, address, byteLength, tag, param);
        return requests.follow(RequestKind.SEND, sent, 'tag/libucp', local, byteLength, params);
      }
    }
    const request = this.#initSend('tag/libucp', local, localOffset, byteLength);
    if (typeof request === 'number') return request;
    const started = this.#functions.ucp_tag_send_nbx(this.handle, buffers.address, buffers.count, tag, requests.param);
    return requests.started(request, started, params);
  }

  tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.TAG, params);
    tagLow('tag', tag);
    const request = this.#initSend('tag/libucp', local, localOffset, byteLength);
    if (typeof request === 'number') return request;
    const { buffers, requests } = this.#worker;
    const { address, count } = buffers;
    const started = this.#functions.ucp_tag_send_sync_nbx(this.handle, address, count, tag, requests.param);
    return requests.started(request, started, params);
  }

  amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.AM, params);
    checkMessage(id, header, params);
    const request = this.#initSend('am/libucp', local, localOffset, byteLength);
    if (typeof request === 'number') return request;
    return this.sendMessage(request, id, header, params);
  }

  /** Sends a message whose request is initialized; also for the engine's own messages. */
  sendMessage(
    request: UcpRequest,
    id: number,
    header: Uint8Array | undefined,
    params: AmSendParams | undefined,
  ): Status | Request {
    const { buffers, requests, headers } = this.#worker;
    const { protocol } = params ?? {};
    const how = protocol === 'eager' ? UCP_AM_SEND_FLAG.EAGER : protocol === undefined ? 0 : UCP_AM_SEND_FLAG.RNDV;
    requests.setFlags(UCP_AM_SEND_FLAG.REPLY | how);
    const headerLength = header?.byteLength ?? 0;
    if (header !== undefined && headerLength > 0) headers.u8.set(header);
    const { address, count } = buffers;
    const at = headerLength > 0 ? headers.address : 0;
    const started = this.#functions.ucp_am_send_nbx(this.handle, id, at, headerLength, address, count, requests.param);
    // libucp reads the header until the request has ended.
    if (started > 0 && headerLength > 0) request.header = this.#worker.takeHeader();
    return requests.started(request, started, params);
  }

  streamSendNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.#require(UCP_FEATURE.STREAM, params);
    const request = this.#initSend('stream/libucp', local, localOffset, byteLength);
    if (typeof request === 'number') return request;
    const { buffers, requests } = this.#worker;
    // libucp 1.13 ends the process of a receiver that matches a message without bytes.
    if (request.byteLength === 0) return requests.started(request, Status.OK, params);
    const started = this.#functions.ucp_stream_send_nbx(this.handle, buffers.address, buffers.count, requests.param);
    return requests.started(request, started, params);
  }

  streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.STREAM, params);
    return this.#stream.receive(local, localOffset, byteLength, params);
  }

  streamRecvData(): Uint8Array | undefined {
    this.#require(UCP_FEATURE.STREAM);
    return this.#stream.take();
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    if (this.#failure !== Status.OK) return this.#failure;
    return this.flushAll(params);
  }

  /** Flushes an endpoint that may be closing. */
  flushAll(params: RequestParams | undefined): Status | Request {
    if (this.unconfirmed > 0 || this.#nodeEndpoint !== undefined) return this.#worker.devices.flush(this, params);
    return this.flushUcp(params);
  }

  /** Flushes only the operations given to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request {
    const { requests } = this.#worker;
    const request = requests.begin(RequestKind.SEND, 'flush');
    if (request === undefined) return Status.NO_RESOURCE;
    return requests.started(request, this.#functions.ucp_ep_flush_nbx(this.handle, requests.param), params);
  }

  fence(): void {
    this.checkOpen();
    const isAlone = fenceBlocks(this.#worker.context.libucp);
    if (!isAlone) this.#worker.fence();
    this.#worker.devices.fence(this, isAlone);
  }

  unpackRkey(packed: Uint8Array, options: RkeyOptions = {}): UcpRemoteKey {
    this.checkOpen();
    const key = new UcpRemoteKey(this.#functions, this, readRemoteKey(packed, checkRawMemory(options)));
    this.#keys.add(key);
    return key;
  }

  unpackNodeKey(packed: Uint8Array): RemoteKey | undefined {
    return this.nodeEndpoint?.unpackRkey(packed);
  }

  forgetKey(key: RemoteKey): void {
    this.#keys.delete(key);
  }

  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation {
    this.checkOpen();
    checkSides(this.#worker.context, this, accessesOf(operation), local, 0, rkey, 0, 0);
    return explainOver(this.#worker.context, this, operation, local, rkey);
  }

  protected override onForced(): void {
    this.#worker.promises.wake();
  }

  /** Records a failure; called by the worker. The peer has sent a close message, or libucp has reported the failure. */
  onFailed(status: Status, closedByPeer = false): void {
    if (this.#failure === Status.OK) {
      this.#failure = status;
      if (closedByPeer || this.#tellsEnd) this.closedByPeer = closedByPeer;
    }
    this.#worker.devices.endpointGone(this, this.#failure);
    this.#stream.fail(this.#failure);
    this.onceFailed?.(status);
    if (!this.closed) this.errorHandling.report(this, this.#failure);
  }

  #rma(
    isPut: boolean,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    this.#require(UCP_FEATURE.RMA, params);
    const accesses = isPut ? PUT_ACCESSES : GET_ACCESSES;
    checkSides(this.#worker.context, this, accesses, local, localOffset, rkey, remoteOffset, byteLength);
    if (byteLength === 0) return Status.OK;
    if (this.#failure !== Status.OK) return this.#failure;
    const { devices, requests } = this.#worker;
    const protocol = isPut ? 'put/libucp' : 'get/libucp';
    if (this.isFenced) {
      const begin = (inner: RequestParams): Status | Request =>
        this.#rma(isPut, local, localOffset, byteLength, rkey, remoteOffset, inner);
      return devices.defer(this, protocol, begin, params);
    }
    if (rkey.exportId !== 0 || !isHost(local)) {
      return devices.transfer({ isPut, endpoint: this, local, localOffset, byteLength, rkey, remoteOffset }, params);
    }
    checkKept(local);
    const address = addressIn(local, localOffset);
    const remote = rkey.remoteAddress + remoteOffset;
    const operation = isPut ? this.#functions.ucp_put_nbx : this.#functions.ucp_get_nbx;
    if (requests.canFollow(RequestKind.SEND, params)) {
      const moved = operation(this.handle, address, byteLength, remote, rkey.handle, requests.plainParamFor(local));
      return requests.follow(RequestKind.SEND, moved, protocol, local, byteLength, params);
    }
    const request = this.#begin(protocol, local, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    const started = operation(this.handle, address, byteLength, remote, rkey.handle, requests.param);
    return requests.started(request, started, params);
  }

  protected override async transfer(
    name: 'put' | 'get',
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.#require(UCP_FEATURE.RMA);
    checkSides(this.#worker.context, this, accessesOf(name), local, 0, rkey, 0, 0);
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(local, rkey, options);
    const { promises } = this.#worker;
    const outcome = await promises.run(name, options.signal, (params) =>
      this.#rma(name === 'put', local, localOffset, byteLength, rkey, remoteOffset, params),
    );
    // Also on an endpoint that is being closed, because closing waits for the operations that were started on it.
    if (name === 'put' && byteLength > 0) await promises.run(name, undefined, (params) => this.flushAll(params));
    return resultOf(outcome, byteLength);
  }

  protected override async shutDown(): Promise<void> {
    const { promises } = this.#worker;
    this.#stream.cancelAll();
    await promises.until(() => this.isForced || this.awaited === 0);
    // libucp would cancel it on a close by force.
    await this.#worker.teardown.closed(this.#sendCloseMessage(), () => this.isForced, FORCED_CLOSE_MESSAGE_NS);
    if (!this.isForced && this.#failure === Status.OK) {
      const flush = this.flushAll({ noImmediateCompletion: true });
      await promises.until(() => this.isForced || typeof flush === 'number' || flush.isCompleted);
      if (typeof flush !== 'number') this.#worker.teardown.freeEventually(flush);
    }
    for (const key of this.#keys) key.release();
    this.#stream.close();
    this.#worker.devices.endpointGone(this, Status.CANCELED);
    const closing = this.#closeUcp();
    await this.#worker.teardown.closed(closing, () => this.isForced && !this.#isWatched);
    if (this.isForced) this.onceDropped?.();
    this.#worker.forgetEndpoint(this);
    await this.#nodeEndpoint?.close({ force: true });
  }

  /** Sends a close message to a peer of this engine, after all earlier messages. @returns a request; OK if there is no peer to notify */
  #sendCloseMessage(): Status | Request {
    // A message that is not sent at once could not be cancelled without peer error handling.
    const isGone = this.#failure !== Status.OK || (this.isForced && !this.#isWatched);
    if (!this.#tellsEnd || isGone) return Status.OK;
    return sendOwn(this.#worker, this, CLOSE_AM_ID, undefined, { noImmediateCompletion: true });
  }

  /** Whether both ends send each other a close message. By socket addresses, and with other programs, libucp notifies the peer, without a reason. */
  get #tellsEnd(): boolean {
    return (this.#worker.context.features & UCP_FEATURE.AM) !== 0 && this.#nodeAddress.byteLength > 0;
  }

  #closeUcp(): Status | Request {
    const { requests } = this.#worker;
    requests.endpointLost();
    const request = requests.begin(RequestKind.SEND, 'close');
    if (request === undefined) return Status.NO_RESOURCE;
    const isForced = this.isForced || this.#failure !== Status.OK;
    if (isForced && this.#isWatched) requests.setFlags(UCP_EP_CLOSE_FLAG.FORCE);
    return requests.started(request, this.#functions.ucp_ep_close_nbx(this.handle, requests.param), {
      noImmediateCompletion: true,
    });
  }

  #begin(protocol: string, local: LocalMemory, byteLength: number): UcpRequest | undefined {
    const request = this.#worker.requests.begin(RequestKind.SEND, protocol);
    if (request === undefined) return undefined;
    request.transport = TRANSPORT;
    request.byteLength = byteLength;
    request.pinned = local;
    pin(local);
    if (!(local instanceof Uint8Array)) this.#worker.requests.setMemh(local.operationMemh);
    return request;
  }

  /** Initializes a request with the local memory that it sends; returns a status if it cannot be started. */
  #initSend(protocol: string, local: LocalBuffer, offset: number, byteLength: number): UcpRequest | Status {
    const { requests, buffers } = this.#worker;
    if (this.#failure !== Status.OK) {
      buffers.check(local, offset, byteLength);
      return this.#failure;
    }
    const request = requests.begin(RequestKind.SEND, protocol);
    if (request === undefined) return Status.NO_RESOURCE;
    request.transport = TRANSPORT;
    request.sender = this;
    try {
      buffers.init(request, local, offset, byteLength, false, MemAccess.LOCAL_READ);
    } catch (error) {
      requests.discard(request);
      throw error;
    }
    return request;
  }

  /** Checks that an operation is possible: the endpoint is open, the context has its feature, its parameters are valid. */
  #require(feature: number, params?: RequestParams): void {
    this.check(params);
    requireFeature(this.#worker.context.features, feature);
  }
}
