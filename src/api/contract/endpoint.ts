/** The interface of an endpoint, a connection to a worker: the operations of both tiers. */

import type { Status } from '../../ucs/type/status.ts';
import type { SocketAddress } from '../../uct/api/connection-manager.ts';
import type { Explanation } from './explanation.ts';
import type { LocalBuffer, LocalMemory, MessageBuffer, RemoteKey } from './memory.ts';
import type {
  AmSendParams,
  AtomicName,
  AtomicParams,
  ListCheckOptions,
  ListOptions,
  ListParams,
  NotifyParams,
  PreparedList,
  PutParams,
  Request,
  RequestParams,
  StreamRecvParams,
  Tag,
  TransferEntry,
} from './request.ts';

/** Options of an endpoint. */
export interface EndpointOptions {
  /**
   * Behaviour if the peer fails. `peer` (the default): when the keepalive (UCX_KEEPALIVE_INTERVAL) or the transport (after UCX_TCP_PEER_TIMEOUT of silence;
   * after UCX_RC_RETRY_COUNT retries with UCX_RC_TIMEOUT each) detects the failure, every operation ends with its status, and `onError` is called. `none`:
   * the peer is not monitored, and its failure is not reported.
   */
  readonly errorHandling?: 'peer' | 'none' | undefined;
  /**
   * Called once when the connection has ended without being closed here: CONNECTION_RESET or ENDPOINT_TIMEOUT. {@link Endpoint.closedByPeer} shows whether
   * the peer has closed it or failed.
   */
  readonly onError?: ((endpoint: Endpoint, status: Status) => void) | undefined;
}

/** Options of an endpoint to a worker address. */
export interface AddressEndpointOptions extends EndpointOptions {
  /**
   * The address comes from a program that does not use this library, in C, Python or Java: the bytes of ucp_worker_get_address or ucp_worker_query. They
   * cannot be validated, not even by libucp: invalid bytes end this process. Only with the engine `libucx`. Default false.
   */
  readonly rawAddress?: boolean | undefined;
}

/** Address and length of the memory behind a remote key of another program, which libucp does not include in the key. */
export interface RawRemoteMemory {
  /** Address of the first byte at the owner, which the owner sends together with the key. */
  readonly address: number | bigint;
  /** Accessible bytes: operations beyond them are rejected locally. */
  readonly byteLength: number;
}

/** Options of unpacking a remote key. */
export interface RkeyOptions {
  /**
   * The key comes from a program that does not use this library: the bytes of ucp_rkey_pack. They cannot be validated, not even by libucp: invalid bytes may
   * end this process. Only with the engine `libucx`.
   */
  readonly raw?: RawRemoteMemory | undefined;
}

/** Attributes of an endpoint (ucp_ep_attr_t). */
export interface EndpointAttributes {
  /** Local address of the connection between client and listener; undefined for endpoints by worker address. */
  readonly localAddress: SocketAddress | undefined;
  /** Address of the peer on that connection. */
  readonly remoteAddress: SocketAddress | undefined;
  /** Transports and devices of the lanes, such as `gaudi_cpy/gaudi0`. */
  readonly transports: readonly string[];
  /** The lane for messages, such as `posix/memory`; undefined if there is none, or if it is unknown. */
  readonly messageTransport: string | undefined;
}

/** Options of closing an endpoint. */
export interface CloseOptions {
  /** Ends operations that wait for the peer with CANCELED, instead of waiting for them. */
  readonly force?: boolean | undefined;
}

/** The operations that explain() supports. */
export const EXPLAINED_OPERATIONS = ['put', 'get', 'am', 'tag', 'stream', 'atomic'] as const;
/** An operation that explain() supports. */
export type ExplainedOperation = (typeof EXPLAINED_OPERATIONS)[number];

/** Options of an awaited put or get. */
export interface TransferOptions {
  /** Offset in the local memory. Default 0. */
  readonly offset?: number | undefined;
  /** Bytes to move. Default: all of the local memory from `offset` on. */
  readonly byteLength?: number | undefined;
  /** Offset in the remote memory. Default 0. */
  readonly remoteOffset?: number | undefined;
  /** An address inside the remote memory, instead of `remoteOffset`. */
  readonly remoteAddress?: bigint | undefined;
  /** Cancels the operation: its promise rejects with an AbortError, or resolves if the operation is executed nevertheless (see `Request.cancel`). */
  readonly signal?: AbortSignal | undefined;
}

/** Options of an awaited put. */
export interface PutOptions extends TransferOptions {
  /** See PutParams. */
  readonly notify?: Uint8Array | undefined;
  /** See PutParams. */
  readonly notifyId?: number | undefined;
}

/** Options of an awaited message. */
export interface SendOptions {
  /** Cancels the operation: its promise rejects with an AbortError, or resolves if the operation is executed nevertheless (see `Request.cancel`). */
  readonly signal?: AbortSignal | undefined;
}

/** Options of an awaited notification. */
export interface NotifyOptions extends SendOptions {
  /** See PutParams. */
  readonly notifyId?: number | undefined;
}

/** Options of an awaited tagged message. */
export interface TagSendOptions extends SendOptions {
  /** Tag, 0 to 2^64 - 1. Default 0. */
  readonly tag?: Tag | undefined;
}

/** Options of an awaited active message. */
export interface AmSendOptions extends SendOptions {
  /** At most 4096 bytes. */
  readonly header?: Uint8Array | undefined;
  /** See AmSendParams. */
  readonly protocol?: 'eager' | 'rendezvous' | undefined;
}

/** Options of an awaited receive of a stream. */
export interface StreamRecvOptions extends SendOptions {
  /** See StreamRecvParams: `signal` cancels it only until its first byte has arrived. */
  readonly waitAll?: boolean | undefined;
}

/** Options of an awaited atomic operation. */
export interface AtomicOptions {
  /** Offset in the remote memory, a multiple of the word size. Default 0. */
  readonly remoteOffset?: number | undefined;
  /** Bits of the word. Default 64. */
  readonly bits?: 32 | 64 | undefined;
  /** For cswap: the expected value of the word. */
  readonly compare?: number | bigint | undefined;
  /** Cancels the operation: its promise rejects with an AbortError, or resolves if the operation is executed nevertheless (see `Request.cancel`). */
  readonly signal?: AbortSignal | undefined;
}

/** The result of an awaited transfer. */
export interface TransferResult {
  /** Bytes that were moved. */
  readonly byteLength: number;
  /** Transport that moved the bytes; undefined if there were none, or if messages transferred them. */
  readonly transport: string | undefined;
  /** Device that moved them, such as `gaudi0`. */
  readonly device: string | undefined;
  /** Protocol that moved them, such as `put/zcopy`. */
  readonly protocol: string | undefined;
}

/**
 * An endpoint. Bytes that an operation has accepted (it returned OK, or its request has ended) leave this process with the next progress of its worker, and
 * at the latest at the end of the current job of the event loop, or of the process: call progress before a call that blocks the thread (Atomics.wait,
 * spawnSync). Only a flush confirms that puts have arrived. For messages, a flush confirms that they were sent; use a reply of the peer, or {@link
 * tagSendSync}, to confirm more.
 */
export interface Endpoint extends AsyncDisposable {
  /** True after `close()`. */
  readonly closed: boolean;
  /** OK, or why the connection has ended without being closed here. */
  readonly status: Status;
  /**
   * How the connection has ended: true if the peer announced it, by closing its endpoint, worker or context; false if it did not, for example because its
   * process was killed. Undefined while the connection exists, and if unknown: over libucp, it is only known for peers that also use this library, with the
   * feature `am`; for connections by socket address, only if the client program has not chosen a `clientId`.
   */
  readonly closedByPeer: boolean | undefined;
  /** Transports and devices of the lanes, such as `gaudi_cpy/gaudi0`. */
  readonly transports: readonly string[];
  /** The lane for messages, such as `posix/memory`; undefined if there is none, or if it is unknown. */
  readonly messageTransport: string | undefined;

  /** Attributes of the endpoint (ucp_ep_query). */
  query(): EndpointAttributes;

  /**
   * The lanes with their possible roles, and the protocols of messages from host memory, as text in the layout of `ucx_info -e` (ucp_ep_print_info); over
   * libucp, the text of libucp.
   * @throws UcxError ERR_CLOSED; over libucp the failure of a failed endpoint
   */
  printInfo(): string;

  /**
   * Writes local bytes to remote memory (ucp_put_nbx). Local completion: OK or the end of the request means that the local memory can be reused; flush waits
   * for remote completion.
   * @param local host bytes, mapped memory, or a list of ranges (UCP_DATATYPE_IOV) that are written to one remote range in order; must not be changed,
   * detached or transferred until the request has ended. `offset` and `byteLength` are 0 with a list
   * @param byteLength bytes; 0 moves nothing
   * @param remoteOffset offset in the memory behind `rkey`
   * @returns OK, a request in progress, the failure of a connection that has ended, or NO_RESOURCE if all requests of the worker are in use
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNREACHABLE; then no bytes were moved
   */
  putNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: PutParams,
  ): Status | Request;

  /** Reads remote memory into local memory (ucp_get_nbx): the bytes have arrived when OK is returned or the request has ended. See {@link putNbx}. */
  getNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Checks a list of puts or gets once, to move it many times: `putListNbx` and `getListNbx` then allocate nothing, and only check that memory and keys are
   * still valid.
   * @param list its host memory must be mapped
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED, ERR_UNREACHABLE; `details.entry` is the index of the entry
   */
  prepareList(operation: 'put' | 'get', list: readonly TransferEntry[], options?: ListCheckOptions): PreparedList;

  /**
   * Writes a list of blocks, with any memory and keys of this endpoint, as one operation.
   * @param list at most 2^20 blocks; a list without bytes ends in its call
   * @returns see {@link putNbx}. A failed request has the error with the index of the entry; the blocks before it may have been moved
   * @throws UcxError as {@link prepareList}, before anything has moved
   */
  putListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request;

  /** Reads a list of blocks. See {@link putListNbx}. */
  getListNbx(list: readonly TransferEntry[] | PreparedList, params?: ListParams): Status | Request;

  /**
   * Sends a notification, which arrives after those of all earlier puts and lists.
   * @param bytes at most 4096; copied
   * @returns see {@link putNbx}
   */
  notifyNbx(bytes: Uint8Array, params?: NotifyParams): Status | Request;

  /**
   * Changes a word of remote memory atomically (ucp_atomic_op_nbx). The request's `atomicResult` is the previous value of the word.
   * @param operation add, and, or, xor, swap, or cswap with `params.compare`
   * @param value integer with the size of the word
   * @param remoteOffset offset in the remote memory, a multiple of the word size
   * @returns see {@link putNbx}
   */
  atomicNbx(
    operation: AtomicName,
    value: number | bigint,
    rkey: RemoteKey,
    remoteOffset: number,
    params?: AtomicParams,
  ): Status | Request;

  /**
   * Sends a tagged message (ucp_tag_send_nbx). Its end means that the local memory can be reused.
   * @param local bytes, mapped memory of any type, or a list of ranges; `offset` and `byteLength` are 0 with a list
   * @param tag 0 to 2^64 - 1
   */
  tagSendNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request;

  /** Like {@link tagSendNbx}, but ends only when a receive has matched the message (ucp_tag_send_sync_nbx). */
  tagSendSyncNbx(
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    tag: Tag,
    params?: RequestParams,
  ): Status | Request;

  /**
   * Sends an active message (ucp_am_send_nbx).
   * @param id id of the peer's handler, 0 to 65535
   * @param header at most 4096 bytes; copied
   */
  amSendNbx(
    id: number,
    header: Uint8Array | undefined,
    local: LocalBuffer,
    offset: number,
    byteLength: number,
    params?: AmSendParams,
  ): Status | Request;

  /** Sends bytes of the stream (ucp_stream_send_nbx). */
  streamSendNbx(local: LocalBuffer, offset: number, byteLength: number, params?: RequestParams): Status | Request;

  /** Receives bytes of the stream (ucp_stream_recv_nbx): the available ones, at least one, or as many as the memory holds with `waitAll`. */
  streamRecvNbx(local: LocalBuffer, offset: number, byteLength: number, params?: StreamRecvParams): Status | Request;

  /**
   * Returns received bytes of the stream, without a copy if the engine supports it (ucp_stream_recv_data_nb); undefined if there are none. The program may
   * keep the memory, transfer it to a thread, or return it by {@link streamDataRelease}.
   */
  streamRecvData(): Uint8Array | undefined;

  /**
   * Returns the memory of received stream bytes for reuse (ucp_stream_data_release), which avoids garbage. The program must not read the bytes afterwards.
   * Also possible after the endpoint is closed.
   * @param data the result of {@link streamRecvData}; other memory, and memory that was already returned, is ignored
   * @throws UcxError ERR_INVALID_PARAM if it is not a Uint8Array
   */
  streamDataRelease(data: Uint8Array): void;

  /**
   * Waits until all earlier operations have reached remote memory (ucp_ep_flush_nbx).
   * @returns OK if they have, a request in progress, the failure of an earlier put, or NO_RESOURCE
   */
  flushNbx(params?: RequestParams): Status | Request;

  /** Orders earlier puts, gets and atomic operations before later ones (ucp_worker_fence, for one endpoint). */
  fence(): void;

  /**
   * Unpacks a remote key for this endpoint (ucp_ep_rkey_unpack).
   * @param packed from Context.packRkey of the peer, or with `raw` from another program
   * @throws UcxError ERR_RKEY_MALFORMED, ERR_RKEY_STALE, ERR_RKEY_FORGED; ERR_INVALID_PARAM; ERR_UNSUPPORTED for `raw` if the engine is not libucx
   */
  unpackRkey(packed: Uint8Array, options?: RkeyOptions): RemoteKey;

  /** Lists the candidates for an operation, the selected ones by size, and why the others were rejected. */
  explain(operation: ExplainedOperation, local: LocalMemory, rkey: RemoteKey): Explanation;

  /**
   * Writes local bytes to remote memory and waits until they have arrived.
   * @throws UcxError as {@link putNbx}, and for a failed transfer; AbortError if `signal` fires: a transfer that a transport has started is not cancelled,
   * and the promise settles once it no longer uses the local memory
   * @example
   * ```ts
   * const { transport, byteLength } = await endpoint.put(new Uint8Array(4096).fill(42), rkey, { remoteOffset: 4096 });
   * console.log(`${byteLength} bytes by ${transport}`);
   * ```
   */
  put(local: LocalBuffer, rkey: RemoteKey, options?: PutOptions): Promise<TransferResult>;

  /**
   * Reads remote memory into local memory. See {@link put}.
   * @example
   * ```ts
   * const target = new Uint8Array(4096);
   * await endpoint.get(target, rkey, { offset: 1024, byteLength: 512 });
   * ```
   */
  get(local: LocalBuffer, rkey: RemoteKey, options?: TransferOptions): Promise<TransferResult>;

  /**
   * Writes a list of blocks and waits until all have arrived. See {@link putListNbx}.
   * @throws UcxError whose details, or those of its cause, name the failed entry; AbortError
   * @example
   * ```ts
   * const pages = [3, 17, 4].map((page, i) => ({ local: memory, offset: page * 4096, rkey, remoteOffset: i * 4096, byteLength: 4096 }));
   * await endpoint.putList(pages, { notify: Buffer.from('layer 0') });
   * ```
   */
  putList(list: readonly TransferEntry[] | PreparedList, options?: ListOptions): Promise<TransferResult>;

  /** Reads a list of blocks. See {@link putList}. */
  getList(list: readonly TransferEntry[] | PreparedList, options?: ListOptions): Promise<TransferResult>;

  /**
   * Sends a notification; resolves when it was sent. See {@link notifyNbx}.
   * @example
   * ```ts
   * await endpoint.notify(Buffer.from('done')); // the peer receives it by worker.notifications()
   * ```
   */
  notify(bytes: Uint8Array, options?: NotifyOptions): Promise<void>;

  /**
   * Changes a word of remote memory atomically; resolves with the previous value. See {@link atomicNbx}.
   * @example
   * ```ts
   * const before = await endpoint.atomic('add', 1, rkey, { remoteOffset: 8 });
   * ```
   */
  atomic(operation: AtomicName, value: number | bigint, rkey: RemoteKey, options?: AtomicOptions): Promise<bigint>;

  /**
   * Sends a tagged message; resolves when the local memory can be reused.
   * @example
   * ```ts
   * await endpoint.tagSend(Buffer.from('hello'), { tag: 1 }); // the peer: await worker.tagRecv(buffer, { tag: 1 })
   * ```
   */
  tagSend(local: MessageBuffer, options?: TagSendOptions): Promise<TransferResult>;

  /** Sends a tagged message; resolves when a receive has matched it. */
  tagSendSync(local: MessageBuffer, options?: TagSendOptions): Promise<TransferResult>;

  /**
   * Sends an active message; resolves when the local memory can be reused.
   * @example
   * ```ts
   * await endpoint.amSend(7, Buffer.from('the data'), { header: Buffer.from('a header') });
   * ```
   */
  amSend(id: number, local: MessageBuffer, options?: AmSendOptions): Promise<TransferResult>;

  /**
   * Sends bytes of the stream; resolves when the local memory can be reused. If it ends with INVALID_ADDR, because its memory became invalid, or with
   * IO_ERROR, because a card could not read it, some of the bytes may have been sent, and the next send would continue the stream after them: close the
   * endpoint. `signal` cancels the send until its first bytes are sent. After that, the send waits until the peer reads, or the endpoint closes (`close({
   * force: true })`), because the stream would have a gap.
   * @example
   * ```ts
   * await endpoint.streamSend(Buffer.from('some bytes'));
   * ```
   */
  streamSend(local: MessageBuffer, options?: SendOptions): Promise<TransferResult>;

  /**
   * Receives bytes of the stream; resolves with their number.
   * @example
   * ```ts
   * const buffer = new Uint8Array(4096);
   * const received = await endpoint.streamRecv(buffer); // at least one byte
   * await endpoint.streamRecv(buffer.subarray(received), { waitAll: true });
   * ```
   */
  streamRecv(local: MessageBuffer, options?: StreamRecvOptions): Promise<number>;

  /**
   * The bytes of the stream as they arrive, until the peer closes or the loop ends.
   * @example
   * ```ts
   * for await (const chunk of endpoint.stream()) process.stdout.write(chunk);
   * ```
   */
  stream(options?: SendOptions): AsyncGenerator<Uint8Array, void, void>;

  /** Waits until all earlier operations have reached remote memory, and their notifications were sent. `signal` ends only the wait. */
  flush(options?: SendOptions): Promise<void>;

  /**
   * Closes the endpoint: waits until earlier operations have ended; with `force`, operations that only the peer could end are cancelled (CANCELED).
   * Idempotent; failures of earlier operations are not reported here.
   * @throws UcxError ERR_INVALID_PARAM for invalid options: then the endpoint stays open
   */
  close(options?: CloseOptions): Promise<void>;

  /**
   * Closes the endpoint at the end of an `await using` block; with `force` if awaited operations have not ended by then. So an exception leaves the block
   * even if the peer never replies.
   */
  [Symbol.asyncDispose](): Promise<void>;
}
