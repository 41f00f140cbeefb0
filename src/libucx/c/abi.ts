/**
 * The part of the C interface of libucp that this engine uses, as data: sizes and offsets of structs, field masks, flags, codes.
 *
 * Source: ucp/api/ucp.h and ucp_def.h of UCX 1.13 to 1.23, x86-64. In these versions structs only grew at their end, so every offset is valid in all of
 * them. {@link SINCE_MINOR} lists the members that 1.13 lacks. A library accesses only the members that it knows and that the field mask selects, so
 * structs are allocated zeroed with `size`, that of the newest version.
 *
 * Constants have their C names: the name of the object, an underscore, the name of the member.
 */

export interface AbiStruct<F> {
  readonly cName: string;
  /** `sizeof` in bytes, in the newest version. */
  readonly size: number;
  /** Offset in bytes of each member, by its path in C. */
  readonly at: F;
}

/** The interface version passed to ucp_init_version: the oldest supported one. */
export const UCP_API_MAJOR = 1;
/** See {@link UCP_API_MAJOR}. */
export const UCP_API_MINOR = 13;

/** First minor version of the members and flags that 1.13 lacks. An older library ignores these bits and does not write these members. */
export const SINCE_MINOR = {
  UCP_AM_SEND_FLAG_COPY_HEADER: 14,
  UCP_EP_ATTR_FIELD_TRANSPORTS: 14,
  UCP_EP_ATTR_FIELD_USER_DATA: 18,
  UCP_MEM_MAP_LOCK: 18,
  'ucp_ep_attr_t.transports': 14,
  'ucp_ep_attr_t.user_data': 18,
  ucp_transport_entry_t: 14,
} as const;

/** Size of the names of a context, a worker and an endpoint in bytes, including the terminating zero byte. */
export const UCP_ENTITY_NAME_MAX = 32;

/** Features of a context. */
export const UCP_FEATURE = {
  TAG: 0x1,
  RMA: 0x2,
  AMO32: 0x4,
  AMO64: 0x8,
  WAKEUP: 0x10,
  STREAM: 0x20,
  AM: 0x40,
} as const;

/** Thread safety of a worker. */
export const UCS_THREAD_MODE = { SINGLE: 0, SERIALIZED: 1, MULTI: 2 } as const;

/** The only memory type whose number is the same in every version; for others see `Libucp.memoryTypes`. */
export const UCS_MEMORY_TYPE = { HOST: 0 } as const;

/** `ucp_params_t.field_mask`. */
export const UCP_PARAM_FIELD = {
  FEATURES: 0x1,
  REQUEST_SIZE: 0x2,
  REQUEST_INIT: 0x4,
  REQUEST_CLEANUP: 0x8,
  TAG_SENDER_MASK: 0x10,
  MT_WORKERS_SHARED: 0x20,
  ESTIMATED_NUM_EPS: 0x40,
  ESTIMATED_NUM_PPN: 0x80,
  NAME: 0x100,
} as const;

/** Parameters of ucp_init_version. */
export const UCP_PARAMS = {
  cName: 'ucp_params_t',
  size: 88,
  at: {
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
  },
} as const;

/** `ucp_context_attr_t.field_mask`. */
export const UCP_ATTR_FIELD = {
  REQUEST_SIZE: 0x1,
  THREAD_MODE: 0x2,
  MEMORY_TYPES: 0x4,
  NAME: 0x8,
} as const;

/** Result of ucp_context_query. */
export const UCP_CONTEXT_ATTR = {
  cName: 'ucp_context_attr_t',
  size: 72,
  at: { field_mask: 0, request_size: 8, thread_mode: 16, memory_types: 24, name: 32 },
} as const;

/** `ucp_worker_params_t.field_mask`. */
export const UCP_WORKER_PARAM_FIELD = {
  THREAD_MODE: 0x1,
  CPU_MASK: 0x2,
  EVENTS: 0x4,
  USER_DATA: 0x8,
  EVENT_FD: 0x10,
  FLAGS: 0x20,
  NAME: 0x40,
  AM_ALIGNMENT: 0x80,
  CLIENT_ID: 0x100,
} as const;

/** `ucp_worker_params_t.flags`: suppresses warnings about requests that are pending when the worker is destroyed. */
export const UCP_WORKER_FLAG = { IGNORE_REQUEST_LEAK: 0x1 } as const;

/** Parameters of ucp_worker_create. `cpu_mask` has 128 bytes. */
export const UCP_WORKER_PARAMS = {
  cName: 'ucp_worker_params_t',
  size: 200,
  at: {
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
  },
} as const;

/** `ucp_worker_attr_t.field_mask`. */
export const UCP_WORKER_ATTR_FIELD = {
  THREAD_MODE: 0x1,
  ADDRESS: 0x2,
  ADDRESS_FLAGS: 0x4,
  MAX_AM_HEADER: 0x8,
  NAME: 0x10,
  MAX_INFO_STRING: 0x20,
} as const;

/** Result of ucp_worker_query. */
export const UCP_WORKER_ATTR = {
  cName: 'ucp_worker_attr_t',
  size: 88,
  at: {
    field_mask: 0,
    thread_mode: 8,
    address_flags: 12,
    address: 16,
    address_length: 24,
    max_am_header: 32,
    name: 40,
    max_debug_string: 72,
  },
} as const;

/** `ucp_ep_params_t.field_mask`. */
export const UCP_EP_PARAM_FIELD = {
  REMOTE_ADDRESS: 0x1,
  ERR_HANDLING_MODE: 0x2,
  ERR_HANDLER: 0x4,
  USER_DATA: 0x8,
  SOCK_ADDR: 0x10,
  FLAGS: 0x20,
  CONN_REQUEST: 0x40,
  NAME: 0x80,
  LOCAL_SOCK_ADDR: 0x100,
} as const;

/** `ucp_ep_params_t.err_mode`. */
export const UCP_ERR_HANDLING_MODE = { NONE: 0, PEER: 1 } as const;

/** `ucp_ep_params_t.flags`. */
export const UCP_EP_PARAMS_FLAGS = { CLIENT_SERVER: 0x1, NO_LOOPBACK: 0x2, SEND_CLIENT_ID: 0x4 } as const;

/** `flags` of ucp_ep_close_nbx: outstanding operations are cancelled, and the peer is not notified. */
export const UCP_EP_CLOSE_FLAG = { FORCE: 0x1 } as const;

/** Parameters of ucp_ep_create. */
export const UCP_EP_PARAMS = {
  cName: 'ucp_ep_params_t',
  size: 104,
  at: {
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
  },
} as const;

/** `ucp_ep_attr_t.field_mask`. */
export const UCP_EP_ATTR_FIELD = {
  NAME: 0x1,
  LOCAL_SOCKADDR: 0x2,
  REMOTE_SOCKADDR: 0x4,
  TRANSPORTS: 0x8,
  USER_DATA: 0x10,
} as const;

/**
 * Result of ucp_ep_query; each sockaddr has 128 bytes. The caller provides an array of {@link UCP_TRANSPORT_ENTRY}, its capacity and the size of an entry;
 * libucp returns the number of entries that it filled.
 */
export const UCP_EP_ATTR = {
  cName: 'ucp_ep_attr_t',
  size: 328,
  at: {
    field_mask: 0,
    name: 8,
    local_sockaddr: 40,
    remote_sockaddr: 168,
    'transports.entries': 296,
    'transports.num_entries': 304,
    'transports.entry_size': 312,
    user_data: 320,
  },
} as const;

/** A lane of an endpoint: two strings, which belong to the endpoint. */
export const UCP_TRANSPORT_ENTRY = {
  cName: 'ucp_transport_entry_t',
  size: 16,
  at: { transport_name: 0, device_name: 8 },
} as const;

/** `ucp_mem_map_params_t.field_mask`. */
export const UCP_MEM_MAP_PARAM_FIELD = {
  ADDRESS: 0x1,
  LENGTH: 0x2,
  FLAGS: 0x4,
  PROT: 0x8,
  MEMORY_TYPE: 0x10,
} as const;

/** `ucp_mem_map_params_t.flags`. */
export const UCP_MEM_MAP = { NONBLOCK: 0x1, ALLOCATE: 0x2, FIXED: 0x4, LOCK: 0x10 } as const;

/** `ucp_mem_map_params_t.prot`. */
export const UCP_MEM_MAP_PROT = { LOCAL_READ: 0x1, LOCAL_WRITE: 0x2, REMOTE_READ: 0x100, REMOTE_WRITE: 0x200 } as const;

/** Parameters of ucp_mem_map. */
export const UCP_MEM_MAP_PARAMS = {
  cName: 'ucp_mem_map_params_t',
  size: 48,
  at: { field_mask: 0, address: 8, length: 16, flags: 24, prot: 28, memory_type: 32 },
} as const;

/** `ucp_mem_attr_t.field_mask`. */
export const UCP_MEM_ATTR_FIELD = { ADDRESS: 0x1, LENGTH: 0x2, MEM_TYPE: 0x4 } as const;

/** Result of ucp_mem_query. */
export const UCP_MEM_ATTR = {
  cName: 'ucp_mem_attr_t',
  size: 32,
  at: { field_mask: 0, address: 8, length: 16, mem_type: 24 },
} as const;

/** `ucp_request_param_t.op_attr_mask`: fields. */
export const UCP_OP_ATTR_FIELD = {
  REQUEST: 0x1,
  CALLBACK: 0x2,
  USER_DATA: 0x4,
  DATATYPE: 0x8,
  FLAGS: 0x10,
  REPLY_BUFFER: 0x20,
  MEMORY_TYPE: 0x40,
  RECV_INFO: 0x80,
  MEMH: 0x100,
} as const;

/** `ucp_request_param_t.op_attr_mask`: mode of completion. */
export const UCP_OP_ATTR_FLAG = {
  NO_IMM_CMPL: 0x10000,
  FAST_CMPL: 0x20000,
  FORCE_IMM_CMPL: 0x40000,
  MULTI_SEND: 0x80000,
} as const;

/** Parameters of every operation. All zeros: the data is bytes, and no callback is called. */
export const UCP_REQUEST_PARAM = {
  cName: 'ucp_request_param_t',
  size: 96,
  at: {
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
  },
} as const;

/** `ucp_request_attr_t.field_mask`. */
export const UCP_REQUEST_ATTR_FIELD = { INFO_STRING: 0x1, INFO_STRING_SIZE: 0x2, STATUS: 0x4, MEM_TYPE: 0x8 } as const;

/** Result of ucp_request_query; the caller provides the memory for the string. */
export const UCP_REQUEST_ATTR = {
  cName: 'ucp_request_attr_t',
  size: 32,
  at: { field_mask: 0, debug_string: 8, debug_string_size: 16, status: 24, mem_type: 28 },
} as const;

/** Result of a tag receive or probe. */
export const UCP_TAG_RECV_INFO = { cName: 'ucp_tag_recv_info_t', size: 16, at: { sender_tag: 0, length: 8 } } as const;

/** `ucp_am_handler_param_t.field_mask`. */
export const UCP_AM_HANDLER_PARAM_FIELD = { ID: 0x1, FLAGS: 0x2, CB: 0x4, ARG: 0x8 } as const;

/** `ucp_request_param_t.flags` of ucp_am_send_nbx. */
export const UCP_AM_SEND_FLAG = { REPLY: 0x1, EAGER: 0x2, RNDV: 0x4, COPY_HEADER: 0x8 } as const;

/** `ucp_am_recv_param_t.recv_attr`. */
export const UCP_AM_RECV_ATTR = { FIELD_REPLY_EP: 0x1, FLAG_DATA: 0x10000, FLAG_RNDV: 0x20000 } as const;

/** Parameters of ucp_worker_set_am_recv_handler. A NULL `cb` removes the handler. */
export const UCP_AM_HANDLER_PARAM = {
  cName: 'ucp_am_handler_param_t',
  size: 32,
  at: { field_mask: 0, id: 8, flags: 12, cb: 16, arg: 24 },
} as const;

/** Parameters of the handler of an active message. */
export const UCP_AM_RECV_PARAM = { cName: 'ucp_am_recv_param_t', size: 16, at: { recv_attr: 0, reply_ep: 8 } } as const;

/** `ucp_listener_params_t.field_mask`. */
export const UCP_LISTENER_PARAM_FIELD = { SOCK_ADDR: 0x1, ACCEPT_HANDLER: 0x2, CONN_HANDLER: 0x4 } as const;

/** Parameters of ucp_listener_create. */
export const UCP_LISTENER_PARAMS = {
  cName: 'ucp_listener_params_t',
  size: 56,
  at: {
    field_mask: 0,
    'sockaddr.addr': 8,
    'sockaddr.addrlen': 16,
    'accept_handler.cb': 24,
    'accept_handler.arg': 32,
    'conn_handler.cb': 40,
    'conn_handler.arg': 48,
  },
} as const;

/** `ucp_listener_attr_t.field_mask`. */
export const UCP_LISTENER_ATTR_FIELD = { SOCKADDR: 0x1 } as const;

/** Result of ucp_listener_query; the sockaddr has 128 bytes. */
export const UCP_LISTENER_ATTR = {
  cName: 'ucp_listener_attr_t',
  size: 136,
  at: { field_mask: 0, sockaddr: 8 },
} as const;

/** `ucp_conn_request_attr_t.field_mask`. */
export const UCP_CONN_REQUEST_ATTR_FIELD = { CLIENT_ADDR: 0x1, CLIENT_ID: 0x2 } as const;

/** Result of ucp_conn_request_query; the sockaddr has 128 bytes. */
export const UCP_CONN_REQUEST_ATTR = {
  cName: 'ucp_conn_request_attr_t',
  size: 144,
  at: { field_mask: 0, client_address: 8, client_id: 136 },
} as const;

/** Opcodes of ucp_atomic_op_nbx. */
export const UCP_ATOMIC_OP = { ADD: 0, SWAP: 1, CSWAP: 2, AND: 3, OR: 4, XOR: 5 } as const;

/** Classes of datatypes, in the low bits; the size of an element of contiguous data is in the bits above. */
export const UCP_DATATYPE = { CONTIG: 0, STRIDED: 1, IOV: 2, GENERIC: 7, SHIFT: 3 } as const;

/** The datatype of contiguous elements (`ucp_dt_make_contig`). `count` of an operation counts elements. */
export function ucpDtMakeContig(elementBytes: number): number {
  return elementBytes * 2 ** UCP_DATATYPE.SHIFT + UCP_DATATYPE.CONTIG;
}

/** An element of a list of buffers: `count` of an operation is the number of elements. */
export const UCP_DT_IOV = { cName: 'ucp_dt_iov_t', size: 16, at: { buffer: 0, length: 8 } } as const;

/** The functions of a generic datatype, for ucp_dt_create_generic. */
export const UCP_GENERIC_DT_OPS = {
  cName: 'ucp_generic_dt_ops_t',
  size: 48,
  at: { start_pack: 0, start_unpack: 8, packed_size: 16, pack: 24, unpack: 32, finish: 40 },
} as const;
