/** A connection to a worker: the requests that wait on it for resources or for the peer, and the end of all of them when it ends. */

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

/** Messages of the protocol that may wait for room; a peer that causes more is broken or hostile. */
const POSTED_MAX = 65_536;

/** The bytes behind the keys of a peer that are kept, at most. */
const KEY_BYTES_MAX = 256 * 2 ** 20;

/** The worker behind a connection. */
export interface ConnectionOwner extends LaneSettings {
  /** The memory for messages that arrive before the receiver asks for them. */
  readonly budget: CreditBudget;
  /** Its connections with requests that wait for resources: progress starts them again. */
  readonly pending: Set<Connection>;
}

/** Numbers of requests; then they begin again. */
const REQUEST_ID_MAX = 0x7fff_ffff;

/** What a connection expects of its peer: requests that wait for an answer, and the flushes behind them. */
abstract class ExpectedAnswers extends PeerLanes {
  /** Requests that wait for the peer, by the number that the peer knows. */
  readonly waiting: Map<number, Queued> = new Map();
  /** Numbers of messages that were taken back while the peer could not answer: it learns so when it asks for them. */
  readonly takenBack: Set<number> = new Set();
  #nextRequestId = 1;
  #remoteOperations = 0;
  readonly #flushes: Queued[] = [];

  /** Whether one more offer may be sent that the peer has to keep. */
  get canOffer(): boolean {
    return this.waiting.size + this.takenBack.size < OFFERS_MAX;
  }

  /** Operations in flight that only the peer can end, and that a flush waits for. */
  get remoteOperations(): number {
    return this.#remoteOperations;
  }

  /** Gives a request a number by which the peer can answer it. */
  expect(request: Queued): void {
    this.#name(request);
    if (request.isRemote) this.#remoteOperations += 1;
  }

  /** Gives a request a new number: messages of the peer to the old one are ignored. */
  renew(request: Queued): void {
    this.waiting.delete(request.requestId);
    this.#name(request);
  }

  /** Releases the number of a request, which the peer does not answer any more. */
  forget(request: Queued): void {
    this.waiting.delete(request.requestId);
    request.requestId = 0;
    if (!request.isRemote) return;
    this.#remoteOperations -= 1;
    if (this.#remoteOperations > 0) return;
    for (const flush of this.#flushes.splice(0)) flush.complete(Status.OK);
  }

  /** Adds one count to `flush` if operations are in flight that only the peer can end. */
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

/** A connection. */
export class Connection extends ExpectedAnswers {
  /** Messages of the peer that the program has kept, and whose data it has not received, by the number of the request of the peer. */
  readonly offers: Map<number, { isWithdrawn: boolean }> = new Map();
  /** Keys that messages of the peer have brought. */
  readonly rkeys: KeyCache<RemoteKey> = new KeyCache({ keysMax: KEYS_MAX, bytesMax: KEY_BYTES_MAX });
  /** Keys of own memory for messages to and from the peer. */
  readonly messageKeys: MessageKeys = new MessageKeys();
  /** The order of notifications. */
  readonly notifications: NotifyOrder = new NotifyOrder();
  /** Bytes that this end may send before the peer asks for them, and those that the peer may send. */
  readonly credit: OutboundCredit = new OutboundCredit();
  readonly inbound: InboundWindow;
  /** Why the connection has ended: OK while it has not. */
  failure: Status = Status.OK;
  /** Whether the peer has announced that it ends its half. */
  closedByPeer = false;
  /** Whether it has failed within a call, and progress has to report the failure. */
  isUnreported = false;
  readonly #owner: ConnectionOwner;
  readonly #pending: PendingQueue = new PendingQueue();
  /** Messages of the protocol itself: they must not wait behind a fence of the application. */
  readonly #posted: PendingQueue = new PendingQueue();
  #postedCount = 0;
  /** Made at the first return of credit. */
  #creditMessage: CreditMessage | undefined = undefined;
  /** Why waiting was cancelled; OK while requests may wait. */
  #givenUp: Status = Status.OK;
  /** Number of wire-up messages among the posted ones: before they are sent, the peer does not know where to answer. */
  #hellos = 0;
  #keptFailure: Status = Status.OK;
  /** Whether no close message is due: the peer was told that this half has ended, never learned of it, or has ended the other half itself. */
  #hasLeft = false;
  #areLanesClosed = false;

  constructor(owner: ConnectionOwner, id: number, connected: ConnectedLanes) {
    super(owner, id, connected);
    this.#owner = owner;
    this.inbound = new InboundWindow(owner.budget, () => this.#returnCredit());
  }

  /** True while requests wait for resources; later ones queue up behind them. */
  get hasPending(): boolean {
    return !this.#pending.isEmpty || this.#hellos > 0;
  }

  /** True when nothing is left that this end could send. */
  get isDrained(): boolean {
    return this.#pending.isEmpty && this.#posted.isEmpty;
  }

  /**
   * Whether a message can go without a request: nothing waits in front of it, and the peer has given credit for it, which a connection that is not established
   * does not have.
   */
  canSendAtOnce(cost: number): boolean {
    return this.credit.bytes >= cost && !this.hasPending && this.failure === Status.OK && !isObserved();
  }

  /**
   * Sends a message of the protocol itself, now or when there is room.
   * @returns OK; or why it is dropped: the connection has ended, or the transport cannot send
   */
  post(messageId: number, header: Int32Array, payload?: Uint8Array): Status {
    return this.failure === Status.OK ? this.#say(messageId, header, payload) : this.failure;
  }

  #say(messageId: number, header: Int32Array, payload: Uint8Array | undefined): Status {
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

  /** Starts a request of the protocol itself, behind no request of the application. */
  run(request: Queued): void {
    const status = this.#posted.isEmpty ? start(request) : Status.NO_RESOURCE;
    if (status === Status.NO_RESOURCE && this.#givenUp !== Status.OK) this.#abandon(request, this.#givenUp);
    else if (status === Status.NO_RESOURCE) this.#post(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Queues a request of the application behind the others. */
  queue(request: Queued): void {
    this.#pending.push(request);
    this.#owner.pending.add(this);
  }

  /** Starts a request of the protocol itself that must not overtake those of the application. */
  enqueue(request: Queued): void {
    const status = this.hasPending ? Status.NO_RESOURCE : start(request);
    if (status === Status.NO_RESOURCE) this.queue(request);
    else if (status !== Status.INPROGRESS) request.end(status);
  }

  /** Removes a request from the queue; false if it is not queued any more. */
  unqueue(request: Queued): boolean {
    return this.#pending.remove(request);
  }

  /** Starts waiting requests, as far as there are resources; returns how many were started or ended. */
  restart(): number {
    const started = this.#restart(this.#posted);
    return this.#hellos > 0 ? started : started + this.#restart(this.#pending);
  }

  /** Keeps a failure that a check of the lanes has found, for the next flush. */
  keepFailure(status: Status): void {
    if (this.#keptFailure === Status.OK) this.#keptFailure = status;
  }

  /** A failure of a lane that was found before its flush: the next flush reports it, once. OK for none. */
  takeFailure(): Status {
    const kept = this.#keptFailure;
    this.#keptFailure = Status.OK;
    return kept;
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
   * Ends one of several requests. A request whose memory transports still use ends when they no longer use it, and is waited for until then; it is told so
   * once, however often its connection is given up.
   */
  #abandon(request: Queued, status: Status): void {
    if (request.isAbandoned) return;
    if (request.requestId !== 0) this.forget(request);
    const { generation } = request;
    request.onAbandoned(status);
    // The request may have ended, and the object may belong to another operation.
    if (request.generation !== generation || request.isCompleted || request.isFlush) return;
    request.isAbandoned = true;
    this.expect(request);
  }

  /** Ends requests that wait for the peer, and those that have not been sent. The end of one may start another that was waiting, which does not wait then. */
  #abandonAll(waiting: readonly Queued[], unsent: readonly Queued[], status: Status): void {
    for (const request of waiting) {
      if (this.waiting.get(request.requestId) === request) this.#abandon(request, status);
    }
    for (const request of unsent) this.#abandon(request, status);
  }

  /** Ends the requests that wait for the peer, in transports too, and those that have not been sent; messages to the peer are still sent, and flushes end. */
  cancelWaiting(status: Status): void {
    this.#givenUp = status;
    this.messageKeys.revoke();
    this.failFlushes(status);
    const waiting = [...this.waiting.values()];
    const ended: Queued[] = [];
    const take = (request: Queued): void => {
      if (request.requestId === 0) ended.push(request);
    };
    this.#pending.sift((request) => request.isFlush, take);
    // Removes parts of transfers that no transport works on yet, but not messages to the peer.
    this.#postedCount -= this.#posted.sift((request) => request instanceof PostedMessage, take);
    this.#abandonAll(waiting, ended, status);
    for (const { endpoint } of [...this.lanes]) endpoint.cancel?.();
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

  /** Returns the free credit, now or when there is room; false on a connection that is not established. */
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
