/**
 * Declarations of the functions of libucp that this engine calls. Arguments are not checked: a wrong address is a SIGSEGV.
 *
 * Pointers and handles are Numbers. Other types:
 * - a status is `int8_t`: ucs_status_t is an enumeration packed into one byte, and C leaves the rest of the register undefined;
 * - a status pointer is `int64_t`: 0 means completed, a negative value is a status, a positive one a request;
 * - tags and remote addresses are `uint64_t` and take a Number (exact up to 2^53) or a bigint (always exact). A bigint costs 5 ns more, a newly computed
 * one 15 ns. The Number -1 is a mask of 64 one bits.
 */

import type { NativeType } from '../../sys/index.ts';
import type { Status } from '../../ucs/type/status.ts';

const POINTER = 'uint64_t';
const SIZE = 'uint64_t';
const U64 = 'uint64_t';
const U32 = 'uint32_t';
const INT = 'int';
const TEXT = 'str';
const STATUS = 'int8_t';
const STATUS_POINTER = 'int64_t';
/** A returned pointer. User-space addresses are below 2^63. */
const ADDRESS = 'int64_t';
const VOID = 'void';

/** An address or a handle; 0 is NULL. */
type Pointer = number;
type StatusNumber = Status;
/** 0: completed; negative: a status; positive: a request. */
type StatusPointer = number;
/** A tag or a remote address. */
type Integer64 = number | bigint;

interface Declaration {
  readonly result: NativeType;
  readonly parameters: NativeType[];
}

function declare(result: NativeType, parameters: NativeType[]): Declaration {
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

/**
 * The bound functions, in the order of ucp.h; the last ones are those of libucs, on which libucp depends. Hot paths copy the functions that they call to
 * their own fields.
 */
export interface LibucpFunctions {
  readonly ucp_get_version: (major: Pointer, minor: Pointer, release: Pointer) => void;
  readonly ucp_get_version_string: () => string;
  readonly ucp_config_read: (envPrefix: string | null, fileName: string | null, config: Pointer) => StatusNumber;
  readonly ucp_config_release: (config: Pointer) => void;
  readonly ucp_config_modify: (config: Pointer, name: string, value: string) => StatusNumber;

  readonly ucp_init_version: (
    major: number,
    minor: number,
    params: Pointer,
    config: Pointer,
    context: Pointer,
  ) => StatusNumber;
  readonly ucp_cleanup: (context: Pointer) => void;
  /** The stream is a C `FILE`. */
  readonly ucp_context_print_info: (context: Pointer, stream: Pointer) => void;
  readonly ucp_context_query: (context: Pointer, attr: Pointer) => StatusNumber;

  readonly ucp_worker_create: (context: Pointer, params: Pointer, worker: Pointer) => StatusNumber;
  readonly ucp_worker_destroy: (worker: Pointer) => void;
  readonly ucp_worker_print_info: (worker: Pointer, stream: Pointer) => void;
  readonly ucp_worker_query: (worker: Pointer, attr: Pointer) => StatusNumber;
  readonly ucp_worker_release_address: (worker: Pointer, address: Pointer) => void;
  readonly ucp_worker_progress: (worker: Pointer) => number;
  readonly ucp_worker_get_efd: (worker: Pointer, fd: Pointer) => StatusNumber;
  readonly ucp_worker_arm: (worker: Pointer) => StatusNumber;
  readonly ucp_worker_fence: (worker: Pointer) => StatusNumber;
  readonly ucp_worker_flush_nbx: (worker: Pointer, param: Pointer) => StatusPointer;

  readonly ucp_listener_create: (worker: Pointer, params: Pointer, listener: Pointer) => StatusNumber;
  readonly ucp_listener_destroy: (listener: Pointer) => void;
  readonly ucp_listener_query: (listener: Pointer, attr: Pointer) => StatusNumber;
  readonly ucp_listener_reject: (listener: Pointer, request: Pointer) => StatusNumber;
  readonly ucp_conn_request_query: (request: Pointer, attr: Pointer) => StatusNumber;

  readonly ucp_ep_create: (worker: Pointer, params: Pointer, ep: Pointer) => StatusNumber;
  readonly ucp_ep_close_nbx: (ep: Pointer, param: Pointer) => StatusPointer;
  readonly ucp_ep_flush_nbx: (ep: Pointer, param: Pointer) => StatusPointer;
  readonly ucp_ep_print_info: (ep: Pointer, stream: Pointer) => void;
  readonly ucp_ep_query: (ep: Pointer, attr: Pointer) => StatusNumber;

  readonly ucp_mem_map: (context: Pointer, params: Pointer, memh: Pointer) => StatusNumber;
  readonly ucp_mem_unmap: (context: Pointer, memh: Pointer) => StatusNumber;
  readonly ucp_mem_query: (memh: Pointer, attr: Pointer) => StatusNumber;
  readonly ucp_rkey_pack: (context: Pointer, memh: Pointer, buffer: Pointer, size: Pointer) => StatusNumber;
  readonly ucp_rkey_buffer_release: (buffer: Pointer) => void;
  readonly ucp_ep_rkey_unpack: (ep: Pointer, buffer: Pointer, rkey: Pointer) => StatusNumber;
  readonly ucp_rkey_destroy: (rkey: Pointer) => void;

  readonly ucp_put_nbx: RemoteTransfer;
  readonly ucp_get_nbx: RemoteTransfer;
  readonly ucp_atomic_op_nbx: (
    ep: Pointer,
    opcode: number,
    buffer: Pointer,
    count: number,
    remoteAddress: Integer64,
    rkey: Pointer,
    param: Pointer,
  ) => StatusPointer;

  readonly ucp_tag_send_nbx: TagSend;
  readonly ucp_tag_send_sync_nbx: TagSend;
  readonly ucp_tag_recv_nbx: (
    worker: Pointer,
    buffer: Pointer,
    count: number,
    tag: Integer64,
    mask: Integer64,
    param: Pointer,
  ) => StatusPointer;
  /** Returns the handle of the message; 0 if none matches. */
  readonly ucp_tag_probe_nb: (
    worker: Pointer,
    tag: Integer64,
    mask: Integer64,
    remove: number,
    info: Pointer,
  ) => Pointer;
  readonly ucp_tag_msg_recv_nbx: (
    worker: Pointer,
    buffer: Pointer,
    count: number,
    message: Pointer,
    param: Pointer,
  ) => StatusPointer;
  readonly ucp_tag_recv_request_test: (request: Pointer, info: Pointer) => StatusNumber;

  readonly ucp_worker_set_am_recv_handler: (worker: Pointer, param: Pointer) => StatusNumber;
  readonly ucp_am_send_nbx: (
    ep: Pointer,
    id: number,
    header: Pointer,
    headerLength: number,
    buffer: Pointer,
    count: number,
    param: Pointer,
  ) => StatusPointer;
  readonly ucp_am_recv_data_nbx: (
    worker: Pointer,
    descriptor: Pointer,
    buffer: Pointer,
    count: number,
    param: Pointer,
  ) => StatusPointer;
  readonly ucp_am_data_release: (worker: Pointer, data: Pointer) => void;

  readonly ucp_stream_send_nbx: (ep: Pointer, buffer: Pointer, count: number, param: Pointer) => StatusPointer;
  /** 0: no data; negative: a status; positive: the data. */
  readonly ucp_stream_recv_data_nb: (ep: Pointer, length: Pointer) => StatusPointer;
  readonly ucp_stream_data_release: (ep: Pointer, data: Pointer) => void;

  readonly ucp_request_check_status: (request: Pointer) => StatusNumber;
  readonly ucp_request_query: (request: Pointer, attr: Pointer) => StatusNumber;
  readonly ucp_request_cancel: (worker: Pointer, request: Pointer) => void;
  readonly ucp_request_free: (request: Pointer) => void;

  readonly ucp_dt_create_generic: (ops: Pointer, context: Pointer, datatype: Pointer) => StatusNumber;
  readonly ucp_dt_destroy: (datatype: Pointer) => void;

  readonly ucs_status_string: (status: number) => string;
}

export const FUNCTIONS: { readonly [Name in keyof LibucpFunctions]: Declaration } = {
  ucp_get_version: declare(VOID, [POINTER, POINTER, POINTER]),
  ucp_get_version_string: declare(TEXT, []),
  ucp_config_read: declare(STATUS, [TEXT, TEXT, POINTER]),
  ucp_config_release: declare(VOID, [POINTER]),
  ucp_config_modify: declare(STATUS, [POINTER, TEXT, TEXT]),

  ucp_init_version: declare(STATUS, [U32, U32, POINTER, POINTER, POINTER]),
  ucp_cleanup: declare(VOID, [POINTER]),
  ucp_context_print_info: declare(VOID, [POINTER, POINTER]),
  ucp_context_query: declare(STATUS, [POINTER, POINTER]),

  ucp_worker_create: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_worker_destroy: declare(VOID, [POINTER]),
  ucp_worker_print_info: declare(VOID, [POINTER, POINTER]),
  ucp_worker_query: declare(STATUS, [POINTER, POINTER]),
  ucp_worker_release_address: declare(VOID, [POINTER, POINTER]),
  ucp_worker_progress: declare(U32, [POINTER]),
  ucp_worker_get_efd: declare(STATUS, [POINTER, POINTER]),
  ucp_worker_arm: declare(STATUS, [POINTER]),
  ucp_worker_fence: declare(STATUS, [POINTER]),
  ucp_worker_flush_nbx: declare(STATUS_POINTER, [POINTER, POINTER]),

  ucp_listener_create: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_listener_destroy: declare(VOID, [POINTER]),
  ucp_listener_query: declare(STATUS, [POINTER, POINTER]),
  ucp_listener_reject: declare(STATUS, [POINTER, POINTER]),
  ucp_conn_request_query: declare(STATUS, [POINTER, POINTER]),

  ucp_ep_create: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_ep_close_nbx: declare(STATUS_POINTER, [POINTER, POINTER]),
  ucp_ep_flush_nbx: declare(STATUS_POINTER, [POINTER, POINTER]),
  ucp_ep_print_info: declare(VOID, [POINTER, POINTER]),
  ucp_ep_query: declare(STATUS, [POINTER, POINTER]),

  ucp_mem_map: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_mem_unmap: declare(STATUS, [POINTER, POINTER]),
  ucp_mem_query: declare(STATUS, [POINTER, POINTER]),
  ucp_rkey_pack: declare(STATUS, [POINTER, POINTER, POINTER, POINTER]),
  ucp_rkey_buffer_release: declare(VOID, [POINTER]),
  ucp_ep_rkey_unpack: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_rkey_destroy: declare(VOID, [POINTER]),

  ucp_put_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]),
  ucp_get_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]),
  ucp_atomic_op_nbx: declare(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, U64, POINTER, POINTER]),

  ucp_tag_send_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]),
  ucp_tag_send_sync_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]),
  ucp_tag_recv_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, U64, POINTER]),
  ucp_tag_probe_nb: declare(ADDRESS, [POINTER, U64, U64, INT, POINTER]),
  ucp_tag_msg_recv_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER, POINTER]),
  ucp_tag_recv_request_test: declare(STATUS, [POINTER, POINTER]),

  ucp_worker_set_am_recv_handler: declare(STATUS, [POINTER, POINTER]),
  ucp_am_send_nbx: declare(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, POINTER, SIZE, POINTER]),
  ucp_am_recv_data_nbx: declare(STATUS_POINTER, [POINTER, POINTER, POINTER, SIZE, POINTER]),
  ucp_am_data_release: declare(VOID, [POINTER, POINTER]),

  ucp_stream_send_nbx: declare(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER]),
  ucp_stream_recv_data_nb: declare(STATUS_POINTER, [POINTER, POINTER]),
  ucp_stream_data_release: declare(VOID, [POINTER, POINTER]),

  ucp_request_check_status: declare(STATUS, [POINTER]),
  ucp_request_query: declare(STATUS, [POINTER, POINTER]),
  ucp_request_cancel: declare(VOID, [POINTER, POINTER]),
  ucp_request_free: declare(VOID, [POINTER]),

  ucp_dt_create_generic: declare(STATUS, [POINTER, POINTER, POINTER]),
  ucp_dt_destroy: declare(VOID, [U64]),

  ucs_status_string: declare(TEXT, [STATUS]),
};
