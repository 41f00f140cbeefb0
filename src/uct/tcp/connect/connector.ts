/**
 * Establishes connections, on both ends: connects and accepts sockets, exchanges hellos within a bounded time, and assigns the sockets to connections. A
 * connection that the peer has announced waits for its socket for a limited time.
 */

import {
  Errno,
  familyOf,
  isSyscallError,
  printAddress,
  SocketOption,
  setKeepalive,
  setSocketOption,
  tcpBind,
  tcpClose,
  tcpConnect,
  tcpLocalAddress,
  tcpRemoteAddress,
  tcpSocket,
} from '../../../sys/index.ts';
import { UnauthenticatedPeers } from '../../../ucs/datastruct/unauthenticated-peers.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { TcpConfig } from '../config.ts';
import type { Route, TcpConnection } from '../connection/connection.ts';
import type { ConnectionTable } from '../connection/connection-table.ts';
import { failureOfPeer } from '../connection/liveness.ts';
import type { Security } from '../secure/security.ts';
import type { Session } from '../secure/session.ts';
import type { TcpShared } from '../shared.ts';
import type { SocketHandler } from '../sockets.ts';
import { type Acceptor, extended } from './acceptor.ts';
import { type Exchange, Handshake, type HandshakeFailure } from './handshake.ts';
import { Answer, type Hello, type HelloPolicy } from './hello.ts';

/** Maximum number of sockets of peers that have not sent a hello; half as many from one address. Another one evicts the oldest. */
const UNAUTHENTICATED_PEERS_MAX = 1024;
/** Maximum number of attempts to connect to a peer that closes the connection without sending anything, because it evicts the oldest of too many. */
const CONNECTS_MAX = 8;
/**
 * Send buffer between processes of one host. Data in flight then stays in the caches, which doubles the bandwidth compared with the size to which the
 * kernel would grow the buffer.
 */
const LOCAL_SNDBUF = 262_144;
const NS_PER_S = 1e9;

/** The target of an attempt. */
interface Trial {
  readonly route: Route;
  /** Number of attempts left after it. */
  readonly left: number;
}

/** A handshake in the event set. */
class Attempt implements SocketHandler {
  token = 0;
  readonly handshake: Handshake;
  readonly name: string;
  readonly trial: Trial | undefined;
  readonly #connector: TcpConnector;

  /** @param trial passed on the end that connects */
  constructor(connector: TcpConnector, handshake: Handshake, name: string, trial?: Trial) {
    this.#connector = connector;
    this.handshake = handshake;
    this.name = name;
    this.trial = trial;
  }

  get fd(): number {
    return this.handshake.fd;
  }

  get wantsWrite(): boolean {
    return this.handshake.wantsWrite;
  }

  onReady(): number {
    return this.#connector.advance(this);
  }
}

export class TcpConnector {
  readonly #table: ConnectionTable;
  readonly #shared: TcpShared;
  readonly #hellos: HelloPolicy;
  readonly #config: TcpConfig;
  readonly #security: Security | undefined;
  readonly #attempts: Set<Attempt> = new Set();
  readonly #unauthenticatedPeers: UnauthenticatedPeers<Attempt> = new UnauthenticatedPeers(UNAUTHENTICATED_PEERS_MAX);
  readonly #awaitingAccept: AwaitingAccept;

  /** @param security required of every peer; undefined for none */
  constructor(table: ConnectionTable, hellos: HelloPolicy, config: TcpConfig, security: Security | undefined) {
    this.#table = table;
    this.#shared = table.shared;
    this.#hellos = hellos;
    this.#config = config;
    this.#security = security;
    this.#awaitingAccept = new AwaitingAccept(table.shared.clock, config.CONNECT_TIMEOUT, (link) => {
      if (!this.#isConnecting(link)) this.connect(link);
    });
  }

  /** Number of connections that are being established. */
  get size(): number {
    return this.#attempts.size;
  }

  /** Number of links that wait for the peer to connect. */
  get awaited(): number {
    return this.#awaitingAccept.size;
  }

  #isConnecting(link: TcpConnection): boolean {
    for (const { handshake } of this.#attempts) if (handshake.link === link) return true;
    return false;
  }

  /** Connects a link along its route. */
  connect(link: TcpConnection): void {
    link.state = 'waiting';
    this.#connect(link, { route: link.route!, left: CONNECTS_MAX - 1 }, this.#deadlineNs());
    this.#table.watchMaking();
  }

  #connect(link: TcpConnection, trial: Trial, deadlineNs: number): void {
    const { address, source } = trial.route;
    const name = printAddress(address);
    let fd = -1;
    try {
      fd = tcpSocket(familyOf(address.address)!);
      this.#setOptions(fd);
      if (source !== undefined) this.#bind(fd, source);
      tcpConnect(fd, address);
      this.#fitBuffer(fd, address.address);
      const hello = this.#hellos.hello(link.peerId, Answer.WELCOME);
      const handshake = new Handshake(fd, deadlineNs, this.#security, { link, hello });
      this.#add(new Attempt(this, handshake, name, trial));
    } catch (error) {
      if (fd >= 0) tcpClose(fd);
      if (!isUcxError(error)) throw error;
      this.#onRejected(link, error.status, error.message);
    }
  }

  /** Binds a socket to an own address. If binding is optional and the address no longer exists, the kernel selects one. */
  #bind(fd: number, source: string): void {
    try {
      tcpBind(fd, { address: source, port: 0 });
    } catch (error) {
      if (this.#config.EP_BIND_SRC_ADDR === 'yes' || !isSyscallError(error, Errno.EADDRNOTAVAIL)) throw error;
    }
  }

  /** Accepts the connections of waiting peers. */
  accept(acceptor: Acceptor): number {
    let count = 0;
    for (let fd = acceptor.accept(); fd >= 0; fd = acceptor.accept()) {
      count += 1;
      this.#welcome(fd);
    }
    return count;
  }

  /** Closes the oldest sockets of peers without a hello until another one from this address is allowed. */
  #makeRoom(address: string): void {
    const unauthenticatedPeers = this.#unauthenticatedPeers;
    for (
      let oldest = unauthenticatedPeers.excess(address);
      oldest !== undefined;
      oldest = unauthenticatedPeers.excess(address)
    ) {
      // Its hello may have arrived meanwhile.
      this.advance(oldest);
      if (!this.#attempts.has(oldest)) continue;
      this.#shared.warnings.warn(
        `evicted a connection from ${oldest.name} that has not sent its hello, because newer ones wait`,
      );
      this.#drop(oldest);
    }
  }

  /** Starts the exchange of hellos with a peer. A failure, as of a peer that has disconnected, closes only this socket: no endpoint uses it yet. */
  #welcome(fd: number): void {
    try {
      const peer = tcpRemoteAddress(fd);
      this.#makeRoom(peer.address);
      this.#setOptions(fd);
      this.#fitBuffer(fd, peer.address);
      const handshake = new Handshake(fd, this.#deadlineNs(), this.#security);
      const attempt = new Attempt(this, handshake, printAddress(peer));
      this.#add(attempt);
      this.#unauthenticatedPeers.add(attempt, peer.address);
    } catch (error) {
      if (!isSyscallError(error)) throw error;
      tcpClose(fd);
      this.#shared.warnings.diag(`closed a new connection: ${error.message}`);
    }
  }

  /** Removes a link that has ended. */
  forget(link: TcpConnection): void {
    this.#abandon(link);
    this.#awaitingAccept.delete(link);
  }

  /** Cancels connecting a link that uses the connection of the other end, or has closed. */
  #abandon(link: TcpConnection): void {
    for (const attempt of this.#attempts) if (attempt.handshake.link === link) this.#drop(attempt);
  }

  /**
   * Ends attempts and waits that exceed their time limit; returns the time until the next limit, Infinity if there is none.
   * @param pauseNs see {@link extended}
   */
  expire(pauseNs: number): number {
    return Math.min(this.#expireAttempts(pauseNs), this.#awaitingAccept.expire(pauseNs));
  }

  #expireAttempts(pauseNs: number): number {
    let restNs = Number.POSITIVE_INFINITY;
    const { nowNs } = this.#shared;
    for (const attempt of this.#attempts) {
      const { handshake } = attempt;
      handshake.deadlineNs = extended(handshake.deadlineNs, nowNs, pauseNs, this.#config.CONNECT_TIMEOUT);
      const leftNs = handshake.deadlineNs - nowNs;
      if (leftNs > 0) restNs = Math.min(restNs, leftNs);
      else this.#fail(attempt, Status.TIMED_OUT, 'it did not reply within UCX_TCP_CONNECT_TIMEOUT');
    }
    return restNs;
  }

  /** Continues an attempt. Also called by the event set. */
  advance(attempt: Attempt): number {
    const { handshake } = attempt;
    const event = handshake.advance();
    if (event === undefined) {
      // It may have data to send now.
      this.#table.making.update(attempt);
      return 0;
    }
    if (event.kind === 'failed') this.#failed(attempt, event);
    else if (event.kind === 'answered') this.#answered(attempt, event);
    else if (handshake.link !== undefined) this.#welcomed(attempt, handshake.link, event.peer);
    else {
      handshake.reply(event.peer, this.#hellos.hello(event.peer.sender, this.#acceptDecisionOn(event.peer)));
      this.#table.making.update(attempt);
      return 1 + this.advance(attempt);
    }
    return 1;
  }

  close(): void {
    for (const attempt of this.#attempts) this.#drop(attempt);
  }

  #answered(attempt: Attempt, { peer, answer }: Exchange): void {
    const { session } = attempt.handshake;
    if (answer.status === Answer.WELCOME) this.#accepted(peer, this.#take(attempt), session);
    else this.#drop(attempt);
  }

  /** WELCOME, DUPLICATE, or the status with which a peer that has connected is rejected. */
  #acceptDecisionOn(peer: Hello): number {
    const decision = this.#hellos.acceptDecisionOn(peer);
    if (decision !== Answer.WELCOME) return decision;
    const link = this.#table.find(peer.sender);
    if (link === undefined || this.#hellos.isOwn(peer) || !this.#isConnecting(link)) return Answer.WELCOME;
    // Both ends connected at the same time.
    if (this.#hellos.precedes(peer)) return Answer.DUPLICATE;
    this.#abandon(link);
    this.#awaitPeer(link);
    return Answer.WELCOME;
  }

  /** Handles an accepted peer whose socket is ready. */
  #accepted(peer: Hello, fd: number, session: Session | undefined): void {
    const known = this.#table.find(peer.sender);
    const isWanted =
      known !== undefined && (known.state === 'idle' || known.state === 'waiting') && !this.#hellos.isOwn(peer);
    const link = isWanted ? known : this.#table.create(peer.sender);
    this.#abandon(link);
    this.#attach(link, peer, fd, session);
    if (known === undefined) this.#table.add(link);
  }

  #attach(link: TcpConnection, peer: Hello, fd: number, session: Session | undefined): void {
    this.#awaitingAccept.delete(link);
    this.#table.attach(link, fd, peer.messageBytesMax, session);
  }

  /** Lets a link without a socket use the connection that the peer makes. */
  #awaitPeer(link: TcpConnection): void {
    if (link.users === 0) link.fail(Status.CANCELED, '');
    else this.#awaitingAccept.add(link);
  }

  /** Handles a failed attempt for a link without a socket. */
  #onRejected(link: TcpConnection, status: Status, reason: string): void {
    // The listener has closed, or has closed the connection.
    if (status === Status.REJECTED || status === Status.CONNECTION_RESET) link.fail(Status.UNREACHABLE, reason);
    else link.fail(status === Status.TIMED_OUT ? Status.ENDPOINT_TIMEOUT : status, reason);
  }

  #welcomed(attempt: Attempt, link: TcpConnection, peer: Hello): void {
    const { status } = peer;
    if (status === Answer.WELCOME) {
      const objection = this.#hellos.objectionTo(peer, link.peerId);
      if (objection === undefined) this.#attach(link, peer, this.#take(attempt), attempt.handshake.session);
      else this.#fail(attempt, objection.status, objection.reason);
    }
    // The peer connects at the same time, and its connection is used.
    else if (status === Answer.DUPLICATE) {
      this.#drop(attempt);
      this.#awaitPeer(link);
    } else this.#fail(attempt, status < 0 ? failureOfPeer(status) : Status.REJECTED, 'it rejected this connection');
  }

  #failed(attempt: Attempt, { status, reason, isViolation }: HandshakeFailure): void {
    const { handshake, trial } = attempt;
    const { link } = handshake;
    const isAgain = link !== undefined && trial !== undefined && trial.left > 0 && handshake.wasHungUp;
    if (!isAgain || handshake.deadlineNs <= this.#shared.nowNs) {
      this.#fail(attempt, status, reason, isViolation);
      return;
    }
    this.#drop(attempt);
    this.#connect(link, { route: trial.route, left: trial.left - 1 }, handshake.deadlineNs);
  }

  #fail(attempt: Attempt, status: Status, reason: string, isViolation = false): void {
    const { link } = attempt.handshake;
    attempt.handshake.discard();
    this.#drop(attempt);
    if (link !== undefined) this.#onRejected(link, status, `${attempt.name}: ${reason}`);
    else this.#shared.warnings[isViolation ? 'warn' : 'diag'](`closed a connection from ${attempt.name}: ${reason}`);
  }

  #add(attempt: Attempt): void {
    this.#attempts.add(attempt);
    this.#table.making.add(attempt);
  }

  #take(attempt: Attempt): number {
    this.#table.making.remove(attempt);
    this.#attempts.delete(attempt);
    this.#unauthenticatedPeers.delete(attempt);
    return attempt.handshake.release();
  }

  #drop(attempt: Attempt): void {
    if (this.#attempts.has(attempt)) tcpClose(this.#take(attempt));
  }

  #deadlineNs(): number {
    return this.#shared.nowNs + this.#config.CONNECT_TIMEOUT;
  }

  #setOptions(fd: number): void {
    const { NODELAY, SNDBUF, RCVBUF, KEEPIDLE, KEEPINTVL, KEEPCNT } = this.#config;
    if (NODELAY) setSocketOption(fd, SocketOption.NODELAY, 1);
    if (SNDBUF !== 'auto') setSocketOption(fd, SocketOption.SNDBUF, SNDBUF);
    if (RCVBUF !== 'auto') setSocketOption(fd, SocketOption.RCVBUF, RCVBUF);
    setKeepalive(fd, Math.ceil(KEEPIDLE / NS_PER_S), Math.ceil(KEEPINTVL / NS_PER_S), KEEPCNT);
  }

  /** Limits the send buffer of a connection within this host, whose ends have the same address. */
  #fitBuffer(fd: number, peer: string): void {
    if (this.#config.SNDBUF !== 'auto' || tcpLocalAddress(fd).address !== peer) return;
    setSocketOption(fd, SocketOption.SNDBUF, LOCAL_SNDBUF);
  }
}

/** Fraction (1/n) of CONNECT_TIMEOUT to wait for the connection of the peer before this end connects again. */
const ACCEPT_WAITS = 10;

/** The time limits of a waiting link. */
interface AcceptWait {
  deadlineNs: number;
  /** Time at which this end connects again. */
  nextNs: number;
}

/** The links of one interface that wait for the peer to connect. */
class AwaitingAccept {
  readonly #clock: Clock;
  readonly #timeoutNs: number;
  readonly #reconnect: (link: TcpConnection) => void;
  readonly #waits: Map<TcpConnection, AcceptWait> = new Map();

  /**
   * @param timeoutNs CONNECT_TIMEOUT
   * @param reconnect connects again: the attempt of the peer may have failed, which the peer cannot report without a connection. The peer accepts a second
   * connection.
   */
  constructor(clock: Clock, timeoutNs: number, reconnect: (link: TcpConnection) => void) {
    this.#clock = clock;
    this.#timeoutNs = timeoutNs;
    this.#reconnect = reconnect;
  }

  get size(): number {
    return this.#waits.size;
  }

  /** Adds a link whose peer has announced its connection, perhaps again. */
  add(link: TcpConnection): void {
    const nowNs = this.#clock.nowNs();
    const nextNs = nowNs + this.#timeoutNs / ACCEPT_WAITS;
    const known = this.#waits.get(link);
    if (known !== undefined) known.nextNs = nextNs;
    else this.#waits.set(link, { deadlineNs: nowNs + this.#timeoutNs, nextNs });
  }

  /** Removes a link that has its connection, or has failed. */
  delete(link: TcpConnection): void {
    this.#waits.delete(link);
  }

  /**
   * Fails the links whose time limit has expired, and reconnects others; returns the time in nanoseconds until the next limit.
   * @param pauseNs see {@link extended}
   */
  expire(pauseNs: number): number {
    let restNs = Number.POSITIVE_INFINITY;
    for (const [link, wait] of this.#waits) {
      const nowNs = this.#clock.nowNs();
      wait.deadlineNs = extended(wait.deadlineNs, nowNs, pauseNs, this.#timeoutNs);
      if (nowNs >= wait.deadlineNs)
        link.fail(
          Status.ENDPOINT_TIMEOUT,
          'it announced a connection, but did not connect within UCX_TCP_CONNECT_TIMEOUT',
        );
      else if (nowNs >= wait.nextNs) {
        wait.nextNs = nowNs + this.#timeoutNs / ACCEPT_WAITS;
        this.#reconnect(link);
      }
      restNs = Math.min(restNs, Math.max(0, wait.nextNs - this.#clock.nowNs()));
    }
    return restNs;
  }
}
