/** A client that has asked a listener for a connection, until the application accepts or rejects it (ucp_conn_request_h). */

import { invalidParam, statusError } from '../../../ucs/type/error.ts';
import { isFailure, Status } from '../../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import type { ClientRequest, SocketAddress } from '../../../uct/api/connection-manager.ts';
import type { Endpoint, EndpointOptions } from '../endpoint.ts';
import { checkErrorHandling } from '../error-handling.ts';

/** What is known about a request (ucp_conn_request_attr_t). */
export interface ConnectionRequestAttributes {
  /** Address of the client. */
  readonly clientAddress: SocketAddress;
  /** Where it came in: with the address that the client has connected to, also where the listener takes any. */
  readonly serverAddress: SocketAddress;
  /** Of the client's worker; undefined where the client does not tell. */
  readonly clientId: bigint | undefined;
}

/** What a request needs of who has received it. */
export interface RequestListener {
  /** Makes the endpoint of an accepted client. */
  accept(options: EndpointOptions): Endpoint;
  answered(request: ConnectionRequest): void;
}

/** The client behind a request. */
export type AskingClient = Pick<ClientRequest, 'clientAddress' | 'serverAddress' | 'live' | 'reject'>;

/** A request. Exactly one of accept and reject answers it; one without an answer is rejected when the listener closes. */
export class ConnectionRequest {
  /** Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #listener: RequestListener;
  readonly #request: AskingClient;
  /** Of the client's worker: see Worker.clientId. Undefined where the client does not tell. Nobody has checked it. */
  readonly clientId: bigint | undefined;

  /** Made by listeners. */
  constructor(listener: RequestListener, request: AskingClient, clientId: bigint | undefined) {
    this.#listener = listener;
    this.#request = request;
    this.clientId = clientId;
  }

  /** Address of the client. */
  get clientAddress(): SocketAddress {
    return this.#request.clientAddress;
  }

  /** False once it was answered, the client has gone away, or the listener has closed. */
  get live(): boolean {
    return this.#request.live;
  }

  /** ucp_conn_request_query. */
  query(): ConnectionRequestAttributes {
    const { clientAddress, serverAddress } = this.#request;
    return { clientAddress, serverAddress, clientId: this.clientId };
  }

  /**
   * Makes the endpoint to the client. It can be used at once: what needs the client waits until its half of the connection has attached, and ends with
   * CONNECTION_RESET or ENDPOINT_TIMEOUT when the client goes away instead.
   * @throws UcxError ERR_NOT_CONNECTED when the client has gone away or was answered; ERR_UNREACHABLE with the reason of every transport, the client
   *   is rejected then; ERR_INVALID_PARAM, ERR_CLOSED
   */
  accept(options: EndpointOptions = {}): Endpoint {
    checkErrorHandling(options);
    if (!this.live) throw statusError(Status.NOT_CONNECTED, 'accept a client that has gone away or was answered');
    try {
      return this.#listener.accept(options);
    } finally {
      this.#listener.answered(this);
    }
  }

  /**
   * Sends the client away: its attempt ends with the status (ucp_listener_reject). Without effect on a request that is not live.
   * @param status a failure
   * @param reason words for the users of the client; cut off behind 512 bytes
   * @throws UcxError ERR_INVALID_PARAM
   */
  reject(status: Status = Status.REJECTED, reason = ''): void {
    if (!Number.isInteger(status) || !isFailure(status) || status < Status.ENDPOINT_TIMEOUT) {
      throw invalidParam('status', 'must be a failure of Status', status);
    }
    if (typeof reason !== 'string') throw invalidParam('reason', 'must be a string', reason);
    this.#request.reject(status, reason);
    this.#listener.answered(this);
  }
}
