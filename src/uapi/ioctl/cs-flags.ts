/**
 * Flags, statuses and limits of the CS and WAIT_CS ioctls. The C name of an entry is the object's name, `_` and the key.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12.
 */

/** `hl_cs_in.cs_flags`. Linux 6.1 ends at ENGINE_CORE_COMMAND. */
export const HL_CS_FLAGS = {
  /** Run and wait for the restore chunks first. */
  FORCE_RESTORE: 0x1,
  SIGNAL: 0x2,
  WAIT: 0x4,
  COLLECTIVE_WAIT: 0x8,
  /** Record when the submission completes. */
  TIMESTAMP: 0x20,
  STAGED_SUBMISSION: 0x40,
  STAGED_SUBMISSION_FIRST: 0x80,
  STAGED_SUBMISSION_LAST: 0x100,
  /** `timeout` holds seconds. */
  CUSTOM_TIMEOUT: 0x200,
  SKIP_RESET_ON_TIMEOUT: 0x400,
  ENCAP_SIGNALS: 0x800,
  RESERVE_SIGNALS_ONLY: 0x1000,
  UNRESERVE_SIGNALS_ONLY: 0x2000,
  ENGINE_CORE_COMMAND: 0x4000,
  FLUSH_PCI_HBW_WRITES: 0x8000,
  ENGINES_COMMAND: 0x10000,
} as const;

/** `hl_cs_chunk.cs_chunk_flags`. */
export const HL_CS_CHUNK_FLAGS = {
  /** `cb_handle` is the device address of memory that the user mapped. */
  USER_ALLOC_CB: 0x1,
} as const;

/** `hl_cs_out.status` of an accepted submission. */
export const HL_CS_STATUS_SUCCESS = 0;

/** Chunks that one submission may have. */
export const HL_MAX_JOBS_PER_CS = 512;

/** `enum hl_engine_command`; in C `HL_ENGINE_<key>`. Linux 6.1 has the first two. */
export const HL_ENGINE_COMMAND = {
  CORE_HALT: 1,
  CORE_RUN: 2,
  STALL: 3,
  RESUME: 4,
} as const;

/** One of the values of {@link HL_ENGINE_COMMAND}. */
export type HlEngineCommand = (typeof HL_ENGINE_COMMAND)[keyof typeof HL_ENGINE_COMMAND];

/** `hl_wait_cs_in.flags`. Bits 20 to 31 hold the interrupt id. */
export const HL_WAIT_CS_FLAGS = {
  INTERRUPT: 0x2,
  MULTI_CS: 0x4,
  INTERRUPT_KERNEL_CQ: 0x10,
  REGISTER_INTERRUPT: 0x20,
  INTERRUPT_MASK: 0xfff00000,
  ANY_CQ_INTERRUPT: 0xfff00000,
  ANY_DEC_INTERRUPT: 0xffe00000,
} as const;

/** Position of the interrupt id in `hl_wait_cs_in.flags`. */
export const WAIT_CS_INTERRUPT_SHIFT = 20;

/** Entries that a MULTI_CS wait may have. */
export const HL_WAIT_MULTI_CS_LIST_MAX_LEN = 32;

/** `hl_wait_cs_out.status`. */
export const HL_WAIT_CS_STATUS = {
  COMPLETED: 0,
  BUSY: 1,
  /** The ioctl failed with ETIMEDOUT. */
  TIMEDOUT: 2,
  /** The ioctl failed with EIO. */
  ABORTED: 3,
} as const;

/** One of the values of {@link HL_WAIT_CS_STATUS}. */
export type HlWaitCsStatus = (typeof HL_WAIT_CS_STATUS)[keyof typeof HL_WAIT_CS_STATUS];

/** `hl_wait_cs_out.flags`. */
export const HL_WAIT_CS_STATUS_FLAG = {
  /** Completed so long ago that the driver has dropped its outcome. */
  GONE: 0x1,
  TIMESTAMP_VLD: 0x2,
} as const;
