/**
 * A listener: receives the requests of clients that connect to a socket address (ucp_listener_h), for a callback or for `for await`. It does not handle
 * sockets; connection managers do.
 */

import { checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam, throwIfAborted } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { SocketAddress, SocketListener } from '../../uct/api/connection-manager.ts';
import { addAbortListener } from './abort-listeners.ts';
import type { ConnectionRequest } from './connection-request.ts';
import { checkSocketAddress } from './socket-address.ts';

/** Default length of the queue of the socket. */
const BACKLOG_DEFAULT = 128;
const BACKLOG_MAX = 65_535;

/** Options of a listener. */
export interface ListenerOptions {
  /** Numeric address. Default `127.0.0.1`; `0.0.0.0` for every device, `::` for both families (over libucp, IPv6 only). */
  readonly address?: string | undefined;
  /** Default 0: a free port. */
  readonly port?: number | undefined;
  /** Length of the queue of the socket for connections that are not accepted yet; the kernel may keep a few more. Default 128. */
  readonly backlog?: number | undefined;
  /** Called with each request, inside progress. Without it, {@link Listener.next} or `for await` returns the requests. */
  readonly onConnection?: ((request: ConnectionRequest) => void) | undefined;
  /**
   * Closes the listener when it fires, as the `signal` of `net.Server.listen` does: a `for await` over it ends, without an error. A signal that has fired
   * already is an AbortError of `worker.listener`.
   */
  readonly signal?: AbortSignal | undefined;
}

/** Attributes of a listener (ucp_listener_attr_t). */
export interface ListenerAttributes extends SocketAddress {
  /** Length of the queue of the socket, as passed to listen(2). */
  readonly backlog: number;
  /** Unanswered requests. */
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
  /** A callback of the application has thrown this. */
  onThrown(error: unknown): void;
}

/** A listener. */
export class Listener implements AsyncIterable<ConnectionRequest, void, void>, AsyncDisposable {
  /** @internal Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  readonly #options: CheckedListenerOptions;
  readonly #socket: SocketListener;
  readonly #driver: Driver;
  readonly #onClose: (listener: Listener) => void;
  readonly #abort: Disposable | undefined;
  /** Unanswered requests. */
  readonly #unanswered: Set<ConnectionRequest> = new Set();
  /** Unanswered requests that were not returned yet. */
  #queue: ConnectionRequest[] = [];
  /** Pending calls of next. */
  readonly #waiting: Set<() => void> = new Set();
  #closed = false;

  /** @internal Made by Worker.listener, whose parameter `listen` opens the socket. */
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

  /** The address of the options. */
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
   * The next request, in order of arrival; undefined when the listener has closed. Progress is driven while it is awaited: like
   * `worker.serve`, this keeps the process alive.
   * @throws UcxError ERR_INVALID_PARAM for a listener with a callback; AbortError if `signal` has fired: that of the listener closes it
   */
  async next(options: { readonly signal?: AbortSignal | undefined } = {}): Promise<ConnectionRequest | undefined> {
    checkOptions(options, 'options', ['signal']);
    const { signal } = options;
    if (this.#options.onConnection !== undefined) {
      throw invalidParam('onConnection', 'must be left out to take requests one by one', this.#options.onConnection);
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

  /** The requests until the listener closes, by its signal too. Ending the loop does not close the listener. */
  async *[Symbol.asyncIterator](): AsyncGenerator<ConnectionRequest, void, void> {
    for (let request = await this.next(); request !== undefined; request = await this.next()) yield request;
  }

  /** Stops listening and rejects the unanswered requests. Endpoints stay open. Idempotent, never fails. */
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
    // Before driving starts, because a request may arrive at once.
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
