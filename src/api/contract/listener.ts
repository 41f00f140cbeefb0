/**
 * A listener: receives the requests of clients that connect to a socket address (ucp_listener_h), for a callback or for `for await`, until the program
 * accepts or rejects each (ucp_conn_request_h). Also the event handlers of AbortSignals: one per signal in a thread, which all callbacks share, because
 * Node.js warns about a signal with more than ten.
 */

import { lookup } from 'node:dns/promises';
import { isIP } from 'node:net';
import { checkOptions } from '../../ucs/type/check-options.ts';
import { AbortError, awaitedHere, invalidParam, statusError, throwIfAborted } from '../../ucs/type/error.ts';
import { inJson, showAs } from '../../ucs/type/inspect.ts';
import { isFailure, Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { ClientRequest, SocketAddress, SocketListener } from '../../uct/api/connection-manager.ts';
import type { Endpoint, EndpointOptions } from './endpoint.ts';
import { checkErrorHandling } from './error-handling.ts';

/** Default backlog of listen(2). */
const BACKLOG_DEFAULT = 128;
const BACKLOG_MAX = 65_535;

/** Options of a listener. */
export interface ListenerOptions {
  /** Numeric address. Default `127.0.0.1`; `0.0.0.0` for all interfaces, `::` for both address families (over libucp, IPv6 only). */
  readonly address?: string | undefined;
  /** Default 0: any free port. */
  readonly port?: number | undefined;
  /** Backlog of listen(2); the kernel may queue a few more connections. Default 128. */
  readonly backlog?: number | undefined;
  /** Called with each request, inside progress. Without it, {@link Listener.next} or `for await` returns the requests. */
  readonly onConnection?: ((request: ConnectionRequest) => void) | undefined;
  /**
   * Closes the listener when it fires, as the `signal` of `net.Server.listen` does: a `for await` over it ends without an error. If the signal has already
   * fired, `worker.listener` throws an AbortError.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Attributes of a listener (ucp_listener_attr_t). */
export interface ListenerAttributes extends SocketAddress {
  /** Backlog as passed to listen(2). */
  readonly backlog: number;
  /** Number of requests that were neither accepted nor rejected. */
  readonly waiting: number;
}

/** Options with defaults. */
export type CheckedListenerOptions = SocketAddress & { readonly backlog: number } & Pick<
    ListenerOptions,
    'onConnection' | 'signal'
  >;

/**
 * Checks options and adds the defaults.
 * @throws UcxError ERR_INVALID_PARAM; AbortError for a signal that has fired
 */
export function checkListenerOptions(options: ListenerOptions): CheckedListenerOptions {
  checkOptions(options, 'options', ['address', 'port', 'backlog', 'onConnection', 'signal']);
  const { address = '127.0.0.1', port = 0, backlog = BACKLOG_DEFAULT, onConnection, signal } = options;
  checkSocketAddress({ address, port }, 0);
  if (!Number.isInteger(backlog) || backlog < 1 || backlog > BACKLOG_MAX) {
    throw invalidParam('backlog', `must be an integer from 1 to ${BACKLOG_MAX}`, backlog);
  }
  if (onConnection !== undefined && typeof onConnection !== 'function') {
    throw invalidParam('onConnection', 'must be a function', onConnection);
  }
  if (signal !== undefined && !(signal instanceof AbortSignal)) {
    throw invalidParam('signal', 'must be an AbortSignal', signal);
  }
  throwIfAborted(signal);
  return {
    address,
    port,
    backlog,
    ...(onConnection === undefined ? {} : { onConnection }),
    ...(signal === undefined ? {} : { signal }),
  };
}

/** Drives the worker while a request is awaited. */
export interface Driver {
  begin(): void;
  end(): void;
  /** Called with an error that a callback of the application has thrown. */
  onThrown(error: unknown): void;
}

/** A listener. */
export class Listener implements AsyncIterable<ConnectionRequest, void, void>, AsyncDisposable {
  /** @internal Marks the object as bound to the thread that created it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #options: CheckedListenerOptions;
  readonly #socket: SocketListener;
  readonly #driver: Driver;
  readonly #onClose: (listener: Listener) => void;
  readonly #abort: Disposable | undefined;
  /** Requests that were neither accepted nor rejected. */
  readonly #unanswered: Set<ConnectionRequest> = new Set();
  /** Requests that were not returned to the program yet. */
  #queue: ConnectionRequest[] = [];
  /** Pending calls of next. */
  readonly #waiting: Set<() => void> = new Set();
  #closed = false;

  /** @internal Created by Worker.listener, whose parameter `listen` opens the socket. */
  constructor(
    options: CheckedListenerOptions,
    driver: Driver,
    listen: (listener: Listener) => SocketListener,
    onClose: (listener: Listener) => void,
  ) {
    this.#options = options;
    this.#driver = driver;
    this.#onClose = onClose;
    this.#socket = listen(this);
    const { signal } = options;
    this.#abort = signal === undefined ? undefined : addAbortListener(signal, () => this.#end());
  }

  /** The address to listen on. */
  get address(): string {
    return this.#socket.address.address;
  }

  /** The bound port. */
  get port(): number {
    return this.#socket.address.port;
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.#closed;
  }

  /** Attributes of the listener (ucp_listener_query). */
  query(): ListenerAttributes {
    this.#forgetGone();
    const { address, port, backlog } = { ...this.#options, ...this.#socket.address };
    return { address, port, backlog, waiting: this.#unanswered.size };
  }

  /**
   * The next request, in order of arrival; undefined when the listener has closed. Progress is driven while it is awaited, which keeps the process alive, as
   * `worker.serve` does.
   * @throws UcxError ERR_INVALID_PARAM for a listener with a callback; AbortError if `signal` has fired: that of the listener closes it
   */
  async next(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<ConnectionRequest | undefined> {
    checkOptions(options, 'options', ['signal']);
    const { signal } = options;
    if (this.#options.onConnection !== undefined) {
      throw invalidParam(
        'onConnection',
        'must not be set if requests are taken by next() or for await',
        this.#options.onConnection,
      );
    }
    if (signal !== undefined && !(signal instanceof AbortSignal)) {
      throw invalidParam('signal', 'must be an AbortSignal', signal);
    }
    for (;;) {
      throwIfAborted(signal);
      if (this.#closed) return undefined;
      const request = this.#queue.shift();
      if (request === undefined) await this.#arrival(signal);
      else if (request.live) return request;
    }
  }

  /** The requests until the listener closes, also by its signal. Ending the loop does not close the listener. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ConnectionRequest, void, void> {
    for (let request = await this.next(); request !== undefined; request = await this.next()) yield request;
  }

  /** Stops listening and rejects the pending requests. Endpoints stay open. Idempotent, never fails. */
  close(): Promise<void> {
    this.#end();
    return Promise.resolve();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  // Callbacks for the worker and the requests.

  /** @internal A request has arrived. */
  requested(request: ConnectionRequest): void {
    this.#forgetGone();
    this.#unanswered.add(request);
    const { onConnection } = this.#options;
    if (onConnection !== undefined) {
      try {
        onConnection(request);
      } catch (error) {
        this.#driver.onThrown(error);
      }
      return;
    }
    this.#queue.push(request);
    for (const wake of this.#waiting) wake();
  }

  /** @internal A request was accepted or rejected. */
  answered(request: ConnectionRequest): void {
    this.#unanswered.delete(request);
  }

  #end(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#abort?.[Symbol.dispose]();
    this.#socket.close();
    for (const request of this.#unanswered) request.reject(Status.REJECTED, 'the listener has closed');
    this.#queue = [];
    for (const wake of this.#waiting) wake();
    this.#onClose(this);
  }

  /** Removes requests of disconnected clients, which would otherwise accumulate. */
  #forgetGone(): void {
    for (const request of this.#unanswered) if (!request.live) this.#unanswered.delete(request);
    if (this.#queue.length > this.#unanswered.size) this.#queue = this.#queue.filter(({ live }) => live);
  }

  async #arrival(signal: AbortSignal | undefined): Promise<void> {
    let listener: Disposable | undefined;
    let wake: () => void = () => undefined;
    // Before driving starts, because a request may arrive immediately.
    const arrival = new Promise<void>((resolve) => {
      wake = resolve;
      this.#waiting.add(wake);
      if (signal !== undefined) listener = addAbortListener(signal, wake);
    });
    this.#driver.begin();
    await arrival;
    this.#driver.end();
    this.#waiting.delete(wake);
    listener?.[Symbol.dispose]();
  }
}

showAs(Listener, 'Listener', ({ address, port, closed }) => ({ address, port, closed: closed ? 'yes' : undefined }));

/** Attributes of a request (ucp_conn_request_attr_t). */
export interface ConnectionRequestAttributes {
  /** Address of the client. */
  readonly clientAddress: SocketAddress;
  /** Address to which the client has connected, even if the listener is bound to all addresses. */
  readonly serverAddress: SocketAddress;
  /** Client id of the client's worker; undefined if the client did not send it. */
  readonly clientId: bigint | undefined;
}

/** The client of a request. */
export type AskingClient = Pick<ClientRequest, 'clientAddress' | 'serverAddress' | 'live' | 'reject'>;

/** A connection request. The program accepts or rejects it once; otherwise it is rejected when the listener closes. */
export class ConnectionRequest {
  /** @internal Marks the object as bound to the thread that created it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #listener: Listener;
  readonly #request: AskingClient;
  readonly #accept: (options: EndpointOptions) => Endpoint;
  /** Client id of the client's worker: see Worker.clientId. Undefined if the client did not send it. It is not verified. */
  readonly clientId: bigint | undefined;

  /**
   * @internal Created for listeners.
   * @param listener its listener
   * @param accept creates the endpoint of an accepted client
   */
  constructor(
    listener: Listener,
    request: AskingClient,
    clientId: bigint | undefined,
    accept: (options: EndpointOptions) => Endpoint,
  ) {
    this.#listener = listener;
    this.#request = request;
    this.clientId = clientId;
    this.#accept = accept;
  }

  /** Address of the client. */
  get clientAddress(): SocketAddress {
    return this.#request.clientAddress;
  }

  /** False once it was accepted or rejected, the client has disconnected, or the listener has closed. */
  get live(): boolean {
    return this.#request.live;
  }

  /** Attributes of the request (ucp_conn_request_query). */
  query(): ConnectionRequestAttributes {
    const { clientAddress, serverAddress } = this.#request;
    return inJson({ clientAddress, serverAddress, clientId: this.clientId });
  }

  /**
   * Creates the endpoint to the client. It can be used immediately: operations that need the client wait until the client has connected its half, and end
   * with CONNECTION_RESET or ENDPOINT_TIMEOUT if it disconnects instead. The endpoint stays open after the client has left; a server closes it then, by
   * `accept({ onError: (client) => void client.close() })`.
   * @throws UcxError ERR_NOT_CONNECTED if the client has disconnected, or was accepted or rejected before; ERR_UNREACHABLE with the reason of every
   * transport: the client is then rejected; ERR_INVALID_PARAM, ERR_CLOSED
   */
  accept(options: EndpointOptions = {}): Endpoint {
    checkErrorHandling(options);
    if (!this.live)
      throw statusError(
        Status.NOT_CONNECTED,
        'cannot accept this client: it has disconnected, or was accepted or rejected before',
      );
    try {
      return this.#accept(options);
    } finally {
      this.#listener.answered(this);
    }
  }

  /**
   * Rejects the client: its connection attempt ends with the status (ucp_listener_reject). No effect on a request that is not live.
   * @param status a failure
   * @param reason message for the users of the client; truncated to 512 bytes
   * @throws UcxError ERR_INVALID_PARAM
   */
  reject(status: Status = Status.REJECTED, reason = ''): void {
    if (!Number.isInteger(status) || !isFailure(status) || status < Status.ENDPOINT_TIMEOUT) {
      throw invalidParam('status', 'must be a Status that is a failure', status);
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

const PORT_MAX = 65_535;
const HOST_LENGTH_MAX = 253;
/** fe80::/10. Without an interface, the kernel rejects such an address (EINVAL). */
const LINK_LOCAL = /^fe[89ab][0-9a-f]:/i;

/** Local and remote address of the connection between client and listener. */
export interface SocketAddresses {
  readonly local: SocketAddress;
  readonly remote: SocketAddress;
}

/**
 * Checks an address.
 * @param portMin 0 if the system may choose the port, else 1
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkSocketAddress({ address, port }: SocketAddress, portMin: 0 | 1): void {
  if (typeof address !== 'string' || isIP(address) === 0) {
    throw invalidParam('address', 'must be a numeric IPv4 or IPv6 address', address);
  }
  if (LINK_LOCAL.test(address) && !address.includes('%')) {
    throw invalidParam('address', 'must include the interface, as in fe80::1%eth0, because it is link-local', address);
  }
  if (!Number.isInteger(port) || port < portMin || port > PORT_MAX) {
    throw invalidParam('port', `must be an integer from ${portMin} to ${PORT_MAX}`, port);
  }
}

/** `127.0.0.1:7`, `[::1]:7`. */
export function printSocketAddress({ address, port }: SocketAddress): string {
  return address.includes(':') ? `[${address}]:${port}` : `${address}:${port}`;
}

/**
 * The numeric addresses of a host, at least one, in the order of the system.
 * @throws UcxError ERR_INVALID_PARAM; ERR_UNREACHABLE for an unknown name; AbortError if `signal` fires
 */
export async function addressesOf(host: string, signal: AbortSignal | undefined): Promise<readonly string[]> {
  if (typeof host !== 'string' || host === '' || host.length > HOST_LENGTH_MAX || host.includes('\0')) {
    throw invalidParam('host', `must be a name of 1 to ${HOST_LENGTH_MAX} characters`, host);
  }
  if (isIP(host) !== 0) return [host];
  if (/^[^:]*:\d*$/.test(host))
    throw invalidParam('host', 'must be a name without the port, which is a separate option', host);
  const found = lookup(host, { all: true }).then(
    (addresses) => addresses.map(({ address }) => address),
    (error: unknown) => {
      throw statusError(Status.UNREACHABLE, `look up host ${host}`, error);
    },
  );
  return await awaitedHere(signal === undefined ? found : untilAborted(found, signal));
}

/** Settles as the promise does, or rejects when the signal fires: name resolution may be slow. */
async function untilAborted<T>(promise: Promise<T>, signal: AbortSignal): Promise<T> {
  if (signal.aborted) {
    promise.catch(() => undefined);
    throw new AbortError(signal);
  }
  let listener: Disposable | undefined;
  const aborted = new Promise<never>((_, reject) => {
    listener = addAbortListener(signal, () => reject(new AbortError(signal)));
  });
  try {
    return await Promise.race([promise, aborted]);
  } finally {
    listener?.[Symbol.dispose]();
  }
}

/** @throws UcxError ERR_INVALID_PARAM for a value that is not an AbortSignal */
export function checkSignal(signal: AbortSignal): void {
  if (!(signal instanceof AbortSignal)) throw invalidParam('signal', 'must be an AbortSignal', signal);
}

const CALLBACKS: WeakMap<AbortSignal, Set<() => void>> = new WeakMap();

function onAbort({ target }: Event): void {
  for (const callback of CALLBACKS.get(target as AbortSignal) ?? []) callback();
}

/** Calls `callback`, which must not throw, when the signal fires, until {@link removeAbortCallback}; asynchronously if it has already fired. */
export function addAbortCallback(signal: AbortSignal, callback: () => void): void {
  if (signal.aborted) {
    queueMicrotask(callback);
    return;
  }
  let callbacks = CALLBACKS.get(signal);
  if (callbacks === undefined) {
    callbacks = new Set();
    CALLBACKS.set(signal, callbacks);
    signal.addEventListener('abort', onAbort);
  }
  callbacks.add(callback);
}

/** Removes a callback of {@link addAbortCallback}. Idempotent. */
export function removeAbortCallback(signal: AbortSignal, callback: () => void): void {
  const callbacks = CALLBACKS.get(signal);
  if (callbacks === undefined) return;
  callbacks.delete(callback);
  if (callbacks.size > 0) return;
  CALLBACKS.delete(signal);
  signal.removeEventListener('abort', onAbort);
}

/** {@link addAbortCallback} in the form of events.addAbortListener. */
export function addAbortListener(signal: AbortSignal, callback: () => void): Disposable {
  addAbortCallback(signal, callback);
  return { [Symbol.dispose]: () => removeAbortCallback(signal, callback) };
}
