/**
 * A worker: the interfaces of one context, their progress, and the requests over them. It moves no bytes and chooses no protocols: those are in the
 * folders beside this one.
 */

import { closedError } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { systemRandomBytes } from '../../ucs/random.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { Status } from '../../ucs/status.ts';
import type { Iface } from '../../uct/api/iface.ts';
import type { AmCallback, AmMessage, MessageOwner } from '../am/message-view.ts';
import type { LocalBuffer } from '../mem/local-bytes.ts';
import type { TagMessage } from '../tag/tag.ts';
import type { Tag } from '../tag/tag-value.ts';
import { Connections, type ConnectionsOwner } from '../wireup/connections.ts';
import { addressOfWorker, isListening, type OpenIface } from '../wireup/lanes.ts';
import type { Listener, ListenerOptions } from '../wireup/listener.ts';
import {
  type ConnectNbxOptions,
  type ConnectOptions,
  SocketConnections,
  type SocketOwner,
} from '../wireup/socket-connections.ts';
import { WORKER_ID_BYTES } from '../wireup/worker-address.ts';
import { lengthOf, type TagRecvOptions, type TagRecvResult } from './awaited-options.ts';
import { cancelRequest } from './cancel.ts';
import { Protocols } from './dispatch.ts';
import { Endpoint, type EndpointOptions } from './endpoint.ts';
import type { EndpointWorker } from './endpoint-attributes.ts';
import { checkErrorHandling } from './error-handling.ts';
import { describeFlushOf, fenceConnection } from './flush.ts';
import { Keepalive, type KeepaliveOwner } from './keepalive.ts';
import type { Activity } from './lane.ts';
import { type MessageQueue, MessageQueues } from './message-queue.ts';
import { Observation } from './observation.ts';
import type { PeerConnection } from './peer-connection.ts';
import { PendingConnections } from './pending-connections.ts';
import { ProgressDriver } from './progress-driver.ts';
import { checkSignal, PromiseTier } from './promise-tier.ts';
import type { ProtocolHost } from './protocol-host.ts';
import { QuietIfaces } from './quiet-ifaces.ts';
import type { Connection, Request, RequestParams } from './request.ts';
import { RequestPool } from './request-pool.ts';
import { clientIdOf, type WorkerContext, type WorkerOptions } from './worker-context.ts';
import { WorkerCounter, WorkerCounters } from './worker-counters.ts';
import { WorkerEvent } from './worker-event.ts';

/** Turns of progress after which also those transports are driven that have nothing on their way: they may serve peers. A power of two. */
const QUIET_TURNS_MASK = 255;

/** A worker. */
export class Worker
  implements
    ProtocolHost,
    EndpointWorker<Endpoint>,
    ConnectionsOwner,
    KeepaliveOwner,
    MessageOwner<Endpoint>,
    SocketOwner<Endpoint>
{
  readonly context: WorkerContext<Worker>;
  readonly log: Log;
  /** Awaited operations of this worker. */
  readonly promises: PromiseTier;
  readonly workerId: Uint8Array = systemRandomBytes(WORKER_ID_BYTES);
  /** By which listeners know this worker, where it connects with `sendClientId`. */
  readonly clientId: bigint;
  readonly openIfaces: readonly OpenIface[];
  /** The interfaces, for tools and for sleeping. */
  readonly ifaces: readonly Iface[];
  readonly protocols: Protocols<Endpoint>;
  readonly connections: Connections;
  readonly sockets: SocketConnections<Endpoint>;
  readonly counters: WorkerCounters = new WorkerCounters();
  readonly #requests: RequestPool = new RequestPool(this);
  readonly observation: Observation;
  readonly #pending: PendingConnections = new PendingConnections();
  readonly #endpoints: Map<Connection, Endpoint> = new Map();
  readonly #queues: MessageQueues<Endpoint>;
  readonly #driver: ProgressDriver;
  readonly #keepalive: Keepalive;
  readonly #event: WorkerEvent;
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
    this.log = context.log;
    this.observation = new Observation(context);
    this.openIfaces = context.resources.mds.flatMap((md) =>
      md.resources.map((resource) => ({ md, iface: md.md.openIface(resource) })),
    );
    this.ifaces = this.openIfaces.map(({ iface }) => iface);
    this.frameBytesMax = Math.max(0, ...this.ifaces.map(({ attributes }) => attributes.am.bcopyBytesMax));
    this.#listening = this.ifaces.filter(isListening);
    this.#quiet = new QuietIfaces(this.ifaces);
    this.activity = this.#quiet.activity;
    this.connections = new Connections(this);
    this.protocols = new Protocols<Endpoint>(this, this.connections, this);
    for (const iface of this.ifaces) iface.setAmHandler((id, frame) => this.protocols.onMessage(id, frame));
    this.#driver = new ProgressDriver(this, context.clock, context.progressSpinNs);
    this.promises = new PromiseTier(this.#driver, () => this.ifaces);
    this.#queues = new MessageQueues<Endpoint>(this.protocols.am, this.#driver);
    this.sockets = new SocketConnections<Endpoint>(this, this.#driver);
    this.#keepalive = new Keepalive(this, context.clock, context.keepaliveNs);
    this.#event = new WorkerEvent(this, context.clock, () => context.newSignal());
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** True while some request waits for resources. */
  get hasPending(): boolean {
    return this.#pending.size > 0 || this.connections.isLeaving;
  }

  /** Requests in use. */
  get requestsInUse(): number {
    return this.#requests.inUse;
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

  /** The address by which endpoints are made, in this process or another: opaque bytes. */
  address(): Uint8Array {
    this.#checkOpen();
    return this.packedAddress.slice();
  }

  /**
   * Connects to a worker, the own one included. The call does not wait for the peer: operations that need it wait by themselves.
   * @param address from Worker.address of the peer
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE with the reason of every transport; ERR_CLOSED
   */
  endpoint(address: Uint8Array, options: EndpointOptions = {}): Endpoint {
    this.#checkOpen();
    checkErrorHandling(options);
    const connection = this.connections.connect(address);
    return this.adopt(connection, options);
  }

  /**
   * Listens for clients at a socket address (ucp_listener_create). Whoever can connect to it and is accepted gets the address of this worker, and can
   * send to it: listen on other devices than loopback where that is meant.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; ERR_UNSUPPORTED without a connection manager; SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE
   */
  listener(options: ListenerOptions<Endpoint> = {}): Listener<Endpoint> {
    this.#checkOpen();
    return this.sockets.listen(options);
  }

  /**
   * Connects to a listener (ucp_ep_create with a socket address). The request ends when the listener's program has answered.
   * @returns a request in progress, or NO_RESOURCE; it ends with REJECTED or what the listener says, UNREACHABLE, TIMED_OUT, CONNECTION_RESET
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNSUPPORTED without a connection manager
   */
  connectNbx(options: ConnectNbxOptions<Endpoint>, params?: RequestParams): Status | Request {
    this.#checkOpen();
    return this.sockets.connect(options, params);
  }

  /**
   * Connects to a listener and waits for the endpoint. See {@link connectNbx}.
   * @throws UcxError as the request ends, with the reason as its cause; AbortError when `signal` fires
   */
  async connect(options: ConnectOptions<Endpoint>): Promise<Endpoint> {
    this.#checkOpen();
    return this.sockets.connectTo(options);
  }

  /**
   * Drives everything outstanding (ucp_worker_progress). Callbacks run inside; it must not be called from them.
   * @returns number of operations that ended or started, and messages that arrived
   */
  progress(): number {
    let count = 0;
    for (let i = 0; i < this.#listening.length; i++) count += this.#listening[i]!.progress();
    this.#turns = (this.#turns + 1) & QUIET_TURNS_MASK;
    if (this.activity.busy || this.#turns === 0) count += this.#quiet.progress(this.#turns === 0);
    if (this.sockets.isDue || this.#turns === 0) count += this.sockets.progress();
    if (this.#pending.size > 0) count += this.#pending.restart();
    if (this.connections.isLeaving) this.connections.finishLeaving();
    return count;
  }

  /**
   * Resolves when progress may have something to do: an operation has ended, a message has arrived (ucp_worker_wait).
   * @throws AbortError when `signal` fires
   */
  wait(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    this.#checkOpen();
    return this.#event.wait(options.signal);
  }

  /**
   * Makes {@link eventFd} readable at the next event (ucp_worker_arm). An event that is there already counts; there may be one too many.
   * Call progress until it returns 0 before.
   */
  arm(): Status {
    this.#checkOpen();
    return this.#event.arm();
  }

  /** A descriptor that {@link arm} makes readable, for event loops (ucp_worker_get_efd). It belongs to the worker. */
  get eventFd(): number {
    this.#checkOpen();
    return this.#event.fd;
  }

  /** Makes the event happen, and ends {@link wait} (ucp_worker_signal). */
  signal(): void {
    this.#event.signal();
    this.#driver.wake();
  }

  /** What the worker, its endpoints' protocols and its interfaces have done. Cold. */
  stats(): StatsNode {
    const levels = { requests_in_use: this.requestsInUse, endpoints: this.#endpoints.size };
    return this.counters.node(levels, [...this.ifaces, ...this.sockets.managers]);
  }

  /** Drives progress until the signal fires or the worker closes: for a process whose peers do all the work. */
  async serve(signal: AbortSignal): Promise<void> {
    this.#checkOpen();
    checkSignal(signal);
    if (signal.aborted) return;
    await this.#driver.serve(signal);
  }

  /**
   * Receives a tagged message (ucp_tag_recv_nbx).
   * @param local where to: bytes, mapped memory of any type, or a list of pieces
   * @param localOffset byte to start at; with a list 0
   * @param byteLength room; a longer message ends the request with MESSAGE_TRUNCATED
   * @param mask bits of the tag that count; undefined for all
   * @returns OK, a request in progress whose senderTag and receivedBytes tell what came, or NO_RESOURCE
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
   */
  tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request {
    this.#checkOpen();
    return this.protocols.tag.receive(local, localOffset, byteLength, tag, mask, params);
  }

  /**
   * Looks for a message that no receive has taken (ucp_tag_probe_nb).
   * @param remove take it out of the matching: {@link tagMessageRecvNbx} must receive it then
   */
  tagProbe(tag: Tag, mask?: Tag, remove = false): TagMessage | undefined {
    this.#checkOpen();
    return this.protocols.tag.probe(tag, mask, remove);
  }

  /** Receives a message that a probe took out (ucp_tag_msg_recv_nbx). See {@link tagRecvNbx}. */
  tagMessageRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request {
    this.#checkOpen();
    return this.protocols.tag.receiveMessage(local, localOffset, byteLength, message, params);
  }

  /**
   * Receives a tagged message and waits for it.
   * @throws UcxError ERR_MESSAGE_TRUNCATED for a message longer than the memory; AbortError when `signal` fires before it has come
   */
  async tagRecv(local: LocalBuffer, options: TagRecvOptions = {}): Promise<TagRecvResult> {
    const byteLength = lengthOf(local);
    const { receivedBytes, senderTag } = await this.promises.receive('tag receive', options.signal, (params) =>
      this.tagRecvNbx(local, 0, byteLength, options.tag ?? 0, options.mask, params),
    );
    return { senderTag, byteLength: receivedBytes };
  }

  /** Sets the handler of active messages with an id, 0 to 65535 (ucp_worker_set_am_recv_handler); undefined removes it. */
  setAmHandler(id: number, handler: AmCallback<Endpoint> | undefined): void {
    this.#checkOpen();
    this.protocols.am.setHandler(id, handler);
  }

  /**
   * The active messages with an id that arrive from now on, for `for await`: until the loop is left, the worker closes, or `signal` fires
   * (AbortError). Progress is driven while the loop waits; messages that come while it is busy are kept.
   * @throws UcxError ERR_INVALID_PARAM when the id has a handler
   */
  messages(id: number, options: { readonly signal?: AbortSignal } = {}): MessageQueue<Endpoint> {
    this.#checkOpen();
    return this.#queues.open(id, options.signal);
  }

  /** Waits until everything started before on any endpoint has reached remote memory (ucp_worker_flush_nbx). */
  flushNbx(params?: RequestParams): Status | Request {
    this.#checkOpen();
    const request = this.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    describeFlushOf(request, this.connections.all, this);
    return this.start(request, params);
  }

  /** The awaited form of {@link flushNbx}. */
  async flush(options: { readonly signal?: AbortSignal } = {}): Promise<void> {
    await this.promises.run('flush', options.signal, (params) => this.flushNbx(params));
  }

  /** Orders the puts, gets and atomic operations started before on every endpoint against those started after (ucp_worker_fence). */
  fence(): void {
    this.#checkOpen();
    for (const connection of this.connections.all) fenceConnection(connection, this);
  }

  /** Closes endpoints and interfaces; what has not ended by then is cancelled. Idempotent, never fails. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // What protocols, endpoints and connections need of the worker.

  connectionById(id: number): PeerConnection | undefined {
    return this.connections.byId(id);
  }

  adopt(connection: PeerConnection, options: EndpointOptions): Endpoint {
    const endpoint = this.endpointOf(connection);
    endpoint.setOptions(options);
    this.#keepalive.start();
    return endpoint;
  }

  endpointOf(connection: Connection): Endpoint {
    const endpoint = this.#endpoints.get(connection) ?? new Endpoint(this, connection as PeerConnection);
    this.#endpoints.set(connection, endpoint);
    return endpoint;
  }

  receiveData(
    message: AmMessage<Endpoint>,
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    params: RequestParams | undefined,
  ): Status | Request {
    this.#checkOpen();
    return this.protocols.am.receiveData(message, local, localOffset, byteLength, params);
  }

  releaseData(connection: Connection, peerRequest: number): void {
    this.protocols.rendezvous.reply(connection, peerRequest, Status.OK);
  }

  async awaitData(message: AmMessage<Endpoint>, local: LocalBuffer, signal: AbortSignal | undefined): Promise<number> {
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
      return isWanted && !connection.isLoopback && connection.failure === Status.OK;
    });
  }

  onAccepted(): void {
    this.#keepalive.start();
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
    // Nobody here has asked for the connection: nobody will close it.
    if (endpoint === undefined) this.connections.drop(connection);
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

  /** A request, or undefined at the bound. */
  newRequest(): Request | undefined {
    this.#checkOpen();
    return this.#requests.get();
  }

  freeRequest(request: Request): void {
    this.#requests.free(request);
    this.promises.requestFreed();
  }

  cancelRequest(request: Request): boolean {
    const { tag, streams } = this.protocols;
    return cancelRequest(request, { tag, streams, sockets: this.sockets });
  }

  start(request: Request, params: RequestParams | undefined): Status | Request {
    this.counters.count(WorkerCounter.REQUESTS);
    this.observation.started(request);
    const started = this.#requests.start(request, params);
    if (typeof started === 'number') return started;
    this.#event.started();
    this.#driver.wake();
    return started;
  }

  onObservedEnd(request: Request): void {
    this.observation.ended(request);
  }

  discard(request: Request): void {
    this.#requests.discard(request);
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
    // Transports end what they have begun, as long as somebody drives them.
    await this.promises.until(() => this.internalTransfers === 0);
    this.#closed = true;
    this.#keepalive.close();
    this.#event.close();
    this.observation.close();
    for (const connection of this.connections.all) this.connections.close(connection);
    // Nobody is left to wait for who has not answered.
    for (const connection of this.connections.all) this.connections.drop(connection);
    for (const iface of this.ifaces) iface.close();
    this.protocols.rendezvous.staging.close();
    this.context.forget(this);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('worker');
  }
}
