/**
 * The part of the C interface of libucp that is used here, as data: sizes and offsets of structs, field masks, flags, codes. No behaviour, and not the
 * functions (functions.ts).
 *
 * Source: ucp/api/ucp.h and ucp_def.h of UCX 1.13 to 1.23, x86-64. In these versions a struct only ever grew at its end, so that every offset is
 * right in all of them. What is not in {@link SINCE_MINOR} is in all of them too. A library reads and writes what the field mask names,
 * and knows: allocate structs zeroed at `size`, the largest there is.
 *
 * Constants have the names of C: the name of the object, an underscore, the name of the member.
 */

/** A struct of C. */
export interface AbiStruct<F> {
  /** Name of the type in the header. */
  readonly cName: string;
  /** `sizeof` in bytes, of the largest version. */
  readonly size: number;
  /** Offset in bytes of each member, by its path in C. */
  readonly at: F;
}

function struct<const F extends Readonly<Record<string, number>>>(
  cName: string,
  size: number,
  offsets: F,
): AbiStruct<F> {
  return { cName, size, at: offsets };
}

/** The version of this interface that is asked for in ucp_init_version: the oldest one that is supported. */
export const UCP_API_MAJOR = 1;
/** See {@link UCP_API_MAJOR}. */
export const UCP_API_MINOR = 13;

/** The minor version since which there is what was not in 1.13. An older library ignores these bits and leaves these members alone. */
export const SINCE_MINOR = {
  UCP_AM_SEND_FLAG_COPY_HEADER: 14,
  UCP_EP_ATTR_FIELD_TRANSPORTS: 14,
  UCP_EP_ATTR_FIELD_USER_DATA: 18,
  UCP_MEM_MAP_LOCK: 18,
  'ucp_ep_attr_t.transports': 14,
  'ucp_ep_attr_t.user_data': 18,
  ucp_transport_entry_t: 14,
} as const satisfies Readonly<Record<string, number>>;

/** Bytes of the names of a context, a worker and an endpoint, with the zero byte at their end. */
export const UCP_ENTITY_NAME_MAX = 32;

/** Features of a context. */
export const UCP_FEATURE = {
  TAG: 1 << 0,
  RMA: 1 << 1,
  AMO32: 1 << 2,
  AMO64: 1 << 3,
  WAKEUP: 1 << 4,
  STREAM: 1 << 5,
  AM: 1 << 6,
} as const;

/** Who may call at the same time. */
export const UCS_THREAD_MODE = { SINGLE: 0, SERIALIZED: 1, MULTI: 2 } as const;

/** The memory type that has the same number in every version; for others see `Libucp.memoryTypes`. */
export const UCS_MEMORY_TYPE = { HOST: 0 } as const;

/** `ucp_params_t.field_mask`. */
export const UCP_PARAM_FIELD = {
  FEATURES: 1 << 0,
  REQUEST_SIZE: 1 << 1,
  REQUEST_INIT: 1 << 2,
  REQUEST_CLEANUP: 1 << 3,
  TAG_SENDER_MASK: 1 << 4,
  MT_WORKERS_SHARED: 1 << 5,
  ESTIMATED_NUM_EPS: 1 << 6,
  ESTIMATED_NUM_PPN: 1 << 7,
  NAME: 1 << 8,
} as const;

/** What ucp_init_version takes. */
export const UCP_PARAMS = struct('ucp_params_t', 88, {
  field_mask: 0,
  features: 8,
  request_size: 16,
  request_init: 24,
  request_cleanup: 32,
  tag_sender_mask: 40,
  mt_workers_shared: 48,
  estimated_num_eps: 56,
  estimated_num_ppn: 64,
  name: 72,
});

/** `ucp_context_attr_t.field_mask`. */
export const UCP_ATTR_FIELD = {
  REQUEST_SIZE: 1 << 0,
  THREAD_MODE: 1 << 1,
  MEMORY_TYPES: 1 << 2,
  NAME: 1 << 3,
} as const;

/** What ucp_context_query fills in. */
export const UCP_CONTEXT_ATTR = struct('ucp_context_attr_t', 72, {
  field_mask: 0,
  request_size: 8,
  thread_mode: 16,
  memory_types: 24,
  name: 32,
});

/** `ucp_worker_params_t.field_mask`. */
export const UCP_WORKER_PARAM_FIELD = {
  THREAD_MODE: 1 << 0,
  CPU_MASK: 1 << 1,
  EVENTS: 1 << 2,
  USER_DATA: 1 << 3,
  EVENT_FD: 1 << 4,
  FLAGS: 1 << 5,
  NAME: 1 << 6,
  AM_ALIGNMENT: 1 << 7,
  CLIENT_ID: 1 << 8,
} as const;

/** `ucp_worker_params_t.flags`: says nothing of requests that are pending when the worker is destroyed. */
export const UCP_WORKER_FLAG = { IGNORE_REQUEST_LEAK: 1 << 0 } as const;

/** `ucp_worker_params_t.events`. */
export const UCP_WAKEUP = {
  RMA: 1 << 0,
  AMO: 1 << 1,
  TAG_SEND: 1 << 2,
  TAG_RECV: 1 << 3,
  TX: 1 << 10,
  RX: 1 << 11,
  EDGE: 1 << 16,
} as const;

/** What ucp_worker_create takes. `cpu_mask` has 128 bytes. */
export const UCP_WORKER_PARAMS = struct('ucp_worker_params_t', 200, {
  field_mask: 0,
  thread_mode: 8,
  cpu_mask: 16,
  events: 144,
  user_data: 152,
  event_fd: 160,
  flags: 168,
  name: 176,
  am_alignment: 184,
  client_id: 192,
});

/** `ucp_worker_attr_t.field_mask`. */
export const UCP_WORKER_ATTR_FIELD = {
  THREAD_MODE: 1 << 0,
  ADDRESS: 1 << 1,
  ADDRESS_FLAGS: 1 << 2,
  MAX_AM_HEADER: 1 << 3,
  NAME: 1 << 4,
  MAX_INFO_STRING: 1 << 5,
} as const;

/** `ucp_worker_attr_t.address_flags`: the address is for other machines only. */
export const UCP_WORKER_ADDRESS_FLAG = { NET_ONLY: 1 << 0 } as const;

/** What ucp_worker_query fills in. */
export const UCP_WORKER_ATTR = struct('ucp_worker_attr_t', 88, {
  field_mask: 0,
  thread_mode: 8,
  address_flags: 12,
  address: 16,
  address_length: 24,
  max_am_header: 32,
  name: 40,
  max_debug_string: 72,
});

/** `ucp_worker_address_attr_t.field_mask`. */
export const UCP_WORKER_ADDRESS_ATTR_FIELD = { UID: 1 << 0 } as const;

/** What ucp_worker_address_query fills in. */
export const UCP_WORKER_ADDRESS_ATTR = struct('ucp_worker_address_attr_t', 16, {
  field_mask: 0,
  worker_uid: 8,
});

/** `ucp_ep_params_t.field_mask`. */
export const UCP_EP_PARAM_FIELD = {
  REMOTE_ADDRESS: 1 << 0,
  ERR_HANDLING_MODE: 1 << 1,
  ERR_HANDLER: 1 << 2,
  USER_DATA: 1 << 3,
  SOCK_ADDR: 1 << 4,
  FLAGS: 1 << 5,
  CONN_REQUEST: 1 << 6,
  NAME: 1 << 7,
  LOCAL_SOCK_ADDR: 1 << 8,
} as const;

/** `ucp_ep_params_t.err_mode`. */
export const UCP_ERR_HANDLING_MODE = { NONE: 0, PEER: 1 } as const;

/** `ucp_ep_params_t.flags`. */
export const UCP_EP_PARAMS_FLAGS = { CLIENT_SERVER: 1 << 0, NO_LOOPBACK: 1 << 1, SEND_CLIENT_ID: 1 << 2 } as const;

/** `flags` of ucp_ep_close_nbx: what is outstanding is cancelled, and the peer not told. */
export const UCP_EP_CLOSE_FLAG = { FORCE: 1 << 0 } as const;

/** What ucp_ep_create takes. */
export const UCP_EP_PARAMS = struct('ucp_ep_params_t', 104, {
  field_mask: 0,
  address: 8,
  err_mode: 16,
  'err_handler.cb': 24,
  'err_handler.arg': 32,
  user_data: 40,
  flags: 48,
  'sockaddr.addr': 56,
  'sockaddr.addrlen': 64,
  conn_request: 72,
  name: 80,
  'local_sockaddr.addr': 88,
  'local_sockaddr.addrlen': 96,
});

/** `ucp_ep_attr_t.field_mask`. */
export const UCP_EP_ATTR_FIELD = {
  NAME: 1 << 0,
  LOCAL_SOCKADDR: 1 << 1,
  REMOTE_SOCKADDR: 1 << 2,
  TRANSPORTS: 1 << 3,
  USER_DATA: 1 << 4,
} as const;

/**
 * What ucp_ep_query fills in; each sockaddr has 128 bytes. The caller provides the array of {@link UCP_TRANSPORT_ENTRY} with its number of entries
 * and the size of one, and gets the number that was filled in.
 */
export const UCP_EP_ATTR = struct('ucp_ep_attr_t', 328, {
  field_mask: 0,
  name: 8,
  local_sockaddr: 40,
  remote_sockaddr: 168,
  'transports.entries': 296,
  'transports.num_entries': 304,
  'transports.entry_size': 312,
  user_data: 320,
});

/** A lane of an endpoint: two texts, which belong to the endpoint. */
export const UCP_TRANSPORT_ENTRY = struct('ucp_transport_entry_t', 16, {
  transport_name: 0,
  device_name: 8,
});

/** `ucp_mem_map_params_t.field_mask`. */
export const UCP_MEM_MAP_PARAM_FIELD = {
  ADDRESS: 1 << 0,
  LENGTH: 1 << 1,
  FLAGS: 1 << 2,
  PROT: 1 << 3,
  MEMORY_TYPE: 1 << 4,
} as const;

/** `ucp_mem_map_params_t.flags`. */
export const UCP_MEM_MAP = { NONBLOCK: 1 << 0, ALLOCATE: 1 << 1, FIXED: 1 << 2, LOCK: 1 << 4 } as const;

/** `ucp_mem_map_params_t.prot`. */
export const UCP_MEM_MAP_PROT = {
  LOCAL_READ: 1 << 0,
  LOCAL_WRITE: 1 << 1,
  REMOTE_READ: 1 << 8,
  REMOTE_WRITE: 1 << 9,
} as const;

/** What ucp_mem_map takes. */
export const UCP_MEM_MAP_PARAMS = struct('ucp_mem_map_params_t', 48, {
  field_mask: 0,
  address: 8,
  length: 16,
  flags: 24,
  prot: 28,
  memory_type: 32,
});

/** `ucp_mem_attr_t.field_mask`. */
export const UCP_MEM_ATTR_FIELD = { ADDRESS: 1 << 0, LENGTH: 1 << 1, MEM_TYPE: 1 << 2 } as const;

/** What ucp_mem_query fills in. */
export const UCP_MEM_ATTR = struct('ucp_mem_attr_t', 32, {
  field_mask: 0,
  address: 8,
  length: 16,
  mem_type: 24,
});

/** `ucp_mem_advise_params_t.field_mask`. */
export const UCP_MEM_ADVISE_PARAM_FIELD = { ADDRESS: 1 << 0, LENGTH: 1 << 1, ADVICE: 1 << 2 } as const;

/** `ucp_mem_advise_params_t.advice`. */
export const UCP_MADV = { NORMAL: 0, WILLNEED: 1 } as const;

/** What ucp_mem_advise takes. */
export const UCP_MEM_ADVISE_PARAMS = struct('ucp_mem_advise_params_t', 32, {
  field_mask: 0,
  address: 8,
  length: 16,
  advice: 24,
});

/** `ucp_request_param_t.op_attr_mask`: fields. */
export const UCP_OP_ATTR_FIELD = {
  REQUEST: 1 << 0,
  CALLBACK: 1 << 1,
  USER_DATA: 1 << 2,
  DATATYPE: 1 << 3,
  FLAGS: 1 << 4,
  REPLY_BUFFER: 1 << 5,
  MEMORY_TYPE: 1 << 6,
  RECV_INFO: 1 << 7,
  MEMH: 1 << 8,
} as const;

/** `ucp_request_param_t.op_attr_mask`: how to complete. */
export const UCP_OP_ATTR_FLAG = {
  NO_IMM_CMPL: 1 << 16,
  FAST_CMPL: 1 << 17,
  FORCE_IMM_CMPL: 1 << 18,
  MULTI_SEND: 1 << 19,
} as const;

/** What every operation takes. All zeros: bytes, no callback. */
export const UCP_REQUEST_PARAM = struct('ucp_request_param_t', 96, {
  op_attr_mask: 0,
  flags: 4,
  request: 8,
  cb: 16,
  datatype: 24,
  user_data: 32,
  reply_buffer: 40,
  memory_type: 48,
  recv_info: 56,
  memh: 64,
});

/** `ucp_request_attr_t.field_mask`. */
export const UCP_REQUEST_ATTR_FIELD = {
  INFO_STRING: 1 << 0,
  INFO_STRING_SIZE: 1 << 1,
  STATUS: 1 << 2,
  MEM_TYPE: 1 << 3,
} as const;

/** What ucp_request_query fills in. `status` is one byte. */
export const UCP_REQUEST_ATTR = struct('ucp_request_attr_t', 32, {
  field_mask: 0,
  debug_string: 8,
  debug_string_size: 16,
  status: 24,
  mem_type: 28,
});

/** What a tag receive or probe has found. */
export const UCP_TAG_RECV_INFO = struct('ucp_tag_recv_info_t', 16, {
  sender_tag: 0,
  length: 8,
});

/** `ucp_am_handler_param_t.field_mask`. */
export const UCP_AM_HANDLER_PARAM_FIELD = { ID: 1 << 0, FLAGS: 1 << 1, CB: 1 << 2, ARG: 1 << 3 } as const;

/** `ucp_am_handler_param_t.flags`. */
export const UCP_AM_FLAG = { WHOLE_MSG: 1 << 0, PERSISTENT_DATA: 1 << 1 } as const;

/** `ucp_request_param_t.flags` of ucp_am_send_nbx. */
export const UCP_AM_SEND_FLAG = { REPLY: 1 << 0, EAGER: 1 << 1, RNDV: 1 << 2, COPY_HEADER: 1 << 3 } as const;

/** `ucp_am_recv_param_t.recv_attr`. */
export const UCP_AM_RECV_ATTR = { FIELD_REPLY_EP: 1 << 0, FLAG_DATA: 1 << 16, FLAG_RNDV: 1 << 17 } as const;

/** What ucp_worker_set_am_recv_handler takes. Without a `cb` it removes the handler. */
export const UCP_AM_HANDLER_PARAM = struct('ucp_am_handler_param_t', 32, {
  field_mask: 0,
  id: 8,
  flags: 12,
  cb: 16,
  arg: 24,
});

/** What the handler of an active message gets. */
export const UCP_AM_RECV_PARAM = struct('ucp_am_recv_param_t', 16, {
  recv_attr: 0,
  reply_ep: 8,
});

/** `ucp_request_param_t.flags` of ucp_stream_recv_nbx: all of the buffer. */
export const UCP_STREAM_RECV_FLAG = { WAITALL: 1 << 0 } as const;

/** An endpoint that has data in its stream. */
export const UCP_STREAM_POLL_EP = struct('ucp_stream_poll_ep_t', 40, {
  ep: 0,
  user_data: 8,
  flags: 16,
});

/** `ucp_listener_params_t.field_mask`. */
export const UCP_LISTENER_PARAM_FIELD = { SOCK_ADDR: 1 << 0, ACCEPT_HANDLER: 1 << 1, CONN_HANDLER: 1 << 2 } as const;

/** What ucp_listener_create takes. */
export const UCP_LISTENER_PARAMS = struct('ucp_listener_params_t', 56, {
  field_mask: 0,
  'sockaddr.addr': 8,
  'sockaddr.addrlen': 16,
  'accept_handler.cb': 24,
  'accept_handler.arg': 32,
  'conn_handler.cb': 40,
  'conn_handler.arg': 48,
});

/** `ucp_listener_attr_t.field_mask`. */
export const UCP_LISTENER_ATTR_FIELD = { SOCKADDR: 1 << 0 } as const;

/** What ucp_listener_query fills in; the sockaddr has 128 bytes. */
export const UCP_LISTENER_ATTR = struct('ucp_listener_attr_t', 136, {
  field_mask: 0,
  sockaddr: 8,
});

/** `ucp_conn_request_attr_t.field_mask`. */
export const UCP_CONN_REQUEST_ATTR_FIELD = { CLIENT_ADDR: 1 << 0, CLIENT_ID: 1 << 1 } as const;

/** What ucp_conn_request_query fills in; the sockaddr has 128 bytes. */
export const UCP_CONN_REQUEST_ATTR = struct('ucp_conn_request_attr_t', 144, {
  field_mask: 0,
  client_address: 8,
  client_id: 136,
});

/** Opcodes of ucp_atomic_op_nbx. */
export const UCP_ATOMIC_OP = { ADD: 0, SWAP: 1, CSWAP: 2, AND: 3, OR: 4, XOR: 5 } as const;

/** Classes of datatypes, in the low bits; the size of an element of contiguous data stands above them. */
export const UCP_DATATYPE = { CONTIG: 0, STRIDED: 1, IOV: 2, GENERIC: 7, SHIFT: 3 } as const;

/** The datatype of contiguous elements (`ucp_dt_make_contig`). `count` of an operation counts elements. */
export function ucpDtMakeContig(elementBytes: number): number {
  return elementBytes * 2 ** UCP_DATATYPE.SHIFT + UCP_DATATYPE.CONTIG;
}

/** An element of a list of buffers: `count` of an operation counts these. */
export const UCP_DT_IOV = struct('ucp_dt_iov_t', 16, {
  buffer: 0,
  length: 8,
});

/** The functions of a generic datatype, for ucp_dt_create_generic. */
export const UCP_GENERIC_DT_OPS = struct('ucp_generic_dt_ops_t', 48, {
  start_pack: 0,
  start_unpack: 8,
  packed_size: 16,
  pack: 24,
  unpack: 32,
  finish: 40,
});
