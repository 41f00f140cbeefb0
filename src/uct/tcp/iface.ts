/** The interface of tcp on one network device: its listening socket, its links to peers, and when they are polled. Links process the frames. */

import { EventAlarm, sourceAddressTo } from '../../sys/index.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import { closedError, UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import type { AmHandler, EndpointErrorHandler, IfaceAttributes, IfaceResource, UctEndpoint } from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { checkAmHandler, checkHandler, checkTimeout } from '../base/checks.ts';
import { TransferCounters } from '../base/counters.ts';
import { type ClosableIface, identityText, unreachable } from '../base/iface.ts';
import {
  type NetworkInterface,
  ownAddresses,
  packTcpAddress,
  type Reach,
  reachOf,
  type TcpAddress,
  unpackTcpAddress,
} from './address.ts';
import { tcpAttributes } from './attributes.ts';
import { sendBytesMax, TCP_CONFIG_TABLE, type TcpConfig } from './config.ts';
import { Acceptor, POLLS_MIN } from './connect/acceptor.ts';
import { AwaitingAccept, type ConnectorOwner, TcpConnector } from './connect/connector.ts';
import { Answer, type Hello, type HelloObjection, HelloPolicy } from './connect/hello.ts';
import { TcpBuffers } from './connection/buffers.ts';
import { type LinkOwner, TcpConnection } from './connection/connection.ts';
import { INTERVALS } from './connection/liveness.ts';
import { type EndpointOwner, TcpEndpoint } from './endpoint.ts';
import { FailureReports } from './failure-reports.ts';
import { TCP_NAME, type TcpKeyTable } from './key.ts';
import type { Security } from './secure/security.ts';
import type { Session } from './secure/session.ts';
import { Batches, Heartbeats, ReadySet, Room } from './sockets.ts';

/** Progress polls all sockets once in this number of calls. The other calls poll only the link that received last. */
const POLL_ALL_EVERY = 16;
/** If one call handles this number of operations and messages, the next one polls all sockets. */
const BUSY_EVENTS = 16;
/** Number of calls of progress without an event after which only one in {@link QUIET_EVERY} makes a system call, so as not to delay other transports. */
const QUIET_AFTER = 4096;
/** A power of two. */
const QUIET_EVERY = 8;
/** An interface without links checks for incoming connections once in this number of calls of progress. A power of two. */
const LISTEN_EVERY = 256;
const NS_PER_MS = 1e6;

/** State that the interfaces of a memory domain share. */
export interface TcpDomain {
  readonly keys: TcpKeyTable;
  /** Security required of every peer; undefined for none. */
  readonly security: Security | undefined;
}

/** The interface. */
export class TcpIface implements ClosableIface, LinkOwner, ConnectorOwner, EndpointOwner {
  readonly attributes: IfaceAttributes;
  readonly log: Log;
  /** Log for events that peers can cause. */
  readonly warnings: LimitedLog;
  readonly buffers: TcpBuffers;
  readonly keys: TcpKeyTable;
  readonly counters: TransferCounters = new TransferCounters();
  readonly peerTimeoutMs: number;
  readonly pollsMax: number;
  handler: AmHandler | undefined = undefined;
  outstanding = 0;
  readonly #hellos: HelloPolicy;
  readonly #device: NetworkInterface;
  readonly #config: TcpConfig;
  readonly #clock: Clock;
  /** Sockets of links: polled by progress only. */
  readonly #ready: ReadySet = new ReadySet();
  /** The listening socket, sockets before the hello, and the room of those of links: the event loop also serves them, so that peers do not wait for progress. */
  readonly #making: ReadySet = new ReadySet();
  #makingAlarm: EventAlarm | undefined = undefined;
  readonly #connector: TcpConnector;
  readonly #sleeper: Sleeper;
  readonly #heartbeats: Heartbeats;
  readonly #heartbeatMs: number;
  /** The link for new endpoints, by the id of the peer. */
  readonly #links: Map<string, TcpConnection> = new Map();
  /** All links that are not down. */
  readonly #all: Set<TcpConnection> = new Set();
  /** Links whose socket has no room. */
  readonly #blocked: Set<TcpConnection> = new Set();
  readonly batches: Batches = new Batches();
  readonly #awaitingAccept: AwaitingAccept;
  readonly #endpoints: Set<TcpEndpoint> = new Set();
  readonly #failures: FailureReports = new FailureReports();
  #acceptor: Acceptor | undefined = undefined;
  #address: Uint8Array | undefined = undefined;
  #alarm: EventAlarm | undefined = undefined;
  /** The link that received last. */
  #hot: TcpConnection | undefined = undefined;
  #polls = 0;
  #quiet = 0;
  #skipped = 0;
  /** Time at which the interface will be polled, unless the program pauses. */
  #nextPollNs = 0;
  #failure: UcxError | undefined = undefined;
  #closed = false;

  constructor(resource: IfaceResource, device: NetworkInterface, domain: TcpDomain, services: ComponentServices) {
    const { keys, security } = domain;
    const config = services.config.get(TCP_CONFIG_TABLE);
    this.attributes = tcpAttributes(resource, device, config);
    this.log = services.log;
    this.warnings = new LimitedLog(services.log, services.clock);
    this.keys = keys;
    this.peerTimeoutMs = config.PEER_TIMEOUT / NS_PER_MS;
    this.pollsMax = config.MAX_POLL;
    this.#config = config;
    this.#clock = services.clock;
    this.#device = device;
    this.buffers = new TcpBuffers(sendBytesMax(config), config.RX_SEG_SIZE, security?.level === 'encrypt');
    this.#hellos = new HelloPolicy(config, this.warnings);
    this.#awaitingAccept = new AwaitingAccept(services.clock, config.CONNECT_TIMEOUT, (link) => {
      if (!this.#connector.isConnecting(link)) this.connectLink(link);
    });
    this.#connector = new TcpConnector(this, this.#making, config, security);
    this.#sleeper = new Sleeper(services.clock);
    this.#heartbeatMs = Math.ceil(this.peerTimeoutMs / INTERVALS);
    this.#heartbeats = new Heartbeats(services.clock, this.#heartbeatMs * NS_PER_MS, () => this.#heartbeat());
  }

  get closed(): boolean {
    return this.#closed;
  }

  get nowNs(): number {
    return this.#clock.nowNs();
  }
  get nowMs(): number {
    return this.nowNs / NS_PER_MS;
  }

  /** The packed address. The first call starts listening, since a program that distributes its address expects connections. Throws SyscallError. */
  get address(): Uint8Array {
    this.#address ??= this.#listen();
    return this.#address;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    const peer = unpackTcpAddress(address);
    if (peer === undefined) return 'the address is none of this transport and version';
    const reach = this.#reach(peer);
    return 'reason' in reach ? reach.reason : undefined;
  }

  identityOf(address: Uint8Array): string | undefined {
    const peer = unpackTcpAddress(address);
    return peer === undefined ? undefined : identityText(peer.id);
  }

  sharesNode(address: Uint8Array): boolean {
    return unpackTcpAddress(address)?.isOwnNode === true;
  }

  connect(address: Uint8Array): UctEndpoint {
    if (this.#closed) throw closedError('interface tcp');
    const peer = unpackTcpAddress(address);
    if (peer === undefined) throw unreachable(TCP_NAME, 'the address is none of this transport and version');
    const reach = this.#reach(peer);
    if ('reason' in reach) throw unreachable(TCP_NAME, reach.reason);
    this.#reserveAlarms();
    const endpoint = new TcpEndpoint(this, this.#linkTo(peer, reach.address));
    this.#endpoints.add(endpoint);
    return endpoint;
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.handler = handler;
  }

  setErrorHandler(handler: EndpointErrorHandler): void {
    checkHandler(handler);
    this.#failures.handler = handler;
  }

  progress(): number {
    this.batches.end();
    if (this.#failures.size > 0) return this.#failures.deliver();
    if (this.#ready.size + this.#making.size + this.#awaitingAccept.size === 0 || !this.#pollsSockets()) return 0;
    let count = this.#hot === undefined ? 0 : this.#hot.progress(this.pollsMax);
    // Poll the other sockets sooner while one peer sends continuously, so that its link does not delay them.
    this.#polls += count >= BUSY_EVENTS ? POLL_ALL_EVERY : 1;
    if (this.#polls >= POLL_ALL_EVERY || (count === 0 && this.#hot === undefined)) {
      this.#polls = 0;
      count += this.#pollAll();
    }
    this.batches.end();
    if (count === 0) this.#quiet += 1;
    else {
      this.#quiet = 0;
      if (this.#sleeper.sleeping) this.#sleeper.wake();
    }
    return count;
  }

  errorOf(status: Status): UcxError | undefined {
    return this.#failure?.status === status ? this.#failure : undefined;
  }

  stats(): StatsNode {
    return this.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    const isIdle = this.handler === undefined && this.outstanding === 0;
    if (this.#closed || isIdle || this.#failures.size > 0) return Promise.resolve();
    this.batches.end();
    for (const link of this.#blocked) {
      link.acknowledge();
      if (link.isBroken) return Promise.resolve();
      if (link.isUp) this.#ready.update(link);
    }
    this.#alarm?.arm();
    return this.#sleeper.sleep(Math.min(timeoutNs, this.#expire(timeoutNs)));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#heartbeats.close();
    for (const endpoint of this.#endpoints) endpoint.close();
    for (const link of this.#all) link.close();
    this.#connector.close();
    if (this.#acceptor !== undefined) this.#making.remove(this.#acceptor);
    this.#acceptor?.close();
    this.#sleeper.wake();
    this.#alarm?.close();
    this.#makingAlarm?.close();
    this.#ready.close();
    this.#making.close();
    this.batches.close();
    this.buffers.close();
    this.warnings.tellLeft();
  }

  // Functions for endpoints and links.

  forget(endpoint: TcpEndpoint): void {
    this.#endpoints.delete(endpoint);
    this.#failures.delete(endpoint);
  }

  countOutstanding(change: number): void {
    this.outstanding += change;
  }

  noteBlocked(link: TcpConnection): void {
    this.#blocked.add(link);
    if (link.wantsWrite) link.room?.await();
  }

  noteReceived(link: TcpConnection): void {
    this.#hot = link;
  }

  connectLink(link: TcpConnection): void {
    link.state = 'waiting';
    this.#connector.connect(link, link.target!, link.source);
    this.#watchMaking();
  }

  onLinkDown(link: TcpConnection, reason: string): void {
    this.#ready.remove(link);
    link.room?.close();
    this.#connector.abandon(link);
    this.#blocked.delete(link);
    this.#awaitingAccept.delete(link);
    this.#all.delete(link);
    if (this.#hot === link) this.#hot = undefined;
    if (this.#links.get(link.identity) === link) this.#links.delete(link.identity);
    const { status } = link;
    // No endpoint of this process is affected.
    if (status === Status.CANCELED || link.users === 0 || this.#closed) return;
    for (const endpoint of this.#endpoints) if (endpoint.link === link) this.#failures.add(endpoint, status);
    this.#sleeper.wake();
    const message = `the connection to ${link.name} has ended: ${reason}`;
    this.#failure = new UcxError({
      code: `ERR_${statusName(status)}`,
      status,
      message: `${TCP_NAME}/${this.#device.name}: ${message}`,
      details: { peer: link.name, reason },
    });
    this.log.diag(message);
  }

  onViolation(link: TcpConnection, what: string): void {
    this.warnings.warn(`the connection to ${link.name} is closed: the peer sent what makes no sense: ${what}`);
  }

  // Functions for the connector.

  helloFor(link: TcpConnection): Hello {
    return this.#hellos.hello(link.peerId, Answer.WELCOME);
  }

  answerTo(peer: Hello): Hello {
    return this.#hellos.hello(peer.sender, this.#acceptDecisionOn(peer));
  }

  objectionTo(link: TcpConnection, peer: Hello): HelloObjection | undefined {
    return this.#hellos.objectionTo(peer, link.peerId);
  }

  onAccepted(peer: Hello, fd: number, session: Session | undefined): void {
    const key = identityText(peer.sender);
    const known = this.#links.get(key);
    const isWanted =
      known !== undefined && (known.state === 'idle' || known.state === 'waiting') && !this.#hellos.isOwn(peer);
    const link = isWanted ? known : new TcpConnection(this, peer.sender);
    this.#connector.abandon(link);
    this.#attach(link, peer, fd, session);
    if (known === undefined) this.#links.set(key, link);
  }

  onConnected(link: TcpConnection, peer: Hello, fd: number, session: Session | undefined): void {
    this.#attach(link, peer, fd, session);
  }

  onDuplicate(link: TcpConnection): void {
    if (link.users === 0) link.fail(Status.CANCELED, '');
    else this.#awaitingAccept.add(link);
  }

  onRefused(link: TcpConnection, status: Status, reason: string): void {
    // The listener has closed, or has closed the connection.
    if (status === Status.REJECTED || status === Status.CONNECTION_RESET) link.fail(Status.UNREACHABLE, reason);
    else link.fail(status === Status.TIMED_OUT ? Status.ENDPOINT_TIMEOUT : status, reason);
  }

  #attach(link: TcpConnection, peer: Hello, fd: number, session: Session | undefined): void {
    this.#awaitingAccept.delete(link);
    this.#all.add(link);
    link.attach(fd, peer.messageBytesMax, session);
    this.#ready.add(link);
    link.room = new Room(link, this.#making);
    link.heartbeat(this.#heartbeatMs);
    this.#heartbeats.start();
    // Operations that waited for the connection can start.
    this.#sleeper.wake();
  }

  #heartbeat(): boolean {
    for (const link of this.#all) link.heartbeat(this.#heartbeatMs);
    return this.#all.size > 0;
  }

  #linkTo(peer: TcpAddress, address: string): TcpConnection {
    const key = identityText(peer.id);
    const known = this.#links.get(key);
    if (known?.revive() === true) return known;
    const link = new TcpConnection(this, peer.id);
    const isLocal = address.startsWith('fe80:');
    link.target = { address: isLocal ? `${address}%${this.#device.name}` : address, port: peer.port };
    // Several devices on the same network are separate paths only if each connection is bound to its device.
    const binds = this.#config.EP_BIND_SRC_ADDR;
    if (binds === 'yes' || (binds === 'try' && !peer.isOwnNode)) link.source = this.#sourceFor(address);
    this.#links.set(key, link);
    this.#all.add(link);
    return link;
  }

  #sourceFor(address: string): string | undefined {
    const isIPv6 = address.includes(':');
    return this.#device.addresses.find(({ family }) => (family === 6) === isIPv6)?.address;
  }

  /** Returns WELCOME, DUPLICATE, or the status of the rejection. */
  #acceptDecisionOn(peer: Hello): number {
    const decision = this.#hellos.acceptDecisionOn(peer);
    if (decision !== Answer.WELCOME) return decision;
    const link = this.#links.get(identityText(peer.sender));
    if (link === undefined || this.#hellos.isOwn(peer) || !this.#connector.isConnecting(link)) return Answer.WELCOME;
    // Both ends connected at the same time.
    if (this.#hellos.precedes(peer)) return Answer.DUPLICATE;
    this.#connector.abandon(link);
    this.onDuplicate(link);
    return Answer.WELCOME;
  }

  #reach(peer: TcpAddress): Reach {
    return reachOf(this.#device, peer, { ownAddresses, sourceAddressTo });
  }

  #listen(): Uint8Array {
    if (this.#closed) throw closedError('interface tcp');
    const { addresses, isLoopback } = this.#device;
    const { PORT_RANGE, BACKLOG } = this.#config;
    const first = addresses[0]!;
    const published = addresses.filter(({ family }) => family === first.family).slice(0, 1);
    this.#reserveAlarms();
    const place = { address: first.address, ports: PORT_RANGE, backlog: BACKLOG };
    const acceptor = new Acceptor(place, this.warnings, (ready) => this.#connector.accept(ready));
    this.#acceptor = acceptor;
    this.#making.add(acceptor);
    this.#watchMaking();
    return packTcpAddress(this.#hellos.id, acceptor.port, isLoopback, published);
  }

  /** Whether this call of progress polls sockets. */
  #pollsSockets(): boolean {
    const isBusy = this.#all.size + this.#connector.size > 0;
    const every = isBusy ? (this.#quiet < QUIET_AFTER ? 1 : QUIET_EVERY) : LISTEN_EVERY;
    // One path for all: V8 discards what it has compiled when a path is taken for the first time, such as that of a quiet connection.
    this.#skipped = (this.#skipped + 1) & (every - 1);
    return this.#skipped === 0;
  }

  /** Polls all sockets. */
  #pollAll(): number {
    if (this.#connector.size + this.#awaitingAccept.size > 0) this.#expire();
    let count = this.#making.size > 0 ? this.#making.poll() : 0;
    // The hot link is polled in every call: its readiness does not have to be checked.
    if (this.#ready.size > (this.#hot === undefined ? 0 : 1)) count += this.#ready.poll();
    for (const link of this.#blocked) {
      if (link.hasMore) count += link.progress(1);
      // The only one stays: V8 allocates a set again that has become empty.
      if (link.hasMore || (link.isUp && this.#blocked.size === 1)) continue;
      this.#blocked.delete(link);
      // A sleep may have enabled notification of room. Once the socket has room, that would end every later sleep.
      if (link.isUp) this.#ready.update(link);
    }
    return count;
  }

  /** Reserves the descriptors for sleeping and for the event loop before the first connection. Throws SyscallError EMFILE. */
  #reserveAlarms(): void {
    this.#makingAlarm ??= new EventAlarm(this.#making.fd, () => {
      this.#making.poll();
      this.#makingAlarm?.arm();
    });
    if (this.#alarm !== undefined) return;
    this.#alarm = new EventAlarm(this.#ready.fd, () => this.#sleeper.wake());
    if (this.#sleeper.sleeping) this.#alarm.arm();
  }

  /** Lets the event loop establish connections. */
  #watchMaking(): void {
    this.#makingAlarm?.arm();
  }

  /**
   * Ends attempts that exceed their time limit; returns the time in nanoseconds until the next limit.
   * @param sleepNs time for which the interface will not be polled
   */
  #expire(sleepNs = 0): number {
    const { nowNs } = this;
    const pauseNs = Math.max(0, nowNs - this.#nextPollNs - this.#config.CONNECT_TIMEOUT / POLLS_MIN);
    const restNs = Math.min(this.#connector.expire(pauseNs), this.#awaitingAccept.expire(pauseNs));
    this.#nextPollNs = nowNs + (restNs === Number.POSITIVE_INFINITY ? 0 : Math.min(sleepNs, restNs));
    return restNs;
  }
}
