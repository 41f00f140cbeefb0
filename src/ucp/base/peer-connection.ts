/**
 * A connection to a worker: its lanes, the requests that wait on it for resources or for the peer, and the end of all of them when it ends. Endpoints
 * of the API use connections; establishing them is the task of wireup/. Messages of the protocols themselves that wait for room at their transport.
 * Messages of the application are in request/operation-requests.ts.
 */

import type { SocketAddresses } from '../../api/contract/listener.ts';
import { writeClose } from '../../api/layout/control.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId, type MessageTrace } from '../../api/layout/message.ts';
import { TAG_BYTES } from '../../api/layout/tag.ts';
import { NotifyOrder } from '../../api/list/notify-order.ts';
import { type EndpointChange, endpointFail } from '../../ucs/debug/diagnostics.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { isFailure, isLackOfResources, Status } from '../../ucs/type/status.ts';
import { DeviceType, type UctEndpoint } from '../../uct/api/iface.ts';
import { type CreditBudget, InboundWindow, OFFERS_MAX, OutboundCredit } from '../credit/credit.ts';
import { type ConnectedLanes, type DistanceOf, type Lane, nameOf } from '../lane/lanes.ts';
import type { Thresholds } from '../lane/rails.ts';
import { MessageKeys } from '../mem/message-keys.ts';
import { RkeyCache } from '../mem/rkey-cache.ts';
import type { ProtocolInfo } from '../proto/protocol-info.ts';
import type { Rejection } from '../resources/resource-filter.ts';
import { CreditTeller } from './credit-messages.ts';
import { sendMessage } from './message-packer.ts';
import { PendingQueue } from './request/pending-queue.ts';
import { type Connection, FlushRequest, Request, type RequestOwner, start } from './request/request.ts';

/** Messages of the protocol that may wait for room; a peer that causes more is broken or hostile. */
const POSTED_MAX = 65_536;

/** The worker behind a connection. */
export interface ConnectionOwner extends RequestOwner {
  readonly context: { readonly thresholds: Thresholds; readonly distanceOf: DistanceOf };
  readonly observation: {
    readonly isTold: boolean;
    readonly info: ProtocolInfo | undefined;
    readonly trace: MessageTrace | undefined;
  };
  /** The memory for messages that arrive before the receiver asks for them. */
  readonly budget: CreditBudget;
  /** Called when the connection has requests that wait for resources: progress starts them again. */
  connectionPending(connection: PeerConnection): void;
}

/** A connection. */
export class PeerConnection implements Connection {
  readonly id: number;
  readonly lanes: readonly Lane[];
  readonly distanceOf: DistanceOf;
  readonly hasRails: boolean;
  readonly protocolInfo: ProtocolInfo | undefined;
  readonly trace: MessageTrace | undefined;
  readonly unreachable: readonly Rejection[];
  readonly am: UctEndpoint | undefined;
  readonly amLane: Lane | undefined;
  readonly amShortMax: number;
  readonly amBcopyMax: number;
  readonly rendezvousThreshold: number;
  readonly zcopyThreshold: number | undefined;
  readonly isEmulating: boolean;
  readonly waiting: Map<number, Request> = new Map();
  /** Messages of the peer that the program has kept, and whose data it has not received, by the number of the request of the peer. */
  readonly offers: Map<number, { isWithdrawn: boolean }> = new Map();
  readonly takenBack: Set<number> = new Set();
  readonly rkeys: RkeyCache = new RkeyCache();
  readonly messageKeys: MessageKeys = new MessageKeys();
  readonly notifications: NotifyOrder = new NotifyOrder();
  readonly credit: OutboundCredit = new OutboundCredit();
  readonly inbound: InboundWindow;
  remoteId: number = NO_ENDPOINT;
  /** Identities of the interfaces of the peer, which are the sources of its messages. */
  sources: readonly string[] = [];
  /** Id of the worker that it leads to, a character for each byte: for snapshots and warnings. */
  peerWorkerId = '';
  /** Its name, if its address has one (UCX_ADDRESS_DEBUG_INFO). */
  peerName: string | undefined = undefined;
  /** Whether only the program of that worker makes its progress, as its address says. */
  isPeerManual = false;
  /** The entry of {@link sources} that the last message came from. */
  #source: string | undefined = undefined;
  /** True for a connection of a worker to itself: both its ends are this one. */
  isLoopback = false;
  failure: Status = Status.OK;
  /** Whether the peer has announced that it ends its half. */
  closedByPeer = false;
  /** Whether it has failed within a call, and progress has to report the failure. */
  isUnreported = false;
  /** The socket addresses by which client and listener made the connection; undefined for a connection by worker address. */
  socketAddresses: SocketAddresses | undefined = undefined;
  readonly #owner: ConnectionOwner;
  readonly #pending: PendingQueue = new PendingQueue();
  /** Messages of the protocol itself: they must not wait behind a fence of the application. */
  readonly #posted: PendingQueue = new PendingQueue();
  #postedCount = 0;
  /** Why waiting was cancelled; OK while requests may wait. */
  #givenUp: Status = Status.OK;
  /** Number of wire-up messages among them: before they are sent, the peer does not know where to answer. */
  #hellos = 0;
  #nextRequestId = 1;
  #remoteOperations = 0;
  readonly #flushes: FlushRequest[] = [];
  #keptFailure: Status = Status.OK;
  /** Whether no close message is due: the peer was told that this half has ended, never learned of it, or has ended the other half itself. */
  #hasLeft = false;
  #areLanesClosed = false;

  constructor(owner: ConnectionOwner, id: number, { lanes, am, unreachable, isIntraNode }: ConnectedLanes) {
    this.#owner = owner;
    this.id = id;
    this.lanes = lanes;
    this.distanceOf = owner.context.distanceOf;
    this.hasRails = lanes.filter(({ iface }) => iface.attributes.resource.deviceType === DeviceType.NET).length > 1;
    this.protocolInfo = owner.observation.info;
    this.trace = owner.observation.trace;
    this.unreachable = unreachable;
    this.amLane = am;
    this.am = am?.endpoint;
    const { bcopy, zcopy, isEmulating, rendezvousIntra, rendezvousInter } = owner.context.thresholds;
    this.amShortMax = Math.min(am?.iface.attributes.am.shortBytesMax ?? 0, bcopy + TAG_BYTES - 1);
    this.amBcopyMax = am?.iface.attributes.am.bcopyBytesMax ?? 0;
    this.rendezvousThreshold = isIntraNode ? rendezvousIntra : rendezvousInter;
    this.zcopyThreshold = zcopy;
    this.isEmulating = isEmulating;
    const teller = new CreditTeller(this, owner);
    this.inbound = new InboundWindow(owner.budget, () => teller.tell(this.inbound));
  }

  /** Whether a message with this source comes from the peer: the number of a connection alone proves nothing, because it can be guessed. */
  isFrom(source: string): boolean {
    if (source === this.#source) return true;
    if (!this.sources.includes(source)) return false;
    this.#source = source;
    return true;
  }

  get canOffer(): boolean {
    return this.waiting.size + this.takenBack.size < OFFERS_MAX;
  }

  get hasPending(): boolean {
    return !this.#pending.isEmpty || this.#hellos > 0;
  }

  get isPeerStopped(): boolean {
    return this.lanes.some(({ endpoint }) => endpoint.isPeerStopped?.() === true);
  }

  /** True when nothing is left that this end could send. */
  get isDrained(): boolean {
    return this.#pending.isEmpty && this.#posted.isEmpty;
  }

  /**
   * The lane of the messages.
   * @throws UcxError ERR_UNREACHABLE with the reason of every transport that could
   */
  messageLane(): Lane {
    if (this.amLane !== undefined) return this.amLane;
    const reasons =
      this.unreachable.map(({ name, reason }) => `${name}: ${reason}`).join('; ') || 'no transport has messages';
    throw new UcxError({
      code: 'ERR_UNREACHABLE',
      status: Status.UNREACHABLE,
      message: `no transport carries messages to this peer (${reasons})`,
      details: { reasons },
    });
  }

  post(messageId: number, header: Int32Array, payload?: Uint8Array): Status {
    return this.failure === Status.OK ? this.#say(messageId, header, payload) : this.failure;
  }

  #say(messageId: number, header: Int32Array, payload: Uint8Array | undefined): Status {
    const bytes = payload?.byteLength ?? 0;
    if (this.#posted.isEmpty) {
      const status = sendMessage(this, messageId, header, payload, 0, bytes);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const message = new PostedMessage(this.#owner, this, { messageId, header, payload });
    if (messageId === MessageId.WIREUP) this.#hellos += 1;
    this.#post(message);
    return Status.OK;
  }

  run(request: Request): void {
    const status = this.#posted.isEmpty ? start(request) : Status.NO_RESOURCE;
    if (status === Status.NO_RESOURCE && this.#givenUp !== Status.OK) this.#abandon(request, this.#givenUp);
    else if (status === Status.NO_RESOURCE) this.#post(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Operations in flight that only the peer can end, and that a flush waits for. */
  get remoteOperations(): number {
    return this.#remoteOperations;
  }

  /** Queues a request of the application behind the others. */
  queue(request: Request): void {
    this.#pending.push(request);
    this.#owner.connectionPending(this);
  }

  /** Starts a request of the protocol itself that must not overtake those of the application. */
  enqueue(request: Request): void {
    const status = this.hasPending ? Status.NO_RESOURCE : start(request);
    if (status === Status.NO_RESOURCE) this.queue(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Removes a request from the queue; false if it is not queued any more. */
  unqueue(request: Request): boolean {
    return this.#pending.remove(request);
  }

  /** Starts waiting requests, as far as there are resources; returns how many were started or ended. */
  restart(): number {
    const started = this.#restart(this.#posted);
    return this.#hellos > 0 ? started : started + this.#restart(this.#pending);
  }

  expect(request: Request): void {
    this.#name(request);
    if (request.isRemote) this.#remoteOperations += 1;
  }

  renew(request: Request): void {
    this.waiting.delete(request.requestId);
    this.#name(request);
  }

  forget(request: Request): void {
    this.waiting.delete(request.requestId);
    request.requestId = 0;
    if (!request.isRemote) return;
    this.#remoteOperations -= 1;
    if (this.#remoteOperations > 0) return;
    for (const flush of this.#flushes.splice(0)) flush.complete(Status.OK);
  }

  /** Keeps a failure that a check of the lanes has found, for the next flush. */
  keepFailure(status: Status): void {
    if (this.#keptFailure === Status.OK) this.#keptFailure = status;
  }

  takeFailure(): Status {
    const kept = this.#keptFailure;
    this.#keptFailure = Status.OK;
    return kept;
  }

  awaitRemote(flush: FlushRequest): void {
    if (this.#remoteOperations === 0) return;
    flush.count += 1;
    this.#flushes.push(flush);
  }

  stopAwaiting(flush: FlushRequest): number {
    const at = this.#flushes.indexOf(flush);
    if (at < 0) return 0;
    this.#flushes.splice(at, 1);
    return 1;
  }

  /**
   * Sends the close message, once. If the peer has not answered yet, it has to wait for the answer: call again then; see
   * {@link isClosePending}.
   */
  sendClose(): void {
    if (this.#hasLeft || this.remoteId === NO_ENDPOINT) return;
    this.#hasLeft = true;
    // A loopback with one half only would close itself.
    if (this.am === undefined || (this.isLoopback && this.remoteId === this.id)) return;
    this.#say(MessageId.CLOSE, writeClose(this.remoteId), undefined);
  }

  /** Whether the close message has still to be sent. */
  get isClosePending(): boolean {
    return !this.#hasLeft && this.am !== undefined;
  }

  /** Called when the peer has ended its half. */
  endedByPeer(): void {
    this.#hasLeft = true;
    if (this.failure === Status.OK) this.closedByPeer = true;
    this.fail(Status.CONNECTION_RESET);
  }

  /** Ends everything that waits here, once, and tells the peer; later operations fail with the same status. */
  fail(status: Status): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    // Before the requests end: the peer may not know that they do.
    this.messageKeys.revoke();
    // While the hello is not sent, the peer has no half of the connection.
    if (this.#hellos > 0 && this.remoteId === NO_ENDPOINT) this.#hasLeft = true;
    this.#hellos = 0;
    if (status !== Status.CANCELED && endpointFail.hasSubscribers && this.#owner.observation.isTold)
      endpointFail.publish(changeOf(this, status));
    this.#failFlushes(status);
    const waiting = [...this.waiting.values()];
    const ended: Request[] = [];
    for (const queue of [this.#posted, this.#pending]) {
      for (let head = queue.shift(); head !== undefined; head = queue.shift())
        if (head.requestId === 0) ended.push(head);
    }
    this.#postedCount = 0;
    this.sendClose();
    this.#abandonAll(waiting, ended, status);
  }

  /**
   * Ends one of several requests. A request whose memory transports still use ends when they no longer use it, and is waited for until then; it is told so
   * once, however often its connection is given up.
   */
  #abandon(request: Request, status: Status): void {
    if (request.isAbandoned) return;
    if (request.requestId !== 0) this.forget(request);
    const { abandon, transfer } = request;
    request.onAbandoned(status);
    // The request may have ended, and the object may belong to another operation.
    const isSame = request.abandon === abandon && request.transfer === transfer;
    const goesOn = abandon !== undefined && isSame && !request.isCompleted;
    if (!goesOn || request instanceof FlushRequest) return;
    request.isAbandoned = true;
    this.expect(request);
  }

  /** Ends requests that wait for the peer, and those that have not been sent. The end of one may start another that was waiting, which does not wait then. */
  #abandonAll(waiting: readonly Request[], unsent: readonly Request[], status: Status): void {
    for (const request of waiting) {
      if (this.waiting.get(request.requestId) === request) this.#abandon(request, status);
    }
    for (const request of unsent) this.#abandon(request, status);
  }

  /** Ends the requests that wait for the peer, in transports too, and those that have not been sent; messages to the peer are still sent, and flushes end. */
  cancelWaiting(status: Status): void {
    this.#givenUp = status;
    this.messageKeys.revoke();
    this.#failFlushes(status);
    const waiting = [...this.waiting.values()];
    const ended: Request[] = [];
    const take = (request: Request): void => {
      if (request.requestId === 0) ended.push(request);
    };
    this.#pending.sift((request) => request instanceof FlushRequest, take);
    // Removes parts of transfers that no transport works on yet, but not messages to the peer.
    this.#postedCount -= this.#posted.sift((request) => request instanceof PostedMessage, take);
    this.#abandonAll(waiting, ended, status);
    for (const { endpoint } of [...this.lanes]) endpoint.cancel?.();
  }

  /** Fails the pending flushes. */
  #failFlushes(status: Status): void {
    for (const flush of this.#flushes) if (flush.failure === Status.OK) flush.failure = status;
  }

  /**
   * Closes the lanes of a connection that the peer has closed, or whose peer has ended, if no request uses them: the program may keep its endpoint, with their
   * descriptors and mappings, for as long as it runs.
   */
  releaseLanes(): void {
    if (this.failure === Status.OK || this.waiting.size > 0 || !this.isDrained) return;
    const isOver = this.closedByPeer || this.lanes.every(({ endpoint }) => endpoint.check() !== Status.OK);
    if (isOver) this.#closeLanes();
  }

  /** Closes the lanes. */
  close(): void {
    this.#hasLeft = true;
    this.fail(Status.CANCELED);
    this.rkeys.close();
    this.inbound.close();
    this.#closeLanes();
  }

  #closeLanes(): void {
    if (this.#areLanesClosed) return;
    this.#areLanesClosed = true;
    for (const { endpoint } of this.lanes) endpoint.close();
  }

  #restart(queue: PendingQueue): number {
    let started = 0;
    for (let head = queue.head; head !== undefined; head = queue.head) {
      const status = start(head);
      if (status === Status.NO_RESOURCE) break;
      // A start may end the connection, and with it everything that is queued.
      if (queue.head !== head) continue;
      queue.shift();
      started += 1;
      if (queue === this.#posted) {
        this.#postedCount -= 1;
        const isHello = head instanceof PostedMessage && head.messageId === MessageId.WIREUP;
        if (isHello) this.#hellos -= 1;
        // Whatever the error handling of the endpoint: without it there is no connection, and the peer answers nothing.
        if (isHello && isFailure(status)) {
          this.isUnreported = true;
          this.fail(status);
        }
      }
      if (status !== Status.INPROGRESS) head.end(status);
    }
    return started;
  }

  #name(request: Request): void {
    request.requestId = this.#nextRequestId;
    this.#nextRequestId = this.#nextRequestId === 0x7fff_ffff ? 1 : this.#nextRequestId + 1;
    this.waiting.set(request.requestId, request);
  }

  #post(request: Request): void {
    this.#posted.push(request);
    this.#postedCount += 1;
    if (this.#postedCount > POSTED_MAX) {
      this.isUnreported = true;
      this.fail(Status.EXCEEDS_LIMIT);
    }
    this.#owner.connectionPending(this);
  }
}

/** The report about a connection to observers. */
export function changeOf({ lanes }: Connection, status: Status): EndpointChange {
  return { transports: lanes.map(({ iface }) => nameOf(iface.attributes)), status };
}

/** A message of the protocol itself. */
interface OwnMessage {
  readonly messageId: number;
  readonly header: Int32Array;
  readonly payload: Uint8Array | undefined;
}

/** A message of a protocol itself that waits for room. */
class PostedMessage extends Request {
  readonly messageId: number;
  readonly #to: Connection;
  readonly #header: Int32Array;
  readonly #payload: Uint8Array | undefined;

  /** Copies header and payload. */
  constructor(owner: RequestOwner, to: Connection, { messageId, header, payload }: OwnMessage) {
    super(owner);
    this.begin(to, undefined);
    this.#to = to;
    this.messageId = messageId;
    this.#header = header.slice();
    this.#payload = payload?.slice();
  }

  start(): Status {
    const status = sendMessage(
      this.#to,
      this.messageId,
      this.#header,
      this.#payload,
      0,
      this.#payload?.byteLength ?? 0,
    );
    // The caller has returned and cannot be told of a failure: a message that lacks memory or descriptors is sent again.
    return isLackOfResources(status) ? Status.NO_RESOURCE : status;
  }
}
