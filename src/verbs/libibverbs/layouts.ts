/** Structs of libibverbs that only its binding uses, as byte offsets (`offsetof` in infiniband/verbs.h). A test compares them with the installed header. */

/** struct ibv_context: offsets of its function pointers and of its descriptor. */
export const ContextLayout = {
  POLL_CQ: 96,
  REQ_NOTIFY_CQ: 104,
  POST_SRQ_RECV: 168,
  POST_SEND: 208,
  POST_RECV: 216,
  ASYNC_FD: 268,
  BYTES: 328,
} as const;

/** struct ibv_comp_channel. */
export const ChannelLayout = { FD: 8, BYTES: 16 } as const;

/** struct ibv_qp and struct ibv_mr: the fields that the binding reads. */
export const QpLayout = { QP_NUM: 52, BYTES: 160 } as const;
export const MrLayout = { LKEY: 36, RKEY: 40, BYTES: 48 } as const;

/** struct ibv_device_attr. */
export const DeviceAttrLayout = {
  FW_VER: 0,
  MAX_MR_SIZE: 80,
  MAX_QP: 108,
  MAX_QP_WR: 112,
  MAX_SGE: 120,
  MAX_CQ: 128,
  MAX_CQE: 132,
  MAX_MR: 136,
  MAX_PD: 140,
  MAX_QP_RD_ATOM: 144,
  MAX_QP_INIT_RD_ATOM: 156,
  ATOMIC_CAP: 164,
  MAX_SRQ: 212,
  MAX_SRQ_WR: 216,
  MAX_SRQ_SGE: 220,
  PHYS_PORT_CNT: 227,
  BYTES: 232,
} as const;

/** struct ibv_port_attr. */
export const PortAttrLayout = {
  STATE: 0,
  ACTIVE_MTU: 8,
  GID_TBL_LEN: 12,
  MAX_MSG_SZ: 20,
  PKEY_TBL_LEN: 32,
  LID: 34,
  ACTIVE_WIDTH: 43,
  ACTIVE_SPEED: 44,
  LINK_LAYER: 46,
  BYTES: 52,
} as const;

/** struct ibv_qp_init_attr. */
export const QpInitLayout = {
  SEND_CQ: 8,
  RECV_CQ: 16,
  SRQ: 24,
  MAX_SEND_WR: 32,
  MAX_RECV_WR: 36,
  MAX_SEND_SGE: 40,
  MAX_RECV_SGE: 44,
  MAX_INLINE_DATA: 48,
  QP_TYPE: 52,
  SQ_SIG_ALL: 56,
  BYTES: 64,
} as const;

/** struct ibv_qp_attr. */
export const QpAttrLayout = {
  QP_STATE: 0,
  PATH_MTU: 8,
  QKEY: 16,
  RQ_PSN: 20,
  SQ_PSN: 24,
  DEST_QP_NUM: 28,
  QP_ACCESS_FLAGS: 32,
  AH_ATTR: 56,
  PKEY_INDEX: 120,
  MAX_RD_ATOMIC: 126,
  MAX_DEST_RD_ATOMIC: 127,
  MIN_RNR_TIMER: 128,
  PORT_NUM: 129,
  TIMEOUT: 130,
  RETRY_CNT: 131,
  RNR_RETRY: 132,
  BYTES: 144,
} as const;

/** Bits that select the valid fields of struct ibv_qp_attr (enum ibv_qp_attr_mask). */
export const QpAttrMask = {
  STATE: 1,
  ACCESS_FLAGS: 8,
  PKEY_INDEX: 16,
  PORT: 32,
  QKEY: 64,
  AV: 128,
  PATH_MTU: 256,
  TIMEOUT: 512,
  RETRY_CNT: 1024,
  RNR_RETRY: 2048,
  RQ_PSN: 4096,
  MAX_QP_RD_ATOMIC: 8192,
  MIN_RNR_TIMER: 32_768,
  SQ_PSN: 65_536,
  MAX_DEST_RD_ATOMIC: 131_072,
  DEST_QPN: 1_048_576,
} as const;

/** struct ibv_ah_attr. */
export const AhAttrLayout = {
  DGID: 0,
  SGID_INDEX: 20,
  HOP_LIMIT: 21,
  TRAFFIC_CLASS: 22,
  DLID: 24,
  SL: 26,
  IS_GLOBAL: 29,
  PORT_NUM: 30,
  BYTES: 32,
} as const;

/** struct ibv_srq_init_attr, struct ibv_async_event and struct ibv_gid_entry. */
export const SrqInitLayout = { MAX_WR: 8, MAX_SGE: 12, BYTES: 24 } as const;
export const AsyncEventLayout = { ELEMENT: 0, EVENT_TYPE: 8, BYTES: 16 } as const;
export const GidEntryLayout = { GID: 0, GID_INDEX: 16, PORT_NUM: 20, GID_TYPE: 24, BYTES: 32 } as const;
