/**
 * Ops of the INFO ioctl and the bits in its results. The C name of an entry is the object's name, `_` and the key; that of HL_INFO_OP is `HL_INFO_` and
 * the key.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12.
 */

/** Ops of the INFO ioctl (`HL_INFO_*`). */
export const HL_INFO_OP = {
  HW_IP_INFO: 0,
  /** u32 per event since the last hard reset. */
  HW_EVENTS: 1,
  DRAM_USAGE: 2,
  HW_IDLE: 3,
  DEVICE_STATUS: 4,
  DEVICE_UTILIZATION: 6,
  /** u32 per event since the driver was loaded. */
  HW_EVENTS_AGGREGATE: 7,
  CLK_RATE: 8,
  RESET_COUNT: 9,
  TIME_SYNC: 10,
  CS_COUNTERS: 11,
  PCI_COUNTERS: 12,
  CLK_THROTTLE_REASON: 13,
  /** Takes `dcore_id`. */
  SYNC_MANAGER: 14,
  TOTAL_ENERGY: 15,
  /** Takes `pll_index`. */
  PLL_FREQUENCY: 16,
  POWER: 17,
  OPEN_STATS: 18,
  DRAM_REPLACED_ROWS: 21,
  DRAM_PENDING_ROWS: 22,
  LAST_ERR_OPEN_DEV_TIME: 23,
  CS_TIMEOUT_EVENT: 24,
  RAZWI_EVENT: 25,
  DEV_MEM_ALLOC_PAGE_SIZES: 26,
  SECURED_ATTESTATION: 27,
  /** Takes `eventfd`; one per file. */
  REGISTER_EVENTFD: 28,
  UNREGISTER_EVENTFD: 29,
  /** u64 mask of HL_NOTIFIER_EVENT, cleared by reading. */
  GET_EVENTS: 30,
  UNDEFINED_OPCODE_EVENT: 31,
  /** A string; its length is returned in `user_buffer_actual_size`. */
  ENGINE_STATUS: 32,
  /** The first op that Linux 6.1 does not have. */
  PAGE_FAULT_EVENT: 33,
  /** Array of hl_user_mapping; `array_size` is the number needed. */
  USER_MAPPINGS: 34,
  FW_GENERIC_REQ: 35,
  HW_ERR_EVENT: 36,
  FW_ERR_EVENT: 37,
  USER_ENGINE_ERR_EVENT: 38,
  DEV_SIGNED: 40,
} as const;

/** One of the values of {@link HL_INFO_OP}. */
export type HlInfoOp = (typeof HL_INFO_OP)[keyof typeof HL_INFO_OP];

/** SYNC_MANAGER rejects a `dcore_id` of this or more. Source: habanalabs.h of the driver, Linux 6.12. */
export const HL_MAX_DCORES = 8;

/** Smallest buffer in bytes that ENGINE_STATUS accepts. Source: habanalabs_ioctl.c, Linux 6.12. */
export const HL_ENGINES_DATA_MIN_SIZE = 1024;

/** Largest buffer in bytes that ENGINE_STATUS accepts. */
export const HL_ENGINES_DATA_MAX_SIZE = 0x100000;

/** Length of the result of DRAM_REPLACED_ROWS: struct cpucp_hbm_row_replaced_rows_info of include/linux/habanalabs/cpucp_if.h, Linux 6.12. */
export const CPUCP_REPLACED_ROWS_BYTES = 264;

/** Dcore numbers of gaudi in SYNC_MANAGER (`HL_GAUDI_<key>_DCORE`): west or east, south or north. */
export const HL_GAUDI_DCORE = {
  WS: 0,
  WN: 1,
  EN: 2,
  ES: 3,
} as const;

/** Bits of `hl_info_razwi_event.flags`. */
export const HL_RAZWI = {
  READ: 0x01,
  WRITE: 0x02,
  /** Low-bandwidth fabric: registers. */
  LBW: 0x04,
  /** High-bandwidth fabric: memory. */
  HBW: 0x08,
  /** A range register rejected the access. */
  RR: 0x10,
  /** No block responds at the address. */
  ADDR_DEC: 0x20,
} as const;

/** Engine id of a RAZWI whose initiator has no id. */
export const HL_RAZWI_NA_ENG_ID = 0xffff;

/** Bits of `hl_info_clk_throttle.clk_throttling_reason`. */
export const HL_CLK_THROTTLE = {
  POWER: 0x1,
  THERMAL: 0x2,
} as const;

/** Values of `hl_info_fw_err_event.err_type`; in C HL_INFO_FW_HEARTBEAT_ERR and HL_INFO_FW_REPORTED_ERR. */
export const HL_INFO_FW_ERR_TYPE = {
  HEARTBEAT: 0,
  REPORTED: 1,
} as const;

/*
 * Ops and flags of the MEMORY ioctl. Layouts are in structs-memory.ts.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12. The same in Linux 6.1.
 */
/** Ops of the MEMORY ioctl. */
export const HL_MEM_OP = {
  ALLOC: 0,
  FREE: 1,
  /** Host memory with HL_MEM.USERPTR, else device memory. */
  MAP: 2,
  UNMAP: 3,
  /** Handle for mapping a block of registers. */
  MAP_BLOCK: 4,
  EXPORT_DMABUF_FD: 5,
  /** Buffer of timestamps for REGISTER_INTERRUPT. */
  TS_ALLOC: 6,
  /** Imports a dma-buf; `reg_dmabuf_fd` of the input. Vendor's out-of-tree header only; no kernel has it. */
  REG_DMABUF_FD: 99,
} as const;

/** One of the values of {@link HL_MEM_OP}. */
export type HlMemOp = (typeof HL_MEM_OP)[keyof typeof HL_MEM_OP];

/** Flags of the MEMORY ioctl. */
export const HL_MEM = {
  CONTIGUOUS: 0x01,
  SHARED: 0x02,
  /** The address is one of the host. */
  USERPTR: 0x04,
  /** Fail if the hint is not available. */
  FORCE_HINT: 0x08,
  /** Map host memory without pinning it (on-demand paging). Vendor's header only. */
  ODP: 0x20,
  PREFETCH: 0x40,
} as const;

/** Largest number of timestamps of one TS_ALLOC. */
export const TS_MAX_ELEMENTS_NUM = 0x100000;

/*
 * Ops, flags and the size limit of the CB ioctl. Layouts are in structs-cb.ts.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12. The same in Linux 6.1.
 */
/** Ops of the CB ioctl. */
export const HL_CB_OP = {
  CREATE: 0,
  DESTROY: 1,
  INFO: 2,
} as const;

/** One of the values of {@link HL_CB_OP}. */
export type HlCbOp = (typeof HL_CB_OP)[keyof typeof HL_CB_OP];

/** Flags of the CB ioctl. */
export const HL_CB_FLAGS = {
  /** CREATE: map the buffer for the device; gaudi rejects it. */
  MAP: 0x1,
  /** INFO: return the device address instead of the usage count. */
  GET_DEVICE_VA: 0x2,
} as const;

/** Largest kernel command buffer in bytes: 2 MiB minus space for two MSG_PROT packets. */
export const HL_MAX_CB_SIZE: number = 0x200000 - 32;

/*
 * Ops of the DEBUG ioctl. Layouts are in structs-debug.ts.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12. The same in Linux 6.1.
 */
/** Ops of the DEBUG ioctl. */
export const HL_DEBUG_OP = {
  ETR: 0,
  ETF: 1,
  STM: 2,
  FUNNEL: 3,
  BMON: 4,
  SPMU: 5,
  /** Deprecated. */
  TIMESTAMP: 6,
  /** `enable` switches debug mode; the other ops need it. */
  SET_MODE: 7,
  /** Copies a trace. This and the next ones are in the vendor's header only. */
  FETCH_TRACE: 8,
  READMEM: 1024,
  MEMCPY: 1025,
} as const;

/** One of the values of {@link HL_DEBUG_OP}. */
export type HlDebugOp = (typeof HL_DEBUG_OP)[keyof typeof HL_DEBUG_OP];
