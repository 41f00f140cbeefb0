/**
 * The connections of one worker by socket address: its listeners, its connection attempts, the data that both sides exchange, and the two halves of the
 * resulting connection. Accepted halves wait until their clients attach. Their number is limited for each listener and each client address, and so is
 * their waiting time, so that a client that never attaches has a bounded cost. The connection manager is opened at first use.
 */

import { checkConnectOptions } from '../../api/awaited/worker.ts';
import type { Endpoint, EndpointOptions } from '../../api/contract/endpoint.ts';
import {
  ConnectionRequest,
  checkListenerOptions,
  type Driver,
  Listener,
  type ListenerOptions,
  printSocketAddress,
} from '../../api/contract/listener.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import type { ConnectNbxOptions } from '../../api/contract/worker.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import type { Clock, Timer } from '../../ucs/sys/clock.ts';
import { closedError, isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type {
  ClientRequest,
  ConnectAnswer,
  ConnectAttempt,
  ConnectionManager,
} from '../../uct/api/connection-manager.ts';
import type { Connection } from '../base/connection.ts';
import type { ConnectRequest, Request } from '../base/request/request.ts';
import type { WorkerCore } from '../base/worker-core.ts';
import { unpackWorkerAddress } from '../lane/worker-address.ts';
import type { ConnectionEvents, Connections } from './connections.ts';

export class SocketConnections {
  readonly #core: WorkerCore;
  readonly #connections: Connections;
  readonly #events: ConnectionEvents;
  readonly #driver: Driver;
  readonly #listeners: Set<Listener> = new Set();
  readonly #attempts: Map<ConnectRequest, ConnectAttempt> = new Map();
  readonly #attaching: Attaching;
  #manager: ConnectionManager | undefined;
  #isDue = false;
  /** The last wait in the manager whose end is awaited here. */
  #asleep: Promise<void> | undefined = undefined;
  #closed = false;

  /** @param events the endpoints of the connections */
  constructor(core: WorkerCore, connections: Connections, events: ConnectionEvents, driver: Driver) {
    this.#core = core;
    this.#connections = connections;
    this.#events = events;
    this.#attaching = new Attaching(core.context.clock, (late) => this.#onPeerGone(late, Status.ENDPOINT_TIMEOUT));
    this.#driver = driver;
  }

  /** The connection manager; empty before the first use. */
  get managers(): readonly ConnectionManager[] {
    return this.#manager === undefined ? [] : [this.#manager];
  }

  /** True if progress must drive the manager now: that needs a system call, so not every progress call makes it. */
  get isDue(): boolean {
    return this.#isDue;
  }

  /** See ConnectionManager.outstanding. */
  get outstanding(): number {
    return this.#manager?.outstanding ?? 0;
  }

  /** Drives the connection manager. */
  progress(): number {
    this.#isDue = false;
    const manager = this.#manager;
    if (manager === undefined || manager.outstanding === 0) return 0;
    const count = manager.progress();
    if (count > 0) this.#isDue = true;
    return count;
  }

  /** Waits like ConnectionManager.wait. */
  wait(timeoutNs: number): Promise<void> {
    const sleep = this.#manager?.wait(timeoutNs) ?? Promise.resolve();
    if (sleep !== this.#asleep) {
      this.#asleep = sleep;
      const end = (): void => {
        this.#isDue = true;
      };
      sleep.then(end, end);
    }
    return sleep;
  }

  /** See Worker.listener. */
  listen(options: ListenerOptions): Listener {
    const checked = checkListenerOptions(options);
    const manager = this.#open();
    const listener = new Listener(
      checked,
      this.#driver,
      (self) => manager.listen(checked, checked.backlog, (request) => this.#onRequest(self, request)),
      (closed) => this.#listeners.delete(closed),
    );
    this.#listeners.add(listener);
    return listener;
  }

  /** See Worker.connectNbx. */
  connect(options: ConnectNbxOptions, params: RequestParams | undefined): Status | Request {
    checkConnectOptions(options);
    const { sendClientId = false } = options;
    const manager = this.#open();
    const request = this.#core.requests.take(this.#core.requests.connects);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(undefined, undefined);
    request.protocolName = 'connect';
    request.canceller = () => this.#cancel(request);
    request.starter = () => {
      const { clientId, packedAddress: workerAddress } = this.#core;
      const data = packConnectData({ clientId: sendClientId ? clientId : undefined, workerAddress });
      const attempt = manager.connect(options, data, (answer) => this.#onAnswer(request, options, answer));
      this.#attempts.set(request, attempt);
      this.#isDue = true;
      return Status.INPROGRESS;
    };
    return this.#core.start(request, params);
  }

  /** Cancels an attempt; false if it has ended. */
  #cancel(request: ConnectRequest): boolean {
    const attempt = this.#attempts.get(request);
    if (attempt === undefined) return false;
    this.#attempts.delete(request);
    attempt.cancel();
    return true;
  }

  /** Called when an accepted half has its client, or was dropped. */
  attached(connection: Connection): void {
    this.#attaching.delete(connection);
  }

  /** Closes listeners and cancels attempts. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const listener of this.#listeners) void listener.close();
    for (const request of [...this.#attempts.keys()]) request.cancel();
    this.#manager?.close();
    this.#attaching.close();
  }

  #open(): ConnectionManager {
    if (this.#closed) throw closedError('worker');
    this.#manager ??= this.#core.context.resources.openConnectionManager();
    return this.#manager;
  }

  #onRequest(listener: Listener, request: ClientRequest): void {
    const rejection = this.#attaching.rejectionOf(listener, request.clientAddress.address);
    if (rejection !== undefined) {
      this.#core.warnings.warn(`client ${printSocketAddress(request.clientAddress)} rejected: ${rejection}`);
      request.reject(Status.BUSY, rejection);
      return;
    }
    let data: ConnectData;
    try {
      data = unpackConnectData(request.privateData);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#core.warnings.warn(`client ${printSocketAddress(request.clientAddress)} rejected: ${error.message}`);
      request.reject(error.status, error.message);
      return;
    }
    const accept = (options: EndpointOptions): Endpoint => this.#accept(listener, request, data, options);
    listener.requested(new ConnectionRequest(listener, request, data.clientId, accept));
  }

  #accept(
    listener: Listener,
    request: ClientRequest,
    { workerAddress }: ConnectData,
    options: EndpointOptions,
  ): Endpoint {
    let connection: Connection;
    try {
      if (this.#closed) throw closedError('worker');
      connection = this.#connections.accept(workerAddress);
    } catch (error) {
      if (isUcxError(error)) request.reject(error.status, error.message);
      throw error;
    }
    connection.socketAddresses = { local: request.serverAddress, remote: request.clientAddress };
    const endpoint = this.#events.adopt(connection, options);
    // One time limit for the reply, and another one for the client to attach.
    const timeoutNs = 2 * this.#open().timeoutNs;
    this.#attaching.add(connection, listener, request.clientAddress.address, timeoutNs);
    const { id: connectionId, inbound } = connection;
    const answer = { connectionId, windowBytes: inbound.windowBytes, workerAddress: this.#core.packedAddress };
    request.accept(packAcceptData(answer), (status) => {
      // Once the client has attached, the transports detect whether it is alive.
      if (status === Status.OK || connection.remoteId !== NO_ENDPOINT) return;
      this.#onPeerGone(connection, status === Status.TIMED_OUT ? Status.ENDPOINT_TIMEOUT : status);
    });
    return endpoint;
  }

  /** @returns the decision about the connection, for the server; see OnConnectAnswer */
  #onAnswer(request: ConnectRequest, options: ConnectNbxOptions, answer: ConnectAnswer): Status {
    this.#attempts.delete(request);
    if (answer.status !== Status.OK) {
      request.error = answer.error;
      request.end(answer.status);
      return answer.status;
    }
    let endpoint: Endpoint;
    try {
      endpoint = this.#attach(answer, options);
    } catch (error) {
      request.error = error;
      const status = isUcxError(error) ? error.status : Status.IO_ERROR;
      request.end(status);
      return status;
    }
    try {
      options.onConnected(endpoint);
    } catch (error) {
      this.#core.onThrown(error);
    }
    request.end(Status.OK);
    return Status.OK;
  }

  #onPeerGone(connection: Connection, status: Status): void {
    connection.fail(status);
    this.#events.onConnectionFailed(connection);
  }

  #attach(answer: ConnectAnswer, options: EndpointOptions): Endpoint {
    const { connectionId, windowBytes, workerAddress } = unpackAcceptData(answer.privateData);
    const connection = this.#connections.attach(workerAddress, connectionId, windowBytes);
    const { clientAddress: local, serverAddress: remote } = answer;
    if (local !== undefined && remote !== undefined) connection.socketAddresses = { local, remote };
    return this.#events.adopt(connection, options);
  }
}

/** Maximum number of halves of one listener that wait for their clients; further clients are rejected with BUSY. */
export const ATTACHING_MAX = 1024;
/** The same for clients with one address. */
export const ATTACHING_PER_CLIENT_MAX = 512;

/** A waiting half. */
interface Waiting {
  readonly connection: Connection;
  readonly listener: object;
  readonly client: string;
  readonly deadlineNs: number;
}

/** Accepted halves whose clients have not attached yet. */
export class Attaching {
  readonly #clock: Clock;
  readonly #onLate: (connection: Connection) => void;
  /** In the order of their deadlines. */
  readonly #waiting: Map<Connection, Waiting> = new Map();
  readonly #byListener: Map<object, number> = new Map();
  readonly #byClient: Map<string, number> = new Map();
  #timer: Timer | undefined;

  /** @param onLate called for a half whose client has not attached in time */
  constructor(clock: Clock, onLate: (connection: Connection) => void) {
    this.#clock = clock;
    this.#onLate = onLate;
  }

  get size(): number {
    return this.#waiting.size;
  }

  /** Why a client cannot be accepted now; undefined if it can. */
  rejectionOf(listener: object, client: string): string | undefined {
    const count = this.#byListener.get(listener) ?? 0;
    if (count >= ATTACHING_MAX) return `${count} accepted clients have not attached yet`;
    const same = this.#byClient.get(client) ?? 0;
    if (same >= ATTACHING_PER_CLIENT_MAX) return `${same} accepted clients from ${client} have not attached yet`;
    return undefined;
  }

  /** Adds a half whose client was accepted. @param timeoutNs time limit for the client to attach; Infinity for none */
  add(connection: Connection, listener: object, client: string, timeoutNs: number): void {
    this.#waiting.set(connection, { connection, listener, client, deadlineNs: this.#clock.nowNs() + timeoutNs });
    change(this.#byListener, listener, 1);
    change(this.#byClient, client, 1);
    this.#arm();
  }

  /** Removes a half whose client has attached, or that has ended. Idempotent. */
  delete(connection: Connection): void {
    const waiting = this.#waiting.get(connection);
    if (waiting === undefined) return;
    this.#waiting.delete(connection);
    change(this.#byListener, waiting.listener, -1);
    change(this.#byClient, waiting.client, -1);
  }

  close(): void {
    this.#timer?.cancel();
    this.#timer = undefined;
    this.#waiting.clear();
  }

  #arm(): void {
    const [first] = this.#waiting.values();
    if (this.#timer !== undefined || first === undefined || first.deadlineNs === Number.POSITIVE_INFINITY) return;
    const restNs = Math.max(1, first.deadlineNs - this.#clock.nowNs());
    this.#timer = this.#clock.setTimer(restNs, () => {
      this.#timer = undefined;
      this.#expire();
    });
  }

  #expire(): void {
    const nowNs = this.#clock.nowNs();
    const late: Connection[] = [];
    for (const { connection, deadlineNs } of this.#waiting.values()) {
      if (deadlineNs > nowNs) break;
      if (connection.remoteId === NO_ENDPOINT && connection.failure === Status.OK) late.push(connection);
      this.delete(connection);
    }
    // First, because the callbacks below belong to the application.
    this.#arm();
    for (const connection of late) this.#onLate(connection);
  }
}

function change<K>(counts: Map<K, number>, key: K, by: number): void {
  const count = (counts.get(key) ?? 0) + by;
  if (count === 0) counts.delete(key);
  else counts.set(key, count);
}

/*
 * Layouts of the data that client and listener exchange through a connection manager: identity and worker address of the client, and the half of the
 * connection that the server has created for it.
 *
 * Little-endian. Request: u8 version, u8 flags (1: has a client id), u16 0, u32 0, u64 client id, worker address. Acceptance: u8 version, u8 0, u16 0, u32
 * id of the connection, u64 bytes that the client may send before the server requests them, worker address.
 */

const VERSION = 2;
const HAS_CLIENT_ID = 1;
const REQUEST_BYTES = 16;
const ACCEPTANCE_BYTES = 16;
const CONNECTION_ID_MAX = 0x7fff_ffff;

interface ConnectData {
  readonly clientId: bigint | undefined;
  readonly workerAddress: Uint8Array;
}

/** The private data of a server. */
export interface AcceptData {
  readonly connectionId: number;
  readonly windowBytes: number;
  readonly workerAddress: Uint8Array;
}

export function packConnectData({ clientId, workerAddress }: ConnectData): Uint8Array {
  const packed = begin(REQUEST_BYTES, workerAddress);
  const view = new DataView(packed.buffer);
  view.setUint8(1, clientId === undefined ? 0 : HAS_CLIENT_ID);
  view.setBigUint64(8, clientId ?? 0n, true);
  return packed;
}

/**
 * Reads the private data of a client, and checks its worker address.
 * @throws UcxError ERR_CONNECT_MALFORMED, ERR_ADDRESS_MALFORMED (INVALID_PARAM)
 */
export function unpackConnectData(packed: Uint8Array): ConnectData {
  const view = viewOf(packed, REQUEST_BYTES, 'request');
  const flags = view.getUint8(1);
  if (flags > HAS_CLIENT_ID) throw malformed('request', `has unknown flags ${flags}`);
  const workerAddress = new Uint8Array(packed.subarray(REQUEST_BYTES));
  unpackWorkerAddress(workerAddress);
  return { clientId: flags === HAS_CLIENT_ID ? view.getBigUint64(8, true) : undefined, workerAddress };
}

export function packAcceptData({ connectionId, windowBytes, workerAddress }: AcceptData): Uint8Array {
  const packed = begin(ACCEPTANCE_BYTES, workerAddress);
  const view = new DataView(packed.buffer);
  view.setUint32(4, connectionId, true);
  view.setBigUint64(8, BigInt(windowBytes), true);
  return packed;
}

/** Reads the private data of a server; throws like {@link unpackConnectData}. */
export function unpackAcceptData(packed: Uint8Array): AcceptData {
  const view = viewOf(packed, ACCEPTANCE_BYTES, 'acceptance');
  const connectionId = view.getUint32(4, true);
  if (connectionId === 0 || connectionId > CONNECTION_ID_MAX) {
    throw malformed('acceptance', `has an invalid connection id ${connectionId}`);
  }
  const workerAddress = new Uint8Array(packed.subarray(ACCEPTANCE_BYTES));
  unpackWorkerAddress(workerAddress);
  return { connectionId, windowBytes: Number(view.getBigUint64(8, true)), workerAddress };
}

function begin(headerBytes: number, workerAddress: Uint8Array): Uint8Array<ArrayBuffer> {
  const packed = new Uint8Array(headerBytes + workerAddress.byteLength);
  packed[0] = VERSION;
  packed.set(workerAddress, headerBytes);
  return packed;
}

function viewOf(packed: Uint8Array, headerBytes: number, what: string): DataView {
  if (packed.byteLength < headerBytes) throw malformed(what, `is truncated: has only ${packed.byteLength} bytes`);
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const version = view.getUint8(0);
  if (version !== VERSION)
    throw malformed(
      what,
      `has version ${version}, but this library supports only ${VERSION}: use the same version of gaudi-ucx at both ends`,
    );
  return view;
}

function malformed(what: string, rule: string): UcxError {
  return new UcxError({
    code: 'ERR_CONNECT_MALFORMED',
    status: Status.INVALID_PARAM,
    message: `connection ${what} ${rule}`,
    details: { rule },
  });
}
