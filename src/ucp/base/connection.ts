/** A connection to a worker, with the requests on it that wait for resources or for the peer. All of them end with the connection. */

import { writeClose } from '../../api/layout/control.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { MessageId } from '../../api/layout/message.ts';
import { NotifyOrder } from '../../api/list/notify-order.ts';
import { KeyCache } from '../../api/memory/key-cache.ts';
import { endpointFail } from '../../ucs/debug/diagnostics.ts';
import { isFailure, Status } from '../../ucs/type/status.ts';
import { type CreditBudget, InboundWindow, OFFERS_MAX, OutboundCredit } from '../credit/credit.ts';
import type { ConnectedLanes } from '../lane/lanes.ts';
import { KEYS_MAX, MessageKeys } from '../mem/message-keys.ts';
import type { RemoteKey } from '../mem/remote-key.ts';
import { sendMessage } from './message-packer.ts';
import { isObserved } from './observation.ts';
import { CreditMessage, PostedMessage } from './own-messages.ts';
import { changeOf, type LaneSettings, PeerLanes } from './peer-lanes.ts';
import { PendingQueue, type Queued, start } from './queued.ts';

/** Limit of queued protocol messages; only a faulty or hostile peer causes more. */
const POSTED_MAX = 65_536;

/** Limit of the bytes of cached remote keys of one peer. */
const KEY_BYTES_MAX = 256 * 2 ** 20;

/** The worker behind a connection. */
export interface ConnectionOwner extends LaneSettings {
  /** Memory for messages that arrive before they are received. */
  readonly budget: CreditBudget;
  /** Connections with requests that wait for resources: progress restarts those. */
  readonly pending: Set<Connection>;
}

/** Highest request id; the next one is 1 again. */
const REQUEST_ID_MAX = 0x7fff_ffff;

/** Requests that wait for a reply of the peer, and the flushes that wait for those. */
abstract class PendingReplies extends PeerLanes {
  /** Requests that wait for the peer, by request id. */
  readonly waiting: Map<number, Queued> = new Map();
  /** Request ids of messages that were withdrawn while the peer could not reply. The peer learns of it when it requests their data. */
  readonly takenBack: Set<number> = new Set();
  #nextRequestId = 1;
  #remoteOperations = 0;
  readonly #flushes: Queued[] = [];

  /** True if one more offer may be sent, which the peer has to keep. */
  get canOffer(): boolean {
    return this.waiting.size + this.takenBack.size < OFFERS_MAX;
  }

  /** Number of operations in flight that only the peer can end; flushes wait for them. */
  get remoteOperations(): number {
    return this.#remoteOperations;
  }

  /** Gives a request an id, which the peer names in its reply. */
  expect(request: Queued): void {
    this.#name(request);
    if (request.isRemote) this.#remoteOperations += 1;
  }

  /** Gives a request a new id: messages of the peer with the old one are ignored. */
  renew(request: Queued): void {
    this.waiting.delete(request.requestId);
    this.#name(request);
  }

  /** Releases the id of a request that expects no more messages of the peer. */
  forget(request: Queued): void {
    this.waiting.delete(request.requestId);
    request.requestId = 0;
    if (!request.isRemote) return;
    this.#remoteOperations -= 1;
    if (this.#remoteOperations > 0) return;
    for (const flush of this.#flushes.splice(0)) flush.complete(Status.OK);
  }

  /** Adds one count to `flush` if any operation in flight can be ended only by the peer. */
  awaitRemote(flush: Queued): void {
    if (this.#remoteOperations === 0) return;
    flush.count += 1;
    this.#flushes.push(flush);
  }

  /** Undoes {@link awaitRemote}; returns the number of counts. */
  stopAwaiting(flush: Queued): number {
    const at = this.#flushes.indexOf(flush);
    if (at < 0) return 0;
    this.#flushes.splice(at, 1);
    return 1;
  }

  /** Fails the pending flushes. */
  protected failFlushes(status: Status): void {
    for (const flush of this.#flushes) if (flush.failure === Status.OK) flush.failure = status;
  }

  #name(request: Queued): void {
    request.requestId = this.#nextRequestId;
    this.#nextRequestId = this.#nextRequestId === REQUEST_ID_MAX ? 1 : this.#nextRequestId + 1;
    this.waiting.set(request.requestId, request);
  }
}

export class Connection extends PendingReplies {
  /** Offered messages that the program keeps and whose data it has not received, by the request id of the peer. */
  readonly offers: Map<number, { isWithdrawn: boolean }> = new Map();
  /** Remote keys from messages of the peer. */
  readonly rkeys: KeyCache<RemoteKey> = new KeyCache({ keysMax: KEYS_MAX, bytesMax: KEY_BYTES_MAX });
  /** Keys of local memory that messages give to the peer. */
  readonly messageKeys: MessageKeys = new MessageKeys();
  /** The order of notifications. */
  readonly notifications: NotifyOrder = new NotifyOrder();
  /** Bytes that each side may send before the receiver requests them. */
  readonly credit: OutboundCredit = new OutboundCredit();
  readonly inbound: InboundWindow;
  /** Why the connection has ended; OK while it is open. */
  failure: Status = Status.OK;
  /** True once the peer has announced that it closes its half. */
  closedByPeer = false;
  /** True if the connection failed within a call and progress still has to report it. */
  isUnreported = false;
  readonly #owner: ConnectionOwner;
  readonly #pending: PendingQueue = new PendingQueue();
  /** Protocol messages, in a separate queue: they must not wait behind a fence of the application. */
  readonly #posted: PendingQueue = new PendingQueue();
  #postedCount = 0;
  /** Created when credit is first returned. */
  #creditMessage: CreditMessage | undefined = undefined;
  /** Status of requests that would have to wait, once waiting was cancelled; OK while requests may wait. */
  #cancelledWith: Status = Status.OK;
  /** Number of wire-up messages in the queue of protocol messages. Before they are sent, the peer has no address to reply to. */
  #hellos = 0;
  #keptFailure: Status = Status.OK;
  /** True if no close message must be sent: it was sent already, the peer never knew this endpoint, or the peer closed first. */
  #hasLeft = false;
  #areLanesClosed = false;

  constructor(owner: ConnectionOwner, id: number, connected: ConnectedLanes) {
    super(owner, id, connected);
    this.#owner = owner;
    this.inbound = new InboundWindow(owner.budget, () => this.#returnCredit());
  }

  /** True while requests wait for resources; later ones are queued behind them. */
  get hasPending(): boolean {
    return !this.#pending.isEmpty || this.#hellos > 0;
  }

  /** True if this side has nothing left to send. */
  get isDrained(): boolean {
    return this.#pending.isEmpty && this.#posted.isEmpty;
  }

  /**
   * True if a message can be sent without a request: no message is queued before it, and there is credit for it. A connection that is not established has
   * none.
   */
  canSendAtOnce(cost: number): boolean {
    return this.credit.bytes >= cost && !this.hasPending && this.failure === Status.OK && !isObserved();
  }

  /**
   * Sends a protocol message, now or when there are resources.
   * @returns OK; or the reason why the message was dropped: the connection has ended, or the transport cannot send
   */
  post(messageId: number, header: Int32Array, payload?: Uint8Array): Status {
    return this.failure === Status.OK ? this.#send(messageId, header, payload) : this.failure;
  }

  #send(messageId: number, header: Int32Array, payload: Uint8Array | undefined): Status {
    const bytes = payload?.byteLength ?? 0;
    if (this.#posted.isEmpty) {
      const status = sendMessage(this, messageId, header, payload, 0, bytes);
      if (status !== Status.NO_RESOURCE) return status;
    }
    const message = new PostedMessage(this, { messageId, header, payload });
    if (messageId === MessageId.WIREUP) this.#hellos += 1;
    this.#post(message);
    return Status.OK;
  }

  /** Starts a protocol request, which does not wait behind requests of the application. */
  run(request: Queued): void {
    const status = this.#posted.isEmpty ? start(request) : Status.NO_RESOURCE;
    if (status === Status.NO_RESOURCE && this.#cancelledWith !== Status.OK) this.#abandon(request, this.#cancelledWith);
    else if (status === Status.NO_RESOURCE) this.#post(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Queues a request of the application. */
  queue(request: Queued): void {
    this.#pending.push(request);
    this.#owner.pending.add(this);
  }

  /** Starts a protocol request that must not overtake those of the application. */
  enqueue(request: Queued): void {
    const status = this.hasPending ? Status.NO_RESOURCE : start(request);
    if (status === Status.NO_RESOURCE) this.queue(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Removes a request from the queue; false if it is not queued any more. */
  unqueue(request: Queued): boolean {
    return this.#pending.remove(request);
  }

  /** Restarts queued requests as far as there are resources; returns how many were started or ended. */
  restart(): number {
    const started = this.#restart(this.#posted);
    return this.#hellos > 0 ? started : started + this.#restart(this.#pending);
  }

  /** Stores a failure that a check of the lanes has found; the next flush reports it. */
  keepFailure(status: Status): void {
    if (this.#keptFailure === Status.OK) this.#keptFailure = status;
  }

  /** Takes the stored failure of a lane, if any: the next flush reports it, once. */
  takeFailure(): Status {
    const kept = this.#keptFailure;
    this.#keptFailure = Status.OK;
    return kept;
  }

  /** Sends the close message, once. Until the peer has replied to the connection request, it cannot be sent: see {@link isClosePending}. */
  sendClose(): void {
    if (this.#hasLeft || this.remoteId === NO_ENDPOINT) return;
    this.#hasLeft = true;
    // A loopback with only one half would close that half.
    if (this.am === undefined || (this.isLoopback && this.remoteId === this.id)) return;
    this.#send(MessageId.CLOSE, writeClose(this.remoteId), undefined);
  }

  /** True if the close message still has to be sent. */
  get isClosePending(): boolean {
    return !this.#hasLeft && this.am !== undefined;
  }

  /** Called when the peer has closed its half. */
  endedByPeer(): void {
    this.#hasLeft = true;
    if (this.failure === Status.OK) this.closedByPeer = true;
    this.fail(Status.CONNECTION_RESET);
  }

  /** Ends all requests on the connection, once, and notifies the peer; later operations fail with the same status. */
  fail(status: Status): void {
    if (this.failure !== Status.OK) return;
    this.failure = status;
    // Before the requests end, as the peer may not know of their end yet.
    this.messageKeys.revoke();
    // Until the wire-up message is sent, the peer has no half of the connection.
    if (this.#hellos > 0 && this.remoteId === NO_ENDPOINT) this.#hasLeft = true;
    this.#hellos = 0;
    if (status !== Status.CANCELED && endpointFail.hasSubscribers && this.#owner.observation.isTold)
      endpointFail.publish(changeOf(this, status));
    this.failFlushes(status);
    const waiting = [...this.waiting.values()];
    const ended: Queued[] = [];
    for (const queue of [this.#posted, this.#pending]) {
      for (let head = queue.shift(); head !== undefined; head = queue.shift())
        if (head.requestId === 0) ended.push(head);
    }
    this.#postedCount = 0;
    this.sendClose();
    this.#abandonAll(waiting, ended, status);
  }

  /**
   * Ends one request. If transports still use its memory, it ends when they no longer do, and is waited for until then. Each request is notified only
   * once, however often its connection is given up.
   */
  #abandon(request: Queued, status: Status): void {
    if (request.isAbandoned) return;
    if (request.requestId !== 0) this.forget(request);
    const { generation } = request;
    request.onAbandoned(status);
    // The request may have ended, and its object may belong to another operation.
    if (request.generation !== generation || request.isCompleted || request.isFlush) return;
    request.isAbandoned = true;
    this.expect(request);
  }

  /** Ends requests that wait for the peer, and those that were not sent. The end of one may start another, which then does not wait. */
  #abandonAll(waiting: readonly Queued[], unsent: readonly Queued[], status: Status): void {
    for (const request of waiting) {
      if (this.waiting.get(request.requestId) === request) this.#abandon(request, status);
    }
    for (const request of unsent) this.#abandon(request, status);
  }

  /** Ends the requests that wait for the peer, also those in transports, and those that were not sent; messages to the peer are still sent, and flushes end. */
  cancelWaiting(status: Status): void {
    this.#cancelledWith = status;
    this.messageKeys.revoke();
    this.failFlushes(status);
    const waiting = [...this.waiting.values()];
    const ended: Queued[] = [];
    const take = (request: Queued): void => {
      if (request.requestId === 0) ended.push(request);
    };
    this.#pending.sift((request) => request.isFlush, take);
    // Removes transfers that no transport has started yet, but keeps messages to the peer.
    this.#postedCount -= this.#posted.sift((request) => request instanceof PostedMessage, take);
    this.#abandonAll(waiting, ended, status);
    for (const { endpoint } of [...this.lanes]) endpoint.cancel?.();
  }

  /**
   * Closes the lanes, to free their descriptors and mappings, if the peer has closed or failed and no request uses them: the program may keep its endpoint
   * for long.
   */
  releaseLanes(): void {
    if (this.failure === Status.OK || this.waiting.size > 0 || !this.isDrained) return;
    const isOver = this.closedByPeer || this.lanes.every(({ endpoint }) => endpoint.check() !== Status.OK);
    if (isOver) this.#closeLanes();
  }

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
      // The start may have ended the connection, and with it the whole queue.
      if (queue.head !== head) continue;
      queue.shift();
      started += 1;
      if (queue === this.#posted) {
        this.#postedCount -= 1;
        const isHello = head instanceof PostedMessage && head.messageId === MessageId.WIREUP;
        if (isHello) this.#hellos -= 1;
        // Regardless of the error handling mode: without a wire-up message the peer never replies.
        if (isHello && isFailure(status)) {
          this.isUnreported = true;
          this.fail(status);
        }
      }
      if (status !== Status.INPROGRESS) head.end(status);
    }
    return started;
  }

  /** Returns the free credit, now or when there are resources; false on a connection that is not established. */
  #returnCredit(): boolean {
    if (this.failure !== Status.OK || this.remoteId === NO_ENDPOINT) return false;
    this.#creditMessage ??= new CreditMessage(this, this.inbound);
    const message = this.#creditMessage;
    if (message.queued) return true;
    message.begin();
    this.run(message);
    return true;
  }

  #post(request: Queued): void {
    this.#posted.push(request);
    this.#postedCount += 1;
    if (this.#postedCount > POSTED_MAX) {
      this.isUnreported = true;
      this.fail(Status.EXCEEDS_LIMIT);
    }
    this.#owner.pending.add(this);
  }
}
