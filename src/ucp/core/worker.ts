/** A worker of the native engine, as a program sees it: its operations, their progress, and closing. */

import { checkLoopOptions } from '../../api/awaited/loop-end.ts';
import { MessageQueues, Notifications } from '../../api/awaited/messages.ts';
import { type AmCallback, checkAmId, type MessageQueue } from '../../api/contract/active-message.ts';
import type { AddressEndpointOptions } from '../../api/contract/endpoint.ts';
import { checkErrorHandling } from '../../api/contract/error-handling.ts';
import type { Listener, ListenerOptions } from '../../api/contract/listener.ts';
import { type Request as ApiRequest, type RequestParams, type Tag, tagLow } from '../../api/contract/request.ts';
import type { WorkerSnapshot } from '../../api/contract/snapshot.ts';
import type {
  Worker as ApiWorker,
  ConnectNbxOptions,
  LoopOptions,
  TagMessage,
  WorkerOptions,
} from '../../api/contract/worker.ts';
import { checkPackedAddress, checkRawAddress, type GivenMemory, otherPrograms } from '../../api/memory/local.ts';
import { IdlePeers } from '../../api/progress/idle-peers.ts';
import type { DeviceCopier } from '../../api/staging/device-copier.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { Status } from '../../ucs/type/status.ts';
import type { Iface } from '../../uct/api/iface.ts';
import { NOTIFICATION_ID, type PeerMessage, type WaitingData } from '../am/active-message.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import type { ReceiveRequest } from '../base/request/operation-requests.ts';
import { Request } from '../base/request/request.ts';
import { WorkerCore } from '../base/worker-core.ts';
import { isListening } from '../lane/lanes.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { staleKeyError } from '../mem/remote-key.ts';
import { fenceConnection, initFlushOf } from '../rma/flush.ts';
import { Connections } from '../wireup/connections.ts';
import type { PendingConnections } from '../wireup/peers.ts';
import { SocketConnections } from '../wireup/sockets.ts';
import { Protocols } from './dispatch.ts';
import type { Endpoint, EndpointWorker } from './endpoint.ts';
import { workerInfo } from './print-info.ts';
import { TransportSleep } from './sleep.ts';
import { workerSnapshot } from './snapshot.ts';
import { awaitedPeers, WorkerEndpoints } from './worker-endpoints.ts';

/** Mask of the progress call counter: every 256th call also polls transports with nothing in flight, because they may serve peers. */
const QUIET_CALLS_MASK = 255;

export class Worker extends WorkerCore<WaitingData> implements ApiWorker, EndpointWorker {
  readonly protocols: Protocols;
  readonly connections: Connections;
  readonly sockets: SocketConnections;
  readonly endpoints: WorkerEndpoints;
  readonly idlePeers: IdlePeers;
  readonly #pending: PendingConnections;
  readonly #queues: MessageQueues;
  protected readonly arrivedNotifications: Notifications;
  readonly #sleep: TransportSleep;
  /** Interfaces that receive messages of peers: always polled by progress. */
  readonly #listening: readonly Iface[];
  #progressCalls = 0;
  #loopback: Connection | undefined;

  /** Called by Context.worker. */
  constructor(context: ContextCore, options: WorkerOptions = {}) {
    super(context, options);
    this.#listening = this.ifaces.filter(isListening);
    this.endpoints = new WorkerEndpoints(this);
    this.#pending = this.endpoints.pending;
    this.connections = new Connections(this, this.endpoints);
    this.protocols = new Protocols(this, this.connections);
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
    this.sockets = new SocketConnections(this, this.connections, this.endpoints, this.driver);
    this.#sleep = new TransportSleep(this, context.clock, context.log);
    this.idlePeers = new IdlePeers(
      this,
      () => awaitedPeers(this),
      (message) => this.warnings.warn(message),
    );
    this.idlePeers.announce(Buffer.from(this.workerId).toString('latin1'));
  }

  get hasPending(): boolean {
    return this.#pending.size > 0 || this.connections.hasPending;
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
    // A sleep that began earlier does not watch the socket of this listener or attempt.
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
    if (this.activity.busy || this.#progressCalls === 0) count += this.quiet.progress(this.#progressCalls === 0);
    if (this.sockets.isDue || this.#progressCalls === 0) count += this.sockets.progress();
    if (this.#pending.size > 0) count += this.#pending.restart();
    if (this.connections.hasPending) this.connections.progress();
    return count;
  }

  /** Copies between device memory and host memory, for an engine that does its own staging. */
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
    // Check the tag before a request is taken.
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

  breaksProtocol(connection: Connection, what: string): void {
    if (connection.failure !== Status.OK) return;
    this.warnings.warn(`peer disconnected for a protocol violation: ${what}`);
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

  cancelRequest(request: Request): boolean {
    return !request.isCompleted && (request.withdraw() || this.endpoints.awaitCancelled(request));
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
    // Do not wait for peers that have not replied.
    for (const connection of this.connections.all) this.connections.drop(connection);
    for (const iface of this.ifaces) iface.close();
    this.warnings.reportOmitted();
    this.protocols.rendezvous.staging.close();
    this.ownKeys.close();
    this.context.forget(this);
  }

  /** Ends all requests that wait for peers, also on connections that only peers have requested. */
  #cancelWaiting(): void {
    for (const connection of this.connections.all) connection.cancelWaiting(Status.CANCELED);
  }

  sleepOn(wake: () => void): void {
    this.idlePeers.look(this.coarse.nowMs);
    this.coarse.expire();
    this.#sleep.on(wake);
  }

  /** See Worker.causeOf; for a request, the cause that its transport knows. */
  causeOf(status: Status, request?: ApiRequest): unknown {
    if (status === Status.INVALID_ADDR) return staleKeyError();
    // A flush covers all transports, and a card stages messages of device memory, so the failure may come from any of them.
    const isOfCard = status === Status.NO_DEVICE || status === Status.IO_ERROR || status === Status.BUSY;
    const lane = request instanceof Request ? request.lane : undefined;
    const own = lane === undefined ? [] : [lane.iface];
    const candidates = own.length === 0 || isOfCard ? [...own, ...this.ifaces] : own;
    return candidates.map((candidate) => candidate.errorOf(status)).find((known) => known !== undefined);
  }
}
