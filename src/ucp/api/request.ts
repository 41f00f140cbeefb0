/** An operation that has not ended when its call returned, as users see it, and how it is asked for. Types only. */

import type { Status } from '../../ucs/type/status.ts';

/** Runs once when a request ends, inside `progress()`; `request.free()` may be called in it. It must not throw. */
export type RequestCallback = (request: Request, status: Status) => void;

/** Options of an nbx call (ucp_request_param_t). Reuse one object: the call keeps nothing of it. */
export interface RequestParams {
  /** Return a request even when the operation ended at once (UCP_OP_ATTR_FLAG_NO_IMM_CMPL). */
  readonly noImmediateCompletion?: boolean;
  /** Runs when the request ends; not for an operation that ended at once. */
  readonly callback?: RequestCallback;
  /** Any value; the request has it as `userData`. */
  readonly userData?: unknown;
}

/** How an active message is sent. */
export interface AmSendParams extends RequestParams {
  /** Sends it at once, or with a rendezvous; by default its length decides. Where the receiver has no memory for it, it goes by rendezvous in any case. */
  readonly protocol?: 'eager' | 'rendezvous';
}

/** Names of the atomic operations. */
export type AtomicName = 'add' | 'and' | 'or' | 'xor' | 'swap' | 'cswap';

/** An atomic operation on a word of remote memory. */
export interface AtomicParams extends RequestParams {
  /** Bits of the word. Default 64. */
  readonly bits?: 32 | 64;
  /** For cswap: the value that the word must have. */
  readonly compare?: number | bigint;
}

/** How a stream is received. */
export interface StreamRecvParams extends RequestParams {
  /** Ends only when all of the local memory is filled (UCP_STREAM_RECV_FLAG_WAITALL). */
  readonly waitAll?: boolean;
}

/** A request. Pooled: after `free()` the object belongs to another operation. */
export interface Request {
  /** INPROGRESS, then how it has ended. */
  readonly status: Status;
  /** True once `status` is final. */
  readonly isCompleted: boolean;
  /** What was thrown on the way, for the cause of an error; most failures have none. */
  readonly error: unknown;
  /** Of RequestParams. The callback may be set until the operation has ended. */
  callback: RequestCallback | undefined;
  /** The `userData` of the parameters. */
  readonly userData: unknown;
  /** Bytes of the operation. */
  readonly byteLength: number;
  /** Bytes of the message that was received. */
  readonly receivedBytes: number;
  /** Tag of the message that a receive has got. */
  readonly senderTag: bigint;
  /** Word before an atomic operation that has ended. */
  readonly atomicResult: bigint;
  /** Name of the transport that carries it, such as `gaudi_cpy`; undefined where none does, as for a flush. */
  readonly transport: string | undefined;
  /** Name of the device that carries it, such as `gaudi0`. */
  readonly device: string | undefined;
  /** Name of the protocol, such as `put/zcopy`. */
  readonly protocol: string;
  /**
   * Gives the object back once the operation has ended.
   * @throws UcxError ERR_BUSY before that, ERR_INVALID_PARAM the second time
   */
  free(): void;
  /**
   * Ends the operation with CANCELED if no transport works on it yet (ucp_request_cancel).
   * @returns false when it is too late: the request ends by itself
   */
  cancel(): boolean;
}
