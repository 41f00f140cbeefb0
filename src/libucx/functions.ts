/**
 * The functions of libucp that are used here, each declared once. Nothing here checks an argument: a wrong address is a SIGSEGV.
 *
 * Pointers and handles are Numbers. What is told apart from them:
 * - a status is `int8_t`: ucs_status_t is an enumeration packed into one byte, and C leaves the rest of the register undefined;
 * - a status pointer is `int64_t`: 0 is done, less than 0 a status, more than 0 a request;
 * - tags and remote addresses are `uint64_t` and take a Number, exact up to 2^53, or a bigint, exact always. A bigint costs 5 ns more, one that was just
 *   computed 15 ns. The Number -1 is a mask of 64 ones.
 */

import type { NativeType } from '../sys/index.ts';

const POINTER = 'uint64_t';
const SIZE = 'uint64_t';
const U64 = 'uint64_t';
const U32 = 'uint32_t';
const INT = 'int';
const TEXT = 'str';
const STATUS = 'int8_t';
const STATUS_POINTER = 'int64_t';
/** A pointer that is returned: no address reaches 2^63. */
const ADDRESS = 'int64_t';
const VOID = 'void';

/** An address or a handle; 0 is NULL. */
type Pointer = number;
/** A value of ucs_status_t. */
type StatusNumber = number;
/** 0: done; less: a status; more: a request. */
type StatusPointer = number;
/** A tag or a remote address. */
type Integer64 = number | bigint;

/** How a function is called; `F` is its type. */
interface Declaration<F> {
  readonly result: NativeType;
  readonly parameters: NativeType[];
  /** Never there: carries the type. */
  readonly type?: F;
}

function declare<F>(result: NativeType, parameters: NativeType[]): Declaration<F> {
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

/** By name, in the order of ucp.h; the last ones are those of libucs, which libucp brings along. */
export const FUNCTIONS = {
  ucp_get_version: declare<(major: Pointer, minor: Pointer, release: Pointer) => void>(VOID, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_get_version_string: declare<() => string>(TEXT, []),
  ucp_config_read: declare<(envPrefix: string | null, fileName: string | null, config: Pointer) => StatusNumber>(
    STATUS,
    [TEXT, TEXT, POINTER],
  ),
  ucp_config_release: declare<(config: Pointer) => void>(VOID, [POINTER]),
  ucp_config_modify: declare<(config: Pointer, name: string, value: string) => StatusNumber>(STATUS, [
    POINTER,
    TEXT,
    TEXT,
  ]),

  ucp_init_version: declare<
    (major: number, minor: number, params: Pointer, config: Pointer, context: Pointer) => StatusNumber
  >(STATUS, [U32, U32, POINTER, POINTER, POINTER]),
  ucp_cleanup: declare<(context: Pointer) => void>(VOID, [POINTER]),
  /** Writes to a stream of C. */
  ucp_context_print_info: declare<(context: Pointer, stream: Pointer) => void>(VOID, [POINTER, POINTER]),
  ucp_context_query: declare<(context: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),

  ucp_worker_create: declare<(context: Pointer, params: Pointer, worker: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_worker_destroy: declare<(worker: Pointer) => void>(VOID, [POINTER]),
  ucp_worker_query: declare<(worker: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_worker_release_address: declare<(worker: Pointer, address: Pointer) => void>(VOID, [POINTER, POINTER]),
  ucp_worker_address_query: declare<(address: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_worker_progress: declare<(worker: Pointer) => number>(U32, [POINTER]),
  ucp_worker_get_efd: declare<(worker: Pointer, fd: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_worker_arm: declare<(worker: Pointer) => StatusNumber>(STATUS, [POINTER]),
  ucp_worker_signal: declare<(worker: Pointer) => StatusNumber>(STATUS, [POINTER]),
  ucp_worker_wait: declare<(worker: Pointer) => StatusNumber>(STATUS, [POINTER]),
  ucp_worker_fence: declare<(worker: Pointer) => StatusNumber>(STATUS, [POINTER]),
  ucp_worker_flush_nbx: declare<(worker: Pointer, param: Pointer) => StatusPointer>(STATUS_POINTER, [POINTER, POINTER]),

  ucp_listener_create: declare<(worker: Pointer, params: Pointer, listener: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_listener_destroy: declare<(listener: Pointer) => void>(VOID, [POINTER]),
  ucp_listener_query: declare<(listener: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_listener_reject: declare<(listener: Pointer, request: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_conn_request_query: declare<(request: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),

  ucp_ep_create: declare<(worker: Pointer, params: Pointer, ep: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_ep_close_nbx: declare<(ep: Pointer, param: Pointer) => StatusPointer>(STATUS_POINTER, [POINTER, POINTER]),
  ucp_ep_flush_nbx: declare<(ep: Pointer, param: Pointer) => StatusPointer>(STATUS_POINTER, [POINTER, POINTER]),
  ucp_ep_query: declare<(ep: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),

  ucp_mem_map: declare<(context: Pointer, params: Pointer, memh: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_mem_unmap: declare<(context: Pointer, memh: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_mem_query: declare<(memh: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_mem_advise: declare<(context: Pointer, memh: Pointer, params: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_rkey_pack: declare<(context: Pointer, memh: Pointer, buffer: Pointer, size: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_rkey_buffer_release: declare<(buffer: Pointer) => void>(VOID, [POINTER]),
  ucp_ep_rkey_unpack: declare<(ep: Pointer, buffer: Pointer, rkey: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_rkey_ptr: declare<(rkey: Pointer, remoteAddress: Integer64, address: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    U64,
    POINTER,
  ]),
  ucp_rkey_destroy: declare<(rkey: Pointer) => void>(VOID, [POINTER]),

  ucp_put_nbx: declare<RemoteTransfer>(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]),
  ucp_get_nbx: declare<RemoteTransfer>(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER, POINTER]),
  ucp_atomic_op_nbx: declare<
    (
      ep: Pointer,
      opcode: number,
      buffer: Pointer,
      count: number,
      remoteAddress: Integer64,
      rkey: Pointer,
      param: Pointer,
    ) => StatusPointer
  >(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, U64, POINTER, POINTER]),

  ucp_tag_send_nbx: declare<TagSend>(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]),
  ucp_tag_send_sync_nbx: declare<TagSend>(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, POINTER]),
  ucp_tag_recv_nbx: declare<
    (worker: Pointer, buffer: Pointer, count: number, tag: Integer64, mask: Integer64, param: Pointer) => StatusPointer
  >(STATUS_POINTER, [POINTER, POINTER, SIZE, U64, U64, POINTER]),
  /** The message, or 0. */
  ucp_tag_probe_nb: declare<
    (worker: Pointer, tag: Integer64, mask: Integer64, remove: number, info: Pointer) => Pointer
  >(ADDRESS, [POINTER, U64, U64, INT, POINTER]),
  ucp_tag_msg_recv_nbx: declare<
    (worker: Pointer, buffer: Pointer, count: number, message: Pointer, param: Pointer) => StatusPointer
  >(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER, POINTER]),
  ucp_tag_recv_request_test: declare<(request: Pointer, info: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),

  ucp_worker_set_am_recv_handler: declare<(worker: Pointer, param: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
  ]),
  ucp_am_send_nbx: declare<
    (
      ep: Pointer,
      id: number,
      header: Pointer,
      headerLength: number,
      buffer: Pointer,
      count: number,
      param: Pointer,
    ) => StatusPointer
  >(STATUS_POINTER, [POINTER, U32, POINTER, SIZE, POINTER, SIZE, POINTER]),
  ucp_am_recv_data_nbx: declare<
    (worker: Pointer, descriptor: Pointer, buffer: Pointer, count: number, param: Pointer) => StatusPointer
  >(STATUS_POINTER, [POINTER, POINTER, POINTER, SIZE, POINTER]),
  ucp_am_data_release: declare<(worker: Pointer, data: Pointer) => void>(VOID, [POINTER, POINTER]),

  ucp_stream_send_nbx: declare<(ep: Pointer, buffer: Pointer, count: number, param: Pointer) => StatusPointer>(
    STATUS_POINTER,
    [POINTER, POINTER, SIZE, POINTER],
  ),
  ucp_stream_recv_nbx: declare<
    (ep: Pointer, buffer: Pointer, count: number, length: Pointer, param: Pointer) => StatusPointer
  >(STATUS_POINTER, [POINTER, POINTER, SIZE, POINTER, POINTER]),
  /** 0: no data; less: a status; more: the data. */
  ucp_stream_recv_data_nb: declare<(ep: Pointer, length: Pointer) => StatusPointer>(STATUS_POINTER, [POINTER, POINTER]),
  ucp_stream_data_release: declare<(ep: Pointer, data: Pointer) => void>(VOID, [POINTER, POINTER]),
  /** The number of endpoints, or a status. */
  ucp_stream_worker_poll: declare<(worker: Pointer, eps: Pointer, epsMax: number, flags: number) => number>('int64_t', [
    POINTER,
    POINTER,
    SIZE,
    U32,
  ]),

  ucp_request_check_status: declare<(request: Pointer) => StatusNumber>(STATUS, [POINTER]),
  ucp_request_query: declare<(request: Pointer, attr: Pointer) => StatusNumber>(STATUS, [POINTER, POINTER]),
  ucp_request_cancel: declare<(worker: Pointer, request: Pointer) => void>(VOID, [POINTER, POINTER]),
  ucp_request_free: declare<(request: Pointer) => void>(VOID, [POINTER]),

  ucp_dt_create_generic: declare<(ops: Pointer, context: Pointer, datatype: Pointer) => StatusNumber>(STATUS, [
    POINTER,
    POINTER,
    POINTER,
  ]),
  ucp_dt_destroy: declare<(datatype: Pointer) => void>(VOID, [U64]),

  ucs_status_string: declare<(status: number) => string>(TEXT, [STATUS]),
} as const;

/** The bound functions. Hot paths keep those that they call in fields of their own. */
export type LibucpFunctions = {
  readonly [N in keyof typeof FUNCTIONS]: (typeof FUNCTIONS)[N] extends Declaration<infer F> ? F : never;
};
