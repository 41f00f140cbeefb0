/**
 * The CS and WAIT_CS ioctls: command submission, its chunks, and waiting.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12; the same in misc/habanalabs.h of Linux 6.1 except for the fields marked `only`.
 */

import { type ArgsUnion, defineArgs, defineStruct, type Struct } from './struct.ts';

const HL_CS_CHUNK_FIELDS = {
  /** Handle of a kernel command buffer, or the device address of a user command buffer. */
  cb_handle: { kind: 'u64', at: 0 },
  /** WAIT: host address of an array of signal sequence numbers. */
  signal_seq_arr: { kind: 'u64', at: 0 },
  encaps_signal_seq: { kind: 'u64', at: 0 },
  queue_index: 'u32',
  /** Bytes of valid packets. */
  cb_size: { kind: 'u32', at: 12 },
  num_signal_seq_arr: { kind: 'u32', at: 12 },
  encaps_signal_offset: { kind: 'u32', at: 12 },
  /** Bits of HL_CS_CHUNK_FLAGS. */
  cs_chunk_flags: 'u32',
  collective_engine_id: 'u32',
  pad: 'u32[10]',
} as const;

/** One job of a submission: a command buffer for a queue (64 bytes). The union at byte 0 and 12 belongs to the type of the submission. */
export const HL_CS_CHUNK: Struct<typeof HL_CS_CHUNK_FIELDS> = defineStruct('hl_cs_chunk', HL_CS_CHUNK_FIELDS);

const HL_CS_IN_FIELDS = {
  /** Host address of the hl_cs_chunk array of the restore phase. */
  chunks_restore: { kind: 'u64', at: 0 },
  /** Host address of the hl_cs_chunk array of the execution phase. */
  chunks_execute: { kind: 'u64', at: 8 },
  engine_cores: { kind: 'u64', at: 0 },
  num_engine_cores: { kind: 'u32', at: 8 },
  core_command: { kind: 'u32', at: 12 },
  engines: { kind: 'u64', at: 0, only: '6.12' },
  num_engines: { kind: 'u32', at: 8, only: '6.12' },
  engine_command: { kind: 'u32', at: 12, only: '6.12' },
  /** Sequence number of the first submission of a staged one. */
  seq: { kind: 'u64', at: 16 },
  encaps_sig_handle_id: { kind: 'u32', at: 16 },
  encaps_signals_count: { kind: 'u32', at: 16 },
  encaps_signals_q_idx: { kind: 'u32', at: 20 },
  num_chunks_restore: 'u32',
  num_chunks_execute: 'u32',
  /** Seconds, with CUSTOM_TIMEOUT. */
  timeout: 'u32',
  /** Bits of HL_CS_FLAGS. */
  cs_flags: 'u32',
  ctx_id: 'u32',
  /** Must be 0. */
  pad: 'bytes[4]',
} as const;

/** Input of the CS ioctl (48 bytes). */
export const HL_CS_IN: Struct<typeof HL_CS_IN_FIELDS> = defineStruct('hl_cs_in', HL_CS_IN_FIELDS);

const HL_CS_OUT_FIELDS = {
  /** Sequence number to wait for; ULLONG_MAX when the submission failed. */
  seq: { kind: 'u64', at: 0 },
  handle_id: { kind: 'u32', at: 0 },
  count: { kind: 'u32', at: 4 },
  /** 0, or the negative errno of a rejected submission. */
  status: 'u32',
  /** Offset from CFG_BASE of the sync object, for SIGNAL and RESERVE_SIGNALS_ONLY. */
  sob_base_addr_offset: 'u32',
  sob_count_before_submission: 'u16',
  pad: 'u16[3]',
} as const;

/** Output of the CS ioctl (24 bytes). */
export const HL_CS_OUT: Struct<typeof HL_CS_OUT_FIELDS> = defineStruct('hl_cs_out', HL_CS_OUT_FIELDS);

/** Arguments of the CS ioctl (48 bytes). */
export const HL_CS_ARGS: ArgsUnion<typeof HL_CS_IN_FIELDS, typeof HL_CS_OUT_FIELDS> = defineArgs(
  'hl_cs_args',
  HL_CS_IN,
  HL_CS_OUT,
);

const HL_WAIT_CS_IN_FIELDS = {
  /** Sequence number, or the host address of an array of them (MULTI_CS). */
  seq: { kind: 'u64', at: 0 },
  /** Microseconds; 0 polls. */
  timeout_us: { kind: 'u64', at: 8 },
  /** INTERRUPT: host address of the 64-bit counter. */
  addr: { kind: 'u64', at: 0 },
  /** INTERRUPT_KERNEL_CQ: handle of the command buffer that holds the counters. */
  cq_counters_handle: { kind: 'u64', at: 0 },
  target: { kind: 'u64', at: 8 },
  ctx_id: 'u32',
  /** Bits of HL_WAIT_CS_FLAGS; the interrupt id in bits 20 to 31. */
  flags: 'u32',
  seq_arr_len: { kind: 'u8', at: 24 },
  /** Must be 0. */
  pad: { kind: 'bytes[7]', at: 25 },
  interrupt_timeout_us: { kind: 'u64', at: 24 },
  /** Index of a 64-bit element, not bytes. */
  cq_counters_offset: 'u64',
  timestamp_handle: 'u64',
  /** Index of a 64-bit element, not bytes. */
  timestamp_offset: 'u64',
} as const;

/** Input of the WAIT_CS ioctl (56 bytes): a sequence number, an array of them (MULTI_CS) or an interrupt. */
export const HL_WAIT_CS_IN: Struct<typeof HL_WAIT_CS_IN_FIELDS> = defineStruct('hl_wait_cs_in', HL_WAIT_CS_IN_FIELDS);

const HL_WAIT_CS_OUT_FIELDS = {
  /** One of HL_WAIT_CS_STATUS. */
  status: 'u32',
  /** Bits of HL_WAIT_CS_STATUS_FLAG. */
  flags: 'u32',
  /** CLOCK_MONOTONIC, with TIMESTAMP_VLD. */
  timestamp_nsec: 's64',
  /** MULTI_CS: bit n is set when entry n is complete. */
  cs_completion_map: 'u32',
  pad: 'u32',
} as const;

/** Output of the WAIT_CS ioctl (24 bytes), also written when the ioctl fails. */
export const HL_WAIT_CS_OUT: Struct<typeof HL_WAIT_CS_OUT_FIELDS> = defineStruct(
  'hl_wait_cs_out',
  HL_WAIT_CS_OUT_FIELDS,
);

/** Arguments of the WAIT_CS ioctl (56 bytes). */
export const HL_WAIT_CS_ARGS: ArgsUnion<typeof HL_WAIT_CS_IN_FIELDS, typeof HL_WAIT_CS_OUT_FIELDS> = defineArgs(
  'hl_wait_cs_args',
  HL_WAIT_CS_IN,
  HL_WAIT_CS_OUT,
);
