/** An endpoint over libucp: put, get, atomic operations, flush and fence. */

import { resolveTransfer, resultOf } from '../../api/awaited/endpoint.ts';
import type {
  Endpoint as ApiEndpoint,
  EndpointAttributes,
  ExplainedOperation,
  RkeyOptions,
  TransferOptions,
  TransferResult,
} from '../../api/contract/endpoint.ts';
import type { Explanation } from '../../api/contract/explanation.ts';
import { accessesOf, GET_ACCESSES, PUT_ACCESSES, type RemoteKey } from '../../api/contract/memory.ts';
import {
  type AtomicName,
  type AtomicParams,
  type ListCheckOptions,
  type ListParams,
  PARAM_FIELDS,
  type PreparedList,
  type PutParams,
  type Request,
  type RequestParams,
  type TransferEntry,
} from '../../api/contract/request.ts';
import { entriesOf } from '../../api/list/list.ts';
import { checkRawMemory, isList } from '../../api/memory/local.ts';
import { checkRemoteWord } from '../../api/memory/owned.ts';
import { endsInCall, Operation, operationOf } from '../../api/operation/call.ts';
import { WordOperation } from '../../api/operation/word-operation.ts';
import { isUcxError, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_EP_CLOSE_FLAG, UCP_FEATURE } from '../c/abi.ts';
import { fenceBlocks } from '../c/library.ts';
import { queryEndpoint } from '../c/queries.ts';
import { isIncorrect, requireAtomics, startAtomic } from '../device/atomics.ts';
import type { Block, EndpointHandling, EngineEndpoint } from '../engine/engine.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { checkSides, type Move, moveOf, readRemoteKey, UcpRemoteKey } from '../mem/remote-key.ts';
import { CLOSE_AM_ID } from '../request/arrivals.ts';
import { addressIn, checkKept, isHost } from '../request/local.ts';
import { ofEndpoint, RequestKind } from '../request/request.ts';
import { BorrowedHandle } from './borrowed-handle.ts';
import { explainOver } from './explain.ts';
import type { EndpointParts } from './message-endpoint.ts';
import { EndpointLists, MessageEndpoint } from './message-endpoint.ts';
import { Notice } from './unproven-peers.ts';

/** Time limit for sending the close message of a forced close; without the message, the peer notices the closed connection. */
const FORCED_CLOSE_MESSAGE_NS = 50e6;

/** By Operation: the protocol name, the accesses, and the libucp function of puts and gets. */
const PROTOCOLS = ['put/libucp', 'get/libucp'] as const;
const ACCESSES = [PUT_ACCESSES, GET_ACCESSES] as const;
const FUNCTIONS = ['ucp_put_nbx', 'ucp_get_nbx'] as const;
const NO_RANGE = { localOffset: 0, remoteOffset: 0, byteLength: 0 };

export class Endpoint extends MessageEndpoint implements EngineEndpoint {
  readonly messageTransport: string | undefined = undefined;
  /** Number of device-memory operations in flight: a flush waits for them. */
  unconfirmed = 0;
  /** Whether new operations wait for those before a fence. */
  isFenced = false;
  /** Called first on failure: the application does not have the endpoint yet while the connection is established. */
  onceFailed: ((status: Status) => void) | undefined = undefined;
  /** Called after a close by force. */
  onceDropped: (() => void) | undefined = undefined;
  readonly #keys: Set<RemoteKey> = new Set();
  readonly #lists: EndpointLists;
  /** See {@link nativeEndpoint}. */
  #nativeEndpoint: ApiEndpoint | undefined;
  /** Whether libucp has peer error handling for it, and can close it by force. */
  readonly #isWatched: boolean;
  /** Defined if libucp created the endpoint for a peer. */
  readonly #borrowed: BorrowedHandle | undefined;
  /** Cached: libucp supports atomic operations here. */
  #hasAtomics = false;
  /** Whether the libucp handle is being closed: it must not be used any more. */
  #isHandleClosed = false;
  /** Whether the peer is known to use this engine: both ends then send each other a close message. */
  #usesEngine: boolean;
  #hasGreeted = false;
  /** Whether the peer has handled the close message. */
  #isAcknowledged = false;
  closedByPeer: boolean | undefined = undefined;
  cause: unknown = undefined;

  /** @param handle of libucp, whose failure is reported to the worker */
  constructor(
    parts: EndpointParts,
    handle: number,
    nativeAddress: Uint8Array,
    { options, isWatched, isBorrowed }: EndpointHandling,
  ) {
    super(parts, handle, nativeAddress);
    this.#usesEngine = nativeAddress.byteLength > 0;
    this.errorHandling.set(options);
    this.#isWatched = isWatched;
    this.#borrowed = isBorrowed === true ? new BorrowedHandle(handle, this.core.handle) : undefined;
    this.#lists = new EndpointLists(parts, this);
  }

  /** Whether libucp created it for a peer, and frees it when the connection ends. */
  get isBorrowed(): boolean {
    return this.#borrowed !== undefined;
  }

  get isDirect(): boolean {
    return this.core.context.access.isDirect;
  }

  get transports(): readonly string[] {
    return this.closed || this.#hasNoHandle ? [] : queryEndpoint(this.core.context.libucp, this.handle).transports;
  }

  /** The endpoint to the same peer over the native transports; undefined if they do not reach it. */
  get nativeEndpoint(): ApiEndpoint | undefined {
    if (this.nativeAddress.byteLength > 0) this.#nativeEndpoint ??= this.#connectNative();
    return this.#nativeEndpoint;
  }

  get openNativeEndpoint(): ApiEndpoint | undefined {
    return this.#nativeEndpoint;
  }

  query(): EndpointAttributes {
    this.checkOpen();
    if (this.#hasNoHandle) throw statusError(this.failure, 'query');
    return queryEndpoint(this.core.context.libucp, this.handle);
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
      return this.putListNbx(entriesOf({ local, localOffset, byteLength, rkey, remoteOffset }), params);
    }
    this.require(UCP_FEATURE.RMA, params, PARAM_FIELDS.put);
    const call = this.core.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#rma(Operation.PUT, moveOf(call, rkey, remoteOffset), params, call.isImmediate);
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
    if (isList(local)) {
      return this.getListNbx(entriesOf({ local, localOffset, byteLength, rkey, remoteOffset }), params);
    }
    this.require(UCP_FEATURE.RMA, params);
    const call = this.core.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#rma(Operation.GET, moveOf(call, rkey, remoteOffset), params, call.isImmediate);
    } finally {
      call.end();
    }
  }

  prepareList(operation: 'put' | 'get', list: readonly TransferEntry[], options: ListCheckOptions = {}): PreparedList {
    this.require(UCP_FEATURE.RMA);
    return this.#lists.prepare(operation, list, options);
  }

  putListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    this.require(UCP_FEATURE.RMA, params, PARAM_FIELDS.list);
    return this.#lists.start('put', list, params);
  }

  getListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request {
    this.require(UCP_FEATURE.RMA, params, PARAM_FIELDS.list);
    return this.#lists.start('get', list, params);
  }

  notifyNbx(bytes: Uint8Array, params?: PutParams): Status | Request {
    this.check(params, PARAM_FIELDS.notify);
    return this.#lists.notify(bytes, params);
  }

  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request {
    const word = new WordOperation();
    word.set(operation, value, params?.bits, params?.compare);
    this.require(word.wordBytes === 4 ? UCP_FEATURE.AMO32 : UCP_FEATURE.AMO64, params, PARAM_FIELDS.atomic);
    checkRemoteWord(this, { rkey, remoteOffset, byteLength: word.wordBytes });
    if (this.failure !== Status.OK) return this.failure;
    const remote = { rkey: rkey as UcpRemoteKey, remoteOffset };
    const isOfCard = remote.rkey.exportId !== 0;
    if (!isOfCard) this.#hasAtomics ||= requireAtomics(this.core.context, this.handle, this.#isWatched);
    if (this.isFenced) {
      const begin = (inner: RequestParams): Status | Request =>
        this.atomicNbx(operation, value, rkey, remoteOffset, { ...params, noImmediateCompletion: false, ...inner });
      return this.parts.devices.defer(this, 'amo/libucp', begin, params);
    }
    if (isOfCard || isIncorrect(word, this.core.context.libucp)) {
      return this.parts.devices.atomic(this, word, remote, params);
    }
    const isOpen = (): boolean => !this.isForced && this.failure === Status.OK;
    return ofEndpoint(this, startAtomic({ core: this.core, handle: this.handle }, word, remote, { params, isOpen }));
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    if (this.failure !== Status.OK) return this.failure;
    return this.flushAll(params);
  }

  /** Flushes an endpoint that may be closing. */
  flushAll(params: RequestParams | undefined): Status | Request {
    if (this.unconfirmed > 0 || this.#nativeEndpoint !== undefined) return this.parts.devices.flush(this, params);
    return this.flushUcp(params);
  }

  /** Flushes only the operations passed to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request {
    this.checkHandle();
    // After a close by force, awaited puts and flushes may still be running.
    if (this.#isHandleClosed || this.#hasNoHandle) return this.failure === Status.OK ? Status.CANCELED : this.failure;
    const { requests } = this.core;
    const request = requests.begin(RequestKind.SEND, 'flush');
    if (request === undefined) return Status.NO_RESOURCE;
    request.endpoint = this;
    return requests.started(request, this.functions.ucp_ep_flush_nbx(this.handle, requests.parameters.address), params);
  }

  fence(): void {
    this.checkOpen();
    const isAlone = fenceBlocks(this.core.context.libucp);
    if (!isAlone) this.core.fenceUcp();
    this.parts.devices.fence(this, isAlone);
  }

  unpackRkey(packed: Uint8Array, options: RkeyOptions = {}): UcpRemoteKey {
    this.checkOpen();
    const key = new UcpRemoteKey(this.functions, this, readRemoteKey(packed, checkRawMemory(options)));
    this.#keys.add(key);
    return key;
  }

  unpackNativeKey(packed: Uint8Array): RemoteKey | undefined {
    return this.nativeEndpoint?.unpackRkey(packed);
  }

  forgetKey(key: RemoteKey): void {
    this.#keys.delete(key);
  }

  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation {
    this.checkOpen();
    checkSides(this.core.context, this, accessesOf(operation), { local, rkey, ...NO_RANGE });
    return explainOver(this.core.context, this, operation, { local, rkey: rkey as UcpRemoteKey });
  }

  #connectNative(): ApiEndpoint | undefined {
    try {
      return this.core.native.endpoint(this.nativeAddress, { errorHandling: 'none' });
    } catch (error) {
      if (isUcxError(error) && error.status === Status.UNREACHABLE) return undefined;
      throw error;
    }
  }

  protected override onForced(): void {
    this.core.promises.wake();
  }

  /** Whether libucp has freed its endpoint, or is about to. */
  get #hasNoHandle(): boolean {
    if (this.#borrowed !== undefined) return this.failure !== Status.OK || this.#borrowed.isFreed;
    return this.#isHandleClosed;
  }

  protected override checkHandle(): void {
    if (this.#borrowed === undefined || this.failure !== Status.OK || !this.#borrowed.isFreed) return;
    this.parts.endpoints.forget(this);
    this.onFailed(Status.CONNECTION_RESET);
  }

  /** Records a failure; called by the worker after a close message of the peer or a failure report of libucp. */
  onFailed(status: Status, closedByPeer = false, cause: unknown = undefined): void {
    if (this.failure === Status.OK) {
      this.failure = status;
      this.cause = cause;
      // A peer that learns that this end closes may close without sending a message.
      if (closedByPeer || (this.#sendsCloseMessage && !this.closed)) this.closedByPeer = closedByPeer;
    }
    this.parts.devices.endpointClosed(this, this.failure);
    if (this.#borrowed !== undefined) this.receivedStream.detach(this.#borrowed.isFreed);
    this.receivedStream.fail(this.failure);
    this.core.requests.polling.overdue.expect(this, this.failure);
    this.onceFailed?.(status);
    if (!this.closed) this.errorHandling.report(this, this.failure, this.core.driver);
  }

  dropHandle(): boolean {
    // libucp frees borrowed handles, and without peer error handling it cannot close by force.
    if (this.#isHandleClosed || this.#borrowed !== undefined || !this.#isWatched) return false;
    this.receivedStream.detach(false);
    const closing = this.#closeUcp();
    if (typeof closing !== 'number') this.core.teardown.freeEventually(closing);
    return this.#isHandleClosed;
  }

  /** @param isImmediate see Call: the parameters given by a program are not read here */
  #rma(
    operation: Operation,
    move: Move,
    params: RequestParams | undefined,
    isImmediate = endsInCall(params),
  ): Status | Request {
    checkSides(this.core.context, this, ACCESSES[operation], move);
    if (move.byteLength === 0) return Status.OK;
    if (this.failure !== Status.OK) return this.failure;
    if (this.isFenced) {
      const { local, localOffset, byteLength, rkey, remoteOffset } = move;
      const begin = (inner: RequestParams): Status | Request => {
        this.require(UCP_FEATURE.RMA, inner);
        return this.#rma(operation, { local, localOffset, byteLength, rkey, remoteOffset }, inner);
      };
      return this.parts.devices.defer(this, PROTOCOLS[operation], begin, params);
    }
    return this.#move(operation, move, params, isImmediate);
  }

  moveBlock(operation: Operation, block: Block, params: RequestParams | undefined): Status | Request {
    const { local, localOffset, byteLength, rkey } = block;
    this.checkOpen();
    const isThere = local instanceof Uint8Array ? localOffset + byteLength <= local.length : local.mapped;
    // These checks throw an error that names the released key or memory.
    if (!isThere || rkey.released) checkSides(this.core.context, this, ACCESSES[operation], block);
    if (this.failure !== Status.OK) return this.failure;
    return this.#move(operation, block, params, endsInCall(params));
  }

  /** Starts a put or get with checked arguments. */
  #move(operation: Operation, move: Move, params: RequestParams | undefined, isImmediate: boolean): Status | Request {
    const { local, localOffset, byteLength, rkey, remoteOffset } = move;
    if (rkey.exportId !== 0 || !isHost(local)) {
      const transfer = { operation, endpoint: this, local, localOffset, byteLength, rkey, remoteOffset };
      return this.parts.devices.transfer(transfer, params);
    }
    const { requests } = this.core;
    if (!requests.canStartWithoutRequest(RequestKind.SEND, isImmediate)) return this.moveKnown(operation, move, params);
    checkKept(local);
    const address = addressIn(local, localOffset);
    const remote = rkey.remoteAddress + remoteOffset;
    const plain = requests.parameters.plainFor(local);
    const moved = this.functions[FUNCTIONS[operation]](this.handle, address, byteLength, remote, rkey.handle, plain);
    const started = { local, byteLength, rkey, params };
    return ofEndpoint(this, requests.startedWithoutRequest(RequestKind.SEND, moved, PROTOCOLS[operation], started));
  }

  moveKnown(operation: Operation, move: Move, params: RequestParams | undefined): Status | Request {
    const { local, localOffset, byteLength, rkey, remoteOffset } = move;
    const { requests, buffers } = this.core;
    const request = buffers.beginKnown(PROTOCOLS[operation], local, localOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    request.endpoint = this;
    request.pinKey(rkey);
    const { address } = request;
    const remote = rkey.remoteAddress + remoteOffset;
    const start = this.functions[FUNCTIONS[operation]];
    const started = start(this.handle, address, byteLength, remote, rkey.handle, requests.parameters.address);
    return requests.started(request, started, params);
  }

  protected override async transfer(
    name: 'put' | 'get',
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.require(UCP_FEATURE.RMA);
    checkSides(this.core.context, this, accessesOf(name), { local, rkey, ...NO_RANGE });
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(name, local, rkey, options);
    const { promises } = this.core;
    const move = { local, localOffset, byteLength, rkey: rkey as UcpRemoteKey, remoteOffset };
    const outcome = await promises.run(name, options.signal, (params) => {
      this.require(UCP_FEATURE.RMA, params, name === 'put' ? PARAM_FIELDS.put : undefined);
      return this.#rma(operationOf(name), move, params);
    });
    // Also on an endpoint that is closing: the close waits for the operations started before.
    if (name === 'put' && byteLength > 0) await promises.run(name, options.signal, (params) => this.flushAll(params));
    return resultOf(outcome, byteLength);
  }

  protected override async shutDown(): Promise<void> {
    const { promises } = this.core;
    this.checkHandle();
    this.receivedStream.cancelAll();
    // After a failure, libucp ends some operations only when the endpoint is closed (1.13, over shared memory).
    await promises.until(() => this.isForced || this.failure !== Status.OK || this.awaited === 0);
    // Sent before the close: a close by force would cancel it.
    const message = this.#sendCloseMessage();
    await this.core.teardown.closed(message, () => this.isForced, FORCED_CLOSE_MESSAGE_NS);
    // On a connection by socket address, libucp notifies the peer over another connection. The notification can overtake messages, which the peer then drops.
    const isOver = (): boolean => this.#isAcknowledged || this.failure !== Status.OK;
    if (this.#isBySocket && typeof message !== 'number') {
      await this.core.teardown.within(isOver, () => this.isForced, FORCED_CLOSE_MESSAGE_NS);
    }
    if (!this.isForced && this.failure === Status.OK) {
      const flush = this.flushAll({ noImmediateCompletion: true });
      await promises.until(() => this.isForced || typeof flush === 'number' || flush.isCompleted);
      if (typeof flush !== 'number') this.core.teardown.freeEventually(flush);
    }
    for (const key of this.#keys) key.release();
    this.receivedStream.close();
    this.parts.devices.endpointClosed(this, Status.CANCELED);
    const closing = this.#closeUcp();
    await this.core.teardown.closed(closing, () => this.isForced && !this.#isWatched);
    // The handle of a failed endpoint was closed by force too.
    if (this.isForced || this.failure !== Status.OK) this.onceDropped?.();
    this.parts.endpoints.forget(this);
    await this.#nativeEndpoint?.close({ force: true });
  }

  /** Sends a close message to a peer of this engine, after all earlier messages. @returns a request; OK if the peer is not notified */
  #sendCloseMessage(): Status | Request {
    // Without peer error handling, a blocked message could not be cancelled.
    const isUnreachable = this.failure !== Status.OK || (this.isForced && !this.#isWatched);
    if (!this.#sendsCloseMessage || isUnreachable) return Status.OK;
    return this.sendOwn(CLOSE_AM_ID, undefined, undefined, { noImmediateCompletion: true });
  }

  /** Whether it was created by socket address: the peer then makes background progress. */
  get #isBySocket(): boolean {
    return this.#usesEngine && this.nativeAddress.byteLength === 0;
  }

  /** Whether both ends send each other a close message. libucp notifies other programs, without a reason. */
  get #sendsCloseMessage(): boolean {
    return this.core.sendsCloseMessages && this.#usesEngine;
  }

  greet(): void {
    if (!this.core.sendsCloseMessages || this.#hasGreeted || this.closed || this.failure !== Status.OK) return;
    this.#hasGreeted = this.#sendNotice(Notice.GREETING);
    this.#usesEngine ||= this.#hasGreeted;
  }

  /** Handles a notice of the peer; called by the worker, outside callbacks of C. */
  onNotice(notice: number): void {
    this.#usesEngine = true;
    if (notice === Notice.ACKNOWLEDGEMENT) this.#isAcknowledged = true;
    else this.greet();
  }

  /** The peer closes its endpoint; called by the worker, outside callbacks of C. */
  onLeft(): void {
    if (this.#isBySocket && this.failure === Status.OK) this.#sendNotice(Notice.ACKNOWLEDGEMENT);
    this.onFailed(Status.CONNECTION_RESET, true);
  }

  #sendNotice(notice: Notice): boolean {
    // If the peer has no endpoint object here, libucp frees the handle without a report.
    if (this.#borrowed !== undefined || this.#isHandleClosed || this.#hasNoHandle) return false;
    const sent = this.sendOwn(CLOSE_AM_ID, Uint8Array.of(notice), undefined, { noImmediateCompletion: true });
    if (typeof sent !== 'number') this.core.teardown.freeEventually(sent);
    return typeof sent !== 'number' || sent === Status.OK;
  }

  #closeUcp(): Status | Request {
    const { requests } = this.core;
    // Overdue requests may have closed it already.
    if (this.#isHandleClosed) return Status.OK;
    requests.endpointLost();
    // libucp frees it with the connection or with the worker.
    if (this.#borrowed !== undefined) return Status.OK;
    const request = requests.begin(RequestKind.SEND, 'close');
    if (request === undefined) return Status.NO_RESOURCE;
    this.#isHandleClosed = true;
    const isForced = this.isForced || this.failure !== Status.OK;
    if (isForced) requests.polling.overdue.expect(this, Status.CANCELED);
    if (isForced && this.#isWatched) requests.parameters.setFlags(UCP_EP_CLOSE_FLAG.FORCE);
    return requests.started(request, this.functions.ucp_ep_close_nbx(this.handle, requests.parameters.address), {
      noImmediateCompletion: true,
    });
  }
}
