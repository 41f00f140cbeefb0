/** The interface of a request, an operation that was not finished when its call returned, and its parameters. Types only. */

import type { Status } from '../../../ucs/type/status.ts';

/** Runs once when a request ends, inside `progress()`; `request.free()` may be called in it. See Worker.progress for an error of it. */
export type RequestCallback = (request: Request, status: Status) => void;

/** Options of an nbx call (ucp_request_param_t). The object can be reused: the call keeps no reference to it. */
export interface RequestParams {
  /** Returns a request even if the operation ended at once (UCP_OP_ATTR_FLAG_NO_IMM_CMPL). */
  readonly noImmediateCompletion?: boolean | undefined;
  /** Called when the request ends; not called if the operation ended at once. */
  readonly callback?: RequestCallback | undefined;
  /** Any value; returned as `userData` of the request. */
  readonly userData?: unknown;
}

/** Parameters of a notification. */
export interface NotifyParams extends RequestParams {
  /**
   * Id of active messages whose handler gets the notification, as a message that consists of its header: a channel of its own. Default: it is one of
   * `worker.notifications()`.
   */
  readonly notifyId?: number | undefined;
}

/** Parameters of a put. */
export interface PutParams extends NotifyParams {
  /** Bytes that the peer gets as a notification once every byte of the put is visible in its memory; at most 4096. Copied. */
  readonly notify?: Uint8Array | undefined;
}

/** Parameters of sending an active message. */
export interface AmSendParams extends RequestParams {
  /** Sends it eagerly or by rendezvous; by default its length decides. If the receiver has no memory for it, it is sent by rendezvous in any case. */
  readonly protocol?: 'eager' | 'rendezvous' | undefined;
}

/** Names of the atomic operations. */
export type AtomicName = 'add' | 'and' | 'or' | 'xor' | 'swap' | 'cswap';

/** An atomic operation on a word of remote memory. */
export interface AtomicParams extends RequestParams {
  /** Bits of the word. Default 64. */
  readonly bits?: 32 | 64 | undefined;
  /** For cswap: the expected value of the word. */
  readonly compare?: number | bigint | undefined;
}

/** Parameters of receiving from a stream. */
export interface StreamRecvParams extends RequestParams {
  /**
   * Ends only when all of the local memory is filled (UCP_STREAM_RECV_FLAG_WAITALL). Once it has received bytes it cannot be canceled: the stream would lose
   * them. It ends with the rest, or with the endpoint. libucp cancels no receive of a stream at all.
   */
  readonly waitAll?: boolean | undefined;
}

/** A request. Pooled: after `free()` the object belongs to another operation. */
export interface Request {
  /** INPROGRESS, then the final status. */
  readonly status: Status;
  /** True once `status` is final. */
  readonly isCompleted: boolean;
  /** An error that was thrown during the operation, for the cause of an error; undefined for most failures. */
  readonly error: unknown;
  /** The `callback` of the parameters. It may be set until the operation has ended. */
  callback: RequestCallback | undefined;
  /** The `userData` of the parameters. */
  readonly userData: unknown;
  /** Bytes of the operation. */
  readonly byteLength: number;
  /** Bytes of the message that was received. */
  readonly receivedBytes: number;
  /** Tag of the received message. */
  readonly senderTag: bigint;
  /** Word before an atomic operation that has ended. */
  readonly atomicResult: bigint;
  /** Name of the transport that carries it, such as `gaudi_cpy`; undefined if there is none, as for a flush. */
  readonly transport: string | undefined;
  /** Name of the device that carries it, such as `gaudi0`. */
  readonly device: string | undefined;
  /** Name of the protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /**
   * Returns the object to its pool once the operation has ended.
   * @throws UcxError ERR_BUSY before that, ERR_INVALID_PARAM the second time
   */
  free(): void;
  /**
   * Ends the operation with CANCELED if no transport has started it yet (ucp_request_cancel). A long or synchronous message whose receiver has not taken it is
   * withdrawn: the peer is asked to forget it, and the request ends with CANCELED when its worker has, in its progress. The receiver does not find a withdrawn
   * tagged message any more; receiving the data of an active message that it has kept fails with ERR_CANCELED. libucp withdraws no messages. An
   * operation that waits for a stopped process (SIGSTOP) of this host ends at once if that process cannot reach its memory any more, otherwise with its
   * endpoint, which fails with ENDPOINT_TIMEOUT if the process is stopped at two checks of UCX_KEEPALIVE_INTERVAL.
   * @returns false if the request ends by itself: it is too late, or the message is being withdrawn
   */
  cancel(): boolean;
}
