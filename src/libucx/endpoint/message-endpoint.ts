/** Base class of endpoints over libucp: sends of messages and streams, and receives of its stream. Also the lists and notifications of one endpoint. */

import { ClosableEndpoint } from '../../api/awaited/endpoint.ts';
import { checkAmHeader } from '../../api/contract/active-message.ts';
import type { EndpointAttributes } from '../../api/contract/endpoint.ts';
import {
  type AmSendParams,
  type ListCheckOptions,
  type ListParams,
  type NotifyParams,
  PARAM_FIELDS,
  type PreparedList,
  type Request,
  type RequestParams,
  type StreamRecvParams,
  type Tag,
  type TransferEntry,
  tagLow,
} from '../../api/contract/request.ts';
import {
  checkList,
  checkListOptions,
  checkListParams,
  checkNotification,
  notificationOf,
  PlannedList,
} from '../../api/list/list.ts';
import { NotifyOrder } from '../../api/list/notify-order.ts';
import type { GivenMemory, LocalRange } from '../../api/memory/local.ts';
import { textWrittenBy } from '../../sys/index.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_AM_SEND_FLAG, UCP_FEATURE } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { requireFeature } from '../c/library.ts';
import type { DeviceTransfers } from '../device/transfers.ts';
import type { EngineEndpoint } from '../engine/engine.ts';
import type { WorkerCore } from '../engine/worker-core.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import type { UcxCall } from '../mem/remote-key.ts';
import { EndpointStream, type StreamReceives } from '../messages/stream-receives.ts';
import { checkProgramId, NOTIFICATION_AM_ID } from '../request/arrivals.ts';
import { ofEndpoint, type RequestEndpoint, RequestKind, type UcpRequest } from '../request/request.ts';
import type { EndedPeers } from './ended-peers.ts';
import type { EndpointRegistry } from './registry.ts';

const NO_DATA: LocalRange<LocalMemory> = { local: new Uint8Array(0), localOffset: 0, byteLength: 0 };

/** The objects of a worker that its endpoints use. */
export interface EndpointParts {
  readonly core: WorkerCore;
  readonly devices: DeviceTransfers;
  readonly endpoints: EndpointRegistry;
  readonly streams: StreamReceives;
  readonly ended: EndedPeers;
}

export abstract class MessageEndpoint extends ClosableEndpoint implements RequestEndpoint {
  readonly handle: number;
  /** Address of the peer for the native transports; empty if unknown. */
  protected readonly nativeAddress: Uint8Array;
  protected readonly parts: EndpointParts;
  protected readonly core: WorkerCore;
  protected readonly functions: LibucpFunctions;
  protected readonly receivedStream: EndpointStream;
  /** Status with which the endpoint failed. */
  protected failure: Status = Status.OK;

  constructor(parts: EndpointParts, handle: number, nativeAddress: Uint8Array) {
    const { core, streams } = parts;
    super(core.promises);
    this.nativeAddress = nativeAddress;
    this.parts = parts;
    this.core = core;
    this.functions = core.functions;
    this.handle = handle;
    this.receivedStream = new EndpointStream(core, streams, handle);
  }

  abstract readonly isBorrowed: boolean;
  abstract readonly cause: unknown;
  abstract dropHandle(): boolean;
  abstract query(): EndpointAttributes;

  /** Fails the endpoint if libucp has freed its handle. Called before each use of the handle. */
  protected abstract checkHandle(): void;

  abstract onFailed(status: Status, closedByPeer?: boolean): void;

  get status(): Status {
    return this.failure;
  }

  printInfo(): string {
    // Throws if the handle is invalid.
    this.query();
    return textWrittenBy((stream) => this.functions.ucp_ep_print_info(this.handle, stream));
  }

  get peerId(): string {
    return Buffer.from(this.nativeAddress).toString('latin1');
  }

  tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.require(UCP_FEATURE.TAG, params);
    tagLow('tag', tag);
    const call = this.core.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#sendTag(call, tag);
    } finally {
      call.end();
    }
  }

  #sendTag(call: UcxCall, tag: Tag): Status | Request {
    const { buffers, requests } = this.core;
    const { local, localOffset, byteLength, params } = call;
    if (this.failure === Status.OK && requests.canStartWithoutRequest(RequestKind.SEND, call.isImmediate)) {
      const address = buffers.plainAddress(local, localOffset, byteLength);
      if (address >= 0) {
        const param = requests.parameters.plainFor(local);
        const sent = this.functions.ucp_tag_send_nbx(this.handle, address, byteLength, tag, param);
        return ofEndpoint(this, requests.startedWithoutRequest(RequestKind.SEND, sent, 'tag/libucp', call));
      }
    }
    const request = this.#initSend('tag/libucp', call);
    if (typeof request === 'number') return request;
    const started = this.functions.ucp_tag_send_nbx(
      this.handle,
      request.address,
      request.count,
      tag,
      requests.parameters.address,
    );
    return requests.started(request, started, params);
  }

  tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.require(UCP_FEATURE.TAG, params);
    tagLow('tag', tag);
    const request = this.#initSend('tag/libucp', { local, localOffset, byteLength });
    if (typeof request === 'number') return request;
    const { requests } = this.core;
    const { address, count } = request;
    const started = this.functions.ucp_tag_send_sync_nbx(this.handle, address, count, tag, requests.parameters.address);
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
    this.require(UCP_FEATURE.AM, params, PARAM_FIELDS.am);
    checkMessage(id, header, params);
    const request = this.#initSend('am/libucp', { local, localOffset, byteLength });
    if (typeof request === 'number') return request;
    return this.#sendMessage(request, id, header, params);
  }

  /** Sends an internal message of the engine. */
  sendOwn(
    id: number,
    header: Uint8Array | undefined,
    data: LocalRange<LocalMemory> | undefined,
    params: AmSendParams | undefined,
  ): Status | Request {
    const request = this.core.requests.runInner(() => this.#initSend('am/libucp', data ?? NO_DATA, 0));
    if (typeof request === 'number') return request;
    request.sender = undefined;
    return this.#sendMessage(request, id, header, params);
  }

  /** Sends a message with an initialized request. */
  #sendMessage(
    request: UcpRequest,
    id: number,
    header: Uint8Array | undefined,
    params: AmSendParams | undefined,
  ): Status | Request {
    const { requests, headers } = this.core;
    const { protocol } = params ?? {};
    const how = protocol === 'eager' ? UCP_AM_SEND_FLAG.EAGER : protocol === undefined ? 0 : UCP_AM_SEND_FLAG.RNDV;
    requests.parameters.setFlags(UCP_AM_SEND_FLAG.REPLY | how);
    const headerLength = header?.byteLength ?? 0;
    if (header !== undefined && headerLength > 0) headers.u8.set(header);
    const { address, count } = request;
    const at = headerLength > 0 ? headers.address : 0;
    const started = this.functions.ucp_am_send_nbx(
      this.handle,
      id,
      at,
      headerLength,
      address,
      count,
      requests.parameters.address,
    );
    // libucp reads the header until the request has ended.
    if (started > 0 && headerLength > 0) request.header = this.core.takeHeader();
    return requests.started(request, started, params);
  }

  streamSendNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.require(UCP_FEATURE.STREAM, params);
    const request = this.#initSend('stream/libucp', { local, localOffset, byteLength });
    if (typeof request === 'number') return request;
    const { requests } = this.core;
    // A receiver with libucp 1.13 crashes if it matches a message without data.
    if (request.byteLength === 0) return requests.started(request, Status.OK, params);
    const started = this.functions.ucp_stream_send_nbx(
      this.handle,
      request.address,
      request.count,
      requests.parameters.address,
    );
    return requests.started(request, started, params);
  }

  streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request {
    this.require(UCP_FEATURE.STREAM, params, PARAM_FIELDS.streamRecv);
    checkFlag('params.waitAll', params?.waitAll);
    return this.receivedStream.receive({ local, localOffset, byteLength }, params);
  }

  streamRecvData(): Uint8Array | undefined {
    this.require(UCP_FEATURE.STREAM);
    return this.receivedStream.take();
  }

  /** Initializes a request with the local memory to send; returns a status if it cannot start. */
  #initSend(
    protocol: string,
    given: GivenMemory<LocalMemory>,
    access: number = MemAccess.LOCAL_READ,
  ): UcpRequest | Status {
    const { buffers, requests } = this.core;
    this.checkHandle();
    if (this.failure !== Status.OK) {
      buffers.check(given, access);
      return this.failure;
    }
    const request = buffers.begin(RequestKind.SEND, protocol, given, access);
    if (request === undefined) return Status.NO_RESOURCE;
    const { startFailure: refusal } = request;
    if (refusal !== Status.OK) {
      requests.discard(request);
      return refusal;
    }
    request.sender = this;
    request.endpoint = this;
    return request;
  }

  protected override checkOpen(): void {
    super.checkOpen();
    this.checkHandle();
  }

  protected override check(params: RequestParams | undefined, names?: readonly string[]): void {
    super.check(params, names);
    this.checkHandle();
  }

  /** Checks that an operation is possible: the endpoint is open, the context has the feature, the parameters are valid. */
  protected require(feature: number, params?: RequestParams, names?: readonly string[]): void {
    this.check(params, names);
    requireFeature(this.core.context.features, feature);
  }
}

/** @throws UcxError ERR_INVALID_PARAM */
function checkMessage(id: number, header: Uint8Array | undefined, params: AmSendParams | undefined): void {
  checkProgramId(id);
  if (header !== undefined) checkAmHeader(header);
  const { protocol } = params ?? {};
  if (protocol !== undefined && protocol !== 'eager' && protocol !== 'rendezvous') {
    throw invalidParam('protocol', "must be 'eager' or 'rendezvous'", protocol);
  }
}

export class EndpointLists {
  readonly #parts: EndpointParts;
  readonly #endpoint: EngineEndpoint;
  readonly #order: NotifyOrder = new NotifyOrder();

  constructor(parts: EndpointParts, endpoint: EngineEndpoint) {
    this.#parts = parts;
    this.#endpoint = endpoint;
  }

  /** See Endpoint.prepareList. */
  prepare(operation: 'put' | 'get', list: readonly TransferEntry[], options: ListCheckOptions): PlannedList {
    checkListOptions(operation, options);
    return this.#plan(operation, list, options.strict === true);
  }

  /** See Endpoint.putListNbx. */
  start(
    operation: 'put' | 'get',
    list: readonly TransferEntry[] | PreparedList,
    params: ListParams | undefined,
  ): Status | Request {
    if (params !== undefined) checkListParams(operation, params, list);
    if (params?.notifyId !== undefined) checkProgramId(params.notifyId);
    if (params?.notify !== undefined) requireFeature(this.#parts.core.context.features, UCP_FEATURE.AM);
    if (list instanceof PlannedList) {
      list.check(operation, this.#endpoint);
      return this.#move(list, params);
    }
    return this.#move(this.#plan(operation, list as readonly TransferEntry[], params?.strict === true), params);
  }

  /** See Endpoint.notifyNbx. */
  notify(bytes: Uint8Array, params: NotifyParams | undefined): Status | Request {
    checkNotification(bytes);
    return this.start('put', [], { ...params, notify: bytes });
  }

  #plan(operation: 'put' | 'get', list: readonly TransferEntry[], strict: boolean): PlannedList {
    const owners = { memory: this.#parts.core.context, keys: this.#endpoint };
    return new PlannedList(operation, this.#endpoint, checkList(owners, operation, list, strict));
  }

  #move(list: PlannedList, params: ListParams | undefined): Status | Request {
    const endpoint = this.#endpoint;
    const { devices } = this.#parts;
    if (endpoint.status !== Status.OK) return endpoint.status;
    const { blocks, flush = false, notifyId = NOTIFICATION_AM_ID } = params ?? {};
    const notification = notificationOf(params);
    if ((blocks ?? list.blocks).length === 0 && notification === undefined) return Status.OK;
    if (endpoint.isFenced) {
      const begin = (inner: RequestParams): Status | Request => this.#move(list, { ...params, ...inner });
      return devices.defer(endpoint, `${list.operation}/list`, begin, params);
    }
    const plan = {
      list,
      selected: blocks && Int32Array.from(blocks),
      notification,
      flushes: flush || notification !== undefined,
      order: this.#order,
      notifyId,
    };
    return devices.list(endpoint, plan, params);
  }
}
