/**
 * A worker: the interfaces of one context, their progress, and the requests over them. It moves no bytes and chooses no protocols: those are in the
 * folders beside this one.
 */

import { checkLoopOptions } from '../../api/awaited/loop-end.ts';
import { MessageQueues, Notifications } from '../../api/awaited/messages.ts';
import { AwaitedWorker, type WorkerServices } from '../../api/awaited/worker.ts';
import { type AmCallback, checkAmId, type MessageQueue } from '../../api/contract/active-message.ts';
import type { AddressEndpointOptions } from '../../api/contract/endpoint.ts';
import { checkErrorHandling } from '../../api/contract/error-handling.ts';
import type { Engine } from '../../api/contract/explanation.ts';
import type { Listener, ListenerOptions } from '../../api/contract/listener.ts';
import { type Request as ApiRequest, type RequestParams, type Tag, tagLow } from '../../api/contract/request.ts';
import type { WorkerSnapshot } from '../../api/contract/snapshot.ts';
import type { ConnectNbxOptions, LoopOptions, TagMessage, WorkerOptions } from '../../api/contract/worker.ts';
import { checkPackedAddress, checkRawAddress, type GivenMemory, otherPrograms } from '../../api/memory/local.ts';
import { Call } from '../../api/operation/call.ts';
import { IdlePeers } from '../../api/progress/idle-peers.ts';
import type { SignalFd } from '../../api/progress/worker-event.ts';
import { CoarseClock } from '../../api/snapshot/summary.ts';
import type { DeviceCopier } from '../../api/staging/device-copier.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmFrame, Iface } from '../../uct/api/iface.ts';
import { NOTIFICATION_ID, type PeerMessage, type WaitingData } from '../am/active-message.ts';
import type { Connection } from '../base/connection.ts';
import { Observation, WorkerCounter, WorkerCounters } from '../base/observation.ts';
import type { ProtocolContext, UcpCall } from '../base/protocol-host.ts';
import { ListRequest } from '../base/request/list-request.ts';
import { ReceiveRequest, SendRequest } from '../base/request/operation-requests.ts';
import { ConnectRequest, FlushRequest, Request } from '../base/request/request.ts';
import { RequestPool } from '../base/request/request-pool.ts';
import { CreditBudget } from '../credit/credit.ts';
import { type Activity, addressOfWorker, isListening, type OpenIface, openIfaces, QuietIfaces } from '../lane/lanes.ts';
import type { Thresholds } from '../lane/rails.ts';
import { WORKER_ID_BYTES } from '../lane/worker-address.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { staleKeyError } from '../mem/remote-key.ts';
import type { ProtocolInfoMode } from '../proto/protocol-info.ts';
import type { Resources } from '../resources/resources.ts';
import { fenceConnection, initFlushOf } from '../rma/flush.ts';
import { Connections } from '../wireup/connections.ts';
import type { PendingConnections } from '../wireup/peers.ts';
import { SocketConnections, type SocketOwner } from '../wireup/sockets.ts';
import { Protocols } from './dispatch.ts';
import type { Endpoint, EndpointWorker } from './endpoint.ts';
import { workerInfo, workerName } from './print-info.ts';
import { TransportSleep } from './sleep.ts';
import { workerSnapshot } from './snapshot.ts';
import { awaitedPeers, WorkerEndpoints } from './worker-endpoints.ts';

/** Mask for the number of progress calls: at every 256th one, transports with nothing in flight are polled too, because they may serve peers. */
const QUIET_CALLS_MASK = 255;

/** The context behind a worker. */
export interface WorkerContext extends ProtocolContext, WorkerServices {
  /** The engine that runs the operations, and why it was selected. */
  readonly engine: Engine;
  readonly resources: Resources;
  readonly log: Log;
  /** See UCX_KEEPALIVE_INTERVAL. */
  readonly keepaliveNs: number;
  /** See UCX_UNEXP_MAX_BYTES. */
  readonly unexpectedBytesMax: number;
  readonly protocolInfoMode: ProtocolInfoMode;
  /** See UCX_ADDRESS_DEBUG_INFO. */
  readonly tellsNames: boolean;
  /** See UCX_RNDV_THRESH, UCX_BCOPY_THRESH and UCX_ZCOPY_THRESH. */
  readonly thresholds: Thresholds;
  newSignal(): SignalFd;
  forget(worker: Worker): void;
}

/** A worker. */
export class Worker extends AwaitedWorker<Connection, WaitingData> implements EndpointWorker, SocketOwner {
  readonly context: WorkerContext;
  /** Warnings that peers can cause, limited in number. */
  readonly warnings: LimitedLog;
  readonly workerId: Uint8Array = systemRandomBytes(WORKER_ID_BYTES);
  readonly openIfaces: readonly OpenIface[];
  /** The interfaces, for tools and for sleeping. */
  readonly ifaces: readonly Iface[];
  readonly protocols: Protocols;
  readonly connections: Connections;
  readonly sockets: SocketConnections;
  readonly counters: WorkerCounters = new WorkerCounters();
  readonly budget: CreditBudget;
  readonly requests: RequestPool;
  readonly call: UcpCall = new Call();
  readonly observation: Observation;
  /** The clock for the starts of requests, for snapshots. */
  readonly coarse: CoarseClock;
  readonly endpoints: WorkerEndpoints;
  readonly pending: Set<Connection> = new Set();
  readonly #pending: PendingConnections;
  readonly #queues: MessageQueues;
  protected readonly arrivedNotifications: Notifications;
  readonly #sleep: TransportSleep;
  readonly idlePeers: IdlePeers;
  internalTransfers = 0;
  readonly frameBytesMax: number;
  readonly activity: Activity;
  /** Interfaces that receive messages of peers: progress always polls them. */
  readonly #listening: readonly Iface[];
  readonly #quiet: QuietIfaces;
  #progressCalls = 0;
  #address: Uint8Array | undefined;
  #loopback: Connection | undefined;

  /** Made by Context.worker. */
  constructor(context: WorkerContext, options: WorkerOptions = {}) {
    super(options, context, () => context.newSignal());
    this.context = context;
    this.warnings = new LimitedLog(context.log, context.clock);
    this.requests = new RequestPool(this, context, context.requestsMax);
    this.observation = new Observation(context);
    this.coarse = new CoarseClock(context.clock);
    this.openIfaces = openIfaces(context.resources.mds, context.log);
    this.ifaces = this.openIfaces.map(({ iface }) => iface);
    this.frameBytesMax = Math.max(0, ...this.ifaces.map(({ attributes }) => attributes.am.bcopyBytesMax));
    this.#listening = this.ifaces.filter(isListening);
    this.#quiet = new QuietIfaces(this.ifaces);
    this.activity = this.#quiet.activity;
    this.budget = new CreditBudget(context.unexpectedBytesMax);
    this.endpoints = new WorkerEndpoints(this);
    this.#pending = this.endpoints.pending;
    this.connections = new Connections(this, this.endpoints);
    this.protocols = new Protocols(this, this.connections, this);
    const { trace } = this.observation;
    for (const iface of this.ifaces) {
      iface.setAmHandler((id, frame) => {
        if (trace !== undefined) trace.received(id, frame);
        this.protocols.onMessage(id, frame);
      });
    }
    this.#queues = new MessageQueues(this.protocols.am, this.driver);
    this.arrivedNotifications = new Notifications(this.driver, (handler) =>
      this.protocols.am.setHandler(NOTIFICATION_ID, handler),
    );
    this.sockets = new SocketConnections(this, this.driver);
    this.#sleep = new TransportSleep(this, context.clock, context.log);
    this.idlePeers = new IdlePeers(
      this,
      () => awaitedPeers(this),
      (message) => this.warnings.warn(message),
    );
    this.idlePeers.announce(Buffer.from(this.workerId).toString('latin1'));
  }

  /** True while some request waits for resources. */
  get hasPending(): boolean {
    return this.#pending.size > 0 || this.connections.hasPending;
  }

  get shownId(): string {
    return Buffer.from(this.workerId).toString('hex');
  }

  get requestsInUse(): number {
    return this.requests.inUse;
  }

  /** Made at its first use: transports start to listen then. */
  get packedAddress(): Uint8Array {
    const name = this.context.tellsNames ? workerName() : undefined;
    this.#address ??= addressOfWorker(this, name);
    return this.#address;
  }

  get loopback(): Connection {
    this.#loopback ??= this.connections.connect(this.packedAddress);
    return this.#loopback;
  }

  address(): Uint8Array {
    this.checkOpen();
    this.attend();
    return this.packedAddress.slice();
  }

  endpoint(address: Uint8Array, options: AddressEndpointOptions = {}): Endpoint {
    this.checkOpen();
    checkErrorHandling(options, ['rawAddress']);
    if (checkRawAddress(options)) throw otherPrograms('worker address');
    checkPackedAddress(address, 'native');
    this.attend();
    return this.endpoints.adopt(this.connections.connect(address), options);
  }

  listener(options: ListenerOptions = {}): Listener {
    this.checkOpen();
    const listener = this.sockets.listen(options);
    this.attend();
    // A sleep that began earlier does not watch its socket.
    this.signal();
    return listener;
  }

  connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request {
    this.check(params);
    return this.sockets.connect(options, params);
  }

  protected advance(): number {
    let count = 0;
    for (let i = 0; i < this.#listening.length; i++) count += this.#listening[i]!.progress();
    this.#progressCalls = (this.#progressCalls + 1) & QUIET_CALLS_MASK;
    if (this.#progressCalls === 0) {
      this.coarse.look();
      this.idlePeers.look(this.coarse.nowMs);
    }
    if (this.activity.busy || this.#progressCalls === 0) count += this.#quiet.progress(this.#progressCalls === 0);
    if (this.sockets.isDue || this.#progressCalls === 0) count += this.sockets.progress();
    if (this.#pending.size > 0) count += this.#pending.restart();
    if (this.connections.hasPending) this.connections.progress();
    return count;
  }

  endTransfers(): void {
    if (this.activity.busy) this.#quiet.progress(false);
  }

  /** Copies between device memory and host memory, for an engine that stages by itself. */
  get copier(): DeviceCopier {
    return this.protocols.rendezvous.staging;
  }

  stats(): StatsNode {
    const levels = {
      requests_in_use: this.requestsInUse,
      failures: this.requests.failures,
      canceled: this.requests.canceled,
      endpoints: this.endpoints.size,
      ...this.protocols.levels(),
      unexp_granted: this.budget.grantedBytes,
    };
    return this.counters.node(levels, [...this.ifaces, ...this.sockets.managers]);
  }

  printInfo(): string {
    return workerInfo(this.context.mds, this.ifaces, this.address().byteLength);
  }

  snapshot(): WorkerSnapshot {
    return workerSnapshot(this, (connection) => this.endpoints.has(connection));
  }

  tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.check(params);
    // Before a request is taken.
    tagLow('tag', tag);
    if (mask !== undefined) tagLow('mask', mask);
    const request = this.requests.takeReceive(undefined, local, localOffset, byteLength);
    if (request === undefined) return Status.NO_RESOURCE;
    return this.protocols.tag.receive(request, tag, mask, params);
  }

  tagProbe(tag: Tag, mask?: Tag, remove = false): TagMessage | undefined {
    this.checkOpen();
    checkFlag('remove', remove);
    return this.protocols.tag.probe(tag, mask, remove);
  }

  tagMessageRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request {
    this.check(params);
    const take = (): ReceiveRequest | undefined => this.requests.takeReceive(undefined, local, localOffset, byteLength);
    return this.protocols.tag.receiveMessage(message, take, params);
  }

  setAmHandler(id: number, handler: AmCallback | undefined): void {
    this.checkOpen();
    checkAmId(id);
    this.#queues.checkHandler(id);
    this.protocols.am.setHandler(id, handler);
    this.attend();
  }

  messages(id: number, options: LoopOptions = {}): MessageQueue {
    this.checkOpen();
    this.attend();
    return this.#queues.open(id, checkLoopOptions(options));
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    const request = this.requests.take(this.requests.flushes);
    if (request === undefined) return Status.NO_RESOURCE;
    initFlushOf(request, this.connections.all, this);
    return this.start(request, params);
  }

  fence(): void {
    this.checkOpen();
    for (const connection of this.connections.all) fenceConnection(connection, this);
  }

  // The interface for protocols, endpoints and connections.

  connectionOf(frame: AmFrame): Connection | undefined {
    return this.connections.of(frame);
  }

  breaksProtocol(connection: Connection, what: string): void {
    if (connection.failure !== Status.OK) return;
    this.warnings.warn(`a peer is disconnected: ${what}`);
    this.endpoints.onPeerGone(connection, Status.EXCEEDS_LIMIT);
  }

  endpointTo(connection: Connection): Endpoint {
    return this.endpoints.of(connection);
  }

  messageTaken(message: PeerMessage): void {
    this.protocols.am.taken(message);
  }

  receiveData(
    message: PeerMessage,
    given: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
  ): Status | Request {
    this.check(params);
    return this.protocols.am.receiveData(message, given, params);
  }

  isWithdrawn(message: PeerMessage): boolean {
    return message.waiting?.isWithdrawn === true;
  }

  releaseData(message: PeerMessage): void {
    this.protocols.am.release(message);
  }

  freeRequest(request: Request): void {
    this.requests.free(request);
    this.promises.requestFreed();
  }

  cancelRequest(request: Request): boolean {
    if (request.isCompleted) return false;
    if (request instanceof ListRequest && request.cancelRest()) return true;
    if (request instanceof FlushRequest && request.cancelWait()) return true;
    if (this.#withdraw(request)) {
      request.end(Status.CANCELED);
      return true;
    }
    return this.endpoints.awaitCancelled(request);
  }

  /** Withdraws a request; false when it is too late: those that a transport or a peer works on end by themselves. */
  #withdraw(request: Request): boolean {
    const { tag, streams, rendezvous } = this.protocols;
    if (request instanceof ReceiveRequest) return tag.cancel(request) || streams.cancel(request);
    if (request instanceof ConnectRequest) return this.sockets.cancel(request);
    if (request instanceof SendRequest && !request.queued) {
      if (streams.canCancelSend(request)) return true;
      rendezvous.withdraw(request);
      return false;
    }
    // A flush that a lane has already accepted ends by itself, and a message that was sent in part is completed.
    if (!request.queued || request.count > 1 || request.done > 0) return false;
    return request.connection?.unqueue(request) === true;
  }

  start(request: Request, params: RequestParams | undefined, isRefused = false): Status | Request {
    this.counters.count(WorkerCounter.REQUESTS);
    this.observation.started(request);
    const started = this.requests.start(request, params, isRefused);
    if (typeof started === 'number') return started;
    started.startMs = this.coarse.nowMs;
    this.event.started();
    this.attend();
    this.driver.wake();
    return started;
  }

  onObservedEnd(request: Request): void {
    this.observation.ended(request);
  }

  protected override async shutDown(): Promise<void> {
    this.sockets.close();
    await this.endpoints.close();
    this.protocols.tag.close();
    this.#queues.close();
    this.arrivedNotifications.close();
    this.driver.endServing();
    for (const connection of this.connections.all) this.protocols.streams.forget(connection);
    this.#cancelWaiting();
    await this.promises.idle();
    // Cards complete the transfers that they have started, as long as progress drives them.
    await this.promises.until(() => {
      this.#cancelWaiting();
      return this.internalTransfers === 0;
    });
    this.isClosed = true;
    this.endpoints.closeKeepalive();
    this.event.close();
    this.idlePeers.close();
    this.observation.close();
    for (const connection of this.connections.all) this.connections.close(connection);
    // Peers that have not answered are not waited for any more.
    for (const connection of this.connections.all) this.connections.drop(connection);
    for (const iface of this.ifaces) iface.close();
    this.warnings.tellLeft();
    this.protocols.rendezvous.staging.close();
    this.protocols.atomics.close();
    this.context.forget(this);
  }

  /** Ends what waits for peers, on connections too that only peers have asked for. */
  #cancelWaiting(): void {
    for (const connection of this.connections.all) connection.cancelWaiting(Status.CANCELED);
  }

  sleepOn(wake: () => void): void {
    this.idlePeers.look(this.coarse.nowMs);
    this.coarse.expire();
    this.#sleep.on(wake);
  }

  /** See Worker.causeOf; of a request, as its transport knows it. */
  causeOf(status: Status, request?: ApiRequest): unknown {
    if (status === Status.INVALID_ADDR) return staleKeyError();
    // A flush covers all transports, and messages of device memory are staged by a card: they may have failed on any of them.
    const isOfCard = status === Status.NO_DEVICE || status === Status.IO_ERROR || status === Status.BUSY;
    const lane = request instanceof Request ? request.lane : undefined;
    const own = lane === undefined ? [] : [lane.iface];
    const asked = own.length === 0 || isOfCard ? [...own, ...this.ifaces] : own;
    return asked.map((candidate) => candidate.errorOf(status)).find((known) => known !== undefined);
  }
}
