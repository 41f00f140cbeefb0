/**
 * The connections of one worker that are agreed on by socket addresses: its listeners, its attempts to connect, and how what both ends have exchanged becomes
 * two halves that belong together. The connection manager is opened at the first use.
 */

import type { Clock } from '../../ucs/clock.ts';
import { closedError, invalidParam, isUcxError, statusError } from '../../ucs/error.ts';
import { LimitedLog } from '../../ucs/limited-log.ts';
import type { Log } from '../../ucs/log.ts';
import { Status } from '../../ucs/status.ts';
import { throwLater } from '../../ucs/uncaught.ts';
import type {
  ClientRequest,
  ConnectAnswer,
  ConnectAttempt,
  ConnectionManager,
  SocketAddress,
} from '../../uct/api/connection-manager.ts';
import { checkErrorHandling, type ErrorHandlingOptions } from '../core/error-handling.ts';
import { NO_ENDPOINT } from '../core/message.ts';
import type { PeerConnection } from '../core/peer-connection.ts';
import type { PromiseTier } from '../core/promise-tier.ts';
import { checkSignal } from '../core/promise-tier.ts';
import { type Request, RequestKind, type RequestParams } from '../core/request.ts';
import {
  type ConnectData,
  packAcceptData,
  packConnectData,
  unpackAcceptData,
  unpackConnectData,
} from './connect-data.ts';
import { ConnectionRequest, type RequestListener } from './connection-request.ts';
import type { Connections } from './connections.ts';
import { checkListenerOptions, type Driver, Listener, type ListenerOptions } from './listener.ts';
import { addressesOf, checkSocketAddress, printSocketAddress } from './socket-address.ts';

/** Failures after which another address of the same host may do better. */
const TRY_NEXT: readonly Status[] = [Status.UNREACHABLE, Status.TIMED_OUT, Status.CONNECTION_RESET];

/** Where a listener is, and how the endpoint to its worker behaves. */
export interface ConnectNbxOptions<E> extends SocketAddress, ErrorHandlingOptions<E> {
  /** Tells the listener the client id of this worker (UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID). Default false. */
  readonly sendClientId?: boolean;
  /** Gets the endpoint, inside progress, just before the request ends with OK. */
  readonly onConnected: (endpoint: E) => void;
}

/** As {@link ConnectNbxOptions}, for awaiting: either `address` or `host`. */
export interface ConnectOptions<E> extends ErrorHandlingOptions<E> {
  /** Numeric address of the listener. */
  readonly address?: string;
  /** Name of the machine: its addresses are tried one after the other. */
  readonly host?: string;
  readonly port: number;
  readonly sendClientId?: boolean;
  readonly signal?: AbortSignal;
}

/** The worker behind them. */
export interface SocketOwner<E> {
  readonly context: { readonly resources: { openConnectionManager(): ConnectionManager }; readonly clock: Clock };
  readonly log: Log;
  readonly clientId: bigint;
  readonly packedAddress: Uint8Array;
  readonly connections: Connections;
  readonly promises: PromiseTier;
  /** Makes the endpoint of a connection. */
  adopt(connection: PeerConnection, options: ErrorHandlingOptions<E>): E;
  onPeerGone(connection: PeerConnection, status: Status): void;
  newRequest(): Request | undefined;
  start(request: Request, params: RequestParams | undefined): Status | Request;
}

/** The connections. `E` is the endpoint of the API. */
export class SocketConnections<E> {
  readonly #owner: SocketOwner<E>;
  readonly #driver: Driver;
  readonly #log: LimitedLog;
  readonly #listeners: Set<Listener<E>> = new Set();
  readonly #attempts: Map<Request, ConnectAttempt> = new Map();
  #manager: ConnectionManager | undefined;
  #isDue = false;
  #closed = false;

  constructor(owner: SocketOwner<E>, driver: Driver) {
    this.#owner = owner;
    this.#driver = driver;
    this.#log = new LimitedLog(owner.log, owner.context.clock);
  }

  /** The connection manager; none before the first use. */
  get managers(): readonly ConnectionManager[] {
    return this.#manager === undefined ? [] : [this.#manager];
  }

  /** Whether progress has to look now: a system call that the turns between are spared. */
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
    if (this.outstanding === 0) return 0;
    const count = this.#manager!.progress();
    if (count > 0) this.#isDue = true;
    return count;
  }

  /** Sleeps as ConnectionManager.wait does. */
  async wait(timeoutNs: number): Promise<void> {
    await this.#manager?.wait(timeoutNs);
    this.#isDue = true;
  }

  /** See Worker.listener. */
  listen(options: ListenerOptions<E>): Listener<E> {
    const checked = checkListenerOptions(options);
    const manager = this.#open();
    const listener = new Listener<E>(
      checked,
      this.#driver,
      (self) => manager.listen(checked, checked.backlog, (request) => this.#onRequest(self, request)),
      (closed) => this.#listeners.delete(closed),
    );
    this.#listeners.add(listener);
    return listener;
  }

  /** See Worker.connectNbx. */
  connect(options: ConnectNbxOptions<E>, params: RequestParams | undefined): Status | Request {
    checkErrorHandling(options);
    checkSocketAddress(options, 1);
    const { sendClientId = false, onConnected } = options;
    if (typeof sendClientId !== 'boolean') throw invalidParam('sendClientId', 'must be a boolean', sendClientId);
    if (typeof onConnected !== 'function') throw invalidParam('onConnected', 'must be a function', onConnected);
    const manager = this.#open();
    const request = this.#owner.newRequest();
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(RequestKind.CONNECT);
    request.protocolName = 'connect';
    request.connection = undefined;
    request.lane = undefined;
    request.byteLength = 0;
    request.starter = () => {
      const { clientId, packedAddress: workerAddress } = this.#owner;
      const data = packConnectData({ clientId: sendClientId ? clientId : undefined, workerAddress });
      const attempt = manager.connect(options, data, (answer) => this.#onAnswer(request, options, answer));
      this.#attempts.set(request, attempt);
      this.#isDue = true;
      return Status.INPROGRESS;
    };
    return this.#owner.start(request, params);
  }

  /** See Worker.connect. */
  async connectTo(options: ConnectOptions<E>): Promise<E> {
    checkErrorHandling(options);
    const { address, host, signal } = options;
    if ((address === undefined) === (host === undefined)) {
      throw invalidParam('address', 'must be given, or host instead of it', address);
    }
    if (signal !== undefined) checkSignal(signal);
    const addresses = address === undefined ? await addressesOf(host!, signal) : [address];
    for (const [index, candidate] of addresses.entries()) {
      try {
        return await this.#await({ ...options, address: candidate }, signal);
      } catch (error) {
        const isLast = index === addresses.length - 1;
        if (isLast || !isUcxError(error) || !TRY_NEXT.includes(error.status)) throw error;
      }
    }
    throw statusError(Status.UNREACHABLE, `connect to ${host}: it has no address`);
  }

  /** Gives up an attempt; false when it has ended. */
  cancel(request: Request): boolean {
    const attempt = this.#attempts.get(request);
    if (attempt === undefined) return false;
    this.#attempts.delete(request);
    attempt.cancel();
    return true;
  }

  /** Closes listeners and gives up attempts. Idempotent. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const listener of this.#listeners) void listener.close();
    for (const request of [...this.#attempts.keys()]) request.cancel();
    this.#log.tellLeft();
    this.#manager?.close();
  }

  #open(): ConnectionManager {
    if (this.#closed) throw closedError('worker');
    this.#manager ??= this.#owner.context.resources.openConnectionManager();
    return this.#manager;
  }

  async #await(options: ConnectOptions<E> & SocketAddress, signal: AbortSignal | undefined): Promise<E> {
    const { promises } = this.#owner;
    const endpoints: E[] = [];
    const onConnected = (endpoint: E): void => {
      endpoints.push(endpoint);
    };
    const what = `connect to ${printSocketAddress(options)}`;
    // A connection that stands in spite of an abort is not thrown away: somebody has to close it.
    await promises.receive(what, signal, (params) => this.connect({ ...options, onConnected }, params));
    return endpoints[0]!;
  }

  #onRequest(listener: Listener<E>, request: ClientRequest): void {
    let data: ConnectData;
    try {
      data = unpackConnectData(request.privateData);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#log.warn(`client ${printSocketAddress(request.clientAddress)} is rejected: ${error.message}`);
      request.reject(error.status, error.message);
      return;
    }
    const owner: RequestListener<E> = {
      accept: (client, sent, options) => this.#accept(client, sent, options),
      answered: (answered) => listener.answered(answered),
    };
    listener.requested(new ConnectionRequest<E>(owner, request, data));
  }

  #accept(request: ClientRequest, { workerAddress }: ConnectData, options: ErrorHandlingOptions<E>): E {
    const { connections, packedAddress } = this.#owner;
    let connection: PeerConnection;
    try {
      if (this.#closed) throw closedError('worker');
      connection = connections.accept(workerAddress);
    } catch (error) {
      if (isUcxError(error)) request.reject(error.status, error.message);
      throw error;
    }
    connection.socketAddresses = { local: request.serverAddress, remote: request.clientAddress };
    const endpoint = this.#owner.adopt(connection, options);
    request.accept(packAcceptData({ connectionId: connection.id, workerAddress: packedAddress }), (status) => {
      // Once the client has attached, the transports know best whether it lives.
      if (status === Status.OK || connection.remoteId !== NO_ENDPOINT) return;
      this.#owner.onPeerGone(connection, status === Status.TIMED_OUT ? Status.ENDPOINT_TIMEOUT : status);
    });
    return endpoint;
  }

  /** @returns what becomes of the connection, for the server; see OnConnectAnswer */
  #onAnswer(request: Request, options: ConnectNbxOptions<E>, answer: ConnectAnswer): Status {
    this.#attempts.delete(request);
    if (answer.status !== Status.OK) {
      request.error = answer.error;
      end(request, answer.status);
      return answer.status;
    }
    let endpoint: E;
    try {
      endpoint = this.#attach(answer, options);
    } catch (error) {
      request.error = error;
      const status = isUcxError(error) ? error.status : Status.IO_ERROR;
      end(request, status);
      return status;
    }
    call(() => options.onConnected(endpoint));
    end(request, Status.OK);
    return Status.OK;
  }

  #attach(answer: ConnectAnswer, options: ErrorHandlingOptions<E>): E {
    const { connections } = this.#owner;
    const { connectionId, workerAddress } = unpackAcceptData(answer.privateData);
    const connection = connections.attach(workerAddress, connectionId);
    const { clientAddress: local, serverAddress: remote } = answer;
    if (local !== undefined && remote !== undefined) connection.socketAddresses = { local, remote };
    return this.#owner.adopt(connection, options);
  }
}

/** Ends a request of the application: what its callback throws is an uncaught exception, and does not keep the server from hearing. */
function end(request: Request, status: Status): void {
  call(() => request.end(status));
}

function call(callback: () => void): void {
  try {
    callback();
  } catch (error) {
    throwLater(error);
  }
}
