/**
 * A worker: the interfaces of one context, their progress, and the requests over them. It moves no bytes and chooses no protocols: those are in the
 * folders beside this one.
 */

import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { closedError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame, Iface } from '../../uct/api/iface.ts';
import type { ReceivedMessage, WaitingData } from '../am/active-message.ts';
import type { AmCallback, MessageOwner } from '../api/active-message.ts';
import { lengthOf } from '../api/awaited/awaited-options.ts';
import { type MessageQueue, MessageQueues } from '../api/awaited/message-queue.ts';
import { ProgressDriver } from '../api/awaited/progress-driver.ts';
import { checkSignal, PromiseTier, signalOf } from '../api/awaited/promise-tier.ts';
import { WorkerEvent } from '../api/awaited/worker-event.ts';
import { checkOptions, checkParams } from '../api/check-options.ts';
import { clientIdOf } from '../api/client-id.ts';
import type { AddressEndpointOptions, Endpoint as ApiEndpoint, EndpointOptions } from '../api/endpoint.ts';
import { checkErrorHandling } from '../api/error-handling.ts';
import { checkRawAddress, otherPrograms } from '../api/raw-bytes.ts';
import type { Request as ApiRequest, RequestParams } from '../api/request.ts';
import type { ConnectNbxOptions, ConnectOptions } from '../api/sockets/connect.ts';
import type { Listener, ListenerOptions } from '../api/sockets/listener.ts';
import type { Tag } from '../api/tag.ts';
import type { Worker as ApiWorker, TagMessage, TagRecvOptions, TagRecvResult, WorkerOptions } from '../api/worker.ts';
import { Observation } from '../base/observation.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { ProtocolHost } from '../base/protocol-host.ts';
import { Request } from '../base/request.ts';
import { RequestPool } from '../base/request-pool.ts';
import { WorkerCounter, WorkerCounters } from '../base/worker-counters.ts';
import { CreditBudget } from '../credit/credit-budget.ts';
import type { Activity } from '../lane/lane.ts';
import { addressOfWorker, isListening, type OpenIface } from '../lane/lanes.ts';
import { openIfaces } from '../lane/open-ifaces.ts';
import { QuietIfaces } from '../lane/quiet-ifaces.ts';
import { WORKER_ID_BYTES } from '../lane/worker-address.ts';
import type { LocalBuffer } from '../mem/memory-handle.ts';
import { fenceConnection, initFlushOf } from '../rma/flush.ts';
import { Connections, type ConnectionsOwner } from '../wireup/connections.ts';
import { Keepalive, type KeepaliveOwner } from '../wireup/keepalive.ts';
import { PendingConnections } from '../wireup/pending-connections.ts';
import { SocketConnections, type SocketOwner } from '../wireup/socket-connections.ts';
import { cancelRequest } from './cancel.ts';
import { Protocols } from './dispatch.ts';
import { Endpoint } from './endpoint.ts';
import type { EndpointWorker } from './endpoint-attributes.ts';
import { TransportSleep } from './sleep.ts';
import type { WorkerContext } from './worker-context.ts';

/** Turns of progress after which also those transports are driven that have nothing on their way: they may serve peers. A power of two. */
const QUIET_TURNS_MASK = 255;

/** A worker. */
export class Worker
  implements
    ApiWorker,
    ProtocolHost,
    EndpointWorker,
    ConnectionsOwner,
    KeepaliveOwner,
    MessageOwner<PeerConnection, WaitingData>,
    SocketOwner
{
  readonly context: WorkerContext<Worker>;
  /** What peers can cause. */
  readonly warnings: LimitedLog;
  /** Awaited operations of this worker. */
  readonly promises: PromiseTier;
  readonly workerId: Uint8Array = systemRandomBytes(WORKER_ID_BYTES);
  /** By which listeners know this worker, where it connects with `sendClientId`. */
  readonly clientId: bigint;
  readonly openIfaces: readonly OpenIface[];
  /** The interfaces, for tools and for sleeping. */
  readonly ifaces: readonly Iface[];
  readonly protocols: Protocols;
  readonly connections: Connections;
  readonly sockets: SocketConnections;
  readonly counters: WorkerCounters = new WorkerCounters();
  readonly budget: CreditBudget;
  readonly requests: RequestPool = new RequestPool(this);
  readonly observation: Observation;
  readonly #pending: PendingConnections = new PendingConnections((connection) => this.onConnectionFailed(connection));
  readonly #endpoints: Map<PeerConnection, Endpoint> = new Map();
  readonly #queues: MessageQueues;
  readonly #driver: ProgressDriver;
  readonly #keepalive: Keepalive;
  readonly #event: WorkerEvent;
  readonly #sleep: TransportSleep;
  internalTransfers = 0;
  readonly frameBytesMax: number;
  readonly activity: Activity;
  /** Interfaces that messages of peers come from: progress always looks at them. */
  readonly #listening: readonly Iface[];
  readonly #quiet: QuietIfaces;
  #turns = 0;
  #address: Uint8Array | undefined;
  #loopback: PeerConnection | undefined;
  #closed = false;
  #closing: Promise<void> | undefined;

  /** Made by Context.worker. */
  constructor(context: WorkerContext<Worker>, options: WorkerOptions = {}) {
    this.context = context;
    this.clientId = clientIdOf(options);
    this.warnings = new LimitedLog(context.log, context.clock);
    this.observation = new Observation(context);
    this.openIfaces = openIfaces(context.resources.mds, context.log);
    this.ifaces = this.openIfaces.map(({ iface }) => iface);
    this.frameBytesMax = Math.max(0, ...this.ifaces.map(({ attributes }) => attributes.am.bcopyBytesMax));
    this.#listening = this.ifaces.filter(isListening);
    this.#quiet = new QuietIfaces(this.ifaces);
    this.activity = this.#quiet.activity;
    this.budget = new CreditBudget(context.unexpectedBytesMax);
    this.connections = new Connections(this);
    this.protocols = new Protocols(this, this.connections, this);
    const { trace } = this.observation;
    for (const iface of this.ifaces) {
      iface.setAmHandler((id, frame) => {
        if (trace !== undefined) trace.received(id, frame);
        this.protocols.onMessage(id, frame);
      });
    }
    this.#driver = new ProgressDriver(this, context.clock, context.progressSpinNs);
    this.promises = new PromiseTier(this.#driver, (status, request) => this.#causeOf(status, request));
    this.#queues = new MessageQueues(this.protocols.am, this.#driver);
    this.sockets = new SocketConnections(this, this.#driver);
    this.#keepalive = new Keepalive(this, context.clock, context.keepaliveNs);
    this.#sleep = new TransportSleep(this, context.clock, context.log);
    this.#event = new WorkerEvent(this, context.clock, () => context.newSignal());
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** True while some request waits for resources. */
  get hasPending(): boolean {
    return this.#pending.size > 0 || this.connections.hasPending;
  }

  get requestsInUse(): number {
    return this.requests.inUse;
  }

  /** Made when it is first wanted: transports that listen begin with that. */
  get packedAddress(): Uint8Array {
    this.#address ??= addressOfWorker(this.workerId, this.ifaces);
    return this.#address;
  }

  get loopback(): PeerConnection {
    this.#loopback ??= this.connections.connect(this.packedAddress);
    return this.#loopback;
  }

  address(): Uint8Array {
    this.#checkOpen();
    return this.packedAddress.slice();
  }

  endpoint(address: Uint8Array, options: AddressEndpointOptions = {}): Endpoint {
    this.#checkOpen();
    checkErrorHandling(options);
    if (checkRawAddress(options)) throw otherPrograms('worker address');
    const connection = this.connections.connect(address);
    return this.adopt(connection, options);
  }

  listener(options: ListenerOptions = {}): Listener {
    this.#checkOpen();
    return this.sockets.listen(options);
  }

  connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request {
    this.#check(params);
    return this.sockets.connect(options, params);
  }

  async connect(options: ConnectOptions): Promise<ApiEndpoint> {
    this.#checkOpen();
    return this.sockets.connectTo(options);
  }

  progress(): number {
    let count = 0;
    for (let i = 0; i < this.#listening.length; i++) count += this.#listening[i]!.progress();
    this.#turns = (this.#turns + 1) & QUIET_TURNS_MASK;
    if (this.activity.busy || this.#turns === 0) count += this.#quiet.progress(this.#turns === 0);
    if (this.sockets.isDue || this.#turns === 0) count += this.sockets.progress();
    if (this.#pending.size > 0) count += this.#pending.restart();
    if (this.connections.hasPending) this.connections.progress();
    return count;
  }

  wait(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#checkOpen();
    return this.#event.wait(signalOf(options));
  }

  arm(): Status {
    this.#checkOpen();
    return this.#event.arm();
  }

  get eventFd(): number {
    this.#checkOpen();
    return this.#event.fd;
  }

  signal(): void {
    this.#event.signal();
    this.#driver.wake();
  }

  stats(): StatsNode {
    const levels = {
      requests_in_use: this.requestsInUse,
      endpoints: this.#endpoints.size,
      ...this.protocols.levels(),
      unexp_granted: this.budget.grantedBytes,
    };
    return this.counters.node(levels, [...this.ifaces, ...this.sockets.managers]);
  }

  async serve(signal: AbortSignal): Promise<void> {
    this.#checkOpen();
    checkSignal(signal);
    if (signal.aborted) return;
    await this.#driver.serve(signal);
  }

  tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#check(params);
    return this.protocols.tag.receive(local, localOffset, byteLength, tag, mask, params);
  }

  tagProbe(tag: Tag, mask?: Tag, remove = false): TagMessage | undefined {
    this.#checkOpen();
    return this.protocols.tag.probe(tag, mask, remove);
  }

  tagMessageRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request {
    this.#check(params);
    return this.protocols.tag.receiveMessage(local, localOffset, byteLength, message, params);
  }

  async tagRecv(local: LocalBuffer, options: TagRecvOptions = {}): Promise<TagRecvResult> {
    checkOptions(options);
    const byteLength = lengthOf(local);
    const { receivedBytes, senderTag } = await this.promises.receive('tag receive', options.signal, (params) =>
      this.tagRecvNbx(local, 0, byteLength, options.tag ?? 0, options.mask, params),
    );
    return { senderTag, byteLength: receivedBytes };
  }

  setAmHandler(id: number, handler: AmCallback | undefined): void {
    this.#checkOpen();
    this.protocols.am.setHandler(id, handler);
  }

  messages(id: number, options: { readonly signal?: AbortSignal } = {}): MessageQueue {
    this.#checkOpen();
    checkOptions(options);
    return this.#queues.open(id, options.signal);
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.#check(params);
    const request = this.requests.take(this.requests.flushes);
    if (request === undefined) return Status.NO_RESOURCE;
    initFlushOf(request, this.connections.all, this);
    return this.start(request, params);
  }

  async flush(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    checkOptions(options);
    await this.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  fence(): void {
    this.#checkOpen();
    for (const connection of this.connections.all) fenceConnection(connection, this);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // What protocols, endpoints and connections need of the worker.

  connectionOf(frame: AmFrame): PeerConnection | undefined {
    return this.connections.of(frame);
  }

  breaksProtocol(connection: PeerConnection, what: string): void {
    if (connection.failure !== Status.OK) return;
    this.warnings.warn(`a peer is disconnected: ${what}`);
    this.onPeerGone(connection, Status.EXCEEDS_LIMIT);
  }

  adopt(connection: PeerConnection, options: EndpointOptions): Endpoint {
    const endpoint = this.endpointTo(connection);
    endpoint.setOptions(options);
    this.#keepalive.start();
    return endpoint;
  }

  endpointTo(connection: PeerConnection): Endpoint {
    const endpoint = this.#endpoints.get(connection) ?? new Endpoint(this, connection);
    this.#endpoints.set(connection, endpoint);
    return endpoint;
  }

  messageTaken(message: ReceivedMessage): void {
    this.protocols.am.taken(message);
  }

  receiveData(
    message: ReceivedMessage,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request {
    this.#checkOpen();
    return this.protocols.am.receiveData(message, local, localOffset, byteLength, params);
  }

  releaseData(message: ReceivedMessage): void {
    this.protocols.am.release(message);
  }

  async awaitData(message: ReceivedMessage, local: LocalBuffer, signal: AbortSignal | undefined): Promise<number> {
    const byteLength = lengthOf(local);
    const what = 'receive of an active message';
    const { receivedBytes } = await this.promises.receive(what, signal, (params) =>
      this.receiveData(message, local, 0, byteLength, params),
    );
    return receivedBytes;
  }

  watched(): readonly PeerConnection[] {
    return this.connections.all.filter((connection) => {
      const isWanted = this.#endpoints.get(connection)?.watchesPeer !== false;
      if (!isWanted || connection.isLoopback) return false;
      return connection.failure === Status.OK || this.connections.leaves(connection);
    });
  }

  onAccepted(): void {
    this.#keepalive.start();
  }

  onAttached(connection: PeerConnection): void {
    this.sockets.attached(connection);
  }

  onDropped(connection: PeerConnection): void {
    this.#endpoints.delete(connection);
    this.#pending.delete(connection);
    this.protocols.streams.forget(connection);
  }

  onPeerGone(connection: PeerConnection, status: Status): void {
    connection.fail(status);
    this.onConnectionFailed(connection);
  }

  onConnectionFailed(connection: PeerConnection): void {
    this.protocols.streams.connectionEnded(connection);
    const endpoint = this.#endpoints.get(connection);
    // A connection without an endpoint is closed by no one but the worker.
    if (endpoint === undefined) this.connections.close(connection);
    else endpoint.onFailed();
    this.#driver.wake();
  }

  /** A connection has requests that wait for resources. */
  connectionPending(connection: PeerConnection): void {
    this.#pending.add(connection);
  }

  /** An endpoint has been closed. */
  forgetEndpoint(connection: PeerConnection): void {
    this.#endpoints.delete(connection);
    this.protocols.streams.forget(connection);
  }

  freeRequest(request: Request): void {
    this.requests.free(request);
    this.promises.requestFreed();
  }

  cancelRequest(request: Request): boolean {
    const { tag, streams } = this.protocols;
    return cancelRequest(request, { tag, streams, sockets: this.sockets });
  }

  start(request: Request, params: RequestParams | undefined, isRefused = false): Status | Request {
    this.counters.count(WorkerCounter.REQUESTS);
    this.observation.started(request);
    const started = this.requests.start(request, params, isRefused);
    if (typeof started === 'number') return started;
    this.#event.started();
    this.#driver.wake();
    return started;
  }

  onObservedEnd(request: Request): void {
    this.observation.ended(request);
  }

  async #close(): Promise<void> {
    this.sockets.close();
    for (const endpoint of [...this.#endpoints.values()]) await endpoint.close({ force: true });
    this.protocols.tag.close();
    this.#queues.close();
    this.#driver.endServing();
    // Also what runs on connections that only peers have asked for.
    for (const connection of this.connections.all) {
      connection.cancelWaiting(Status.CANCELED);
      this.protocols.streams.forget(connection);
    }
    await this.promises.idle();
    // Transports end what they have begun, as long as progress drives them.
    await this.promises.until(() => this.internalTransfers === 0);
    this.#closed = true;
    this.#keepalive.close();
    this.#event.close();
    this.observation.close();
    for (const connection of this.connections.all) this.connections.close(connection);
    // Peers that have not answered are not waited for any more.
    for (const connection of this.connections.all) this.connections.drop(connection);
    for (const iface of this.ifaces) iface.close();
    this.warnings.tellLeft();
    this.protocols.rendezvous.staging.close();
    this.context.forget(this);
  }

  sleepOn(wake: () => void): void {
    this.#sleep.on(wake);
  }

  /** What a transport knows about a failure. */
  #causeOf(status: Status, request: ApiRequest | undefined): unknown {
    if (status === Status.INVALID_ADDR) return staleKey();
    // A flush covers all transports, and messages of device memory are staged by a card: they may have failed on any of them.
    const isOfCard = status === Status.NO_DEVICE || status === Status.IO_ERROR;
    const lane = request instanceof Request ? request.lane : undefined;
    const own = lane === undefined ? [] : [lane.iface];
    const asked = own.length === 0 || isOfCard ? [...own, ...this.ifaces] : own;
    return asked.map((candidate) => candidate.errorOf(status)).find((known) => known !== undefined);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('worker');
  }

  #check(params: RequestParams | undefined): void {
    this.#checkOpen();
    checkParams(params);
  }
}

/** Ranges were checked before: what a transport still refuses as an address is memory that its owner has given up. */
function staleKey(): UcxError {
  return new UcxError({
    code: 'ERR_RKEY_STALE',
    status: Status.INVALID_ADDR,
    message: 'the memory at one of the two ends is gone: freed, unmapped or detached since it was mapped',
  });
}
