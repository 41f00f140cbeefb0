/**
 * An endpoint: a connection to a worker as the API shows it, and the operations over it in both tiers. How they run is decided in the
 * folders of the protocols.
 */

import { closedError } from '../../ucs/error.ts';
import { Status } from '../../ucs/status.ts';
import type { AmSendParams } from '../am/active-message.ts';
import type { AtomicName, AtomicParams } from '../amo/atomics.ts';
import { checkLocal, type LocalBuffer } from '../mem/local-bytes.ts';
import type { LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import type { Explanation } from '../proto/explain.ts';
import { Operation, Protocol } from '../proto/selection.ts';
import {
  checkRemote,
  chooseCandidate,
  describeLocal,
  describeRma,
  planFor,
  putAtOnce,
  putKnown,
} from '../rma/put-get.ts';
import { streamChunks } from '../stream/chunks.ts';
import type { StreamRecvParams } from '../stream/stream.ts';
import type { Tag } from '../tag/tag-value.ts';
import {
  type AmSendOptions,
  type AtomicOptions,
  lengthOf,
  resolveTransfer,
  resultOf,
  type SendOptions,
  type TagSendOptions,
  type TransferOptions,
  type TransferResult,
} from './awaited-options.ts';
import {
  attributesOf,
  type CloseOptions,
  type EndpointAttributes,
  type EndpointWorker,
} from './endpoint-attributes.ts';
import { ErrorHandling, type ErrorHandlingOptions } from './error-handling.ts';
import { type ExplainedOperation, explainTransfer } from './explain-transfer.ts';
import { describeFlush, enqueueFlush, fenceConnection, tryFlush } from './flush.ts';
import type { Lane } from './lane.ts';
import { isObserved } from './observation.ts';
import type { PeerConnection } from './peer-connection.ts';
import type { Outcome } from './promise-tier.ts';
import type { Request, RequestParams } from './request.ts';

/** How an endpoint behaves. */
export type EndpointOptions = ErrorHandlingOptions<Endpoint>;

/** An endpoint. */
export class Endpoint {
  readonly #worker: EndpointWorker<Endpoint>;
  readonly #connection: PeerConnection;
  readonly #errorHandling: ErrorHandling<Endpoint> = new ErrorHandling();
  #closed = false;
  #isForced = false;
  #closing: Promise<void> | undefined;
  /** Awaited operations under way: closing waits for them. */
  #awaited = 0;

  /** Made by Worker.endpoint. */
  constructor(worker: EndpointWorker<Endpoint>, connection: PeerConnection) {
    this.#worker = worker;
    this.#connection = connection;
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** OK, or why the connection has ended without being closed here. */
  get status(): Status {
    return this.#connection.failure;
  }

  /** Transports and devices of the lanes, such as `gaudi_cpy/gaudi0`. */
  get transports(): readonly string[] {
    return attributesOf(this.#connection).transports;
  }

  /** The lane that carries messages, such as `posix/memory`; undefined where none does. */
  get messageTransport(): string | undefined {
    return attributesOf(this.#connection).messageTransport;
  }

  /** What is known about it (ucp_ep_query). */
  query(): EndpointAttributes {
    this.#checkOpen();
    return attributesOf(this.#connection);
  }

  /** Sets what happens when the peer is gone; for the worker. */
  setOptions(options: EndpointOptions): void {
    this.#errorHandling.set(options);
  }

  get watchesPeer(): boolean {
    return this.#errorHandling.watchesPeer;
  }

  /** The connection has ended; for the worker. */
  onFailed(): void {
    if (!this.#closed) this.#errorHandling.report(this, this.#connection.failure);
  }

  /**
   * Writes local bytes to remote memory (ucp_put_nbx). Local completion: OK or the end of the request means that the local memory can be
   * used again; flush waits for remote completion.
   * @param local host bytes or mapped memory; must not change, nor be detached or transferred, until the request has ended
   * @param byteLength bytes; 0 moves nothing
   * @param remoteOffset byte of the memory behind `rkey`
   * @returns OK, a request in progress, the failure of a connection that has ended, or NO_RESOURCE when as many requests as the worker has
   *   are in use
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNREACHABLE; nothing has moved then
   */
  putNbx(
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    if (params === undefined && !this.#closed && local instanceof Uint8Array && !isObserved()) {
      const status = putKnown(this.#connection, local, localOffset, byteLength, rkey, remoteOffset);
      // A refusal is found again below, where it gets its reason.
      if (status === Status.OK) return status;
    }
    return this.#rma(Operation.PUT, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  /** Reads remote memory into local memory (ucp_get_nbx): the bytes are there when OK is returned or the request has ended. See {@link putNbx}. */
  getNbx(
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request {
    return this.#rma(Operation.GET, local, localOffset, byteLength, rkey, remoteOffset, params);
  }

  /**
   * Changes a word of remote memory atomically (ucp_atomic_op_nbx). The request's `atomicResult` is the word before.
   * @param operation add, and, or, xor, swap, or cswap with `params.compare`
   * @param value integer of the word's bits
   * @param remoteOffset byte of the remote memory, a multiple of the word
   * @returns see {@link putNbx}
   */
  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request {
    this.#checkOpen();
    return this.#worker.protocols.atomics.start(this.#connection, operation, value, rkey, remoteOffset, params);
  }

  /**
   * Sends a tagged message (ucp_tag_send_nbx). Its end means that the local memory can be used again.
   * @param local bytes, mapped memory of any type, or a list of pieces; `localOffset` and `byteLength` are 0 with a list
   * @param tag 0 to 2^64 - 1
   */
  tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    return this.#worker.protocols.tag.send(this.#connection, local, localOffset, byteLength, tag, false, params);
  }

  /** Like {@link tagSendNbx}, but ends only when a receive has taken the message (ucp_tag_send_sync_nbx). */
  tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#checkOpen();
    return this.#worker.protocols.tag.send(this.#connection, local, localOffset, byteLength, tag, true, params);
  }

  /**
   * Sends an active message (ucp_am_send_nbx).
   * @param id of the handler at the peer, 0 to 65535
   * @param header at most 4096 bytes; copied
   */
  amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    return this.#worker.protocols.am.send(this.#connection, id, header, local, localOffset, byteLength, params);
  }

  /** Sends bytes of the stream (ucp_stream_send_nbx). */
  streamSendNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.#checkOpen();
    return this.#worker.protocols.streams.send(this.#connection, local, localOffset, byteLength, params);
  }

  /** Receives bytes of the stream (ucp_stream_recv_nbx): what is there, at least one byte, or all of the memory with `waitAll`. */
  streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request {
    this.#checkOpen();
    return this.#worker.protocols.streams.receive(this.#connection, local, localOffset, byteLength, params);
  }

  /** Takes bytes of the stream that have arrived, without a copy (ucp_stream_recv_data_nb); undefined for none. */
  streamRecvData(): Uint8Array | undefined {
    this.#checkOpen();
    return this.#worker.protocols.streams.takeData(this.#connection);
  }

  /**
   * Waits until everything started before has reached remote memory (ucp_ep_flush_nbx).
   * @returns OK when that is so, a request in progress, the failure of an earlier put, or NO_RESOURCE
   */
  flushNbx(params?: RequestParams): Status | Request {
    this.#checkOpen();
    return this.#flush(this.#connection.lanes, params);
  }

  /** Orders the puts, gets and atomic operations started before against those started after (ucp_worker_fence, for one endpoint). */
  fence(): void {
    this.#checkOpen();
    fenceConnection(this.#connection, this.#worker);
  }

  /**
   * Unpacks a remote key for this endpoint (ucp_ep_rkey_unpack).
   * @throws UcxError ERR_RKEY_MALFORMED, ERR_RKEY_STALE, ERR_RKEY_FORGED
   */
  unpackRkey(packed: Uint8Array): RemoteKey {
    this.#checkOpen();
    return this.#worker.context.unpackRkey(packed, this.#connection);
  }

  /** Lists the candidates for an operation, the chosen ones by size, and why the others were rejected. */
  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation {
    this.#checkOpen();
    return explainTransfer(this.#worker.context, this.#connection, operation, local, rkey);
  }

  /**
   * Writes local bytes to remote memory and waits until they are there.
   * @throws UcxError as {@link putNbx}, and for a transfer that failed; AbortError when `signal` fires: a transfer on its way is not
   *   recalled, the promise settles when it no longer touches the local memory
   */
  put(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.#whole(() => this.#awaitRma(Operation.PUT, local, rkey, options));
  }

  /** Reads remote memory into local memory. See {@link put}. */
  get(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.#whole(() => this.#awaitRma(Operation.GET, local, rkey, options));
  }

  /** Changes a word of remote memory atomically; resolves with the word before. See {@link atomicNbx}. */
  async atomic(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    options: AtomicOptions = {},
  ): Promise<bigint> {
    const { remoteOffset = 0, signal, ...word } = options;
    const { atomicResult } = await this.#await(`atomic ${operation}`, signal, (params) =>
      this.atomicNbx(operation, value, rkey, remoteOffset, { ...params, ...word }),
    );
    return atomicResult;
  }

  /** Sends a tagged message; resolves when the local memory can be used again. */
  tagSend(local: LocalBuffer, options: TagSendOptions = {}): Promise<TransferResult> {
    return this.#send('tag send', local, options.signal, (length, params) =>
      this.tagSendNbx(local, 0, length, options.tag ?? 0, params),
    );
  }

  /** Sends a tagged message; resolves when a receive has taken it. */
  tagSendSync(local: LocalBuffer, options: TagSendOptions = {}): Promise<TransferResult> {
    return this.#send('synchronous tag send', local, options.signal, (length, params) =>
      this.tagSendSyncNbx(local, 0, length, options.tag ?? 0, params),
    );
  }

  /** Sends an active message; resolves when the local memory can be used again. */
  amSend(id: number, local: LocalBuffer, options: AmSendOptions = {}): Promise<TransferResult> {
    const { header, signal, ...how } = options;
    return this.#send('active message', local, signal, (length, params) =>
      this.amSendNbx(id, header, local, 0, length, { ...params, ...how }),
    );
  }

  /** Sends bytes of the stream; resolves when the local memory can be used again. */
  streamSend(local: LocalBuffer, options: SendOptions = {}): Promise<TransferResult> {
    return this.#send('stream send', local, options.signal, (length, params) =>
      this.streamSendNbx(local, 0, length, params),
    );
  }

  /** Receives bytes of the stream; resolves with how many. */
  async streamRecv(local: LocalBuffer, options: SendOptions & { readonly waitAll?: boolean } = {}): Promise<number> {
    const { waitAll = false } = options;
    const { receivedBytes } = await this.#await(
      'stream receive',
      options.signal,
      (params) => this.streamRecvNbx(local, 0, lengthOf(local), { ...params, waitAll }),
      true,
    );
    return receivedBytes;
  }

  /** The bytes of the stream as they arrive, until the peer closes or the loop is left. */
  stream(options: SendOptions = {}): AsyncGenerator<Uint8Array, void, void> {
    return streamChunks(this, options);
  }

  /** Waits until everything started before has reached remote memory. */
  async flush(options: SendOptions = {}): Promise<void> {
    this.#checkOpen();
    await this.#worker.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  /**
   * Closes the endpoint: waits until what was started before has ended, or ends it with CANCELED where `force` is set and only the peer
   * could end it. Idempotent; a failure of earlier operations is not reported here.
   */
  close(options: CloseOptions = {}): Promise<void> {
    if (options.force === true) {
      this.#isForced = true;
      this.#closed = true;
      this.#connection.cancelWaiting(Status.CANCELED);
    }
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  async #close(): Promise<void> {
    this.#closed = true;
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
      // Also what the peer has asked for since: it may never go on with it.
      if (this.#isForced && connection.waiting.size > 0) connection.cancelWaiting(Status.CANCELED);
      return isFlushed && this.#awaited === 0 && connection.waiting.size === 0 && !streams.isSending(connection);
    });
    this.#worker.forgetEndpoint(connection);
    connections.close(connection);
  }

  #flush(lanes: readonly Lane[], params: RequestParams | undefined): Status | Request {
    const connection = this.#connection;
    if (connection.failure !== Status.OK) return connection.failure;
    const tried = tryFlush(lanes);
    const isIdle = tried !== Status.INPROGRESS && !connection.hasPending && connection.remoteOperations === 0;
    if (isIdle && params?.noImmediateCompletion !== true) {
      const kept = connection.takeFailure();
      return tried === Status.OK ? kept : tried;
    }
    const request = this.#worker.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    describeFlush(request, connection, lanes, tried === Status.INPROGRESS ? Status.OK : tried);
    return this.#worker.start(request, params);
  }

  #rma(
    operation: Operation,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params: RequestParams | undefined,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    const connection = this.#connection;
    checkLocal(this.#worker.context, local, localOffset, byteLength);
    checkRemote(connection, rkey, remoteOffset, byteLength);
    if (byteLength === 0) return Status.OK;
    if (connection.failure !== Status.OK) return connection.failure;
    const plan = planFor(operation, local, rkey, connection);
    const candidate = chooseCandidate(plan, operation, local, rkey, byteLength);
    if (operation === Operation.PUT && params?.noImmediateCompletion !== true && !isObserved()) {
      const status = putAtOnce(connection, candidate, local, localOffset, byteLength, rkey, remoteOffset);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const request = this.#worker.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    describeRma(request, operation, connection, candidate, rkey, remoteOffset);
    try {
      if (candidate.protocol !== Protocol.MESSAGE)
        describeLocal(request, local, localOffset, byteLength, this.#worker.context);
      else this.#worker.protocols.emulated.describe(request, local, localOffset, byteLength, rkey.memoryKey!);
    } catch (error) {
      this.#worker.discard(request);
      throw error;
    }
    return this.#worker.start(request, params);
  }

  async #awaitRma(
    operation: Operation,
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.#checkOpen();
    const { context } = this.#worker;
    const transfer = resolveTransfer(context, this.#connection, local, rkey, options);
    const { localOffset, byteLength, remoteOffset } = transfer;
    const name = operation === Operation.PUT ? 'put' : 'get';
    const outcome = await this.#worker.promises.run(name, options.signal, (params) =>
      this.#rma(operation, local, localOffset, byteLength, rkey, remoteOffset, params),
    );
    // Only the lane that carried it, and also on an endpoint that is being closed: it finishes what was started on it.
    const { lane } = outcome;
    if (operation === Operation.PUT && lane !== undefined) {
      await this.#worker.promises.run(name, undefined, (params) => this.#flush([lane], params));
    }
    return resultOf(outcome, byteLength);
  }

  async #send(
    what: string,
    local: LocalBuffer,
    signal: AbortSignal | undefined,
    startSend: (byteLength: number, params: RequestParams) => Status | Request,
  ): Promise<TransferResult> {
    const length = lengthOf(local);
    return resultOf(await this.#await(what, signal, (params) => startSend(length, params)), length);
  }

  #await(
    what: string,
    signal: AbortSignal | undefined,
    startOperation: (params: RequestParams) => Status | Request,
    keepsResult = false,
  ): Promise<Outcome> {
    return this.#whole(() => this.#worker.promises.run(what, signal, startOperation, keepsResult));
  }

  /** Runs an awaited operation so that closing sees it until its very end. */
  async #whole<T>(run: () => Promise<T>): Promise<T> {
    this.#awaited += 1;
    try {
      return await this.#worker.promises.whole(run);
    } finally {
      this.#awaited -= 1;
      if (this.#closed) this.#worker.promises.wake();
    }
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('endpoint');
  }
}
