/**
 * The functions of libucp that are used here, each declared once. Arguments are not checked: a wrong address is a SIGSEGV.
 *
 * Pointers and handles are Numbers. Other types:
 * - a status is `int8_t`: ucs_status_t is an enumeration packed into one byte, and C leaves the rest of the register undefined;
 * - a status pointer is `int64_t`: 0 is done, less than 0 a status, more than 0 a request;
 * - tags and remote addresses are `uint64_t` and take a Number, exact up to 2^53, or a bigint, exact always. A bigint costs 5 ns more, one that was just
 * computed 15 ns. The Number -1 is a mask of 64 one bits.
 */

import type { NativeType } from '../../sys/index.ts';

const POINTER = 'uint64_t';
const SIZE = 'uint64_t';
const U64 = 'uint64_t';
const U32 = 'uint32_t';
const INT = 'int';
const TEXT = 'str';
const STATUS = 'int8_t';
const STATUS_POINTER = 'int64_t';
/** A returned pointer: no address reaches 2^63. */
const ADDRESS = 'int64_t';
const VOID = 'void';

/** An address or a handle; 0 is NULL. */
type Pointer = number;
/** A value of ucs_status_t. */
type StatusNumber = number;
/** 0: done; negative: a status; positive: a request. */
type StatusPointer = number;
/** A tag or a remote address. */
type Integer64 = number | bigint;

/** Signature of a function; `F` is its type. */
interface Declaration<F> {
  readonly result: NativeType;
  readonly parameters: NativeType[];
  /** Never set: carries the type. */
  readonly type?: F;
}

function declare(result: NativeType, parameters: NativeType[]): Declaration<unknown> {
  return { result, parameters };
}

/** ucp_put_nbx and ucp_get_nbx. */
type RemoteTransfer = (
  ep: Pointer,
  buffer: Pointer,
  count: number,
  remoteAddress: Integer64,
  rkey: Pointer,
  param: Pointer,
) => StatusPointer;
/** ucp_tag_send_nbx and ucp_tag_send_sync_nbx. */
type TagSend = (ep: Pointer, buffer: Pointer, count: number, tag: Integer64, param: Pointer) => StatusPointer;

/** Functions by name, in the order of ucp.h; the last ones are those of libucs, on which libucp depends. */
export const FUNCTIONS = {
  ucp_get_version: declare(VOID, [POINTER, POINTER, POINTER]) as Declaration<
    (major: Pointer, minor: Pointer, release: Pointer) => void
  >,
  ucp_get_version_string: declare(TEXT, []) as Declaration<() => string>,
  ucp_config_read: declare(STATUS, [TEXT, TEXT, POINTER]) as Declaration<
    (envPrefix: string | null, fileName: string | null, config: Pointer) => StatusNumber
  >,
  ucp_config_release: declare(VOID, [POINTER]) as Declaration<(config: Pointer) => void>,
  ucp_config_modify: declare(STATUS, [POINTER, TEXT, TEXT]) as Declaration<
    (config: Pointer, name: string, value: string) => StatusNumber
  >,

  ucp_init_version: declare(STATUS, [U32, U32, POINTER, POINTER, POINTER]) as Declaration<
    (major: number, minor: number, params: Pointer, config: Pointer, context: Pointer) => StatusNumber
  >,
  ucp_cleanup: declare(VOID, [POINTER]) as Declaration<(context: Pointer) => void>,
  /** Prints to a C stream. */
  ucp_context_print_info: declare(VOID, [POINTER, POINTER]) as Declaration<(context: Pointer, stream: Pointer) => void>,
  ucp_context_query: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (context: Pointer, attr: Pointer) => StatusNumber
  >,

  ucp_worker_create: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (context: Pointer, params: Pointer, worker: Pointer) => StatusNumber
  >,
  ucp_worker_destroy: declare(VOID, [POINTER]) as Declaration<(worker: Pointer) => void>,
  ucp_worker_query: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (worker: Pointer, attr: Pointer) => StatusNumber
  >,
  ucp_worker_release_address: declare(VOID, [POINTER, POINTER]) as Declaration<
    (worker: Pointer, address: Pointer) => void
  >,
  ucp_worker_progress: declare(U32, [POINTER]) as Declaration<(worker: Pointer) => number>,
  ucp_worker_get_efd: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (worker: Pointer, fd: Pointer) => StatusNumber
  >,
  ucp_worker_arm: declare(STATUS, [POINTER]) as Declaration<(worker: Pointer) => StatusNumber>,
  ucp_worker_fence: declare(STATUS, [POINTER]) as Declaration<(worker: Pointer) => StatusNumber>,
  ucp_worker_flush_nbx: declare(STATUS_POINTER, [POINTER, POINTER]) as Declaration<
    (worker: Pointer, param: Pointer) => StatusPointer
  >,

  ucp_listener_create: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (worker: Pointer, params: Pointer, listener: Pointer) => StatusNumber
  >,
  ucp_listener_destroy: declare(VOID, [POINTER]) as Declaration<(listener: Pointer) => void>,
  ucp_listener_query: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (listener: Pointer, attr: Pointer) => StatusNumber
  >,
  ucp_listener_reject: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (listener: Pointer, request: Pointer) => StatusNumber
  >,
  ucp_conn_request_query: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (request: Pointer, attr: Pointer) => StatusNumber
  >,

  ucp_ep_create: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (worker: Pointer, params: Pointer, ep: Pointer) => StatusNumber
  >,
  ucp_ep_close_nbx: declare(STATUS_POINTER, [POINTER, POINTER]) as Declaration<
    (ep: Pointer, param: Pointer) => StatusPointer
  >,
  ucp_ep_flush_nbx: declare(STATUS_POINTER, [POINTER, POINTER]) as Declaration<
    (ep: Pointer, param: Pointer) => StatusPointer
  >,
  ucp_ep_query: declare(STATUS, [POINTER, POINTER]) as Declaration<(ep: Pointer, attr: Pointer) => StatusNumber>,

  ucp_mem_map: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (context: Pointer, params: Pointer, memh: Pointer) => StatusNumber
  >,
  ucp_mem_unmap: declare(STATUS, [POINTER, POINTER]) as Declaration<(context: Pointer, memh: Pointer) => StatusNumber>,
  ucp_mem_query: declare(STATUS, [POINTER, POINTER]) as Declaration<(memh: Pointer, attr: Pointer) => StatusNumber>,
  ucp_rkey_pack: declare(STATUS, [POINTER, POINTER, POINTER, POINTER]) as Declaration<
    (context: Pointer, memh: Pointer, buffer: Pointer, size: Pointer) => StatusNumber
  >,
  ucp_rkey_buffer_release: declare(VOID, [POINTER]) as Declaration<(buffer: Pointer) => void>,
  ucp_ep_rkey_unpack: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (ep: Pointer, buffer: Pointer, rkey: Pointer) => StatusNumber
  >,
  ucp_rkey_destroy: declare(VOID, [POINTER]) as Declaration<(rkey: Pointer) => void>,

  ucp_put_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]) as Declaration<RemoteTransfer>,
  ucp_get_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]) as Declaration<RemoteTransfer>,
  ucp_atomic_op_nbx: declare(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, U64, POINTER, POINTER]) as Declaration<
    (
      ep: Pointer,
      opcode: number,
      buffer: Pointer,
      count: number,
      remoteAddress: Integer64,
      rkey: Pointer,
      param: Pointer,
    ) => StatusPointer
  >,

  ucp_tag_send_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]) as Declaration<TagSend>,
  ucp_tag_send_sync_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]) as Declaration<TagSend>,
  ucp_tag_recv_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, U64, POINTER]) as Declaration<
    (worker: Pointer, buffer: Pointer, count: number, tag: Integer64, mask: Integer64, param: Pointer) => StatusPointer
  >,
  /** The message, or 0. */
  ucp_tag_probe_nb: declare(ADDRESS, [POINTER, U64, U64, INT, POINTER]) as Declaration<
    (worker: Pointer, tag: Integer64, mask: Integer64, remove: number, info: Pointer) => Pointer
  >,
  ucp_tag_msg_recv_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER, POINTER]) as Declaration<
    (worker: Pointer, buffer: Pointer, count: number, message: Pointer, param: Pointer) => StatusPointer
  >,
  ucp_tag_recv_request_test: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (request: Pointer, info: Pointer) => StatusNumber
  >,

  ucp_worker_set_am_recv_handler: declare(STATUS, [POINTER, POINTER]) as Declaration<
    (worker: Pointer, param: Pointer) => StatusNumber
  >,
  ucp_am_send_nbx: declare(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, POINTER, SIZE, POINTER]) as Declaration<
    (
      ep: Pointer,
      id: number,
      header: Pointer,
      headerLength: number,
      buffer: Pointer,
      count: number,
      param: Pointer,
    ) => StatusPointer
  >,
  ucp_am_recv_data_nbx: declare(STATUS_POINTER, [POINTER, POINTER, POINTER, SIZE, POINTER]) as Declaration<
    (worker: Pointer, descriptor: Pointer, buffer: Pointer, count: number, param: Pointer) => StatusPointer
  >,
  ucp_am_data_release: declare(VOID, [POINTER, POINTER]) as Declaration<(worker: Pointer, data: Pointer) => void>,

  ucp_stream_send_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER]) as Declaration<
    (ep: Pointer, buffer: Pointer, count: number, param: Pointer) => StatusPointer
  >,
  /** 0: no data; negative: a status; positive: the data. */
  ucp_stream_recv_data_nb: declare(STATUS_POINTER, [POINTER, POINTER]) as Declaration<
    (ep: Pointer, length: Pointer) => StatusPointer
  >,
  ucp_stream_data_release: declare(VOID, [POINTER, POINTER]) as Declaration<(ep: Pointer, data: Pointer) => void>,

  ucp_request_check_status: declare(STATUS, [POINTER]) as Declaration<(request: Pointer) => StatusNumber>,
  ucp_request_cancel: declare(VOID, [POINTER, POINTER]) as Declaration<(worker: Pointer, request: Pointer) => void>,
  ucp_request_free: declare(VOID, [POINTER]) as Declaration<(request: Pointer) => void>,

  ucp_dt_create_generic: declare(STATUS, [POINTER, POINTER, POINTER]) as Declaration<
    (ops: Pointer, context: Pointer, datatype: Pointer) => StatusNumber
  >,
  ucp_dt_destroy: declare(VOID, [U64]) as Declaration<(datatype: Pointer) => void>,

  ucs_status_string: declare(TEXT, [STATUS]) as Declaration<(status: number) => string>,
} as const;

/** The bound functions. Hot paths keep those that they call in their own fields. */
export type LibucpFunctions = {
  readonly [N in keyof typeof FUNCTIONS]: (typeof FUNCTIONS)[N] extends Declaration<infer F> ? F : never;
};
