/** The interface of a worker, which communicates and makes progress. */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { SocketAddress } from '../../uct/api/connection-manager.ts';
import type { AmCallback, MessageQueue } from './active-message.ts';
import type { AddressEndpointOptions, Endpoint, EndpointOptions } from './endpoint.ts';
import type { Listener, ListenerOptions } from './listener.ts';
import type { LocalBuffer, MessageBuffer } from './memory.ts';
import type { Request, RequestParams, Tag } from './request.ts';

/** Options of a worker (ucp_worker_params_t). */
export interface WorkerOptions {
  /**
   * Client id, by which listeners identify this worker if it connects with `sendClientId`: 0 to 2^64 - 1. Default: a random number, which is always sent over
   * libucp.
   */
  readonly clientId?: bigint | number | undefined;
  /**
   * Who makes progress. With `'auto'`, the default, the worker makes progress whenever the event loop runs, from its first address, handler, listener,
   * endpoint or pending request on; this does not keep the process alive. With `'manual'`, only the program makes progress, by `progress()`, `serve()`, or
   * awaited operations.
   */
  readonly progress?: 'auto' | 'manual' | undefined;
}

/** A message that a probe has found. */
export interface TagMessage {
  /** Tag of the message, unsigned 64 bits. */
  readonly senderTag: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** Options of an awaited receive. */
export interface TagRecvOptions {
  /** Tag to receive. Default 0. */
  readonly tag?: Tag | undefined;
  /** Significant bits of the tag. Default all. */
  readonly mask?: Tag | undefined;
  /** Cancels the receive: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal | undefined;
}

/** The result of an awaited receive. */
export interface TagRecvResult {
  /** Tag of the message, unsigned 64 bits. */
  readonly senderTag: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** Address of a listener, and options of the endpoint to its worker. */
export interface ConnectNbxOptions extends SocketAddress, EndpointOptions {
  /** Sends the client id of this worker to the listener (UCP_EP_PARAMS_FLAGS_SEND_CLIENT_ID). Default false. */
  readonly sendClientId?: boolean | undefined;
  /** Called with the endpoint, inside progress, just before the request ends with OK. */
  readonly onConnected: (endpoint: Endpoint) => void;
}

/** Options of the awaited connect: those of {@link ConnectNbxOptions}, with either `address` or `host`. */
export interface ConnectOptions extends EndpointOptions {
  /** Numeric address of the listener. */
  readonly address?: string | undefined;
  /** Host name: its addresses are tried in turn. */
  readonly host?: string | undefined;
  /** Port of the listener, 1 to 65535. */
  readonly port: number;
  /** Sends the client id of the worker to the listener. Default false. */
  readonly sendClientId?: boolean | undefined;
  /** Cancels the operation: its promise rejects with an AbortError, or resolves if the operation is executed nevertheless (see `Request.cancel`). */
  readonly signal?: AbortSignal | undefined;
}

/** Options of a loop over messages of peers. */
export interface LoopOptions {
  /** Ends the loop: it throws an AbortError. */
  readonly signal?: AbortSignal | undefined;
  /**
   * Ends the loop with the connection of this endpoint, after everything that has arrived: the loop ends if either side closes the endpoint, and throws if
   * the connection fails. Without it, a loop waits for the next peer.
   */
  readonly until?: Endpoint | undefined;
}

/** A notification of a peer. */
export interface Notification {
  /** The bytes: in a handler, a view that is valid during the call; in a loop, a copy. */
  readonly bytes: Uint8Array;
  /** The endpoint to the sender. */
  readonly endpoint: Endpoint;
}

/** Handles notifications, inside `progress()`. For errors that it throws see {@link Worker.progress}. */
export type NotificationHandler = (notification: Notification) => void;

/**
 * A worker, which communicates. It makes progress whenever the event loop runs, and does not keep the process alive: awaited operations and {@link serve} do.
 * See {@link WorkerOptions.progress} for a program that polls.
 * @example
 * const worker = context.worker();
 * worker.setAmHandler(1, (message) => console.log(message.header));
 * const endpoint = worker.endpoint(addressOfPeer);
 * await endpoint.amSend(1, bytes);
 */
export interface Worker extends AsyncDisposable {
  /** True after `close()`. */
  readonly closed: boolean;
  /** Client id, by which listeners identify this worker if it connects with `sendClientId`. */
  readonly clientId: bigint;
  /** Requests in use. */
  readonly requestsInUse: number;

  /**
   * The address for creating endpoints to this worker, in this process or another: opaque bytes. Over libucp they begin with the address of
   * ucp_worker_get_address: a program that uses libucp directly can pass them to ucp_ep_create unchanged.
   */
  address(): Uint8Array;

  /**
   * The length of the address and the transports with atomic operations, as text in the layout of `ucx_info -w` (ucp_worker_print_info); over libucp, the
   * text of libucp.
   * @throws UcxError ERR_CLOSED
   */
  printInfo(): string;

  /**
   * Connects to a worker, also to itself. The call does not wait for the peer: operations that need it are queued.
   * @param address from Worker.address of the peer, or with `rawAddress` from another program
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE with the reason of every transport; ERR_CLOSED; ERR_UNSUPPORTED for `rawAddress` if the
   *   engine is not libucx
   * @example
   * ```ts
   * const endpoint = worker.endpoint(peerAddress, { onError: (_, status) => console.log(`lost: ${status}`) });
   * await endpoint.tagSend(Buffer.from('hello'), { tag: 1 });
   * ```
   */
  endpoint(address: Uint8Array, options?: AddressEndpointOptions): Endpoint;

  /**
   * Listens for clients at a socket address (ucp_listener_create). A client that can connect and is accepted receives the address of this worker, and can
   * send to it: listen on devices other than loopback only if that is intended.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; ERR_UNSUPPORTED without a connection manager; SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES,
   * EMFILE
   * @example
   * ```ts
   * const listener = worker.listener({ address: '127.0.0.1', port: 7471 });
   * for await (const request of listener) {
   *   try {
   *     const client = request.accept({ onError: (gone) => void gone.close() });
   *     client.tagSend(Buffer.from('welcome'), { tag: 1 }).catch(() => console.log('a client has left early'));
   *   } catch (error) {
   *     console.log(`a client is rejected: ${error}`);
   *   }
   * }
   * ```
   */
  listener(options?: ListenerOptions): Listener;

  /**
   * Connects to a listener (ucp_ep_create with a socket address). The request ends when the program of the listener has accepted or rejected it.
   * @returns a request in progress, or NO_RESOURCE; it ends with REJECTED or another status of the listener, UNREACHABLE, TIMED_OUT, CONNECTION_RESET
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNSUPPORTED without a connection manager
   */
  connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request;

  /**
   * Connects to a listener and waits for the endpoint. See {@link connectNbx}.
   * @throws UcxError with the failure of the request and its reason as cause; AbortError if `signal` fires
   * @example
   * ```ts
   * const endpoint = await worker.connect({ host: 'localhost', port: 7471, signal: AbortSignal.timeout(5000) });
   * await endpoint.close();
   * ```
   */
  connect(options: ConnectOptions): Promise<Endpoint>;

  /**
   * Drives all outstanding operations (ucp_worker_progress) immediately. For programs that poll; otherwise the worker makes progress whenever the event loop
   * runs. Callbacks run inside it, and must not call it.
   * @returns number of operations that ended or started, and of messages that arrived
   * @throws UcxError ERR_BUSY in a callback of the same worker. An error thrown by a callback, after all work is done: one per call. Errors left at the end
   * of the current job of the event loop become uncaught exceptions, as do errors in automatic progress
   */
  progress(): number;

  /**
   * Why an operation has ended with this status in its call, and therefore has no {@link Request.error}: what a transport of the worker knows, such as a
   * failed card or an ended node server. UCX has only the status.
   * @returns undefined if no transport knows a cause
   */
  causeOf(status: Status): unknown;

  /**
   * Resolves when there may be progress to make, or automatic progress was made: an operation has ended, a message has arrived (ucp_worker_wait).
   * @throws AbortError if `signal` fires
   */
  wait(options?: { readonly signal?: AbortSignal | undefined }): Promise<void>;

  /**
   * Makes {@link eventFd} unreadable, and readable at the next event (ucp_worker_arm). An event that has already occurred counts: the descriptor is then
   * readable in the next turn of the event loop. Spurious events are possible. Call progress until it returns 0 first.
   */
  arm(): Status;

  /**
   * A descriptor for event loops that {@link arm} prepares (ucp_worker_get_efd). It belongs to the worker, and becomes readable only while the event loop of
   * Node.js runs.
   */
  readonly eventFd: number;

  /** Triggers the event, which ends {@link wait} (ucp_worker_signal). */
  signal(): void;

  /** Statistics of the worker and its interfaces, as a tree of counters. Not for hot paths. */
  stats(): StatsNode;

  /** Keeps the process alive, and drives progress, until the signal fires or the worker closes: for a process that only serves its peers. */
  serve(signal: AbortSignal): Promise<void>;

  /**
   * Receives a tagged message (ucp_tag_recv_nbx).
   * @param local destination: bytes, mapped memory of any type, or a list of ranges
   * @param offset offset in the destination; 0 with a list
   * @param byteLength capacity; a longer message ends the request with MESSAGE_TRUNCATED
   * @param mask significant bits of the tag; undefined for all
   * @returns OK, a request in progress, whose senderTag and receivedBytes describe the message, or NO_RESOURCE
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
   */
  tagRecvNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Finds a message that no receive has matched (ucp_tag_probe_nb).
   * @param remove removes it from matching: {@link tagMessageRecvNbx} must receive it then
   */
  tagProbe(tag: Tag, mask?: Tag, remove?: boolean): TagMessage | undefined;

  /** Receives a message removed by a probe (ucp_tag_msg_recv_nbx). See {@link tagRecvNbx}. */
  tagMessageRecvNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Receives a tagged message and waits for it.
   * @throws UcxError ERR_MESSAGE_TRUNCATED for a message longer than the memory; AbortError if `signal` fires before it has arrived
   * @example
   * ```ts
   * const buffer = new Uint8Array(4096);
   * const { byteLength } = await worker.tagRecv(buffer, { tag: 1 });
   * console.log(Buffer.from(buffer.subarray(0, byteLength)).toString());
   * ```
   */
  tagRecv(local: MessageBuffer, options?: TagRecvOptions): Promise<TagRecvResult>;

  /**
   * Sets the handler of active messages with an id, 0 to 65535 (ucp_worker_set_am_recv_handler); undefined removes it, and later messages are dropped.
   * Dropped messages of an id that has never had a handler are logged as a warning. A handler does not keep the process alive: {@link serve} does.
   * @throws UcxError ERR_INVALID_PARAM if the id has an open queue of {@link messages}
   * @example
   * ```ts
   * worker.setAmHandler(7, (message) => {
   *   void message.text().then((text) => console.log(text));
   * });
   * ```
   */
  setAmHandler(id: number, handler: AmCallback | undefined): void;

  /**
   * The active messages with an id that arrive from now on, for `for await`: until the loop ends, the worker closes, the connection of `until` ends, or
   * `signal` fires (AbortError). Progress is driven while the loop waits; messages that arrive while the loop body runs are queued. The end of the loop, also
   * by `break`, closes the queue and discards its messages; to pause in between, call `next()` of the queue instead.
   * @throws UcxError ERR_INVALID_PARAM if the id has a handler
   * @example
   * ```ts
   * for await (const message of worker.messages(7, { until: endpoint })) console.log(await message.text());
   * ```
   */
  messages(id: number, options?: LoopOptions): MessageQueue;

  /**
   * The notifications of all peers, each once and in the order of its endpoint, for `for await`: when a notification arrives, every byte of its put or list
   * is visible here. They are kept from their arrival on, within the memory limit for unexpected messages, beyond which senders wait. Ends when the worker is
   * closed, or with the connection of `until`.
   * @throws AbortError if `signal` fires; UcxError with the failure of that connection
   * @example
   * ```ts
   * for await (const { bytes } of worker.notifications({ until: endpoint })) console.log(Buffer.from(bytes).toString());
   * ```
   */
  notifications(options?: LoopOptions): AsyncGenerator<Notification, void, void>;

  /**
   * Handles notifications inside `progress()`, beginning with those that have already arrived; undefined removes the handler, and notifications are kept
   * again.
   * @throws UcxError ERR_INVALID_PARAM while a loop of {@link notifications} runs
   */
  setNotificationHandler(handler: NotificationHandler | undefined): void;

  /** Waits until all earlier operations on any endpoint have reached remote memory (ucp_worker_flush_nbx). */
  flushNbx(params?: RequestParams): Status | Request;

  /** The awaited form of {@link flushNbx}. */
  flush(options?: { readonly signal?: AbortSignal | undefined }): Promise<void>;

  /** Orders earlier puts, gets and atomic operations on every endpoint before later ones (ucp_worker_fence). */
  fence(): void;

  /** Closes endpoints and interfaces; unfinished operations are cancelled. Idempotent, never fails. */
  close(): Promise<void>;
}
