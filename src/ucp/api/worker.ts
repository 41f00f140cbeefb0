/** A worker, what communicates and makes progress, as users see it. Types only. */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { AmCallback, MessageQueue } from './active-message.ts';
import type { AddressEndpointOptions, Endpoint } from './endpoint.ts';
import type { LocalBuffer } from './memory.ts';
import type { Request, RequestParams } from './request.ts';
import type { ConnectNbxOptions, ConnectOptions } from './sockets/connect.ts';
import type { Listener, ListenerOptions } from './sockets/listener.ts';
import type { Tag } from './tag.ts';

/** What a worker may be given (ucp_worker_params_t). */
export interface WorkerOptions {
  /** By which listeners know its clients where these want to tell: 0 to 2^64 - 1. Default: a random number. */
  readonly clientId?: bigint | number;
}

/** A message that a probe has found. */
export interface TagMessage {
  /** Tag under which the message was sent, unsigned 64 bits. */
  readonly senderTag: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** Options of an awaited receive. */
export interface TagRecvOptions {
  /** Tag to receive. Default 0. */
  readonly tag?: Tag;
  /** Bits of the tag that count. Default all. */
  readonly mask?: Tag;
  /** Cancels the receive: its promise rejects with an AbortError. */
  readonly signal?: AbortSignal;
}

/** What an awaited receive has got. */
export interface TagRecvResult {
  /** Tag under which the message was sent, unsigned 64 bits. */
  readonly senderTag: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
}

/** A worker. */
export interface Worker extends AsyncDisposable {
  /** True after `close()`. */
  readonly closed: boolean;
  /** By which listeners know this worker, where it connects with `sendClientId`. */
  readonly clientId: bigint;
  /** Requests in use. */
  readonly requestsInUse: number;

  /**
   * The address by which endpoints are made, in this process or another: opaque bytes. Over libucp they begin with those of ucp_worker_get_address: a program
   * of another language, which gives them to ucp_ep_create, is served as they are.
   */
  address(): Uint8Array;

  /**
   * Connects to a worker, the own one included. The call does not wait for the peer: operations that need it wait by themselves.
   * @param address from Worker.address of the peer, or with `rawAddress` from another program
   * @throws UcxError ERR_ADDRESS_MALFORMED; ERR_UNREACHABLE with the reason of every transport; ERR_CLOSED; ERR_UNSUPPORTED for `rawAddress` where the
   *   engine is not libucx
   */
  endpoint(address: Uint8Array, options?: AddressEndpointOptions): Endpoint;

  /**
   * Listens for clients at a socket address (ucp_listener_create). A client that can connect to it and is accepted gets the address of this worker, and can
   * send to it: listen on other devices than loopback where that is meant.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; ERR_UNSUPPORTED without a connection manager; SyscallError EADDRINUSE, EADDRNOTAVAIL, EACCES, EMFILE
   */
  listener(options?: ListenerOptions): Listener;

  /**
   * Connects to a listener (ucp_ep_create with a socket address). The request ends when the listener's program has answered.
   * @returns a request in progress, or NO_RESOURCE; it ends with REJECTED or what the listener says, UNREACHABLE, TIMED_OUT, CONNECTION_RESET
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNSUPPORTED without a connection manager
   */
  connectNbx(options: ConnectNbxOptions, params?: RequestParams): Status | Request;

  /**
   * Connects to a listener and waits for the endpoint. See {@link connectNbx}.
   * @throws UcxError as the request ends, with the reason as its cause; AbortError when `signal` fires
   */
  connect(options: ConnectOptions): Promise<Endpoint>;

  /**
   * Drives everything outstanding (ucp_worker_progress). Callbacks run inside; it must not be called from them.
   * @returns number of operations that ended or started, and messages that arrived
   */
  progress(): number;

  /**
   * Resolves when progress may have something to do: an operation has ended, a message has arrived (ucp_worker_wait).
   * @throws AbortError when `signal` fires
   */
  wait(options?: { readonly signal?: AbortSignal }): Promise<void>;

  /**
   * Makes {@link eventFd} readable at the next event (ucp_worker_arm). An event that is there already counts; there may be one too many.
   * Call progress until it returns 0 before.
   */
  arm(): Status;

  /** A descriptor that {@link arm} makes readable, for event loops (ucp_worker_get_efd). It belongs to the worker. */
  readonly eventFd: number;

  /** Makes the event happen, and ends {@link wait} (ucp_worker_signal). */
  signal(): void;

  /** What the worker and what it works with have done, as data. Cold. */
  stats(): StatsNode;

  /** Drives progress until the signal fires or the worker closes: for a process whose peers do all the work. */
  serve(signal: AbortSignal): Promise<void>;

  /**
   * Receives a tagged message (ucp_tag_recv_nbx).
   * @param local where to: bytes, mapped memory of any type, or a list of pieces
   * @param localOffset byte to start at; with a list 0
   * @param byteLength room; a longer message ends the request with MESSAGE_TRUNCATED
   * @param mask bits of the tag that count; undefined for all
   * @returns OK, a request in progress whose senderTag and receivedBytes tell what came, or NO_RESOURCE
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
   */
  tagRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    tag: Tag,
    mask?: Tag,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Looks for a message that no receive has taken (ucp_tag_probe_nb).
   * @param remove take it out of the matching: {@link tagMessageRecvNbx} must receive it then
   */
  tagProbe(tag: Tag, mask?: Tag, remove?: boolean): TagMessage | undefined;

  /** Receives a message that a probe took out (ucp_tag_msg_recv_nbx). See {@link tagRecvNbx}. */
  tagMessageRecvNbx(
    local: LocalBuffer,
    localOffset: number,
    byteLength: number,
    message: TagMessage,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Receives a tagged message and waits for it.
   * @throws UcxError ERR_MESSAGE_TRUNCATED for a message longer than the memory; AbortError when `signal` fires before it has come
   */
  tagRecv(local: LocalBuffer, options?: TagRecvOptions): Promise<TagRecvResult>;

  /** Sets the handler of active messages with an id, 0 to 65535 (ucp_worker_set_am_recv_handler); undefined removes it. */
  setAmHandler(id: number, handler: AmCallback | undefined): void;

  /**
   * The active messages with an id that arrive from now on, for `for await`: until the loop is left, the worker closes, or `signal` fires
   * (AbortError). Progress is driven while the loop waits; messages that come while it is busy are kept.
   * @throws UcxError ERR_INVALID_PARAM when the id has a handler
   */
  messages(id: number, options?: { readonly signal?: AbortSignal }): MessageQueue;

  /** Waits until everything started before on any endpoint has reached remote memory (ucp_worker_flush_nbx). */
  flushNbx(params?: RequestParams): Status | Request;

  /** The awaited form of {@link flushNbx}. */
  flush(options?: { readonly signal?: AbortSignal }): Promise<void>;

  /** Orders the puts, gets and atomic operations started before on every endpoint against those started after (ucp_worker_fence). */
  fence(): void;

  /** Closes endpoints and interfaces; what has not ended by then is cancelled. Idempotent, never fails. */
  close(): Promise<void>;
}
