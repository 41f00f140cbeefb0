/** A worker over libucp: progress, events, tag matching, and services for endpoints. It also makes progress on the worker of the node's transports. */

import { checkLoopOptions } from '../../api/awaited/loop-end.ts';
import { type MessageOwner, MessageQueues, Notifications, type ReceivedMessage } from '../../api/awaited/messages.ts';
import { AwaitedWorker } from '../../api/awaited/worker.ts';
import { AM_HEADER_BYTES_MAX, type AmCallback, type MessageQueue } from '../../api/contract/active-message.ts';
import type { AddressEndpointOptions } from '../../api/contract/endpoint.ts';
import { checkErrorHandling } from '../../api/contract/error-handling.ts';
import type { Listener, ListenerOptions } from '../../api/contract/listener.ts';
import { type Request, type RequestParams, TAG_MASK_FULL, type Tag } from '../../api/contract/request.ts';
import type { WorkerSnapshot } from '../../api/contract/snapshot.ts';
import type {
  Worker as ApiWorker,
  ConnectNbxOptions,
  LoopOptions,
  TagMessage,
  WorkerOptions,
} from '../../api/contract/worker.ts';
import { checkRawAddress, type GivenMemory } from '../../api/memory/local.ts';
import { Call } from '../../api/operation/call.ts';
import { IdlePeers } from '../../api/progress/idle-peers.ts';
import type { CopyingWorker } from '../../api/staging/device-copier.ts';
import { allocateScratch, EventAlarm, EventFd, type ScratchBlock, textWrittenBy } from '../../sys/index.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { inNextTurn, nextTurn } from '../../ucs/sys/next-turn.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { checkStatus, statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import type { LibucpFunctions } from '../c/functions.ts';
import { fenceBlocks, requireFeature } from '../c/library.ts';
import { DeviceTransfers } from '../device/transfers.ts';
import { EndedPeers } from '../endpoint/ended-peers.ts';
import { Endpoint } from '../endpoint/endpoint.ts';
import type { EndpointWorker } from '../endpoint/endpoint-worker.ts';
import { SocketEndpoints } from '../endpoint/sockets.ts';
import { connectToAddress, connectToForeign, EndpointTable } from '../endpoint/table.ts';
import { UnprovenPeers } from '../endpoint/unproven-peers.ts';
import type { EngineContext, EngineEndpoint } from '../engine/engine.ts';
import { Teardown } from '../engine/teardown.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { packAddress, rawBytes, type UcxCall, unpackAddress } from '../mem/remote-key.ts';
import { StreamReceives } from '../messages/stream-receives.ts';
import { receiveMessageData, TagReceives } from '../messages/tag-receives.ts';
import { Arrivals, type Descriptor, NOTIFICATION_AM_ID } from '../request/arrivals.ts';
import { LocalRanges } from '../request/local.ts';
import { ALONE, RequestKind } from '../request/request.ts';
import { Requests } from '../request/requests.ts';
import { workerSnapshot } from './snapshot.ts';
import { awaitedPeers, createWorker, workerAddress, workerEventFd } from './worker-handle.ts';

/** Mask for the number of progress calls: at every 256th one, peers without progress are looked for. */
const LOOK_CALLS_MASK = 255;

/** Class of workers in the tree of counters. */
export const WORKER_CLASS = 'ucp_worker';

/** A worker. Its endpoints, requests, arrived messages and operations on memory of cards are objects of their own. */
export class Worker extends AwaitedWorker implements ApiWorker, EndpointWorker, MessageOwner {
  readonly context: EngineContext;
  readonly functions: LibucpFunctions;
  /** The handle of libucp. */
  readonly handle: number;
  readonly requests: Requests;
  readonly buffers: LocalRanges;
  readonly call: UcxCall = new Call();
  readonly arrivals: Arrivals;
  readonly streams: StreamReceives;
  readonly teardown: Teardown = new Teardown(this);
  readonly endpoints: EndpointTable;
  readonly unproven: UnprovenPeers;
  readonly ended: EndedPeers;
  /** Operations on memory of cards. */
  readonly devices: DeviceTransfers;
  /** Memory for the header of the message that is being sent. */
  headers: ScratchBlock;
  /** The worker of the node's transports. */
  readonly node: CopyingWorker;
  readonly #tags: TagReceives;
  readonly #queues: MessageQueues;
  protected readonly arrivedNotifications: Notifications;
  readonly #sockets: SocketEndpoints;
  readonly #alarm: EventAlarm;
  readonly #idlePeers: IdlePeers;
  /** Called when libucp or the node has a new event. */
  readonly #sleepers: Set<() => void> = new Set();
  #isNodeAsleep = false;
  /** Whether there were operations that libucp has not ended, and that were ended here: it may not report their end any more. */
  #isAbandoned = false;
  #address: Uint8Array | undefined;
  #progressCalls = 0;

  /** Created by Context.worker. */
  constructor(context: EngineContext, options: WorkerOptions) {
    super(options, context, () => new EventFd());
    this.context = context;
    this.functions = context.libucp.functions;
    this.handle = createWorker(context, this.clientId);
    // After the checks of options: if they failed, the block would leak.
    this.headers = allocateScratch(AM_HEADER_BYTES_MAX);
    this.streams = new StreamReceives();
    // Progress of this worker drives it.
    this.node = context.node.worker({ progress: 'manual' });
    this.node.observation.isTold = false;
    this.requests = new Requests(this.functions, this.handle, context, {
      onFreed: () => this.promises.requestFreed(),
      onDue: () => this.signal(),
      onStarted: () => {
        this.attend();
        // A sleep that began earlier does not watch the transports of the node.
        this.driver.automatic.look();
      },
    });
    this.endpoints = new EndpointTable(this);
    this.unproven = new UnprovenPeers(this.functions, this.requests.parameters.plain, context.clock, () =>
      this.signal(),
    );
    this.ended = new EndedPeers(context.clock, () => this.signal());
    this.arrivals = new Arrivals(this.functions, this.handle, this, this.endpoints, this.requests.operations);
    if ((context.features & UCP_FEATURE.AM) !== 0) this.arrivals.open();
    this.devices = new DeviceTransfers(this);
    this.buffers = new LocalRanges(context, this.requests, this.devices.messages);
    this.#tags = new TagReceives(this);
    this.#queues = new MessageQueues(this.arrivals, this.driver);
    this.arrivedNotifications = new Notifications(this.driver, (handler) =>
      this.arrivals.serve(NOTIFICATION_AM_ID, handler),
    );
    this.#sockets = new SocketEndpoints(this, this.driver);
    this.#alarm = new EventAlarm(workerEventFd(this.functions, this.handle), () => this.#wakeSleepers());
    this.#idlePeers = new IdlePeers(
      this,
      () => awaitedPeers(this.requests),
      (message) => context.log.warn(message),
    );
  }

  get tellsEnds(): boolean {
    return (this.context.features & UCP_FEATURE.AM) !== 0;
  }

  get shownId(): string {
    return `libucp:${this.handle.toString(16)}`;
  }

  get requestsInUse(): number {
    return this.requests.inUse;
  }

  /** See Worker.causeOf. Only the transports of cards report causes: libucp does not. */
  causeOf(status: Status, request?: Request): unknown {
    return request?.protocol?.endsWith(ALONE) === true ? undefined : this.node.causeOf(status);
  }

  address(): Uint8Array {
    this.checkOpen();
    this.attend();
    if (this.#address === undefined) {
      const node = this.node.address();
      this.#address = packAddress({ ucx: workerAddress(this.functions, this.handle), node });
      this.#idlePeers.announce(Buffer.from(node).toString('latin1'));
    }
    return this.#address.slice();
  }

  endpoint(address: Uint8Array, options: AddressEndpointOptions = {}): EngineEndpoint {
    this.checkOpen();
    checkErrorHandling(options, ['rawAddress']);
    this.attend();
    if (checkRawAddress(options)) return connectToForeign(this, rawBytes(address, 'worker address').ucx, options);
    return connectToAddress(this, unpackAddress(address), options);
  }

  listener(options: ListenerOptions = {}): Listener {
    this.checkOpen();
    this.attend();
    return this.#sockets.listen(options);
  }

  connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request {
    this.check(params);
    return this.#sockets.connect(options, params);
  }

  protected advance(): number {
    this.checkOpen();
    const events = this.#isAbandoned ? 0 : this.functions.ucp_worker_progress(this.handle);
    this.#progressCalls += 1;
    if ((this.#progressCalls & LOOK_CALLS_MASK) === 0) this.#idlePeers.look(this.requests.coarse.nowMs);
    let count = events + this.requests.polling.progress(events) + this.streams.progress(events);
    if (this.arrivals.hasWaiting) count += this.arrivals.dispatch();
    if (this.endpoints.isDue) count += this.endpoints.progress();
    if (this.unproven.isDue) count += this.unproven.progress();
    if (this.ended.isDue) count += this.ended.progress();
    if (this.#sockets.isDue) count += this.#sockets.progress();
    if (this.isNodeBusy) count += this.node.progress();
    if (this.devices.isDue) count += this.devices.progress();
    return count;
  }

  printInfo(): string {
    this.checkOpen();
    return textWrittenBy((stream) => this.functions.ucp_worker_print_info(this.handle, stream));
  }

  snapshot(): WorkerSnapshot {
    const { shownId, clientId, requests } = this;
    return workerSnapshot({ shownId, clientId, requests, endpoints: this.endpoints.all });
  }

  stats(): StatsNode {
    const levels = {
      requests_in_use: this.requestsInUse,
      endpoints: this.endpoints.size,
      progress: this.#progressCalls,
      ...this.requests.operations.values,
    };
    // Of the worker of the node only the interfaces: its operations are parts of operations of this worker.
    return statsNode(WORKER_CLASS, '', levels, this.node.stats().children);
  }

  tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask: Tag = TAG_MASK_FULL,
    params?: RequestParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.TAG, params);
    const call = this.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#tags.receive(call, tag, mask);
    } finally {
      call.end();
    }
  }

  tagProbe(tag: Tag, mask: Tag = TAG_MASK_FULL, remove = false): TagMessage | undefined {
    this.#require(UCP_FEATURE.TAG);
    checkFlag('remove', remove);
    return this.#tags.probe(tag, mask, remove);
  }

  tagMessageRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request {
    this.#require(UCP_FEATURE.TAG, params);
    const call = this.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#tags.receiveMessage(call, message);
    } finally {
      call.end();
    }
  }

  setAmHandler(id: number, handler: AmCallback | undefined): void {
    this.#require(UCP_FEATURE.AM);
    this.#queues.checkHandler(id);
    this.arrivals.setHandler(id, handler);
    this.attend();
  }

  messages(id: number, options: LoopOptions = {}): MessageQueue {
    this.#require(UCP_FEATURE.AM);
    this.attend();
    return this.#queues.open(id, checkLoopOptions(options));
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    return this.devices.isUsed ? this.devices.flushAll(params) : this.flushUcp(params);
  }

  /** Flushes only the operations given to libucp. */
  flushUcp(params: RequestParams | undefined): Status | Request {
    const request = this.requests.begin(RequestKind.SEND, 'flush');
    if (request === undefined) return Status.NO_RESOURCE;
    return this.requests.started(
      request,
      this.functions.ucp_worker_flush_nbx(this.handle, this.requests.parameters.address),
      params,
    );
  }

  fence(): void {
    this.checkOpen();
    if (!fenceBlocks(this.context.libucp)) {
      checkStatus(this.functions.ucp_worker_fence(this.handle), 'ucp_worker_fence');
      return;
    }
    for (const endpoint of this.endpoints.all) if (!endpoint.closed) endpoint.fence();
  }

  // Services for messages.

  endpointTo(sender: object | undefined): Endpoint {
    if (sender instanceof Endpoint) return sender;
    throw statusError(
      Status.UNREACHABLE,
      'answer a message whose sender did not ask for that (UCP_AM_SEND_FLAG_REPLY)',
    );
  }

  releaseData({ waiting }: ReceivedMessage): void {
    this.arrivals.release(waiting as Descriptor);
  }

  receiveData(
    message: ReceivedMessage,
    given: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
    access: number = MemAccess.LOCAL_WRITE,
  ): Status | Request {
    this.checkOpen();
    return receiveMessageData(this, message, given, { params, access });
  }

  /** Memory for the headers of messages, until the next call: the block in use now belongs to a request. */
  takeHeader(): ScratchBlock {
    const block = this.headers;
    this.headers = allocateScratch(AM_HEADER_BYTES_MAX);
    return block;
  }

  // Services for sleeping.

  sleepOn(wake: () => void): void {
    this.#idlePeers.look(this.requests.coarse.nowMs);
    this.requests.coarse.expire();
    const { functions } = this;
    this.#sleepers.add(wake);
    if (this.isNodeBusy) this.#joinNode();
    const hasArrived = this.arrivals.hasWaiting || this.streams.checkReady();
    const isNew = this.requests.polling.checkEnded() || hasArrived || this.endpoints.isDue;
    const isDue = isNew || this.unproven.isDue || this.ended.isDue || this.#sockets.isDue || this.devices.isDue;
    // Armed or not: events since the last progress are handled first.
    if (isDue || functions.ucp_worker_arm(this.handle) !== Status.OK) inNextTurn(() => this.#wakeSleepers());
    else this.#alarm.arm();
  }

  /** Whether the transports of the node have work to do. */
  get isNodeBusy(): boolean {
    return this.node.requestsInUse > 0 || this.devices.isCopying;
  }

  /** Checks that an operation is possible: the worker is open, the context has its feature, its parameters are valid. */
  #require(feature: number, params?: RequestParams): void {
    this.check(params);
    requireFeature(this.context.features, feature);
  }

  /** Makes the transports of the node end the sleep as well. */
  #joinNode(): void {
    if (this.#isNodeAsleep) return;
    this.#isNodeAsleep = true;
    const end = (): void => {
      this.#isNodeAsleep = false;
      this.#wakeSleepers();
    };
    this.node.wait().then(end, end);
  }

  #wakeSleepers(): void {
    const sleepers = [...this.#sleepers];
    this.#sleepers.clear();
    for (const wake of sleepers) wake();
  }

  get #isIdle(): boolean {
    return this.requests.polling.inProgress === 0 && !this.requests.polling.hasEnded && this.devices.isIdle;
  }

  /** Ends the operations that libucp has not ended. */
  #abandon(): void {
    this.devices.abort();
    const { sends, others } = this.requests.polling.abandonAll();
    if (sends + others + this.unproven.size === 0) return;
    this.#isAbandoned = true;
    this.context.log.debug(`libucp has not ended ${sends} operations of closed endpoints, and ${others} receives`);
  }

  /** Destroys the worker of libucp. */
  async #destroy(): Promise<void> {
    // libucp ends the process if operations still wait for a connection, or receives for the rest of a message (1.13): its memory is leaked instead.
    if (this.#isAbandoned) this.context.onWorkerLeaked();
    else this.functions.ucp_worker_destroy(this.handle);
    while (this.requests.polling.hasEnded || !this.devices.isIdle) {
      this.requests.polling.progress(0);
      this.node.progress();
      this.devices.progress();
      await nextTurn();
    }
  }

  protected override async shutDown(): Promise<void> {
    this.#sockets.close();
    this.teardown.begin();
    for (const endpoint of this.endpoints.all) await endpoint.close({ force: true });
    this.#queues.close();
    this.arrivedNotifications.close();
    this.driver.endServing();
    this.requests.cancelAll();
    await this.teardown.waitFor(() => this.promises.isIdle && this.#isIdle);
    this.#abandon();
    await this.promises.idle();
    this.isClosed = true;
    this.promises.wake();
    this.event.close();
    this.#idlePeers.close();
    this.arrivals.drop();
    this.#alarm.close();
    this.unproven.close();
    this.ended.close();
    await this.#destroy();
    this.arrivals.close();
    this.streams.close();
    this.requests.close();
    this.devices.close();
    this.headers.free();
    this.endpoints.close();
    this.#sockets.free();
    await this.node.close();
    this.context.forget(this);
  }
}
