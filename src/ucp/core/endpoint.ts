/**
 * An endpoint: a connection to a worker as the API shows it, and the operations over it in both tiers. How they run is decided in the
 * folders of the protocols.
 */

import { closedError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { AwaitedEndpoint } from '../api/awaited/awaited-endpoint.ts';
import { resolveTransfer, resultOf } from '../api/awaited/awaited-options.ts';
import { checkParams } from '../api/check-options.ts';
import type {
  Endpoint as ApiEndpoint,
  CloseOptions,
  EndpointAttributes,
  EndpointOptions,
  ExplainedOperation,
  RkeyOptions,
  TransferOptions,
  TransferResult,
} from '../api/endpoint.ts';
import { ErrorHandling } from '../api/error-handling.ts';
import type { Explanation } from '../api/explanation.ts';
import { explainedBy } from '../api/explanation-text.ts';
import { checkLocal } from '../api/local-bytes.ts';
import { checkRawMemory, otherPrograms } from '../api/raw-bytes.ts';
import type { AmSendParams, AtomicName, AtomicParams, RequestParams, StreamRecvParams } from '../api/request.ts';
import type { Tag } from '../api/tag.ts';
import { isObserved } from '../base/observation.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { Request } from '../base/request.ts';
import type { Lane } from '../lane/lane.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { type Candidate, Operation, Protocol } from '../proto/selection.ts';
import { explainTransfer } from '../rma/explain-transfer.ts';
import { enqueueFlush, fenceConnection, initFlush, tryFlush } from '../rma/flush.ts';
import { initParts, placesOf, type RmaPlace } from '../rma/internal-rma.ts';
import { checkRemote, chooseCandidate, initLocal, initRma, planFor, putAtOnce, putKnown } from '../rma/put-get.ts';
import { attributesOf, type EndpointWorker } from './endpoint-attributes.ts';

/** Of a transfer that is not divided. */
const NO_PARTS: readonly RmaPlace[] = [];

/** An endpoint. */
export class Endpoint extends AwaitedEndpoint implements ApiEndpoint {
  readonly #worker: EndpointWorker;
  readonly #connection: PeerConnection;
  readonly #errorHandling: ErrorHandling = new ErrorHandling();
  #closed = false;
  #isForced = false;
  #closing: Promise<void> | undefined;

  /** Made by Worker.endpoint. */
  constructor(worker: EndpointWorker, connection: PeerConnection) {
    super(worker.promises);
    this.#worker = worker;
    this.#connection = connection;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get status(): Status {
    return this.#connection.failure;
  }

  get transports(): readonly string[] {
    return attributesOf(this.#connection).transports;
  }

  get messageTransport(): string | undefined {
    return attributesOf(this.#connection).messageTransport;
  }

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

  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request {
    this.#checkOpen();
    checkParams(params);
    return this.#worker.protocols.atomics.start(this.#connection, operation, value, rkey, remoteOffset, params);
  }

  tagSendNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    checkParams(params);
    return this.#worker.protocols.tag.send(this.#connection, local, localOffset, byteLength, tag, false, params);
  }

  tagSendSyncNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#checkOpen();
    checkParams(params);
    return this.#worker.protocols.tag.send(this.#connection, local, localOffset, byteLength, tag, true, params);
  }

  amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request {
    if (this.#closed) throw closedError('endpoint');
    checkParams(params);
    return this.#worker.protocols.am.send(this.#connection, id, header, local, localOffset, byteLength, params);
  }

  streamSendNbx(local: LocalBuffer, localOffset: number, byteLength: number, params?: RequestParams): Status | Request {
    this.#checkOpen();
    checkParams(params);
    return this.#worker.protocols.streams.send(this.#connection, local, localOffset, byteLength, params);
  }

  streamRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params?: StreamRecvParams,
  ): Status | Request {
    this.#checkOpen();
    checkParams(params);
    return this.#worker.protocols.streams.receive(this.#connection, local, localOffset, byteLength, params);
  }

  streamRecvData(): Uint8Array | undefined {
    this.#checkOpen();
    return this.#worker.protocols.streams.takeData(this.#connection);
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.#checkOpen();
    checkParams(params);
    return this.#flush(this.#connection.lanes, params);
  }

  fence(): void {
    this.#checkOpen();
    fenceConnection(this.#connection, this.#worker);
  }

  unpackRkey(packed: Uint8Array, options: RkeyOptions = {}): RemoteKey {
    this.#checkOpen();
    if (checkRawMemory(options) !== undefined) throw otherPrograms('remote key');
    return this.#worker.context.unpackRkey(packed, this.#connection);
  }

  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation {
    this.#checkOpen();
    const { context } = this.#worker;
    return explainedBy(context.engine, explainTransfer(context, this.#connection, operation, local, rkey));
  }

  put(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.whole(() => this.#awaitRma(Operation.PUT, local, rkey, options));
  }

  get(local: LocalMemory, rkey: RemoteKey, options: TransferOptions = {}): Promise<TransferResult> {
    return this.whole(() => this.#awaitRma(Operation.GET, local, rkey, options));
  }

  close(options?: CloseOptions): Promise<void> {
    // Closing never fails, whatever it is given.
    if (options?.force === true) {
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
      return isFlushed && this.awaited === 0 && connection.waiting.size === 0 && !streams.isCopying(connection);
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
    initFlush(request, connection, lanes, tried === Status.INPROGRESS ? Status.OK : tried);
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
    checkParams(params);
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
    initRma(request, operation, connection, candidate, rkey, remoteOffset);
    try {
      const parts = this.#partsOf(operation, candidate, local, localOffset, byteLength, rkey, remoteOffset);
      if (parts.length > 1) initParts(this.#worker, request, operation, parts);
      else if (candidate.protocol !== Protocol.MESSAGE)
        initLocal(request, local, localOffset, byteLength, this.#worker.context);
      else this.#worker.protocols.emulated.describe(request, local, localOffset, byteLength, rkey.memoryKey!);
    } catch (error) {
      this.#worker.discard(request);
      throw error;
    }
    return this.#worker.start(request, params);
  }

  /** The parts of a put or get that several network devices share (UCX_MAX_RMA_RAILS); none, or one, where it goes as a whole. */
  #partsOf(
    operation: Operation,
    { protocol }: Candidate,
    local: LocalMemory,
    localOffset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
  ): readonly RmaPlace[] {
    const { rmaRails } = this.#worker.context;
    if (!this.#connection.hasRails || rmaRails.railsMax < 2 || protocol !== Protocol.ZCOPY) return NO_PARTS;
    const whole = { local, localOffset, byteLength, rkey, remoteOffset };
    return placesOf(this.#connection, operation, whole, rmaRails);
  }

  async #awaitRma(
    operation: Operation,
    local: LocalMemory,
    rkey: RemoteKey,
    options: TransferOptions,
  ): Promise<TransferResult> {
    this.#checkOpen();
    checkLocal(this.#worker.context, local, 0, 0);
    checkRemote(this.#connection, rkey, 0, 0);
    const { localOffset, byteLength, remoteOffset } = resolveTransfer(local, rkey, options);
    const name = operation === Operation.PUT ? 'put' : 'get';
    let lane: Lane | undefined;
    const outcome = await this.#worker.promises.run(name, options.signal, (params) => {
      const started = this.#rma(operation, local, localOffset, byteLength, rkey, remoteOffset, params);
      if (typeof started !== 'number') lane = started.lane;
      return started;
    });
    // Only the lane that carried it, and also on an endpoint that is being closed: it finishes what was started on it.
    const used = lane;
    if (operation === Operation.PUT && used !== undefined) {
      await this.#worker.promises.run(name, undefined, (params) => this.#flush([used], params));
    }
    return resultOf(outcome, byteLength);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('endpoint');
  }
}
