/** The connection request of a client, until the application accepts or rejects it (ucp_conn_request_h). */

import { invalidParam, statusError } from '../../ucs/type/error.ts';
import { inJson, showAs } from '../../ucs/type/inspect.ts';
import { isFailure, Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { ClientRequest, SocketAddress } from '../../uct/api/connection-manager.ts';
import type { Endpoint, EndpointOptions } from './endpoint.ts';
import { checkErrorHandling } from './error-handling.ts';
import { printSocketAddress } from './socket-address.ts';

/** Attributes of a request (ucp_conn_request_attr_t). */
export interface ConnectionRequestAttributes {
  /** Address of the client. */
  readonly clientAddress: SocketAddress;
  /** Address to which the client has connected, even if the listener is bound to all addresses. */
  readonly serverAddress: SocketAddress;
  /** Client id of the client's worker; undefined if the client did not send it. */
  readonly clientId: bigint | undefined;
}

/** Services of the listener that received a request. */
export interface RequestListener {
  /** Creates the endpoint of an accepted client. */
  accept(options: EndpointOptions): Endpoint;
  answered(request: ConnectionRequest): void;
}

/** The client behind a request. */
export type AskingClient = Pick<ClientRequest, 'clientAddress' | 'serverAddress' | 'live' | 'reject'>;

/** A request. It is answered once, by accept or reject; one without an answer is rejected when the listener closes. */
export class ConnectionRequest {
  /** @internal Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #listener: RequestListener;
  readonly #request: AskingClient;
  /** Client id of the client's worker: see Worker.clientId. Undefined if the client did not send it. It is not verified. */
  readonly clientId: bigint | undefined;

  /** @internal Created by listeners. */
  constructor(listener: RequestListener, request: AskingClient, clientId: bigint | undefined) {
    this.#listener = listener;
    this.#request = request;
    this.clientId = clientId;
  }

  /** Address of the client. */
  get clientAddress(): SocketAddress {
    return this.#request.clientAddress;
  }

  /** False once it was answered, the client has disconnected, or the listener has closed. */
  get live(): boolean {
    return this.#request.live;
  }

  /** Attributes of the request (ucp_conn_request_query). */
  query(): ConnectionRequestAttributes {
    const { clientAddress, serverAddress } = this.#request;
    return inJson({ clientAddress, serverAddress, clientId: this.clientId });
  }

  /**
   * Creates the endpoint to the client. It can be used at once: operations that need the client wait until its half of the connection has attached, and
   * end with CONNECTION_RESET or ENDPOINT_TIMEOUT if the client disconnects instead.
   * @throws UcxError ERR_NOT_CONNECTED if the client has disconnected or was answered; ERR_UNREACHABLE with the reason of every transport, the client
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
   * Rejects the client: its attempt ends with the status (ucp_listener_reject). No effect on a request that is not live.
   * @param status a failure
   * @param reason text for the users of the client; truncated to 512 bytes
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

showAs(ConnectionRequest, 'ConnectionRequest', ({ clientAddress, clientId, live }) => ({
  clientAddress: printSocketAddress(clientAddress),
  clientId,
  live: live ? 'yes' : 'no',
}));
