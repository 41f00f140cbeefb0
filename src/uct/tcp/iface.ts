/** The interface of tcp on one network device: its listening socket, its links to peers, and when their sockets are polled. Links process the frames. */

import { EventAlarm, sourceAddressTo } from '../../sys/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { closedError, UcxError } from '../../ucs/type/error.ts';
import { Status, statusName } from '../../ucs/type/status.ts';
import {
  type AmHandler,
  type EndpointErrorHandler,
  type IfaceAttributes,
  IfaceFlag,
  type IfaceResource,
  type UctEndpoint,
} from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { checkAmHandler, checkHandler, checkTimeout } from '../base/checks.ts';
import { hostIfaceAttributes } from '../base/host/domain.ts';
import { type ClosableIface, identityText, unreachable } from '../base/iface.ts';
import {
  type NetworkInterface,
  ownAddresses,
  packTcpAddress,
  type Reach,
  reachOf,
  TCP_ADDRESS_BYTES_MAX,
  type TcpAddress,
  unpackTcpAddress,
} from './address.ts';
import { sendBytesMax, TCP_CONFIG_TABLE, type TcpConfig } from './config.ts';
import { Acceptor, POLLS_MIN } from './connect/acceptor.ts';
import { TcpConnector } from './connect/connector.ts';
import { HelloPolicy } from './connect/hello.ts';
import type { TcpConnection } from './connection/connection.ts';
import { ConnectionTable } from './connection/connection-table.ts';
import { TcpEndpoint } from './endpoint.ts';
import { TCP_NAME } from './key.ts';
import { type TcpDomain, TcpShared } from './shared.ts';

/** Progress polls all sockets once in this number of calls; the other calls poll only the link that received last. */
const POLL_ALL_EVERY = 16;
/** If one call handles this number of operations and messages, the next one polls all sockets. */
const BUSY_EVENTS = 16;
/** Number of calls of progress without an event after which only one in {@link QUIET_EVERY} makes a system call, so as not to delay other transports. */
const QUIET_AFTER = 4096;
/** A power of two. */
const QUIET_EVERY = 8;
/** An interface without links checks for incoming connections once in this number of calls of progress. A power of two. */
const LISTEN_EVERY = 256;

/** Fraction of the bandwidth of a link for payload; Ethernet, IP and TCP headers use the rest. */
const PAYLOAD_SHARE = 0.94;

/** Cost of the system call that each zero-copy frame needs; short frames share one. */
const SYSTEM_CALL_NS = 2000;
/** Longer puts and gets are sent directly from user memory. */
const RMA_SHORT_BYTES_MAX = 8192;

/** The attributes of the interface on a network device, for the cost model. */
function tcpAttributes(resource: IfaceResource, device: NetworkInterface, config: TcpConfig): IfaceAttributes {
  const { RX_SEG_SIZE, MAX_BW } = config;
  const bcopyBytesMax = sendBytesMax(config);
  const speed = device.bytesPerSecond === undefined ? MAX_BW : device.bytesPerSecond * PAYLOAD_SHARE;
  return hostIfaceAttributes({
    resource,
    flags:
      IfaceFlag.PUT_SHORT |
      IfaceFlag.PUT_ZCOPY |
      IfaceFlag.GET_SHORT |
      IfaceFlag.GET_ZCOPY |
      IfaceFlag.AM_SHORT |
      IfaceFlag.AM_BCOPY |
      IfaceFlag.AM_ZCOPY |
      IfaceFlag.EP_CHECK |
      IfaceFlag.EVENT |
      IfaceFlag.CONNECT_TO_IFACE |
      IfaceFlag.ERRHANDLE_REMOTE_MEM,
    shortBytesMax: Math.min(bcopyBytesMax, RMA_SHORT_BYTES_MAX),
    am: { shortBytesMax: bcopyBytesMax, bcopyBytesMax, zcopyBytesMax: RX_SEG_SIZE },
    latencyNs: config.LATENCY,
    overheadNs: config.OVERHEAD,
    zcopyOverheadNs: SYSTEM_CALL_NS,
    bandwidth: Math.min(speed, MAX_BW),
    ifaceAddressBytes: TCP_ADDRESS_BYTES_MAX,
    errorHandling: ['remote access', 'peer failure'],
  });
}

/** Failed endpoints until their failure handler is called, which never happens within a call of an operation. */
class FailureReports {
  /** Undefined without a handler. */
  handler: EndpointErrorHandler | undefined = undefined;
  readonly #failed: Map<UctEndpoint, Status> = new Map();

  /** Number of endpoints whose failure is not reported yet. */
  get size(): number {
    return this.#failed.size;
  }

  /** Adds an endpoint that has lost its connection. */
  add(endpoint: UctEndpoint, status: Status): void {
    if (this.handler !== undefined) this.#failed.set(endpoint, status);
  }

  /** Removes an endpoint that was closed: its failure is not reported. */
  delete(endpoint: UctEndpoint): void {
    this.#failed.delete(endpoint);
  }

  /** Reports all of them; returns how many. */
  deliver(): number {
    let count = 0;
    for (const [endpoint, status] of this.#failed) {
      // First, because the handler may make progress, close endpoints, or throw.
      this.#failed.delete(endpoint);
      count += 1;
      this.handler?.(endpoint, status);
    }
    return count;
  }
}

export class TcpIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly #log: Log;
  readonly #shared: TcpShared;
  readonly #hellos: HelloPolicy;
  readonly #device: NetworkInterface;
  readonly #config: TcpConfig;
  readonly #table: ConnectionTable;
  readonly #connector: TcpConnector;
  readonly #endpoints: Set<TcpEndpoint> = new Set();
  readonly #failures: FailureReports = new FailureReports();
  readonly #onClosed: (endpoint: TcpEndpoint) => void = (endpoint) => {
    this.#endpoints.delete(endpoint);
    this.#failures.delete(endpoint);
  };
  #acceptor: Acceptor | undefined = undefined;
  #address: Uint8Array | undefined = undefined;
  #alarm: EventAlarm | undefined = undefined;
  #polls = 0;
  #quiet = 0;
  #skipped = 0;
  /** Time at which the interface will be polled, unless the program pauses. */
  #nextPollNs = 0;
  #failure: UcxError | undefined = undefined;
  #closed = false;

  constructor(resource: IfaceResource, device: NetworkInterface, domain: TcpDomain, services: ComponentServices) {
    const config = services.config.get(TCP_CONFIG_TABLE);
    this.attributes = tcpAttributes(resource, device, config);
    this.#log = services.log;
    this.#config = config;
    this.#device = device;
    this.#shared = new TcpShared(domain, config, services);
    this.#hellos = new HelloPolicy(config, this.#shared.warnings);
    this.#table = new ConnectionTable(
      this.#shared,
      (link) => this.#connector.connect(link),
      (link, reason) => this.#onLinkDown(link, reason),
    );
    this.#connector = new TcpConnector(this.#table, this.#hellos, config, domain.security);
  }

  get closed(): boolean {
    return this.#closed;
  }

  get outstanding(): number {
    return this.#shared.outstanding.count;
  }

  /** The packed address. The first call starts listening, since a program that distributes its address expects connections. Throws SyscallError. */
  get address(): Uint8Array {
    this.#address ??= this.#listen();
    return this.#address;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    const peer = unpackTcpAddress(address);
    if (peer === undefined) return 'not a tcp address of this version: use the same version of gaudi-ucx at both ends';
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
    if (peer === undefined)
      throw unreachable(TCP_NAME, 'not a tcp address of this version: use the same version of gaudi-ucx at both ends');
    const reach = this.#reach(peer);
    if ('reason' in reach) throw unreachable(TCP_NAME, reach.reason);
    this.#reserveAlarms();
    const { shortBytesMax } = this.attributes.put;
    const link = this.#linkTo(peer, reach.address);
    const endpoint = new TcpEndpoint(link, this.#shared, shortBytesMax, this.#onClosed);
    this.#endpoints.add(endpoint);
    return endpoint;
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.#shared.handler = handler;
  }

  setErrorHandler(handler: EndpointErrorHandler): void {
    checkHandler(handler);
    this.#failures.handler = handler;
  }

  progress(): number {
    const { batches, pollsMax } = this.#shared;
    batches.end();
    if (this.#failures.size > 0) return this.#failures.deliver();
    const { ready, making, reports } = this.#table;
    if (ready.size + making.size + this.#connector.awaited === 0 || !this.#pollsSockets()) return 0;
    let count = reports.hot === undefined ? 0 : reports.hot.progress(pollsMax);
    // Poll the other sockets sooner while one peer sends continuously, so that its link does not delay them.
    this.#polls += count >= BUSY_EVENTS ? POLL_ALL_EVERY : 1;
    if (this.#polls >= POLL_ALL_EVERY || (count === 0 && reports.hot === undefined)) {
      this.#polls = 0;
      count += this.#pollAll();
    }
    batches.end();
    if (count === 0) this.#quiet += 1;
    else {
      this.#quiet = 0;
      const { sleeper } = this.#shared;
      if (sleeper.sleeping) sleeper.wake();
    }
    return count;
  }

  errorOf(status: Status): UcxError | undefined {
    return this.#failure?.status === status ? this.#failure : undefined;
  }

  stats(): StatsNode {
    return this.#shared.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    const { handler, outstanding, batches, sleeper } = this.#shared;
    const isIdle = handler === undefined && outstanding.count === 0;
    if (this.#closed || isIdle || this.#failures.size > 0) return Promise.resolve();
    batches.end();
    if (!this.#table.prepareSleep()) return Promise.resolve();
    this.#alarm?.arm();
    return sleeper.sleep(Math.min(timeoutNs, this.#expire(timeoutNs)));
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const endpoint of this.#endpoints) endpoint.close();
    this.#table.closeLinks();
    this.#connector.close();
    if (this.#acceptor !== undefined) this.#table.making.remove(this.#acceptor);
    this.#acceptor?.close();
    this.#shared.sleeper.wake();
    this.#alarm?.close();
    this.#table.close();
    this.#shared.close();
  }

  #onLinkDown(link: TcpConnection, reason: string): void {
    this.#connector.forget(link);
    const { status } = link;
    // No endpoint of this process is affected.
    if (status === Status.CANCELED || link.users === 0 || this.#closed) return;
    for (const endpoint of this.#endpoints) if (endpoint.link === link) this.#failures.add(endpoint, status);
    this.#shared.sleeper.wake();
    const message = `the connection to ${link.name} has failed: ${reason}`;
    this.#failure = new UcxError({
      code: `ERR_${statusName(status)}`,
      status,
      message: `${TCP_NAME}/${this.#device.name}: ${message}`,
      details: { peer: link.name, reason },
    });
    this.#log.diag(message);
  }

  #linkTo(peer: TcpAddress, address: string): TcpConnection {
    const known = this.#table.find(peer.id);
    if (known?.revive() === true) return known;
    const link = this.#table.create(peer.id);
    const isLocal = address.startsWith('fe80:');
    // Several devices on the same network are separate paths only if each connection is bound to its device.
    const binds = this.#config.EP_BIND_SRC_ADDR;
    const isBound = binds === 'yes' || (binds === 'try' && !peer.isOwnNode);
    link.route = {
      address: { address: isLocal ? `${address}%${this.#device.name}` : address, port: peer.port },
      source: isBound ? this.#sourceFor(address) : undefined,
    };
    this.#table.add(link);
    return link;
  }

  #sourceFor(address: string): string | undefined {
    const isIPv6 = address.includes(':');
    return this.#device.addresses.find(({ family }) => (family === 6) === isIPv6)?.address;
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
    const acceptor = new Acceptor(place, this.#shared.warnings, (ready) => this.#connector.accept(ready));
    this.#acceptor = acceptor;
    this.#table.making.add(acceptor);
    this.#table.watchMaking();
    return packTcpAddress(this.#hellos.id, acceptor.port, isLoopback, published);
  }

  /** Whether this call of progress polls sockets. */
  #pollsSockets(): boolean {
    const isBusy = this.#table.size + this.#connector.size > 0;
    const every = isBusy ? (this.#quiet < QUIET_AFTER ? 1 : QUIET_EVERY) : LISTEN_EVERY;
    // A single branch for all: V8 discards compiled code when a branch is taken for the first time, such as that of a quiet connection.
    this.#skipped = (this.#skipped + 1) & (every - 1);
    return this.#skipped === 0;
  }

  /** Polls all sockets. */
  #pollAll(): number {
    if (this.#connector.size + this.#connector.awaited > 0) this.#expire();
    return this.#table.poll();
  }

  /** Reserves the descriptors for sleeping and for the event loop before the first connection. Throws SyscallError EMFILE. */
  #reserveAlarms(): void {
    this.#table.reserveAlarm();
    if (this.#alarm !== undefined) return;
    const { sleeper } = this.#shared;
    this.#alarm = new EventAlarm(this.#table.ready.fd, () => sleeper.wake());
    if (sleeper.sleeping) this.#alarm.arm();
  }

  /**
   * Ends attempts that exceed their time limit; returns the time in nanoseconds until the next limit.
   * @param sleepNs time for which the interface will not be polled
   */
  #expire(sleepNs = 0): number {
    const { nowNs } = this.#shared;
    const pauseNs = Math.max(0, nowNs - this.#nextPollNs - this.#config.CONNECT_TIMEOUT / POLLS_MIN);
    const restNs = this.#connector.expire(pauseNs);
    this.#nextPollNs = nowNs + (restNs === Number.POSITIVE_INFINITY ? 0 : Math.min(sleepNs, restNs));
    return restNs;
  }
}
