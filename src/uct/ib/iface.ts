/** The interface of ib on one port: its queues, connections and endpoints, and the ends of their operations. */

import { EventAlarm } from '../../sys/index.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { copyBytes } from '../../ucs/memory/bytes.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { Sleeper } from '../../ucs/sys/sleeper.ts';
import { closedError, invalidParam, UcxError } from '../../ucs/type/error.ts';
import { joinBig, joinWords } from '../../ucs/type/int64.ts';
import { Status, statusName, statusString } from '../../ucs/type/status.ts';
import { Wc, WcOpcode, WcStatus, wcStatusText } from '../../verbs/abi.ts';
import type { CompletionQueue, SharedReceiveQueue } from '../../verbs/port.ts';
import type {
  AmHandler,
  Completion,
  EndpointErrorHandler,
  IfaceAttributes,
  RemotePath,
  UctEndpoint,
} from '../api/iface.ts';
import type { RemoteKey } from '../api/memory.ts';
import type { ComponentServices } from '../api/memory-domain.ts';
import { checkAmHandler, checkHandler, checkTimeout, completeOne } from '../base/checks.ts';
import { TransferCounters } from '../base/counters.ts';
import { identityText, unreachable } from '../base/iface.ts';
import { AtomicRetries } from './atomic-retries.ts';
import { ibAttributes } from './attributes.ts';
import { IB_CONFIG_TABLE, IB_NAME, type IbConfig, RC_CONFIG_TABLE, RC_NAME, type RcConfig } from './base/config.ts';
import type { IbPort } from './base/device.ts';
import { IbKey } from './base/key.ts';
import { type CqReader, connectionStatusOfWc, Opened, type SlotMemory, statusOfWc } from './base/queues.ts';
import {
  type IbAddress,
  ID_BYTES,
  ibUnreachableReason,
  isOnThisNode,
  packIbAddress,
  unpackIbAddress,
} from './connection/address.ts';
import { ClosingConnections, CreditReturns } from './connection/closing.ts';
import { type IbConnection, MessageKind } from './connection/connection.ts';
import { type ConnectorOwner, IbConnector } from './connection/connector.ts';
import { DatagramEvents, Datagrams } from './connection/datagrams.ts';
import type { ReceiveQueue } from './connection/receiver.ts';
import { isNative, type TxEntry } from './connection/work-request.ts';
import { type EndpointOwner, IbEndpoint } from './endpoint.ts';
import { IfaceQueues } from './iface-queues.ts';

/** Datagrams are read once in this number of calls of progress, and in every call while a connection is made. A power of two. */
const DATAGRAMS_EVERY = 64;
/** Device memory is registered by its dma-buf. */
const DMABUF_PATH: RemotePath = { bandwidthShare: 1, note: 'dma-buf' };
/** Time for which a close waits for the device to send what was posted. */
const DRAIN_NS = 200e6;

/** The interface. */
export class IbIface implements ConnectorOwner, EndpointOwner {
  readonly attributes: IfaceAttributes;
  readonly address: Uint8Array;
  readonly port: IbPort;
  readonly ib: IbConfig;
  readonly rc: RcConfig;
  readonly clock: Clock;
  /** Log for events that peers can cause. */
  readonly warnings: LimitedLog;
  readonly counters: TransferCounters = new TransferCounters();
  readonly tx: SlotMemory;
  readonly receiver: ReceiveQueue;
  readonly datagrams: Datagrams;
  readonly self: IbAddress;
  readonly segBytes: number;
  readonly inlineBytes: number;
  readonly deviceIndex: number;
  readonly zcopyBytesMax: number;
  readonly sendCq: CompletionQueue;
  readonly receiveCq: CompletionQueue;
  outstanding = 0;
  readonly sendDepth: number;
  sendRoom: number;
  readonly iovMax: number;
  readonly #services: ComponentServices;
  readonly #opened: Opened = new Opened();
  readonly #alarm: EventAlarm;
  readonly #datagramEvents: DatagramEvents;
  readonly #sends: CqReader;
  readonly #receives: CqReader;
  readonly #connector: IbConnector;
  readonly #sleeper: Sleeper;
  readonly #connections: Map<number, IbConnection> = new Map();
  readonly #endpoints: Map<IbConnection, IbEndpoint> = new Map();
  /** Connections that have failed and are not destroyed. */
  readonly #failed: IbConnection[] = [];
  readonly #closing: ClosingConnections = new ClosingConnections((connection) => this.#destroy(connection));
  readonly #creditReturns: CreditReturns = new CreditReturns();
  readonly #retries: AtomicRetries = new AtomicRetries((completion, status) => this.complete(completion, status));
  #handler: AmHandler | undefined = undefined;
  #errorHandler: EndpointErrorHandler | undefined = undefined;
  #failure: UcxError | undefined = undefined;
  #polls = 0;
  #closed = false;
  readonly #onReceived = (byteLength: number): void => this.counters.received(byteLength);

  /** @throws SyscallError */
  constructor(port: IbPort, services: ComponentServices) {
    const { device, attributes, gid } = port;
    this.port = port;
    this.#services = services;
    this.clock = services.clock;
    this.ib = services.config.get(IB_CONFIG_TABLE);
    this.rc = services.config.get(RC_CONFIG_TABLE);
    this.warnings = new LimitedLog(services.log, services.clock);
    this.segBytes = this.ib.SEG_SIZE;
    this.deviceIndex = device.index;
    const opened = this.#opened;
    try {
      const queues = opened.keep(new IfaceQueues(port, this.rc, this.segBytes));
      this.sendDepth = queues.sendDepth;
      this.sendRoom = queues.sendDepth;
      this.sendCq = queues.sendCq;
      this.receiveCq = queues.receiveCq;
      this.#sends = queues.sends;
      this.#receives = queues.receives;
      this.tx = queues.tx;
      this.receiver = queues.receiver;
      this.inlineBytes = queues.inlineBytes;
      this.attributes = ibAttributes(port, this.ib, queues.limits);
      this.zcopyBytesMax = this.attributes.put.zcopyBytesMax;
      this.iovMax = this.attributes.put.iovMax;
      this.datagrams = opened.keep(new Datagrams(port, this.ib));
      this.#datagramEvents = opened.keep(
        new DatagramEvents(this.datagrams, (message) => this.#connector.onMessage(message)),
      );
      this.#alarm = opened.keep(
        new EventAlarm(queues.channel.fd, () => {
          queues.channel.consume();
          this.#sleeper.wake();
        }),
      );
      this.self = {
        linkLayer: attributes.linkLayer,
        mtu: Math.min(attributes.activeMtu, this.ib.PATH_MTU),
        deviceIndex: device.index,
        lid: attributes.lid,
        qpNum: this.datagrams.qpNum,
        qkey: this.datagrams.qkey,
        segBytes: this.segBytes,
        gid: gid.gid,
        id: systemRandomBytes(ID_BYTES).slice(),
      };
    } catch (error) {
      opened.close();
      throw error;
    }
    this.address = packIbAddress(this.self);
    this.#connector = new IbConnector(this);
    this.#sleeper = new Sleeper(services.clock);
    this.#datagramEvents.arm();
  }

  get closed(): boolean {
    return this.#closed;
  }

  get srq(): SharedReceiveQueue {
    return this.receiver.srq;
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
    this.#connections.set(connection.qp.qpNum, connection);
    const endpoint = new IbEndpoint(this, connection, peer.deviceIndex);
    this.#endpoints.set(connection, endpoint);
    return endpoint;
  }

  remotePath(rkey: RemoteKey): RemotePath | undefined {
    if (!(rkey instanceof IbKey)) throw invalidParam('rkey', `must be of memory domain ${IB_NAME}`, rkey);
    return rkey.memoryType === MemoryType.HOST ? undefined : DMABUF_PATH;
  }

  setAmHandler(handler: AmHandler | undefined): void {
    checkAmHandler(handler);
    this.#handler = handler;
  }

  setErrorHandler(handler: EndpointErrorHandler): void {
    checkHandler(handler);
    this.#errorHandler = handler;
  }

  progress(): number {
    if (this.#closed) return 0;
    let count = this.#failed.length > 0 ? this.#reportFailures() : 0;
    count += this.#progressSends();
    this.receive();
    count += this.#deliver();
    this.#polls = (this.#polls + 1) & (DATAGRAMS_EVERY - 1);
    if (this.#polls === 0 || this.#connector.pending > 0) this.#datagramEvents.progress();
    this.#creditReturns.progress();
    this.#retries.progress();
    if (this.#closing.size > 0) this.#closing.progress();
    if (count > 0 && this.#sleeper.sleeping) this.#sleeper.wake();
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
    const isIdle = this.#handler === undefined && this.outstanding === 0 && this.#connector.pending === 0;
    if (this.#closed || isIdle || this.#failed.length > 0) return Promise.resolve();
    for (const { cq } of [this.#sends, this.#receives]) cq.requestNotify();
    // Completions that arrived before the request raise no event.
    const ready = this.#sends.fill() + this.#receives.fill();
    const isDeliverable = this.#handler !== undefined && this.receiver.length > 0;
    if (ready > 0 || isDeliverable) {
      this.#sleeper.wake();
      return Promise.resolve();
    }
    this.#alarm.arm();
    return this.#sleeper.sleep(timeoutNs);
  }

  close(): void {
    if (this.#closed) return;
    for (const connection of this.#connections.values()) this.#closing.start(connection);
    this.#endpoints.clear();
    this.#drain();
    this.#closed = true;
    for (const connection of [...this.#connections.values()]) this.#destroy(connection);
    this.#retries.close();
    this.#connector.close();
    this.#sleeper.wake();
    this.#opened.close();
    this.warnings.tellLeft();
  }

  /** The device has failed, perhaps without completions that say so: every connection fails. */
  deviceFailed(): void {
    if (this.#closed) return;
    for (const connection of this.#connections.values()) connection.fail(Status.CONNECTION_RESET);
  }

  // Functions for endpoints and connections.

  receive(): void {
    if (this.#closed) return;
    const reader = this.#receives;
    const { words } = reader;
    for (let left = reader.fill(); left > 0; left--) {
      const at = reader.next();
      const slot = words[at + Wc.WR_ID]!;
      const connection = this.#connections.get(words[at + Wc.QP_NUM]!);
      const isGood = words[at + Wc.STATUS] === WcStatus.SUCCESS && words[at + Wc.OPCODE] === WcOpcode.RECV;
      if (connection === undefined || !isGood) {
        this.receiver.recycle(slot);
        continue;
      }
      const immediate = words[at + Wc.IMM_DATA]!;
      const kind = (immediate >>> 8) & 0xff;
      if (kind === MessageKind.AM) this.receiver.add(slot, immediate & 31, words[at + Wc.BYTE_LEN]!, connection);
      else {
        this.receiver.recycle(slot);
        this.#onControl(connection, kind, immediate >>> 16);
      }
    }
  }

  closeEndpoint({ connection }: IbEndpoint): void {
    this.#endpoints.delete(connection);
    this.#closing.start(connection);
    if (!connection.isBusy) this.#destroy(connection);
  }

  onSettled(): void {
    this.#sleeper.wake();
  }

  onAccepted(connection: IbConnection): void {
    this.#connections.set(connection.qp.qpNum, connection);
  }

  onFailed(connection: IbConnection, status: Status): void {
    this.#failed.push(connection);
    this.#sleeper.wake();
    if (!this.#endpoints.has(connection)) return;
    const message = `the connection to ${connection.peer} has ended: ${statusString(status)}`;
    const { resource } = this.attributes;
    this.#failure = new UcxError({
      code: `ERR_${statusName(status)}`,
      status,
      message: `${resource.transport}/${resource.device}: ${message}`,
      details: { peer: connection.peer },
    });
    this.#services.log.diag(message);
  }

  onEnded(connection: IbConnection, entry: TxEntry, status: Status): void {
    const { slot, completion, target, targetOffset, targetBytes, call, key, remoteOffset, assumed } = entry;
    const isAttached = entry.release();
    entry.clear();
    let final = status === Status.OK && !isAttached ? Status.INVALID_ADDR : status;
    if (slot >= 0) {
      const at = slot * this.segBytes;
      if (final === Status.OK && target !== undefined) {
        if (target.byteLength < targetOffset + targetBytes) final = Status.INVALID_ADDR;
        else copyBytes(target, targetOffset, this.tx.bytes, at, targetBytes);
      }
      if (final === Status.OK && call !== undefined && completion !== undefined && key !== undefined) {
        const word = joinBig(this.tx.words[at >> 2]!, this.tx.words[(at >> 2) + 1]!);
        this.tx.give(slot);
        call.result64 = word;
        if (isNative(call.operation) || word === assumed) this.complete(completion, Status.OK);
        else {
          const endpoint = this.#endpoints.get(connection);
          this.#retries.retry({ endpoint, call, remoteOffset, key, completion, assumed: word });
        }
        return;
      }
      this.tx.give(slot);
    }
    if (completion !== undefined) this.complete(completion, final);
  }

  complete(completion: Completion, status: Status): void {
    this.outstanding -= 1;
    completeOne(completion, status);
  }

  /** The peer of an address, or why it cannot be reached. */
  #reachable(address: Uint8Array): IbAddress | string {
    const peer = unpackIbAddress(address);
    if (peer === undefined) return 'the address is none of this transport and version';
    return ibUnreachableReason(this.self, peer) ?? peer;
  }

  #progressSends(): number {
    const reader = this.#sends;
    const { words } = reader;
    let count = 0;
    for (let left = reader.fill(); left > 0; left--) {
      const at = reader.next();
      const connection = this.#connections.get(words[at + Wc.QP_NUM]!);
      if (connection === undefined || connection.isDestroyed) continue;
      const status = words[at + Wc.STATUS]!;
      const position = joinWords(words[at + Wc.WR_ID]!, words[at + Wc.WR_ID + 1]!);
      const before = this.outstanding;
      connection.retire(position, statusOfWc(status));
      count += before - this.outstanding;
      if (status !== WcStatus.SUCCESS && connection.failure === Status.OK) {
        this.#services.log.debug(`the connection to ${connection.peer}: ${wcStatusText(status)}`);
        connection.fail(connectionStatusOfWc(status));
      }
    }
    return count;
  }

  #deliver(): number {
    const handler = this.#handler;
    if (handler === undefined) return 0;
    const count = this.receiver.length;
    for (let i = 0; i < count && this.receiver.length > 0 && !this.#closed; i++) {
      const connection = this.receiver.deliver(handler, this.#onReceived);
      connection.delivered += 1;
      if (connection.delivered >= this.rc.FC_WND_SIZE >> 1) this.#creditReturns.send(connection);
    }
    return count;
  }

  #onControl(connection: IbConnection, kind: number, count: number): void {
    if (kind === MessageKind.CREDIT) {
      // A peer may grant at most the window.
      connection.credits = Math.min(this.rc.FC_WND_SIZE, connection.credits + count);
      this.#sleeper.wake();
      return;
    }
    if (kind !== MessageKind.CLOSE) return;
    if (this.#endpoints.has(connection)) connection.fail(Status.CONNECTION_RESET);
    else this.#destroy(connection);
  }

  #reportFailures(): number {
    let count = 0;
    for (const connection of this.#failed.splice(0)) {
      const endpoint = this.#endpoints.get(connection);
      const before = this.outstanding;
      // The device does not access memory of a queue pair that is destroyed.
      this.#destroy(connection);
      count += before - this.outstanding;
      if (endpoint === undefined) continue;
      this.#errorHandler?.(endpoint, connection.failure);
      count += 1;
    }
    return count;
  }

  #destroy(connection: IbConnection): void {
    this.#closing.forget(connection);
    this.#creditReturns.forget(connection);
    this.#connector.forget(connection);
    this.#connections.delete(connection.qp.qpNum);
    connection.destroy();
  }

  /** Waits until the device has sent what was posted, for a bounded time. Peers that have closed before receive nothing any more. */
  #drain(): void {
    const deadlineNs = this.clock.nowNs() + DRAIN_NS;
    while (this.#closing.size > 0) {
      this.#progressSends();
      this.receive();
      this.#closing.progress();
      if (this.clock.nowNs() >= deadlineNs) return;
    }
  }
}
