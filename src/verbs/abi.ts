/**
 * The ABI of libibverbs as data: values of its enums, and the structs that programs fill in and read, as offsets in 32-bit words. Unchanged from rdma-core v15
 * to v57 (infiniband/verbs.h).
 */

/** Kinds of work requests (enum ibv_wr_opcode). */
export const WrOpcode = {
  RDMA_WRITE: 0,
  RDMA_WRITE_WITH_IMM: 1,
  SEND: 2,
  SEND_WITH_IMM: 3,
  RDMA_READ: 4,
  ATOMIC_CMP_AND_SWP: 5,
  ATOMIC_FETCH_AND_ADD: 6,
} as const;

/** Flags of send work requests (enum ibv_send_flags). */
export const SendFlag = { FENCE: 1, SIGNALED: 2, SOLICITED: 4, INLINE: 8 } as const;

/** Status of a work completion (enum ibv_wc_status). */
export const WcStatus = {
  SUCCESS: 0,
  LOC_LEN_ERR: 1,
  LOC_QP_OP_ERR: 2,
  LOC_EEC_OP_ERR: 3,
  LOC_PROT_ERR: 4,
  WR_FLUSH_ERR: 5,
  MW_BIND_ERR: 6,
  BAD_RESP_ERR: 7,
  LOC_ACCESS_ERR: 8,
  REM_INV_REQ_ERR: 9,
  REM_ACCESS_ERR: 10,
  REM_OP_ERR: 11,
  RETRY_EXC_ERR: 12,
  RNR_RETRY_EXC_ERR: 13,
  LOC_RDD_VIOL_ERR: 14,
  REM_INV_RD_REQ_ERR: 15,
  REM_ABORT_ERR: 16,
  INV_EECN_ERR: 17,
  INV_EEC_STATE_ERR: 18,
  FATAL_ERR: 19,
  RESP_TIMEOUT_ERR: 20,
  GENERAL_ERR: 21,
} as const;
export type WcStatus = (typeof WcStatus)[keyof typeof WcStatus];

/** Kinds of work completions (enum ibv_wc_opcode). Valid for {@link WcStatus.SUCCESS} only. */
export const WcOpcode = {
  SEND: 0,
  RDMA_WRITE: 1,
  RDMA_READ: 2,
  COMP_SWAP: 3,
  FETCH_ADD: 4,
  RECV: 128,
  RECV_RDMA_WITH_IMM: 129,
} as const;

/** Flags of work completions (enum ibv_wc_flags). */
export const WcFlag = { GRH: 1, WITH_IMM: 2 } as const;

/** Access flags of a memory region or a queue pair (enum ibv_access_flags). */
export const AccessFlag = {
  LOCAL_WRITE: 1,
  REMOTE_WRITE: 2,
  REMOTE_READ: 4,
  REMOTE_ATOMIC: 8,
  RELAXED_ORDERING: 0x10_0000,
} as const;

/** States of a queue pair (enum ibv_qp_state). */
export const QpState = { RESET: 0, INIT: 1, RTR: 2, RTS: 3, SQD: 4, SQE: 5, ERR: 6 } as const;
export type QpState = (typeof QpState)[keyof typeof QpState];

/** Types of queue pairs (enum ibv_qp_type). */
export const QpType = { RC: 2, UD: 4 } as const;
export type QpType = (typeof QpType)[keyof typeof QpType];

/** States of a port (enum ibv_port_state). */
export const PortState = { NOP: 0, DOWN: 1, INIT: 2, ARMED: 3, ACTIVE: 4, ACTIVE_DEFER: 5 } as const;

/** Link layers of a port (IBV_LINK_LAYER_*). */
export const LinkLayer = { UNSPECIFIED: 0, INFINIBAND: 1, ETHERNET: 2 } as const;

/** Asynchronous events of a device (enum ibv_event_type). */
export const AsyncEventType = {
  CQ_ERR: 0,
  QP_FATAL: 1,
  QP_REQ_ERR: 2,
  QP_ACCESS_ERR: 3,
  COMM_EST: 4,
  SQ_DRAINED: 5,
  PATH_MIG: 6,
  PATH_MIG_ERR: 7,
  DEVICE_FATAL: 8,
  PORT_ACTIVE: 9,
  PORT_ERR: 10,
  LID_CHANGE: 11,
  PKEY_CHANGE: 12,
  SM_CHANGE: 13,
  SRQ_ERR: 14,
  SRQ_LIMIT_REACHED: 15,
  QP_LAST_WQE_REACHED: 16,
  CLIENT_REREGISTER: 17,
  GID_CHANGE: 18,
} as const;

/** The text of an asynchronous event, as in ibv_event_type_str. */
export function asyncEventText(type: number): string {
  return EVENT_TEXTS[type] ?? `unknown event ${type}`;
}

const EVENT_TEXTS: readonly string[] = [
  'CQ error',
  'local work queue catastrophic error',
  'invalid request local work queue error',
  'local access violation work queue error',
  'communication established',
  'send queue drained',
  'path migrated',
  'path migration request error',
  'local catastrophic error',
  'port active',
  'port error',
  'LID change',
  'P_Key table change',
  'SM change',
  'SRQ catastrophic error',
  'SRQ limit reached',
  'last WQE reached',
  'client reregistration',
  'GID table change',
];

/** Offsets of struct ibv_send_wr in words. 64-bit fields have two words, the low one first. */
export const SendWr = {
  WR_ID: 0,
  NEXT: 2,
  SG_LIST: 4,
  NUM_SGE: 6,
  OPCODE: 7,
  SEND_FLAGS: 8,
  IMM_DATA: 9,
  RDMA_REMOTE_ADDR: 10,
  RDMA_RKEY: 12,
  ATOMIC_REMOTE_ADDR: 10,
  ATOMIC_COMPARE_ADD: 12,
  ATOMIC_SWAP: 14,
  ATOMIC_RKEY: 16,
  UD_AH: 10,
  UD_REMOTE_QPN: 12,
  UD_REMOTE_QKEY: 13,
  /** Length in words. */
  WORDS: 32,
} as const;

/** Offsets of struct ibv_recv_wr in words. */
export const RecvWr = { WR_ID: 0, NEXT: 2, SG_LIST: 4, NUM_SGE: 6, WORDS: 8 } as const;

/** Offsets of struct ibv_sge in words. */
export const Sge = { ADDR: 0, LENGTH: 2, LKEY: 3, WORDS: 4 } as const;

/** Offsets of struct ibv_wc in words. */
export const Wc = {
  WR_ID: 0,
  STATUS: 2,
  OPCODE: 3,
  VENDOR_ERR: 4,
  BYTE_LEN: 5,
  IMM_DATA: 6,
  QP_NUM: 7,
  SRC_QP: 8,
  WC_FLAGS: 9,
  WORDS: 12,
} as const;

/** Size of the global route header, which precedes the payload in the receive buffer of an unreliable datagram. */
export const GRH_BYTES = 40;
/** Offsets of the addresses in the global route header. */
export const GRH_SOURCE_GID = 8;
export const GRH_DESTINATION_GID = 24;
export const GID_BYTES = 16;

/** Bytes of a path MTU (enum ibv_mtu 1 to 5). */
export function mtuBytes(mtu: number): number {
  return 128 << mtu;
}

/** Text of the status of a work completion, as in ibv_wc_status_str. */
export function wcStatusText(status: number): string {
  return TEXTS[status] ?? `unknown status ${status}`;
}

const TEXTS: readonly string[] = [
  'success',
  'local length error',
  'local QP operation error',
  'local EE context operation error',
  'local protection error',
  'Work Request Flushed Error',
  'memory bind operation error',
  'bad response error',
  'local access error',
  'remote invalid request error',
  'remote access error',
  'remote operation error',
  'transport retry counter exceeded',
  'RNR retry counter exceeded',
  'local RDD violation error',
  'remote invalid RD request',
  'aborted error',
  'invalid EE context number',
  'invalid EE context state',
  'fatal error',
  'response timeout error',
  'general error',
];

/** Unit of the acknowledgement time-out of a queue pair, whose code is an exponent of 2. */
export const TIMEOUT_UNIT_NS = 4096;
/** Times of the RNR timer codes 0 to 31 in microseconds (InfiniBand specification, table 45). */
export const RNR_TIMER_US: readonly number[] = [
  655_360, 10, 20, 30, 40, 60, 80, 120, 160, 240, 320, 480, 640, 960, 1280, 1920, 2560, 3840, 5120, 7680, 10_240,
  15_360, 20_480, 30_720, 40_960, 61_440, 81_920, 122_880, 163_840, 245_760, 327_680, 491_520,
];
