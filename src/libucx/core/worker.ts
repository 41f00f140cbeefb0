/** A worker over libucp: progress, events, tag matching, and services for endpoints. Its progress also drives the native worker. */

import { checkLoopOptions } from '../../api/awaited/loop-end.ts';
import { type MessageOwner, MessageQueues, Notifications, type ReceivedMessage } from '../../api/awaited/messages.ts';
import { AwaitedWorker } from '../../api/awaited/worker.ts';
import type { AmCallback, MessageQueue } from '../../api/contract/active-message.ts';
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
import { IdlePeers } from '../../api/progress/idle-peers.ts';
import { EventAlarm, EventFd, textWrittenBy } from '../../sys/index.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { inNextTurn, nextTurn } from '../../ucs/sys/next-turn.ts';
import { checkFlag } from '../../ucs/type/check-options.ts';
import { statusError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { UCP_FEATURE } from '../c/abi.ts';
import { fenceBlocks, requireFeature } from '../c/library.ts';
import { DeviceTransfers } from '../device/transfers.ts';
import { connectToAddress, connectToForeign, endpointOf } from '../endpoint/create.ts';
import { EndedPeers } from '../endpoint/ended-peers.ts';
import { Endpoint } from '../endpoint/endpoint.ts';
import type { EndpointParts } from '../endpoint/message-endpoint.ts';
import { EndpointRegistry } from '../endpoint/registry.ts';
import { SocketEndpoints } from '../endpoint/sockets.ts';
import { UnprovenPeers } from '../endpoint/unproven-peers.ts';
import type { EngineContext, EngineEndpoint } from '../engine/engine.ts';
import { WorkerCore } from '../engine/worker-core.ts';
import type { LocalBuffer, LocalMemory } from '../mem/memory-handle.ts';
import { packAddress, rawBytes, unpackAddress } from '../mem/remote-key.ts';
import { StreamReceives } from '../messages/stream-receives.ts';
import { TagReceives } from '../messages/tag-receives.ts';
import { Arrivals, type Descriptor, NOTIFICATION_AM_ID } from '../request/arrivals.ts';
import { ALONE } from '../request/request.ts';
import { workerSnapshot } from './snapshot.ts';
import { awaitedPeers, createWorker, workerAddress, workerEventFd } from './worker-handle.ts';

/** Mask for the number of progress calls: idle peers are looked for at every 256th one. */
const LOOK_CALLS_MASK = 255;

/** Events that a worker reports to its context. */
export interface WorkerEvents {
  readonly onClosed: (worker: Worker) => void;
  /** The libucp worker could not be destroyed, so the context cannot be destroyed either. */
  readonly onLeaked: () => void;
}

/** Class name of workers in the statistics. */
export const WORKER_CLASS = 'ucp_worker';

/** Endpoints, requests, received messages and operations on device memory have separate objects. */
export class Worker extends AwaitedWorker implements ApiWorker, MessageOwner {
  readonly core: WorkerCore;
  readonly #parts: EndpointParts & { readonly unproven: UnprovenPeers };
  readonly #arrivals: Arrivals;
  readonly #tags: TagReceives;
  readonly #queues: MessageQueues;
  protected readonly arrivedNotifications: Notifications;
  readonly #sockets: SocketEndpoints;
  readonly #alarm: EventAlarm;
  readonly #idlePeers: IdlePeers;
  readonly #events: WorkerEvents;
  /** Called when libucp or the native worker has a new event. */
  readonly #sleepers: Set<() => void> = new Set();
  #isNativeAsleep = false;
  /** Whether this engine ended operations that libucp has not ended, and whose end libucp may never report. */
  #isAbandoned = false;
  #address: Uint8Array | undefined;
  #progressCalls = 0;

  constructor(context: EngineContext, options: WorkerOptions, events: WorkerEvents) {
    super(options, context, () => new EventFd());
    this.#events = events;
    const handle = createWorker(context, this.clientId);
    const onDue = (): void => this.signal();
    const onStarted = (): void => {
      this.attend();
      // A sleep that began earlier does not wait for the native transports.
      this.driver.automatic.look();
    };
    const { clientId, promises, driver } = this;
    const core = new WorkerCore(
      context,
      { handle, clientId, promises, driver },
      { onDue, onStarted },
      (request, pieces, byteLength) => this.#parts.devices.messages.initDatatype(request, pieces, byteLength),
    );
    this.core = core;
    const { functions, requests } = core;
    this.#arrivals = new Arrivals(functions, handle, requests.operations, {
      owner: this,
      senderOf: (ep) => endpointOf(this.#parts, ep),
      onNotice: (ep, notice) => this.#parts.endpoints.noticed(ep, notice),
    });
    if ((context.features & UCP_FEATURE.AM) !== 0) this.#arrivals.open();
    const devices = new DeviceTransfers(core, this.#arrivals);
    const ended = new EndedPeers(context.clock, onDue);
    this.#parts = {
      core,
      devices,
      ended,
      endpoints: new EndpointRegistry(requests, ended),
      streams: new StreamReceives(devices.receives),
      unproven: new UnprovenPeers(functions, requests.parameters.plain, context.clock, onDue),
    };
    this.#tags = new TagReceives(core);
    this.#queues = new MessageQueues(this.#arrivals, driver);
    this.arrivedNotifications = new Notifications(driver, (handler) =>
      this.#arrivals.serve(NOTIFICATION_AM_ID, handler),
    );
    this.#sockets = new SocketEndpoints(this.#parts, this, onDue);
    this.#alarm = new EventAlarm(workerEventFd(functions, handle), () => this.#wakeSleepers());
    this.#idlePeers = new IdlePeers(
      this,
      () => awaitedPeers(requests),
      (message) => context.log.warn(message),
    );
  }

  /** Teams map memory with this context. */
  get context(): EngineContext {
    return this.core.context;
  }

  get shownId(): string {
    return `libucp:${this.core.handle.toString(16)}`;
  }

  get requestsInUse(): number {
    return this.core.requests.inUse;
  }

  /** See Worker.causeOf. Only the native transports of cards report causes. */
  causeOf(status: Status, request?: Request): unknown {
    return request?.protocol?.endsWith(ALONE) === true ? undefined : this.core.native.causeOf(status);
  }

  address(): Uint8Array {
    this.checkOpen();
    this.attend();
    if (this.#address === undefined) {
      const native = this.core.native.address();
      this.#address = packAddress({ ucx: workerAddress(this.core.functions, this.core.handle), native });
      this.#idlePeers.announce(Buffer.from(native).toString('latin1'));
    }
    return this.#address.slice();
  }

  endpoint(address: Uint8Array, options: AddressEndpointOptions = {}): EngineEndpoint {
    this.checkOpen();
    checkErrorHandling(options, ['rawAddress']);
    this.attend();
    if (checkRawAddress(options))
      return connectToForeign(this.#parts, rawBytes(address, 'worker address').ucx, options);
    return connectToAddress(this.#parts, unpackAddress(address), options);
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
    const events = this.#isAbandoned ? 0 : this.core.functions.ucp_worker_progress(this.core.handle);
    this.#progressCalls += 1;
    if ((this.#progressCalls & LOOK_CALLS_MASK) === 0) this.#idlePeers.look(this.core.requests.coarse.nowMs);
    let count = events + this.core.requests.polling.progress(events) + this.#parts.streams.progress(events);
    if (this.#arrivals.hasWaiting) count += this.#arrivals.dispatch();
    if (this.#parts.endpoints.isDue) count += this.#parts.endpoints.progress();
    if (this.#parts.unproven.isDue) count += this.#parts.unproven.progress();
    if (this.#parts.ended.isDue) count += this.#parts.ended.progress();
    if (this.#sockets.isDue) count += this.#sockets.progress();
    if (this.isNativeBusy) count += this.core.native.progress();
    if (this.#parts.devices.isDue) count += this.#parts.devices.progress();
    return count;
  }

  printInfo(): string {
    this.checkOpen();
    return textWrittenBy((stream) => this.core.functions.ucp_worker_print_info(this.core.handle, stream));
  }

  snapshot(): WorkerSnapshot {
    const { shownId, clientId } = this;
    const { requests } = this.core;
    return workerSnapshot({ shownId, clientId, requests, endpoints: this.#parts.endpoints.all });
  }

  stats(): StatsNode {
    const levels = {
      requests_in_use: this.requestsInUse,
      endpoints: this.#parts.endpoints.size,
      progress: this.#progressCalls,
      ...this.core.requests.operations.values,
    };
    // Only the interfaces of the native worker: its operations belong to operations of this worker.
    return statsNode(WORKER_CLASS, '', levels, this.core.native.stats().children);
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
    const call = this.core.call.begin(undefined, params).memory(local, localOffset, byteLength);
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
    const call = this.core.call.begin(undefined, params).memory(local, localOffset, byteLength);
    try {
      return this.#tags.receiveMessage(call, message);
    } finally {
      call.end();
    }
  }

  setAmHandler(id: number, handler: AmCallback | undefined): void {
    this.#require(UCP_FEATURE.AM);
    this.#queues.checkHandler(id);
    this.#arrivals.setHandler(id, handler);
    this.attend();
  }

  messages(id: number, options: LoopOptions = {}): MessageQueue {
    this.#require(UCP_FEATURE.AM);
    this.attend();
    return this.#queues.open(id, checkLoopOptions(options));
  }

  flushNbx(params?: RequestParams): Status | Request {
    this.check(params);
    const { devices } = this.#parts;
    return devices.isUsed ? devices.flushAll(params) : this.core.flushUcp(params);
  }

  fence(): void {
    this.checkOpen();
    if (!fenceBlocks(this.core.context.libucp)) {
      this.core.fenceUcp();
      return;
    }
    for (const endpoint of this.#parts.endpoints.all) if (!endpoint.closed) endpoint.fence();
  }

  // Services for messages.

  endpointTo(sender: object | undefined): Endpoint {
    if (sender instanceof Endpoint) return sender;
    throw statusError(
      Status.UNREACHABLE,
      'cannot reply to this message, because its sender did not set UCP_AM_SEND_FLAG_REPLY',
    );
  }

  releaseData({ waiting }: ReceivedMessage): void {
    this.#arrivals.release(waiting as Descriptor);
  }

  receiveData(
    message: ReceivedMessage,
    given: GivenMemory<LocalMemory>,
    params: RequestParams | undefined,
  ): Status | Request {
    this.checkOpen();
    return this.#parts.devices.receives.receive(message, given, params);
  }

  // Services for sleeping.

  sleepOn(wake: () => void): void {
    this.#idlePeers.look(this.core.requests.coarse.nowMs);
    this.core.requests.coarse.expire();
    const { functions } = this.core;
    this.#sleepers.add(wake);
    if (this.isNativeBusy) this.#joinNative();
    const hasArrived = this.#arrivals.hasWaiting || this.#parts.streams.checkReady();
    const { polling } = this.core.requests;
    const isNew = polling.checkEnded() || polling.isWalking || hasArrived || this.#parts.endpoints.isDue;
    const isDue =
      isNew ||
      this.#parts.unproven.isDue ||
      this.#parts.ended.isDue ||
      this.#sockets.isDue ||
      this.#parts.devices.isDue;
    // If arming fails, there were events since the last progress: they are handled first.
    if (isDue || functions.ucp_worker_arm(this.core.handle) !== Status.OK) inNextTurn(() => this.#wakeSleepers());
    else this.#alarm.arm();
  }

  /** Whether the native worker has work for progress. */
  get isNativeBusy(): boolean {
    return this.core.native.requestsInUse > 0 || this.#parts.devices.isCopying;
  }

  /** Checks that an operation is possible: the worker is open, the context has the feature, the parameters are valid. */
  #require(feature: number, params?: RequestParams): void {
    this.check(params);
    requireFeature(this.core.context.features, feature);
  }

  /** Makes events of the native worker end the sleep too. */
  #joinNative(): void {
    if (this.#isNativeAsleep) return;
    this.#isNativeAsleep = true;
    const end = (): void => {
      this.#isNativeAsleep = false;
      this.#wakeSleepers();
    };
    this.core.native.wait().then(end, end);
  }

  #wakeSleepers(): void {
    const sleepers = [...this.#sleepers];
    this.#sleepers.clear();
    for (const wake of sleepers) wake();
  }

  get #isIdle(): boolean {
    return (
      this.core.requests.polling.inProgress === 0 && !this.core.requests.polling.hasEnded && this.#parts.devices.isIdle
    );
  }

  /** Ends the operations that libucp has not ended. */
  #abandon(): void {
    this.#parts.devices.abort();
    const { sends, others } = this.core.requests.polling.abandonAll();
    if (sends + others + this.#parts.unproven.size === 0) return;
    this.#isAbandoned = true;
    this.core.context.log.debug(
      `libucp did not complete ${sends} operations of closed endpoints and ${others} receives: they are abandoned`,
    );
  }

  async #destroy(): Promise<void> {
    // libucp ends the process if operations still wait for a connection, or receives for the rest of a message (1.13), so its worker is leaked instead.
    if (this.#isAbandoned) this.#events.onLeaked();
    else this.core.functions.ucp_worker_destroy(this.core.handle);
    while (this.core.requests.polling.hasEnded || !this.#parts.devices.isIdle) {
      this.core.requests.polling.progress(0);
      this.core.native.progress();
      this.#parts.devices.progress();
      await nextTurn();
    }
  }

  protected override async shutDown(): Promise<void> {
    this.#sockets.close();
    this.core.teardown.begin();
    for (const endpoint of this.#parts.endpoints.all) await endpoint.close({ force: true });
    this.#queues.close();
    this.arrivedNotifications.close();
    this.driver.endServing();
    this.core.requests.cancelAll();
    await this.core.teardown.waitFor(() => this.promises.isIdle && this.#isIdle);
    this.#abandon();
    await this.promises.idle();
    this.isClosed = true;
    this.promises.wake();
    this.event.close();
    this.#idlePeers.close();
    this.#arrivals.drop();
    this.#alarm.close();
    this.#parts.unproven.close();
    this.#parts.ended.close();
    await this.#destroy();
    this.#arrivals.close();
    this.#parts.streams.close();
    this.core.requests.close();
    this.#parts.devices.close();
    this.core.headers.free();
    this.#parts.endpoints.close();
    this.#sockets.free();
    await this.core.native.close();
    this.#events.onClosed(this);
  }
}
