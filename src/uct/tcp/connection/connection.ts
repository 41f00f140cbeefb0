/**
 * A connection between two interfaces: one socket, the operations in flight on it, and its end. The interface decides which end connects and which socket is
 * used.
 *
 *   state:      idle --begin()--> waiting --attach()--> up --fail()--> down
 *
 *   departure:  none --retire()--> self --BYE-------> both
 *               none --BYE-------> peer --retire()-> both
 *
 * fail() leads to `down` from every state; attach() leads to `up` also from `idle`. `departure` says which ends have left: an end whose endpoints are all
 * closed sends a close message (BYE). While the connection is `waiting`, revive() leads from `self` back to `none`. The connection goes down at `both`, and
 * at `peer` if it has no endpoints.
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
import { Status } from '../../../ucs/type/status.ts';
import type { Completion } from '../../api/iface.ts';
import { identityText } from '../../base/iface.ts';
import { FrameType } from '../layout.ts';
import type { RecordStream, Session } from '../secure/session.ts';
import type { TcpShared } from '../shared.ts';
import type { Room, SocketHandler } from '../sockets.ts';
import { Inbound } from './inbound.ts';
import { endOf, remoteName } from './liveness.ts';
import { Flushes, type PendingOperations } from './operations.ts';
import { FrameParser } from './parser.ts';
import { Transmitter } from './sender.ts';

/** `idle`: nothing was sent; `waiting`: for a connected socket, whichever end connects; `up`; `down`: finally. */
export type LinkState = 'idle' | 'waiting' | 'up' | 'down';

/** Which ends have announced (BYE) that they have no more endpoints. */
export type Departure = 'none' | 'self' | 'peer' | 'both';

/** Maximum number of receive calls for remaining data of a peer before its connection is closed. */
const DRAIN_POLLS = 64;

/** Addresses of a connection. */
export interface Route {
  /** The address of the peer, to connect to. */
  readonly address: InetAddress;
  /** Own address to connect from; undefined if the kernel selects it. */
  readonly source: string | undefined;
}

/** Where the connections of one interface report their needs and their end. */
export class ConnectionReports {
  /** Connections whose socket is not writable, that have pending acknowledgements, or whose sending has failed. */
  readonly blocked: Set<TcpConnection> = new Set();
  /** The connection that received last. */
  hot: TcpConnection | undefined = undefined;
  /** Requests a connected socket. */
  readonly connect: (link: TcpConnection) => void;
  /** Called at the end of a connection. Its descriptor stays open until this returns. */
  readonly onDown: (link: TcpConnection, reason: string) => void;

  constructor(connect: (link: TcpConnection) => void, onDown: (link: TcpConnection, reason: string) => void) {
    this.connect = connect;
    this.onDown = onDown;
  }
}

export class TcpConnection implements SocketHandler {
  readonly peerId: Uint8Array;
  /** The id of the peer as text, for messages. */
  readonly identity: string;
  /** The link in the event set of the interface. */
  token = 0;
  /** Watches the socket from the event loop; undefined until it is connected. */
  room: Room | undefined = undefined;
  /** Undefined for a link that the peer has connected. */
  route: Route | undefined = undefined;
  state: LinkState = 'idle';
  /** OK until the link is down. */
  status: Status = Status.OK;
  fd = -1;
  /** Longest message that the peer accepts. */
  peerBytesMax = 0;
  /** Number of endpoints on this end. */
  users = 0;
  readonly inbound: Inbound;
  readonly transmitter: Transmitter;
  /** The pending puts of {@link inbound}, which every operation uses. */
  readonly puts: PendingOperations;
  readonly gets: PendingOperations;
  readonly #shared: TcpShared;
  readonly #reports: ConnectionReports;
  readonly #flushes: Flushes;
  #parser: FrameParser | undefined = undefined;
  #records: RecordStream | undefined = undefined;
  /** Whether this end has no more endpoints, and notifies the peer (BYE). */
  #hasLeft = false;

  constructor(shared: TcpShared, reports: ConnectionReports, peerId: Uint8Array) {
    this.#shared = shared;
    this.#reports = reports;
    this.peerId = peerId;
    this.identity = identityText(peerId);
    const endBatch = (): void => this.endBatch();
    this.transmitter = new Transmitter(shared.buffers, () => shared.batches.add(endBatch));
    this.inbound = new Inbound(shared, this.transmitter, this.identity);
    const { puts, gets } = this.inbound;
    this.puts = puts;
    this.gets = gets;
    this.#flushes = new Flushes(shared.outstanding, puts, gets);
  }

  get isUp(): boolean {
    return this.state === 'up';
  }

  get departure(): Departure {
    const { hasBye } = this.inbound;
    if (this.#hasLeft) return hasBye ? 'both' : 'self';
    return hasBye ? 'peer' : 'none';
  }

  /** Whether frames wait until the socket is writable. */
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
    if (this.route !== undefined) return printAddress(this.route.address);
    return this.fd >= 0 ? remoteName(this.fd) : 'a peer';
  }

  onReady(): number {
    return this.progress(this.#shared.pollsMax);
  }

  /** Uses a socket that is connected, after the exchange of hellos. */
  attach(fd: number, peerBytesMax: number, session: Session | undefined): void {
    this.#records = session?.recordsOver(fd);
    this.fd = fd;
    this.peerBytesMax = peerBytesMax;
    this.state = 'up';
    this.transmitter.attach(fd, this.#records);
    this.inbound.isUp = true;
    this.#parser = new FrameParser(fd, this.#shared.buffers, this.inbound, this.#records);
    if (this.#hasLeft) this.#sendBye();
  }

  /** Requests a connection if that has not happened: returns NO_RESOURCE while there is none, or the failure of the link. */
  begin(): Status {
    if (this.state === 'idle') this.#reports.connect(this);
    return this.state === 'down' ? this.status : Status.NO_RESOURCE;
  }

  /** Receives and sends as far as possible; returns the number of operations that ended and messages that arrived, or at least 1 if bytes have moved. */
  progress(polls: number): number {
    const parser = this.#parser;
    if (this.state !== 'up' || parser === undefined) return 0;
    const { inbound } = this;
    const before = inbound.events;
    // One acknowledgement for a run of puts saves system calls; a sleep does not wait for the end of the run.
    if (!parser.isInRun) this.acknowledge();
    const received = this.#receive(parser, polls);
    if (this.isUp && this.transmitter.isBlocked) this.#sendMore();
    // Data that the peer sent before it disconnected comes first.
    if (received === 0 && this.isBroken) this.#endBroken();
    return inbound.events - before;
  }

  /** Sends the frames of the batch. */
  endBatch(): void {
    if (!this.isUp) return;
    this.check(this.transmitter.endBatch());
    this.#closeIfUnused();
  }

  /**
   * Called when the socket is writable, because the program may not call progress: sends frames that were reported as sent. No operation ends in here. Returns
   * 1 if bytes have moved.
   */
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
  #receive(parser: FrameParser, polls: number): number {
    const { inbound, transmitter } = this;
    let received: number;
    try {
      received = parser.receive(polls);
    } catch (error) {
      // An exception of a handler or a completion: replies to earlier frames are sent all the same.
      if (this.hasMore) this.#noteBlocked();
      throw error;
    }
    if (received > 0) {
      // A long body is being received.
      if (inbound.payload.left > 0) inbound.events += 1;
      if (this.#flushes.length > 0) this.#flushes.settle(transmitter.released);
      if (this.isUp) {
        this.#reports.hot = this;
        if (transmitter.hasPendingAcks || this.isBroken) this.#noteBlocked();
        if (inbound.hasBye) this.#closeIfUnused();
      }
    }
    if (parser.end !== undefined && this.isUp) this.#endReceiving(parser);
    return received;
  }

  /**
   * Handles the state after a call of the transmitter; returns the status. After a failure, the next progress ends the link: no callback runs in
   * here.
   */
  check(status: Status): Status {
    const transmitter = this.transmitter;
    if (status === Status.IO_ERROR) {
      this.#noteBlocked();
      return endOf(transmitter.failure);
    }
    if (transmitter.isBlocked) this.#noteBlocked();
    return status;
  }

  #noteBlocked(): void {
    this.#reports.blocked.add(this);
    if (this.wantsWrite) this.room?.await();
  }

  /** Starts a flush of all earlier operations; see UctEndpoint.flush. */
  flush(completion: Completion | undefined, owner: object): Status {
    this.endBatch();
    if (this.state === 'down') return this.puts.takeFailure() || this.status;
    const frames = this.transmitter.queued;
    if (this.puts.inFlight === 0 && this.gets.inFlight === 0 && !this.wantsWrite) return this.puts.takeFailure();
    if (completion !== undefined) this.#flushes.add(frames, completion, owner);
    return Status.INPROGRESS;
  }

  /** Ends the operations of an endpoint; see UctEndpoint.cancel. What the peer sends for them is discarded. */
  cancel(owner: object): void {
    this.inbound.cancel(owner);
    this.transmitter.cancel(owner);
    this.puts.cancel(owner);
    this.gets.cancel(owner);
    this.#flushes.cancel(owner);
  }

  /** Returns OK if the peer responds, else the failure of the link. */
  checkPeer(): Status {
    if (!this.isUp) return this.state === 'down' ? this.status : Status.OK;
    // Independent of progress of the program: detects a peer that has closed, with no unread data left.
    if (!tcpIsEstablished(this.fd) && tcpUnreadBytes(this.fd) === 0) {
      this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
      return this.status;
    }
    if (this.isBroken) {
      this.#endBroken();
      return this.status;
    }
    const { peerTimeoutMs, nowMs } = this.#shared;
    this.#look(nowMs);
    const silenceMs = this.inbound.liveness.silenceMs(this.fd, nowMs, peerTimeoutMs);
    if (silenceMs > 0)
      this.fail(Status.ENDPOINT_TIMEOUT, `no data and no heartbeat for ${silenceMs} ms (UCX_TCP_PEER_TIMEOUT)`);
    return this.status;
  }

  /** Sends a heartbeat, which the peer's host must acknowledge. @param intervalMs time until the next call */
  heartbeat(intervalMs: number): void {
    this.endBatch();
    if (!this.isUp) return;
    const { nowMs } = this.#shared;
    this.#look(nowMs);
    this.inbound.liveness.ask(this.fd, nowMs);
    // Queued frames also show that this process runs.
    if (!this.transmitter.isBlocked) this.check(this.transmitter.signal(FrameType.HEARTBEAT, intervalMs));
  }

  /** Announces that this end has no more endpoints. */
  retire(): void {
    if (this.#hasLeft || this.state === 'down') return;
    this.#hasLeft = true;
    if (this.state === 'idle') this.fail(Status.CANCELED, '');
    else if (this.state === 'up') this.#sendBye();
    // If the peer already uses the connection, it is notified when this end is connected too.
  }

  /** Whether new endpoints may use the link. A retired link can be used again until the peer was notified. */
  revive(): boolean {
    if (this.departure === 'self' && this.state === 'waiting') this.#hasLeft = false;
    return !this.#hasLeft;
  }

  #look(nowMs: number): void {
    this.inbound.liveness.look(this.#parser?.signsOfLife ?? 0, nowMs);
  }

  #sendBye(): void {
    this.check(this.transmitter.signal(FrameType.BYE));
    this.#closeIfUnused();
  }

  /** Ends the link because its interface closes. Reads the data of the peer first: the kernel would otherwise discard undelivered data for the peer. */
  close(): void {
    this.endBatch();
    if (this.fd >= 0) {
      const { rx } = this.#shared.buffers;
      for (let poll = 0; poll < DRAIN_POLLS && tcpRecv(this.fd, rx.address, rx.byteLength) > 0; poll++);
    }
    this.fail(Status.CANCELED, '');
  }

  /** Ends the link: pending and later operations end with `status`. Idempotent. */
  fail(status: Status, reason: string): void {
    if (this.state === 'down') return;
    this.state = 'down';
    this.status = status;
    this.inbound.isUp = false;
    this.#reports.onDown(this, reason);
    if (this.fd >= 0) tcpClose(this.fd);
    this.#records?.close();
    this.fd = -1;
    this.transmitter.close(status);
    this.inbound.close(status);
    this.#flushes.close(status);
  }

  #sendMore(): void {
    const transmitter = this.transmitter;
    const before = transmitter.moved;
    this.check(transmitter.sendMore());
    if (transmitter.moved !== before) this.inbound.events += 1;
    if (this.#flushes.length > 0 && this.isUp) this.#flushes.settle(this.transmitter.released);
    if (this.isUp) this.#closeIfUnused();
  }

  /** Closes a connection without endpoints on either end. */
  #closeIfUnused(): void {
    const isDone = this.inbound.hasBye && (this.#hasLeft || this.users === 0);
    if (isDone && this.transmitter.isEmpty) this.fail(Status.CANCELED, '');
  }

  #endReceiving({ end, failure, violation }: FrameParser): void {
    if (end === 'violation') {
      this.#shared.warnings.warn(`closed the connection to ${this.name}: protocol violation by the peer: ${violation}`);
      this.fail(Status.CONNECTION_RESET, `protocol violation by the peer: ${violation}`);
    } else if (this.isBroken) this.#endBroken();
    else if (end === 'failed') this.fail(endOf(failure), errnoText(failure));
    // Ends that have both sent BYE close without an error.
    else if (this.departure === 'both') this.fail(Status.CANCELED, '');
    else this.fail(Status.CONNECTION_RESET, errnoText(Errno.ECONNRESET));
  }

  #endBroken(): void {
    const { failure } = this.transmitter;
    this.fail(endOf(failure), errnoText(failure));
  }
}
