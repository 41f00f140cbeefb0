/**
 * The connections of one worker by socket addresses: its listeners, its attempts to connect, and the two halves of a connection that result from the
 * exchanged data. The connection manager is opened at the first use.
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
  type RequestListener,
} from '../../api/contract/listener.ts';
import type { RequestParams } from '../../api/contract/request.ts';
import type { ConnectNbxOptions } from '../../api/contract/worker.ts';
import { NO_ENDPOINT } from '../../api/layout/frame.ts';
import { closedError, isUcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type {
  ClientRequest,
  ConnectAnswer,
  ConnectAttempt,
  ConnectionManager,
} from '../../uct/api/connection-manager.ts';
import type { PeerConnection } from '../base/peer-connection.ts';
import type { ConnectRequest, Request } from '../base/request/request.ts';
import type { RequestPool } from '../base/request/request-pool.ts';
import { Attaching } from './attaching.ts';
import {
  type ConnectData,
  packAcceptData,
  packConnectData,
  unpackAcceptData,
  unpackConnectData,
} from './connect-data.ts';
import type { Connections, ConnectionsOwner } from './connections.ts';

/** Makes and ends endpoints. */
export interface EndpointMaker {
  /** Makes the endpoint of a connection. */
  adopt(connection: PeerConnection, options: EndpointOptions): Endpoint;
  onPeerGone(connection: PeerConnection, status: Status): void;
}

/** The worker behind them. */
export interface SocketOwner extends ConnectionsOwner {
  readonly context: ConnectionsOwner['context'] & {
    readonly resources: { openConnectionManager(): ConnectionManager };
  };
  readonly clientId: bigint;
  readonly connections: Connections;
  readonly endpoints: EndpointMaker;
  readonly requests: RequestPool;
  start(request: Request, params: RequestParams | undefined): Status | Request;
}

/** The connections. */
export class SocketConnections {
  readonly #owner: SocketOwner;
  readonly #driver: Driver;
  readonly #listeners: Set<Listener> = new Set();
  readonly #attempts: Map<ConnectRequest, ConnectAttempt> = new Map();
  readonly #attaching: Attaching;
  #manager: ConnectionManager | undefined;
  #isDue = false;
  /** The last sleep of the manager whose end is awaited here. */
  #asleep: Promise<void> | undefined = undefined;
  #closed = false;

  constructor(owner: SocketOwner, driver: Driver) {
    this.#owner = owner;
    this.#attaching = new Attaching(owner.context.clock, (late) =>
      owner.endpoints.onPeerGone(late, Status.ENDPOINT_TIMEOUT),
    );
    this.#driver = driver;
  }

  /** The connection manager; none before the first use. */
  get managers(): readonly ConnectionManager[] {
    return this.#manager === undefined ? [] : [this.#manager];
  }

  /** Whether progress has to drive the manager now: that is a system call, so it is not made in every call of progress. */
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

  /** Sleeps as ConnectionManager.wait does. */
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
    const request = this.#owner.requests.take(this.#owner.requests.connects);
    if (request === undefined) return Status.NO_RESOURCE;
    request.begin(undefined, undefined);
    request.protocolName = 'connect';
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

  /** Cancels an attempt; false if it has ended. */
  cancel(request: ConnectRequest): boolean {
    const attempt = this.#attempts.get(request);
    if (attempt === undefined) return false;
    this.#attempts.delete(request);
    attempt.cancel();
    return true;
  }

  /** Called when a half that was accepted has its client, or is gone. */
  attached(connection: PeerConnection): void {
    this.#attaching.delete(connection);
  }

  /** Closes listeners and gives up attempts. Idempotent. */
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
    this.#manager ??= this.#owner.context.resources.openConnectionManager();
    return this.#manager;
  }

  #onRequest(listener: Listener, request: ClientRequest): void {
    const refusal = this.#attaching.refusalOf(listener, request.clientAddress.address);
    if (refusal !== undefined) {
      this.#owner.warnings.warn(`client ${printSocketAddress(request.clientAddress)} is rejected: ${refusal}`);
      request.reject(Status.BUSY, refusal);
      return;
    }
    let data: ConnectData;
    try {
      data = unpackConnectData(request.privateData);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#owner.warnings.warn(`client ${printSocketAddress(request.clientAddress)} is rejected: ${error.message}`);
      request.reject(error.status, error.message);
      return;
    }
    const owner: RequestListener = {
      accept: (options) => this.#accept(listener, request, data, options),
      answered: (answered) => listener.answered(answered),
    };
    listener.requested(new ConnectionRequest(owner, request, data.clientId));
  }

  #accept(
    listener: Listener,
    request: ClientRequest,
    { workerAddress }: ConnectData,
    options: EndpointOptions,
  ): Endpoint {
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
    const endpoint = this.#owner.endpoints.adopt(connection, options);
    // One time-out for the answer, and one for the client to attach after it.
    const timeoutNs = 2 * this.#open().timeoutNs;
    this.#attaching.add(connection, listener, request.clientAddress.address, timeoutNs);
    const { id: connectionId, inbound } = connection;
    const answer = { connectionId, windowBytes: inbound.windowBytes, workerAddress: packedAddress };
    request.accept(packAcceptData(answer), (status) => {
      // Once the client has attached, the transports know best whether it lives.
      if (status === Status.OK || connection.remoteId !== NO_ENDPOINT) return;
      this.#owner.endpoints.onPeerGone(connection, status === Status.TIMED_OUT ? Status.ENDPOINT_TIMEOUT : status);
    });
    return endpoint;
  }

  /** @returns what becomes of the connection, for the server; see OnConnectAnswer */
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
      this.#owner.onThrown(error);
    }
    request.end(Status.OK);
    return Status.OK;
  }

  #attach(answer: ConnectAnswer, options: EndpointOptions): Endpoint {
    const { connections } = this.#owner;
    const { connectionId, windowBytes, workerAddress } = unpackAcceptData(answer.privateData);
    const connection = connections.attach(workerAddress, connectionId, windowBytes);
    const { clientAddress: local, serverAddress: remote } = answer;
    if (local !== undefined && remote !== undefined) connection.socketAddresses = { local, remote };
    return this.#owner.endpoints.adopt(connection, options);
  }
}
