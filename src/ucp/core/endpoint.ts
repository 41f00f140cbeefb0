/** An endpoint: a connection to a worker as the API shows it, with its operations (nbx and awaited). */

import { ClosableEndpoint, resolveTransfer, resultOf } from '../../api/awaited/endpoint.ts';
import type {
  Endpoint as ApiEndpoint,
  EndpointAttributes,
  EndpointOptions,
  ExplainedOperation,
  RkeyOptions,
  TransferOptions,
  TransferResult,
} from '../../api/contract/endpoint.ts';
import { type Explanation, explainedBy } from '../../api/contract/explanation.ts';
import {
  type AmSendParams,
  type AtomicName,
  type AtomicParams,
  type ListCheckOptions,
  type ListParams,
  type NotifyParams,
  PARAM_FIELDS,
  type PreparedList,
  type PutParams,
  type RequestParams,
  type StreamRecvParams,
  type Tag,
  type TransferEntry,
} from '../../api/contract/request.ts';
import { checkListOptions, checkListParams, checkNotification, entriesOf } from '../../api/list/list.ts';
import { checkedList, checkPackedKey, checkRawMemory, isList, otherPrograms } from '../../api/memory/local.ts';
import { endsInCall, Operation, operationOf } from '../../api/operation/call.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import type { Request } from '../base/request/request.ts';
import type { UcpCall, WorkerCore } from '../base/worker-core.ts';
import { type Lane, nameOf } from '../lane/lanes.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { explainTransfer } from '../rma/explain.ts';
import { enqueueFlush, fenceConnection } from '../rma/flush.ts';
import type { Connections } from '../wireup/connections.ts';
import type { SocketConnections } from '../wireup/sockets.ts';
import type { Protocols } from './dispatch.ts';
import { endpointInfo } from './print-info.ts';

const NO_PARAMS: AtomicParams = {};
/** The empty list of a notification without entries. */
const NO_ENTRIES: readonly TransferEntry[] = [];

/** The worker behind an endpoint. */
export interface EndpointWorker extends WorkerCore {
  readonly protocols: Protocols;
  readonly connections: Connections;
  readonly sockets: SocketConnections;
  readonly endpoints: { forget(connection: Connection): void };
}

export class Endpoint extends ClosableEndpoint implements ApiEndpoint {
  readonly #worker: EndpointWorker;
  readonly #connection: Connection;

  /** Called by Worker.endpoint. */
  constructor(worker: EndpointWorker, connection: Connection) {
    super(worker.promises);
    this.#worker = worker;
    this.#connection = connection;
  }

  get status(): Status {
    return this.#connection.failure;
  }

  get closedByPeer(): boolean | undefined {
    const { failure, closedByPeer } = this.#connection;
    return failure === Status.OK || failure === Status.CANCELED ? undefined : closedByPeer;
  }

  get transports(): readonly string[] {
    return attributesOf(this.#connection).transports;
  }

  get messageTransport(): string | undefined {
    return attributesOf(this.#connection).messageTransport;
  }

  query(): EndpointAttributes {
    this.checkOpen();
    return attributesOf(this.#connection);
  }

  printInfo(): string {
    this.checkOpen();
    return endpointInfo(this.#worker.context, this.#connection);
  }

  /** Sets the error handling for a failed peer; called by the worker. */
  setOptions(options: EndpointOptions): void {
    this.errorHandling.set(options);
  }

  get watchesPeer(): boolean {
    return this.errorHandling.watchesPeer;
  }

  /** Called by the worker when the connection has ended. */
  onFailed(): void {
    if (!this.closed) this.errorHandling.report(this, this.#connection.failure, this.#worker);
  }

  putNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: PutParams,
  ): Status | Request {
    this.check(params, PARAM_FIELDS.put);
    if (isList(local) || params?.notify !== undefined || params?.notifyId !== undefined) {
      return this.putListNbx(entriesOf({ local, localOffset, byteLength, rkey, remoteOffset }), params);
    }
    const { rma } = this.#worker.protocols;
    const connection = this.#connection;
    let status: Status = Status.UNSUPPORTED;
    if (params === undefined) {
      status = rma.tryShortPut(connection, local, localOffset, byteLength, rkey, remoteOffset);
      if (status === Status.OK) return status;
    }
    const call = this.#worker.call.begin(connection, params).memory(local, localOffset, byteLength);
    try {
      return rma.start(call.move(Operation.PUT, rkey, remoteOffset, status === Status.NO_RESOURCE));
    } finally {
      call.end();
    }
  }

  getNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    this.check(params);
    if (isList(local)) {
      return this.getListNbx(entriesOf({ local, localOffset, byteLength, rkey, remoteOffset }), params);
    }
    const { rma } = this.#worker.protocols;
    const connection = this.#connection;
    if (params === undefined) {
      const status = rma.tryShortGet(connection, local, localOffset, byteLength, rkey, remoteOffset);
      if (status === Status.OK) return status;
    }
    const call = this.#worker.call.begin(connection, params).memory(local, localOffset, byteLength);
    try {
      return rma.start(call.move(Operation.GET, rkey, remoteOffset));
    } finally {
      call.end();
    }
  }

  prepareList(operation: 'put' | 'get', list: readonly TransferEntry[], options: ListCheckOptions = {}): PreparedList {
    this.checkOpen();
    checkListOptions(operation, options);
    const { strict = false } = options;
    return this.#worker.protocols.lists.prepare(this.#connection, operation, list, strict);
  }

  putListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    return this.#startList('put', list, params);
  }

  getListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    return this.#startList('get', list, params);
  }

  notifyNbx(bytes: Uint8Array, params?: NotifyParams): Status | Request {
    this.check(params, PARAM_FIELDS.notify);
    checkNotification(bytes);
    return this.#startList('put', NO_ENTRIES, { ...params, notify: bytes });
  }

  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request {
    this.check(params, PARAM_FIELDS.atomic);
    const { atomics } = this.#worker.protocols;
    const { bits, compare } = params ?? NO_PARAMS;
    const call = this.#worker.call.begin(this.#connection, params);
    call.rkey = rkey;
    call.remoteOffset = remoteOffset;
    try {
      call.byteLength = atomics.word.set(operation, value, bits, compare).wordBytes;
      return atomics.start(call);
    } finally {
      call.end();
    }
  }

  tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.check(params);
    const { tag: protocol } = this.#worker.protocols;
    if (endsInCall(params)) {
      const status = protocol.tryShort(this.#connection, local, localOffset, byteLength, tag);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const call = this.#begin(local, params).memory(local, localOffset, byteLength);
    call.isSync = false;
    try {
      return this.#worker.protocols.tag.send(call, tag);
    } finally {
      call.end();
    }
  }

  tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.check(params);
    const call = this.#begin(local, params).memory(local, localOffset, byteLength);
    call.isSync = true;
    try {
      return this.#worker.protocols.tag.send(call, tag);
    } finally {
      call.end();
    }
  }

  amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request {
    this.check(params, PARAM_FIELDS.am);
    const { am } = this.#worker.protocols;
    if (params === undefined && header === undefined) {
      const status = am.tryShort(this.#connection, id, local, localOffset, byteLength);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const protocol = params?.protocol;
    const call = this.#begin(local, params).memory(local, localOffset, byteLength);
    call.amId = id;
    call.amHeader = header;
    call.protocol = protocol;
    try {
      return am.send(call);
    } finally {
      call.end();
    }
  }

  streamSendNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.check(params);
    const call = this.#begin(local, params).memory(local, localOffset, byteLength);
    try {
      return this.#worker.protocols.streams.send(call);
    } finally {
      call.end();
    }
  }

  streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request {
    this.check(params, PARAM_FIELDS.streamRecv);
    checkFlag('params.waitAll', params?.waitAll);
    const { requests, protocols } = this.#worker;
    const request = requests.takeReceive(this.#connection, local, localOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    return protocols.streams.receive(this.#connection, request, params);
  }

  streamRecvData(): Uint8Array | undefined {
    this.checkOpen();
    return this.#worker.protocols.streams.takeData(this.#connection);
  }

  override streamDataRelease(data: Uint8Array): void {
    super.streamDataRelease(data);
    this.#worker.protocols.streams.releaseData(data);
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    return this.#worker.protocols.rma.flush(this.#connection, this.#connection.lanes, params);
  }

  fence(): void {
    this.checkOpen();
    fenceConnection(this.#connection, this.#worker);
  }

  unpackRkey(packed: Uint8Array, options: RkeyOptions = {}): RemoteKey {
    this.checkOpen();
    if (checkRawMemory(options) !== undefined) throw otherPrograms('remote key');
    checkPackedKey(packed, 'native');
    return this.#worker.context.unpackRkey(packed, this.#connection);
  }

  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation {
    this.checkOpen();
    const { context } = this.#worker;
    return explainedBy(context.engine, explainTransfer(context, this.#connection, operation, { local, rkey }));
  }

  /** Begins to send a message or stream bytes. */
  #begin(local: LocalBuffer, params: RequestParams | undefined): UcpCall {
    const { call, context } = this.#worker;
    return call.begin(this.#connection, params, checkedList(context, local, MemAccess.LOCAL_READ));
  }

  #startList(
    operation: 'put' | 'get',
    list: readonly TransferEntry[] | PreparedList,
    params: ListParams | undefined,
  ): Status | Request {
    this.check(params, PARAM_FIELDS.list);
    if (params !== undefined) checkListParams(operation, params, list);
    return this.#worker.protocols.lists.start(this.#connection, operation, list, params);
  }

  protected override onForced(): void {
    this.#connection.cancelWaiting(Status.CANCELED);
  }

  protected override async shutDown(): Promise<void> {
    const connection = this.#connection;
    const { promises, connections } = this.#worker;
    const { streams } = this.#worker.protocols;
    streams.cancelReceives(connection);
    let isFlushed = false;
    enqueueFlush(connection, this.#worker, () => {
      isFlushed = true;
      promises.wake();
    });
    await promises.until(() => {
      // Also cancels this flush, and operations that the peer has requested since: the peer may never continue them.
      if (this.isForced && (!isFlushed || connection.waiting.size > 0)) connection.cancelWaiting(Status.CANCELED);
      return (
        isFlushed &&
        this.awaited === 0 &&
        connection.waiting.size === 0 &&
        connection.notifications.isEmpty &&
        !streams.isCopying(connection)
      );
    });
    this.#worker.endpoints.forget(connection);
    connections.close(connection);
  }

  protected override async transfer(
    name: 'put' | 'get',
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.checkOpen();
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(name, local, rkey, options);
    const { promises, protocols } = this.#worker;
    const connection = this.#connection;
    let lane: Lane | undefined;
    const outcome = await promises.run(name, options.signal, (params) => {
      const call = this.#worker.call.begin(connection, params).memory(local, localOffset, byteLength);
      try {
        const started = protocols.rma.start(call.move(operationOf(name), rkey, remoteOffset));
        if (typeof started !== 'number') lane = started.lane;
        return started;
      } finally {
        call.end();
      }
    });
    // Flushes only the lane that carried the put, even on a closing endpoint, because closing waits for earlier operations.
    const used = lane;
    if (name === 'put' && used !== undefined) {
      await promises.run(name, options.signal, (params) => protocols.rma.flush(connection, [used], params));
    }
    return resultOf(outcome, byteLength);
  }
}

/** The attributes of the endpoint of a connection. */
function attributesOf({ lanes, amLane, socketAddresses }: Connection): EndpointAttributes {
  return {
    localAddress: socketAddresses?.local,
    remoteAddress: socketAddresses?.remote,
    transports: lanes.map(({ iface }) => nameOf(iface.attributes)),
    messageTransport: amLane === undefined ? undefined : nameOf(amLane.iface.attributes),
  };
}
