/**
 * A connection between two interfaces: one socket, the operations in flight on it, and its end. Endpoints use it. The interface decides which end
 * connects and which socket is used.
 *
 *   state:      idle --begin()--> waiting --attach()--> up --fail()--> down     fail() leads to `down` from every state; attach() also from `idle`
 *
 *   departure:  none --retire()--> self --onBye()--> both     An end whose endpoints are all closed notifies the peer (BYE). While the link is
 *               none --onBye()---> peer --retire()-> both     `waiting`, revive() leads from `self` back to `none`. The link goes down at
 *                                                             `both`, and at `peer` if it has no endpoints.
 */

import {
  Errno,
  errnoText,
  type InetAddress,
  printAddress,
  tcpClose,
  tcpIsEstablished,
  tcpRecv,
  tcpUnreadBytes,
} from '../../../sys/index.ts';
import { Ring } from '../../../ucs/datastruct/ring.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { AmHandler, Completion } from '../../api/iface.ts';
import { identityText } from '../../base/iface.ts';
import { memoryOfPut, type TcpKeyTable } from '../key.ts';
import { FRAME_BODY_BYTES_MAX, FrameType, GETS_MAX, getLengthOf, offsetOf, PUTS_MAX, valueIn } from '../layout.ts';
import type { RecordStream, Session } from '../secure/session.ts';
import type { Batches, Batching, Room, SocketHandler } from '../sockets.ts';
import type { TcpBuffers } from './buffers.ts';
import { GetAnswers, Payload } from './inbound.ts';
import { endOf, failureOfPeer, Liveness, remoteName } from './liveness.ts';
import { Flushes, NO_MEMORY, PendingGet, PendingOperations, type TcpIovEntry } from './operations.ts';
import { FrameParser, type FrameSink } from './parser.ts';
import { Transmitter } from './sender.ts';

/** `idle`: nothing was sent; `waiting`: for a connected socket, whichever end connects; `up`; `down`: finally. */
export type LinkState = 'idle' | 'waiting' | 'up' | 'down';

/** Which ends have announced (BYE) that they have no more endpoints. */
export type Departure = 'none' | 'self' | 'peer' | 'both';

/** Maximum number of queued frames for a peer that does not read its answers: more than a peer that respects the limits can cause. */
const WAITING_MAX: number = PUTS_MAX + 1024;
/** Maximum number of receive calls for the data of a peer before its connection is closed. */
const DRAIN_POLLS = 64;

/** Functions of the interface for a link. */
export interface LinkOwner {
  readonly buffers: TcpBuffers;
  readonly keys: TcpKeyTable;
  handler: AmHandler | undefined;
  readonly counters: { received(byteLength: number): void };
  /** Time in milliseconds without a sign of life after which the peer counts as failed. */
  readonly peerTimeoutMs: number;
  readonly nowMs: number;
  /** Requests a connection for the link. */
  connectLink(link: TcpConnection): void;
  /** Reports the end of the link. Its descriptor stays open until this returns. */
  onLinkDown(link: TcpConnection, reason: string): void;
  /** Reports a violation of the protocol by the peer. The link ends. */
  onViolation(link: TcpConnection, what: string): void;
  /** Maximum number of system calls in one call of progress. */
  readonly pollsMax: number;
  /** Notes that the socket has no room, or that acknowledgements are pending. */
  noteBlocked(link: TcpConnection): void;
  /** Batches of frames that have begun. */
  readonly batches: Batches;
  /** Notes that data was received. */
  noteReceived(link: TcpConnection): void;
  /** Counts operations with completions: they have begun (1) or ended (-1). */
  countOutstanding(change: number): void;
}

/** The connection. */
export class TcpConnection implements FrameSink, SocketHandler, Batching {
  readonly peerId: Uint8Array;
  /** The id of the peer as text, for messages. */
  readonly identity: string;
  /** The link in the event set of the interface. */
  token = 0;
  /** The watch of its socket by the event loop; undefined until it is connected. */
  room: Room | undefined = undefined;
  /** Address to connect to, and own address to connect from; undefined for a link that the peer has connected, and for any own address. */
  target: InetAddress | undefined = undefined;
  source: string | undefined = undefined;
  state: LinkState = 'idle';
  /** OK until the link is down. */
  status: Status = Status.OK;
  fd = -1;
  /** Longest message that the peer accepts. */
  peerBytesMax = 0;
  /** Number of endpoints on this end. */
  users = 0;
  departure: Departure = 'none';
  readonly puts: PendingOperations;
  readonly gets: PendingOperations;
  readonly payload: Payload = new Payload();
  readonly transmitter: Transmitter;
  readonly #owner: LinkOwner;
  #receiver: FrameParser | undefined = undefined;
  #records: RecordStream | undefined = undefined;
  readonly #pendingGets: Ring<PendingGet> = new Ring(GETS_MAX);
  readonly #freeGets: PendingGet[] = [];
  readonly #flushes: Flushes;
  /** What is being received: a put, with its status, or data for a get of an endpoint. */
  #isPut = false;
  #getOwner: object | undefined = undefined;
  #bodyStatus: Status = Status.OK;
  /** Number of operations that have ended, messages that have arrived, and steps of long ones. */
  #events = 0;
  readonly #getAnswers: GetAnswers;
  readonly #liveness: Liveness = new Liveness();

  constructor(owner: LinkOwner, peerId: Uint8Array) {
    this.#owner = owner;
    this.peerId = peerId;
    this.identity = identityText(peerId);
    this.transmitter = new Transmitter(owner.buffers, () => owner.batches.add(this));
    this.puts = new PendingOperations(owner);
    this.gets = new PendingOperations(owner);
    this.#flushes = new Flushes(owner, this.puts, this.gets);
    this.#getAnswers = new GetAnswers(owner.buffers, owner.keys);
  }

  get isUp(): boolean {
    return this.state === 'up';
  }

  get #hasLeft(): boolean {
    return this.departure === 'self' || this.departure === 'both';
  }

  get hasHandler(): boolean {
    return this.#owner.handler !== undefined;
  }

  /** Whether frames wait for room in the socket. */
  get wantsWrite(): boolean {
    return this.transmitter.isBlocked;
  }

  /** Whether progress has something to do without received data. */
  get hasMore(): boolean {
    return this.isUp && (this.wantsWrite || this.isBroken || this.transmitter.hasPendingAcks);
  }

  /** Whether sending has failed: the next progress ends the link. */
  get isBroken(): boolean {
    return this.transmitter.failure !== 0;
  }

  /** The peer, for logs. */
  get name(): string {
    if (this.target !== undefined) return printAddress(this.target);
    return this.fd >= 0 ? remoteName(this.fd) : 'a peer';
  }

  onReady(): number {
    return this.progress(this.#owner.pollsMax);
  }

  /** Uses a socket that is connected after the exchange of hellos. */
  attach(fd: number, peerBytesMax: number, session: Session | undefined): void {
    this.#records = session?.recordsOver(fd);
    this.fd = fd;
    this.peerBytesMax = peerBytesMax;
    this.state = 'up';
    this.transmitter.attach(fd, this.#records);
    this.#receiver = new FrameParser(fd, this.#owner.buffers, this, this.#records);
    if (this.#hasLeft) this.#sendBye();
  }

  /** Requests a connection if that has not happened: returns NO_RESOURCE while there is none, or the failure of the link. */
  begin(): Status {
    if (this.state === 'idle') this.#owner.connectLink(this);
    return this.state === 'down' ? this.status : Status.NO_RESOURCE;
  }

  /** Receives and sends as far as possible; returns the number of operations that ended and messages that arrived, or at least 1 if bytes have moved. */
  progress(polls: number): number {
    const receiver = this.#receiver;
    if (this.state !== 'up' || receiver === undefined) return 0;
    const before = this.#events;
    // One acknowledgement for a run of puts saves calls of the kernel; a sleep does not wait for its end.
    if (!receiver.isInRun) this.acknowledge();
    const received = this.#receive(receiver, polls);
    if (this.isUp && this.transmitter.isBlocked) this.#sendMore();
    // Data that the peer sent before it disconnected comes first.
    if (received === 0 && this.isBroken) this.#endBroken();
    return this.#events - before;
  }

  /** Sends the frames that wait to be sent together. */
  endBatch(): void {
    if (!this.isUp) return;
    this.check(this.transmitter.endBatch());
    this.#closeIfUnused();
  }

  /** The socket has room, and the program may make no progress: sends frames that were reported as sent. No operation ends in here. Returns 1 if bytes have moved. */
  sendReported(): number {
    const { transmitter } = this;
    if (!this.isUp || this.isBroken || !this.wantsWrite) return 0;
    if (transmitter.isAwaited || this.#flushes.length > 0) return 0;
    const before = transmitter.moved;
    this.check(transmitter.sendMore());
    this.#closeIfUnused();
    return transmitter.moved === before ? 0 : 1;
  }

  /** Acknowledges the puts that arrived in the last call, unless a frame that was sent since has acknowledged them. */
  acknowledge(): void {
    if (this.isUp && this.transmitter.hasPendingAcks) this.check(this.transmitter.acknowledge());
  }

  /** Returns the number of bytes. */
  #receive(receiver: FrameParser, polls: number): number {
    const received = receiver.receive(polls);
    if (received > 0) {
      // A long body is being received.
      if (this.payload.left > 0) this.#events += 1;
      if (this.#flushes.length > 0) this.#flushes.settle(this.transmitter.released);
      if (this.isUp) {
        this.#owner.noteReceived(this);
        if (this.transmitter.hasPendingAcks) this.#owner.noteBlocked(this);
      }
    }
    if (receiver.end !== undefined && this.isUp) this.#endReceiving(receiver);
    return received;
  }

  /**
   * Handles the state after a call of the transmitter; returns the status. After a failure, the next progress ends the link: no callback runs in
   * here.
   */
  check(status: Status): Status {
    const transmitter = this.transmitter;
    if (status === Status.IO_ERROR) {
      this.#owner.noteBlocked(this);
      return endOf(transmitter.failure);
    }
    if (transmitter.isBlocked) this.#owner.noteBlocked(this);
    return status;
  }

  /** Starts a flush, after everything before has reached the peer; see UctEndpoint.flush. */
  flush(completion: Completion | undefined, owner: object): Status {
    this.endBatch();
    if (this.state === 'down') return this.puts.takeFailure() || this.status;
    const frames = this.transmitter.queued;
    if (this.puts.inFlight === 0 && this.gets.inFlight === 0 && !this.wantsWrite) return this.puts.takeFailure();
    if (completion !== undefined) this.#flushes.add(frames, completion, owner);
    return Status.INPROGRESS;
  }

  /** Registers a frame of a get that is sent, for a part of a list. The caller has checked that at most {@link GETS_MAX} wait. */
  expectGet(iov: readonly TcpIovEntry[], from: number, byteLength: number, owner: object): void {
    const get = this.#freeGets.pop() ?? new PendingGet();
    get.owner = owner;
    get.isCancelled = false;
    get.iov = iov;
    get.from = from;
    get.byteLength = byteLength;
    this.#pendingGets.push(get);
  }

  /** Ends the operations of an endpoint; see UctEndpoint.cancel. What the peer sends for them is discarded. */
  cancel(owner: object): void {
    if (this.payload.left > 0 && !this.#isPut && this.#getOwner === owner) this.payload.isLost = true;
    for (let i = 0; i < this.#pendingGets.length; i++) {
      const get = this.#pendingGets.at(i)!;
      if (get.owner === owner) get.isCancelled = true;
    }
    this.transmitter.cancel(owner);
    this.puts.cancel(owner);
    this.gets.cancel(owner);
    this.#flushes.cancel(owner);
  }

  /** Whether the peer works: returns OK, or the failure of the link. */
  checkPeer(): Status {
    if (!this.isUp) return this.state === 'down' ? this.status : Status.OK;
    // Also without progress of the program: detects a peer that has closed, with no unread data left.
    if (!tcpIsEstablished(this.fd) && tcpUnreadBytes(this.fd) === 0) {
      this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
      return this.status;
    }
    if (this.isBroken) {
      this.#endBroken();
      return this.status;
    }
    const { peerTimeoutMs, nowMs } = this.#owner;
    this.#look(nowMs);
    const silenceMs = this.#liveness.silenceMs(this.fd, nowMs, peerTimeoutMs);
    if (silenceMs > 0) this.fail(Status.ENDPOINT_TIMEOUT, `no sign of life for ${silenceMs} ms`);
    return this.status;
  }

  /** Sends a heartbeat, which its node must acknowledge. @param intervalMs time until the next call */
  heartbeat(intervalMs: number): void {
    this.endBatch();
    if (!this.isUp) return;
    const { nowMs } = this.#owner;
    this.#look(nowMs);
    this.#liveness.ask(this.fd, nowMs);
    // Queued frames also show that this process runs.
    if (!this.transmitter.isBlocked) this.check(this.transmitter.signal(FrameType.HEARTBEAT, intervalMs));
  }

  /** Announces that this end has no more endpoints. */
  retire(): void {
    if (this.#hasLeft || this.state === 'down') return;
    this.departure = this.departure === 'peer' ? 'both' : 'self';
    if (this.state === 'idle') this.fail(Status.CANCELED, '');
    else if (this.state === 'up') this.#sendBye();
    // If the peer already uses the connection, it is notified once this end is connected too.
  }

  /** Whether new endpoints may use the link. A retired link can be used again until the peer was notified. */
  revive(): boolean {
    if (this.departure === 'self' && this.state === 'waiting') this.departure = 'none';
    return !this.#hasLeft;
  }

  #look(nowMs: number): void {
    this.#liveness.look(this.#receiver?.signsOfLife ?? 0, nowMs);
  }

  #sendBye(): void {
    this.check(this.transmitter.signal(FrameType.BYE));
    this.#closeIfUnused();
  }

  /** Ends the link because its interface closes. The data of the peer is read first: the kernel would otherwise discard undelivered data for the peer. */
  close(): void {
    this.endBatch();
    if (this.fd >= 0) {
      const { rx } = this.#owner.buffers;
      for (let poll = 0; poll < DRAIN_POLLS && tcpRecv(this.fd, rx.address, rx.byteLength) > 0; poll++);
    }
    this.fail(Status.CANCELED, '');
  }

  /** Ends the link: pending and later operations end with `status`. Idempotent. */
  fail(status: Status, reason: string): void {
    if (this.state === 'down') return;
    this.state = 'down';
    this.status = status;
    this.#owner.onLinkDown(this, reason);
    if (this.fd >= 0) tcpClose(this.fd);
    this.#records?.close();
    this.fd = -1;
    this.transmitter.close(status);
    this.#pendingGets.clear();
    this.puts.close(status);
    this.gets.close(status);
    this.#flushes.close(status);
  }

  // Functions for the receiver.

  onMessage(id: number): void {
    this.#events += 1;
    const frame = this.#owner.buffers.rxFrame;
    frame.source = this.identity;
    this.#owner.counters.received(frame.byteLength);
    this.#owner.handler?.(id, frame);
  }

  onPut(words: Int32Array, at: number): void {
    const memory = memoryOfPut(this.#owner.keys, words, at);
    this.#isPut = true;
    this.#bodyStatus = memory === undefined ? Status.INVALID_ADDR : Status.OK;
    this.payload.begin(valueIn(words, at), memory === undefined);
    if (memory !== undefined) this.payload.add(memory, offsetOf(words, at), valueIn(words, at));
  }

  placeOfPut(words: Int32Array, at: number): number {
    const memory = memoryOfPut(this.#owner.keys, words, at);
    return memory === undefined ? 0 : memory.location + offsetOf(words, at);
  }

  onGetData(byteLength: number): boolean {
    const get = this.#pendingGets.peek();
    const isComplete = byteLength === get?.byteLength;
    if (get === undefined || !(isComplete || byteLength === 0)) {
      return this.#violated(`an answer of ${byteLength} bytes that no get waits for`);
    }
    this.#pendingGets.shift();
    this.#isPut = false;
    this.#bodyStatus = isComplete ? Status.OK : Status.IO_ERROR;
    this.#getOwner = get.owner;
    this.payload.begin(byteLength, get.isCancelled);
    if (!get.isCancelled) this.payload.addIov(get.iov, get.from, byteLength);
    get.owner = undefined;
    get.iov = NO_MEMORY;
    this.#freeGets.push(get);
    return true;
  }

  onPayloadEnd(outcome: number): void {
    this.#events += 1;
    const end = outcome === Status.OK ? this.#bodyStatus : failureOfPeer(outcome);
    // The memory was released while its bytes were being received.
    const status = this.payload.isLost ? Status.INVALID_ADDR : end;
    if (!this.#isPut) this.#answered(this.gets, 1, status);
    else if (this.transmitter.length > WAITING_MAX) this.#violated('puts, without reading the answers');
    else if (status === Status.OK) this.transmitter.addPendingAck();
    else this.check(this.transmitter.refuse(status));
  }

  onGet(words: Int32Array, at: number): boolean {
    if (this.#getAnswers.queued >= GETS_MAX) return this.#violated(`more than ${GETS_MAX} gets at a time`);
    const byteLength = getLengthOf(words, at);
    if (byteLength > FRAME_BODY_BYTES_MAX) return this.#violated(`a get of ${byteLength} bytes`);
    this.check(this.transmitter.push(this.#getAnswers.answerTo(words, at)));
    return true;
  }

  onAcknowledged(count: number): boolean {
    return this.#answered(this.puts, count, Status.OK) || this.#violated(`${count} acknowledgements too many`);
  }

  onRefused(status: number): boolean {
    if (status >= 0) return this.#violated(`a refusal with status ${status}`);
    return this.#answered(this.puts, 1, failureOfPeer(status)) || this.#violated('a refusal of nothing');
  }

  onHeartbeat(intervalMs: number): void {
    if (intervalMs > 0) this.#liveness.heartbeatMs = intervalMs;
  }

  onBye(): void {
    this.departure = this.#hasLeft ? 'both' : 'peer';
    this.#closeIfUnused();
  }

  #answered(operations: PendingOperations, count: number, status: Status): boolean {
    this.#events += 1;
    return operations.answer(count, status);
  }

  #sendMore(): void {
    const transmitter = this.transmitter;
    const before = transmitter.moved;
    this.check(transmitter.sendMore());
    if (transmitter.moved !== before) this.#events += 1;
    if (this.#flushes.length > 0 && this.isUp) this.#flushes.settle(this.transmitter.released);
    if (this.isUp) this.#closeIfUnused();
  }

  /** Closes a connection without endpoints on either end. */
  #closeIfUnused(): void {
    const isDone = this.departure === 'both' || (this.departure === 'peer' && this.users === 0);
    if (isDone && this.transmitter.isEmpty) this.fail(Status.CANCELED, '');
  }

  #endReceiving({ end, failure, violation }: FrameParser): void {
    if (end === 'violation') this.#violated(violation);
    else if (this.isBroken) this.#endBroken();
    else if (end === 'failed') this.fail(endOf(failure), errnoText(failure));
    // Ends that have both sent BYE close without an error.
    else if (this.departure === 'both') this.fail(Status.CANCELED, '');
    else this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
  }

  #endBroken(): void {
    const { failure } = this.transmitter;
    this.fail(endOf(failure), errnoText(failure));
  }

  #violated(what: string): false {
    this.#owner.onViolation(this, what);
    this.fail(Status.CONNECTION_RESET, `the peer sent what makes no sense: ${what}`);
    return false;
  }
}
