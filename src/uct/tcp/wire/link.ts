/**
 * The connection between two interfaces: one socket, what is on its way over it, and how all of that ends. Endpoints stand on it; who connects, and
 * which socket serves, is the interface's business.
 *
 *   state:      idle --begin()--> waiting --attach()--> up --fail()--> down     fail() leads to `down` from every state; attach() also from `idle`
 *
 *   departure:  none --retire()--> self --onBye()--> both     An end whose endpoints are all closed tells the peer (BYE). While the link is `waiting`,
 *               none --onBye()---> peer --retire()-> both     revive() leads from `self` back to `none`. When `both` have left, the link goes down;
 *                                                             with `peer` alone too, if it has no endpoints.
 */

import {
  Errno,
  errnoText,
  type InetAddress,
  printAddress,
  tcpAckedMs,
  tcpClose,
  tcpIsEstablished,
  tcpReceivedMs,
  tcpRecv,
  tcpRemoteAddress,
  tcpUnreadBytes,
} from '../../../sys/index.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { AmHandler, Completion, IovEntry } from '../../api/iface.ts';
import { completeOne } from '../../base/completion.ts';
import { identityText } from '../../base/iface-address.ts';
import { isInside } from '../../base/range.ts';
import type { RecordStream } from '../secure/record-stream.ts';
import type { Session } from '../secure/session.ts';
import {
  FRAME_BODY_BYTES_MAX,
  FrameType,
  GETS_MAX,
  getLengthOf,
  HEADER_BYTES,
  keyWordOf,
  offsetOf,
  PUTS_MAX,
  valueIn,
  writeSignal,
} from './frame.ts';
import { Payload } from './payload.ts';
import { endOf, failureOfPeer } from './peer-status.ts';
import { type PendingFlush, type PendingGet, PendingOperations } from './pending.ts';
import type { Watched } from './ready-set.ts';
import { type FrameSink, Receiver } from './receiver.ts';
import type { TcpBuffers } from './tcp-buffers.ts';
import type { TcpKeyTable } from './tcp-key.ts';
import { Transmitter } from './transmitter.ts';

/** `idle`: nothing was sent yet; `waiting`: for a connected socket, whichever end connects; `up`; `down` for ever. */
export type LinkState = 'idle' | 'waiting' | 'up' | 'down';

/** Which ends have said that they have no endpoints any more. */
export type Departure = 'none' | 'self' | 'peer' | 'both';

/** A peer may be late, or one of its signs: so many intervals are waited for. */
export const INTERVALS = 3;
/** Frames that may wait for a peer that does not read what it is answered: more than one that keeps to the bounds can cause. */
const WAITING_MAX: number = PUTS_MAX + 1024;
/** Calls of the kernel in which what a peer has sent is read before its connection is closed. */
const DRAIN_POLLS = 64;

/** What a link needs of its interface. */
export interface LinkOwner {
  readonly buffers: TcpBuffers;
  readonly keys: TcpKeyTable;
  handler: AmHandler | undefined;
  readonly counters: { received(byteLength: number): void };
  /** Time without a sign of life after which a peer is gone. */
  readonly peerTimeoutMs: number;
  readonly nowMs: number;
  /** The link wants to be connected. */
  connectLink(link: TcpLink): void;
  /** The link has ended; its descriptor is open until this returns. */
  onLinkDown(link: TcpLink, reason: string): void;
  /** The peer has done what it may not; the link ends. */
  onViolation(link: TcpLink, what: string): void;
  /** Calls of the kernel in one go at most. */
  readonly pollsMax: number;
  /** The socket has no room, or there is something to be acknowledged. */
  noteBlocked(link: TcpLink): void;
  /** Something has come. */
  noteReceived(link: TcpLink): void;
  /** Operations with completions began (1) or ended (-1). */
  countOutstanding(change: number): void;
}

/** The connection. */
export class TcpLink implements FrameSink, Watched {
  readonly peerId: Uint8Array;
  /** The same, as messages have it. */
  readonly identity: string;
  /** Names the link in the event set of the interface. */
  token = 0;
  /** Where to connect to, and from which own address; undefined for a link that the peer has connected, and for any. */
  target: InetAddress | undefined = undefined;
  source: string | undefined = undefined;
  state: LinkState = 'idle';
  /** OK until it is down. */
  status: Status = Status.OK;
  fd = -1;
  /** Longest message that the peer takes. */
  peerBytesMax = 0;
  /** Endpoints on this end. */
  users = 0;
  departure: Departure = 'none';
  readonly puts: PendingOperations;
  readonly gets: PendingOperations;
  readonly payload: Payload = new Payload();
  transmitter: Transmitter | undefined = undefined;
  readonly #owner: LinkOwner;
  #receiver: Receiver | undefined = undefined;
  #records: RecordStream | undefined = undefined;
  #pendingGets: PendingGet[] = [];
  #flushes: PendingFlush[] = [];
  /** What is being received: a put, with its status, or what a get brings. */
  #isPut = false;
  #bodyStatus: Status = Status.OK;
  /** Operations that have ended and messages that have come, and steps of long ones. */
  #events = 0;
  /** Answers to the gets of the peer that wait to be sent. */
  #served = 0;
  /** Time between two signs of life that the peer gives by itself; 0 while it has not said. */
  #heartbeatMs = 0;
  /** Since when the node of the peer has to acknowledge something. */
  #askedMs = 0;

  constructor(owner: LinkOwner, peerId: Uint8Array) {
    this.#owner = owner;
    this.peerId = peerId;
    this.identity = identityText(peerId);
    this.puts = new PendingOperations(owner);
    this.gets = new PendingOperations(owner);
  }

  get isUp(): boolean {
    return this.state === 'up';
  }

  /** Whether frames wait for room in the socket. */
  get isBlocked(): boolean {
    return this.transmitter?.isBlocked === true;
  }

  get #hasLeft(): boolean {
    return this.departure === 'self' || this.departure === 'both';
  }

  get hasHandler(): boolean {
    return this.#owner.handler !== undefined;
  }

  get wantsRoom(): boolean {
    return this.isBlocked;
  }

  /** Whether there is something to do without anything having come. */
  get hasMore(): boolean {
    return this.isUp && (this.isBlocked || this.isBroken || this.transmitter!.hasPendingAcks);
  }

  /** Whether sending has failed: the next progress ends the link. */
  get isBroken(): boolean {
    return this.transmitter !== undefined && this.transmitter.failure !== 0;
  }

  /** Of the peer, for logs. */
  get name(): string {
    if (this.target !== undefined) return printAddress(this.target);
    return this.fd >= 0 ? remoteName(this.fd) : 'a peer';
  }

  onReady(): number {
    return this.progress(this.#owner.pollsMax);
  }

  /** Takes over a connected socket after the exchange of hellos. */
  attach(fd: number, peerBytesMax: number, session: Session | undefined): void {
    this.#records = session?.recordsOver(fd);
    this.fd = fd;
    this.peerBytesMax = peerBytesMax;
    this.state = 'up';
    this.transmitter = new Transmitter(fd, this.#owner.buffers, this.#records);
    this.#receiver = new Receiver(fd, this.#owner.buffers, this, this.#records);
    if (this.#hasLeft) this.#sendBye();
  }

  /** Connects if that has not been tried: NO_RESOURCE as long as there is no connection, or why there will be none. */
  begin(): Status {
    if (this.state === 'idle') this.#owner.connectLink(this);
    return this.state === 'down' ? this.status : Status.NO_RESOURCE;
  }

  /** Receives and sends what can be; returns how many operations ended and messages came, or at least 1 where bytes have moved. */
  progress(polls: number): number {
    if (this.state !== 'up') return 0;
    const before = this.#events;
    this.acknowledge();
    const received = this.#receive(polls);
    if (this.isUp && this.transmitter!.isBlocked) this.#sendMore();
    // What the peer has sent before it went comes first.
    if (received === 0 && this.isBroken) this.#endBroken();
    return this.#events - before;
  }

  /** Tells the peer of the puts that arrived in the last turn, unless something that was sent since has taken that along. */
  acknowledge(): void {
    if (this.isUp && this.transmitter!.hasPendingAcks) this.check(this.transmitter!.acknowledge());
  }

  /** Returns how many bytes. */
  #receive(polls: number): number {
    const receiver = this.#receiver!;
    const received = receiver.receive(polls);
    if (received > 0) {
      // A long body is on its way.
      if (this.payload.left > 0) this.#events += 1;
      if (this.#flushes.length > 0) this.#settleFlushes();
      if (this.isUp) {
        this.#owner.noteReceived(this);
        if (this.transmitter!.hasPendingAcks) this.#owner.noteBlocked(this);
      }
    }
    if (receiver.end !== undefined && this.isUp) this.#endReceiving(receiver);
    return received;
  }

  /** Looks after what a call of the transmitter has left; returns the status. Its failure ends the link with the next progress: no callback runs in here. */
  check(status: Status): Status {
    const transmitter = this.transmitter!;
    if (status === Status.IO_ERROR) {
      this.#owner.noteBlocked(this);
      return endOf(transmitter.failure);
    }
    if (transmitter.isBlocked) this.#owner.noteBlocked(this);
    return status;
  }

  /** Started after everything before has reached the peer; see UctEndpoint.flush. */
  flush(completion: Completion | undefined): Status {
    if (this.state === 'down') return this.puts.takeFailure() || this.status;
    const frames = this.transmitter === undefined ? 0 : this.transmitter.queued;
    if (this.puts.inFlight === 0 && this.gets.inFlight === 0 && !this.isBlocked) return this.puts.takeFailure();
    if (completion !== undefined) {
      this.#owner.countOutstanding(1);
      this.#flushes.push({ puts: this.puts.sent, gets: this.gets.sent, frames, completion });
    }
    return Status.INPROGRESS;
  }

  /** A get was sent. */
  expectGet(iov: readonly IovEntry[], from: number, byteLength: number): void {
    this.#pendingGets.push({ iov, from, byteLength });
  }

  /**
   * Whether the peer lives: its process by its heartbeats, its node by what the kernel hears of it.
   * @returns OK, or the failure of the link
   */
  look(): Status {
    if (!this.isUp) return this.state === 'down' ? this.status : Status.OK;
    // Also where the program makes no progress: a peer that has closed, and has left nothing to be read.
    if (!tcpIsEstablished(this.fd) && tcpUnreadBytes(this.fd) === 0) {
      this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
      return this.status;
    }
    if (this.isBroken) {
      this.#endBroken();
      return this.status;
    }
    const { peerTimeoutMs, nowMs } = this.#owner;
    const processMs = Math.max(peerTimeoutMs, this.#heartbeatMs * INTERVALS);
    // Unread data is no silence of the peer: it is this process that has not read.
    const isSilent = this.#heartbeatMs > 0 && tcpReceivedMs(this.fd) > processMs && tcpUnreadBytes(this.fd) === 0;
    const isCut = tcpAckedMs(this.fd) > peerTimeoutMs && nowMs - this.#askedMs > peerTimeoutMs;
    if (isSilent || isCut) {
      this.fail(Status.ENDPOINT_TIMEOUT, `no sign of life for ${isSilent ? processMs : peerTimeoutMs} ms`);
    }
    return this.status;
  }

  /** Tells the peer that this process lives, and asks its node for an answer. @param intervalMs time until the next call */
  heartbeat(intervalMs: number): void {
    if (!this.isUp) return;
    // A question that stands open goes on: else this process may have slept, and the peer is not to blame.
    if (tcpAckedMs(this.fd) === 0) this.#askedMs = this.#owner.nowMs;
    // Whatever waits is a sign of life as well.
    if (!this.transmitter!.isBlocked) this.check(this.transmitter!.signal(FrameType.HEARTBEAT, intervalMs));
  }

  /** This end has no endpoints any more. */
  retire(): void {
    if (this.#hasLeft || this.state === 'down') return;
    this.departure = this.departure === 'peer' ? 'both' : 'self';
    if (this.state === 'idle') this.fail(Status.CANCELED, '');
    else if (this.state === 'up') this.#sendBye();
    // The peer may have the connection already, and use it: it is told when this end has it too.
  }

  /** Whether endpoints can be made on it; also again, as long as the peer has not been told of the end. */
  revive(): boolean {
    if (this.departure === 'self' && this.state === 'waiting') this.departure = 'none';
    return !this.#hasLeft;
  }

  #sendBye(): void {
    this.check(this.transmitter!.signal(FrameType.BYE));
    this.#closeIfUnused();
  }

  /** Ends the link because its interface closes. What the peer has sent is read first, as the kernel would take back what it has not delivered yet. */
  close(): void {
    if (this.fd >= 0) {
      const { rx } = this.#owner.buffers;
      for (let poll = 0; poll < DRAIN_POLLS && tcpRecv(this.fd, rx.address, rx.byteLength) > 0; poll++);
    }
    this.fail(Status.CANCELED, '');
  }

  /** Ends the link: everything on it ends with `status`, and so does everything that is tried later. Idempotent. */
  fail(status: Status, reason: string): void {
    if (this.state === 'down') return;
    this.state = 'down';
    this.status = status;
    this.#owner.onLinkDown(this, reason);
    if (this.fd >= 0) tcpClose(this.fd);
    this.#records?.close();
    this.fd = -1;
    this.transmitter?.close(status);
    this.#pendingGets = [];
    this.puts.close(status);
    this.gets.close(status);
    const flushes = this.#flushes;
    this.#flushes = [];
    for (const { completion } of flushes) {
      this.#owner.countOutstanding(-1);
      completeOne(completion, status);
    }
  }

  // What the receiver hands over.

  onMessage(id: number): void {
    this.#events += 1;
    const frame = this.#owner.buffers.rxFrame;
    frame.source = this.identity;
    this.#owner.counters.received(frame.byteLength);
    this.#owner.handler!(id, frame);
  }

  onPut(words: Int32Array, at: number): boolean {
    const byteLength = valueIn(words, at);
    const memory = this.#owner.keys.find(words, keyWordOf(at));
    const offset = offsetOf(words, at);
    const isGood = memory !== undefined && isInside(offset, byteLength, memory.byteLength);
    this.#isPut = true;
    this.#bodyStatus = isGood ? Status.OK : Status.INVALID_ADDR;
    this.payload.begin(byteLength, !isGood);
    if (isGood) this.payload.add(memory, offset, byteLength);
    return true;
  }

  onGetData(byteLength: number): boolean {
    const get = this.#pendingGets[0];
    const isWhole = byteLength === get?.byteLength;
    if (get === undefined || !(isWhole || byteLength === 0)) {
      return this.#violated(`an answer of ${byteLength} bytes that no get waits for`);
    }
    this.#pendingGets.shift();
    this.#isPut = false;
    this.#bodyStatus = isWhole ? Status.OK : Status.IO_ERROR;
    this.payload.begin(byteLength, false);
    this.payload.addIov(get.iov, get.from, byteLength);
    return true;
  }

  onPayloadEnd(outcome: number): void {
    this.#events += 1;
    const end = outcome === Status.OK ? this.#bodyStatus : failureOfPeer(outcome);
    // Memory that has gone away while its bytes were on their way.
    const status = this.payload.isLost ? Status.INVALID_ADDR : end;
    if (!this.#isPut) this.#answered(this.gets, 1, status);
    else if (this.transmitter!.length > WAITING_MAX) this.#violated('puts, without reading the answers');
    else if (status === Status.OK) this.transmitter!.addPendingAck();
    else this.check(this.transmitter!.refuse(status));
  }

  onGet(words: Int32Array, at: number): boolean {
    if (this.#served >= GETS_MAX) return this.#violated(`more than ${GETS_MAX} gets at a time`);
    const memory = this.#owner.keys.find(words, keyWordOf(at));
    const offset = offsetOf(words, at);
    const byteLength = getLengthOf(words, at);
    if (byteLength > FRAME_BODY_BYTES_MAX) return this.#violated(`a get of ${byteLength} bytes`);
    const isGood = memory !== undefined && isInside(offset, byteLength, memory.byteLength);
    const answer = this.#owner.buffers.pool.takeSmall();
    writeSignal(answer.words, 0, FrameType.GET_DATA, isGood ? byteLength : 0);
    answer.add(answer.block.address, HEADER_BYTES);
    if (isGood && byteLength > 0) answer.addMemory(memory, offset, byteLength);
    if (isGood) answer.addPadding(byteLength, this.#owner.buffers.pool.zeros);
    answer.addEnd(isGood ? Status.OK : Status.INVALID_ADDR);
    this.#served += 1;
    answer.completion = this.#servedOne;
    this.check(this.transmitter!.push(answer));
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
    if (intervalMs > 0) this.#heartbeatMs = intervalMs;
  }

  onBye(): void {
    this.departure = this.#hasLeft ? 'both' : 'peer';
    this.#closeIfUnused();
  }

  /** Counts answers to the gets of the peer that have been sent. */
  readonly #servedOne: Completion = {
    count: 1,
    failure: Status.OK,
    onComplete: () => {
      this.#servedOne.count = 1;
      this.#served -= 1;
    },
  };

  #answered(operations: PendingOperations, count: number, status: Status): boolean {
    this.#events += 1;
    return operations.answer(count, status);
  }

  #sendMore(): void {
    const transmitter = this.transmitter!;
    const before = transmitter.moved;
    this.check(transmitter.sendMore());
    if (transmitter.moved !== before) this.#events += 1;
    if (this.#flushes.length > 0 && this.isUp) this.#settleFlushes();
    if (this.isUp) this.#closeIfUnused();
  }

  /** Closes a connection that neither end has endpoints on. */
  #closeIfUnused(): void {
    const isDone = this.departure === 'both' || (this.departure === 'peer' && this.users === 0);
    if (isDone && !this.transmitter!.isBlocked) this.fail(Status.CANCELED, '');
  }

  #settleFlushes(): void {
    while (this.#flushes.length > 0) {
      const { puts, gets, frames, completion } = this.#flushes[0]!;
      if (this.puts.done < puts || this.gets.done < gets || this.transmitter!.released < frames) return;
      this.#flushes.shift();
      this.#owner.countOutstanding(-1);
      completeOne(completion, this.puts.takeFailure());
    }
  }

  #endReceiving({ end, failure, violation }: Receiver): void {
    if (end === 'violation') this.#violated(violation);
    else if (this.isBroken) this.#endBroken();
    else if (end === 'failed') this.fail(endOf(failure), errnoText(failure));
    // Ends that have both said BYE close without a word.
    else if (this.departure === 'both') this.fail(Status.CANCELED, '');
    else this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
  }

  #endBroken(): void {
    const { failure } = this.transmitter!;
    this.fail(endOf(failure), errnoText(failure));
  }

  #violated(what: string): false {
    this.#owner.onViolation(this, what);
    this.fail(Status.CONNECTION_RESET, `the peer sent what makes no sense: ${what}`);
    return false;
  }
}

function remoteName(fd: number): string {
  try {
    return printAddress(tcpRemoteAddress(fd));
  } catch {
    return 'a peer that has gone';
  }
}
