/** The interface of ib on one port: its attributes, its endpoints, and when its completion queues are read. */

import { EventAlarm } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { closedError, invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status, statusName, statusString } from '../../ucs/type/status.ts';
import type { AmHandler, EndpointErrorHandler, IfaceAttributes, RemotePath, UctEndpoint } from '../api/iface.ts';
import type { RemoteKey } from '../api/memory.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { checkAmHandler, checkHandler, checkTimeout } from '../base/checks.ts';
import { type ClosableIface, identityText, unreachable } from '../base/iface.ts';
import { IB_NAME, RC_NAME } from './base/config.ts';
import type { IbPort } from './base/device.ts';
import { IbKey } from './base/key.ts';
import { Opened } from './base/queues.ts';
import {
  type IbAddress,
  ID_BYTES,
  ibUnreachableReason,
  isOnThisNode,
  packIbAddress,
  unpackIbAddress,
} from './connection/address.ts';
import { Completions } from './connection/completions.ts';
import type { IbConnection } from './connection/connection.ts';
import { ConnectionTable } from './connection/connection-table.ts';
import { IbConnector } from './connection/connector.ts';
import { DatagramEvents, Datagrams } from './connection/datagrams.ts';
import { IbEndpoint } from './endpoint.ts';
import { IbShared } from './shared.ts';

/** Progress reads datagrams once in this number of calls, and in every call while a connection is being established. A power of two. */
const DATAGRAMS_EVERY = 64;
/** Device memory is registered by its dma-buf. */
const DMABUF_PATH: RemotePath = { bandwidthShare: 1, note: 'dma-buf' };
/** Time limit for the device to send all posted work requests when the interface closes. */
const DRAIN_NS = 200e6;

export class IbIface implements ClosableIface {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly port: IbPort;
  readonly shared: IbShared;
  /** The address as fields. */
  readonly self: IbAddress;
  readonly datagrams: Datagrams;
  readonly #opened: Opened = new Opened();
  readonly #alarm: EventAlarm;
  readonly #datagramEvents: DatagramEvents;
  readonly #table: ConnectionTable;
  readonly #completions: Completions;
  readonly #connector: IbConnector;
  readonly #endpoints: Map<IbConnection, IbEndpoint> = new Map();
  readonly #onClosed: (endpoint: IbEndpoint) => void = ({ connection }) => {
    this.#endpoints.delete(connection);
    this.#table.startClose(connection);
    if (!connection.isBusy) this.#table.destroy(connection);
  };
  #errorHandler: EndpointErrorHandler | undefined = undefined;
  #failure: UcxError | undefined = undefined;
  #polls = 0;
  #closed = false;

  /** @throws SyscallError */
  constructor(port: IbPort, services: ComponentServices) {
    const { device, attributes, gid } = port;
    const opened = this.#opened;
    this.port = port;
    this.shared = opened.keep(new IbShared(port, services));
    const { ib, channel, sleeper } = this.shared;
    this.attributes = this.shared.attributes;
    this.#table = new ConnectionTable(
      this.shared,
      (connection, status) => this.#onFailed(connection, status),
      (connection) => this.#connector.forget(connection),
    );
    try {
      this.#completions = opened.keep(new Completions(this.#table, (connection) => this.#onPeerClosed(connection)));
      this.datagrams = opened.keep(new Datagrams(port, ib));
      this.#datagramEvents = opened.keep(
        new DatagramEvents(this.datagrams, (message) => this.#connector.onMessage(message)),
      );
      this.#alarm = opened.keep(
        new EventAlarm(channel.fd, () => {
          channel.consume();
          sleeper.wake();
        }),
      );
      this.self = {
        linkLayer: attributes.linkLayer,
        mtu: Math.min(attributes.activeMtu, ib.PATH_MTU),
        deviceIndex: device.index,
        lid: attributes.lid,
        qpNum: this.datagrams.qpNum,
        qkey: this.datagrams.qkey,
        segBytes: ib.SEG_SIZE,
        gid: gid.gid,
        id: systemRandomBytes(ID_BYTES).slice(),
      };
      this.#connector = new IbConnector(this.#table, this.datagrams, this.self);
    } catch (error) {
      opened.close();
      throw error;
    }
    this.address = packIbAddress(this.self);
    this.#datagramEvents.arm();
  }

  get closed(): boolean {
    return this.#closed;
  }

  get outstanding(): number {
    return this.shared.outstanding;
  }

  /** Maximum inline bytes of a work request. */
  get inlineBytes(): number {
    return this.shared.inlineBytes;
  }

  unreachableReason(address: Uint8Array): string | undefined {
    const peer = this.#reachable(address);
    return typeof peer === 'string' ? peer : undefined;
  }

  identityOf(address: Uint8Array): string | undefined {
    const peer = unpackIbAddress(address);
    return peer === undefined ? undefined : identityText(peer.id);
  }

  sharesNode(address: Uint8Array): boolean {
    return unpackIbAddress(address) !== undefined && isOnThisNode(address);
  }

  connect(address: Uint8Array): UctEndpoint {
    if (this.#closed) throw closedError(`interface ${RC_NAME}`);
    const peer = this.#reachable(address);
    if (typeof peer === 'string') throw unreachable(RC_NAME, peer);
    const connection = this.#connector.connect(peer);
    const endpoint = new IbEndpoint(connection, peer.deviceIndex, this.#completions, this.#onClosed);
    this.#endpoints.set(connection, endpoint);
    return endpoint;
  }

  remotePath(rkey: RemoteKey): RemotePath | undefined {
    if (!(rkey instanceof IbKey)) throw invalidParam('rkey', `must be of memory domain ${IB_NAME}`, rkey);
    return rkey.memoryType === MemoryType.HOST ? undefined : DMABUF_PATH;
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.#completions.handler = handler;
  }

  setErrorHandler(handler: EndpointErrorHandler): void {
    checkHandler(handler);
    this.#errorHandler = handler;
  }

  progress(): number {
    if (this.#closed) return 0;
    const completions = this.#completions;
    const table = this.#table;
    const { sleeper } = this.shared;
    let count = table.failed.length > 0 ? this.#reportFailures() : 0;
    count += completions.progressSends();
    completions.receive();
    count += completions.deliver();
    this.#polls = (this.#polls + 1) & (DATAGRAMS_EVERY - 1);
    if (this.#polls === 0 || this.#connector.pending > 0) this.#datagramEvents.progress();
    table.progressCredits();
    if (table.reports.retries.length > 0) this.#retryAtomics();
    table.progressClosing();
    if (count > 0 && sleeper.sleeping) sleeper.wake();
    return count;
  }

  errorOf(status: Status): UcxError | undefined {
    return this.#failure?.status === status ? this.#failure : undefined;
  }

  stats(): StatsNode {
    return this.shared.counters.node(this.attributes.resource);
  }

  wait(timeoutNs: number): Promise<void> {
    checkTimeout(timeoutNs);
    const { outstanding, sleeper } = this.shared;
    const isIdle = this.#completions.handler === undefined && outstanding === 0 && this.#connector.pending === 0;
    if (this.#closed || isIdle || this.#table.failed.length > 0) return Promise.resolve();
    if (this.#completions.requestNotify()) {
      sleeper.wake();
      return Promise.resolve();
    }
    this.#alarm.arm();
    return sleeper.sleep(timeoutNs);
  }

  close(): void {
    if (this.#closed) return;
    this.#table.startCloseAll();
    this.#endpoints.clear();
    this.#drain();
    this.#closed = true;
    this.#completions.stop();
    this.#table.destroyAll();
    this.#retryAtomics();
    this.#connector.close();
    this.shared.sleeper.wake();
    this.#opened.close();
    this.shared.warnings.reportOmitted();
  }

  /** Called when the device has failed, possibly without completions that report it: every connection fails. */
  deviceFailed(): void {
    if (!this.#closed) this.#table.failAll(Status.CONNECTION_RESET);
  }

  #onFailed(connection: IbConnection, status: Status): void {
    if (!this.#endpoints.has(connection)) return;
    const message = `the connection to ${connection.peer} has ended: ${statusString(status)}`;
    const { resource } = this.attributes;
    this.#failure = new UcxError({
      code: `ERR_${statusName(status)}`,
      status,
      message: `${resource.transport}/${resource.device}: ${message}`,
      details: { peer: connection.peer },
    });
    this.shared.log.diag(message);
  }

  #onPeerClosed(connection: IbConnection): void {
    if (this.#endpoints.has(connection)) connection.fail(Status.CONNECTION_RESET);
    else this.#table.destroy(connection);
  }

  /** Repeats atomic operations; those without resources wait, and those of closed endpoints are cancelled. */
  #retryAtomics(): void {
    const { retries } = this.#table.reports;
    for (const retry of retries.splice(0)) {
      const { connection, call, remoteOffset, key, completion, assumed } = retry;
      const endpoint = this.#endpoints.get(connection);
      const status =
        endpoint === undefined ? Status.CANCELED : endpoint.postAtomic(call, remoteOffset, key, completion, assumed);
      if (status === Status.NO_RESOURCE) retries.push(retry);
      else if (status !== Status.OK) this.shared.complete(completion, status);
    }
  }

  /** The peer of an address, or the reason why it cannot be reached. */
  #reachable(address: Uint8Array): IbAddress | string {
    const peer = unpackIbAddress(address);
    if (peer === undefined) return 'not an ib address of this version: use the same version of gaudi-ucx at both ends';
    return ibUnreachableReason(this.self, peer) ?? peer;
  }

  #reportFailures(): number {
    let count = 0;
    for (const connection of this.#table.failed.splice(0)) {
      const endpoint = this.#endpoints.get(connection);
      const before = this.shared.outstanding;
      // The device does not access memory of a destroyed queue pair.
      this.#table.destroy(connection);
      count += before - this.shared.outstanding;
      if (endpoint === undefined) continue;
      this.#errorHandler?.(endpoint, connection.failure);
      count += 1;
    }
    return count;
  }

  /** Waits until the device has sent all posted work requests, for a bounded time. Peers that have closed before do not receive anything any more. */
  #drain(): void {
    const { clock } = this.shared;
    const deadlineNs = clock.nowNs() + DRAIN_NS;
    while (this.#table.closing > 0) {
      this.#completions.progressSends();
      this.#completions.receive();
      this.#table.progressClosing();
      if (clock.nowNs() >= deadlineNs) return;
    }
  }
}
