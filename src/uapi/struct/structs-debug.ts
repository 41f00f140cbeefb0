/**
 * The DEBUG ioctl: coresight set-up and debug mode.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12; the same in misc/habanalabs.h of Linux 6.1.
 */

import { defineStruct, type Struct } from './struct.ts';

const HL_DEBUG_ARGS_FIELDS = {
  /** Host address of one of the parameter structs below. */
  input_ptr: 'u64',
  output_ptr: 'u64',
  input_size: 'u32',
  output_size: 'u32',
  /** One of HL_DEBUG_OP. */
  op: 'u32',
  reg_idx: 'u32',
  enable: 'u32',
  ctx_id: 'u32',
} as const;

/** Arguments of the DEBUG ioctl (40 bytes). */
export const HL_DEBUG_ARGS: Struct<typeof HL_DEBUG_ARGS_FIELDS> = defineStruct('hl_debug_args', HL_DEBUG_ARGS_FIELDS);

const HL_DEBUG_PARAMS_ETR_FIELDS = {
  buffer_address: 'u64',
  buffer_size: 'u64',
  sink_mode: 'u32',
  pad: 'u32',
} as const;

/** Parameters of the ETR op: where the trace goes. */
export const HL_DEBUG_PARAMS_ETR: Struct<typeof HL_DEBUG_PARAMS_ETR_FIELDS> = defineStruct(
  'hl_debug_params_etr',
  HL_DEBUG_PARAMS_ETR_FIELDS,
);

const HL_DEBUG_PARAMS_ETF_FIELDS = {
  buffer_address: 'u64',
  buffer_size: 'u64',
  sink_mode: 'u32',
  pad: 'u32',
} as const;

/** Parameters of the ETF op. */
export const HL_DEBUG_PARAMS_ETF: Struct<typeof HL_DEBUG_PARAMS_ETF_FIELDS> = defineStruct(
  'hl_debug_params_etf',
  HL_DEBUG_PARAMS_ETF_FIELDS,
);

const HL_DEBUG_PARAMS_STM_FIELDS = {
  he_mask: 'u64',
  sp_mask: 'u64',
  id: 'u32',
  frequency: 'u32',
} as const;

/** Parameters of the STM op. */
export const HL_DEBUG_PARAMS_STM: Struct<typeof HL_DEBUG_PARAMS_STM_FIELDS> = defineStruct(
  'hl_debug_params_stm',
  HL_DEBUG_PARAMS_STM_FIELDS,
);

const HL_DEBUG_PARAMS_BMON_FIELDS = {
  start_addr0: 'u64',
  addr_mask0: 'u64',
  start_addr1: 'u64',
  addr_mask1: 'u64',
  bw_win: 'u32',
  win_capture: 'u32',
  id: 'u32',
  control: 'u32',
  start_addr2: 'u64',
  end_addr2: 'u64',
  start_addr3: 'u64',
  end_addr3: 'u64',
} as const;

/** Parameters of the BMON op: address ranges and capture window of a bus monitor. */
export const HL_DEBUG_PARAMS_BMON: Struct<typeof HL_DEBUG_PARAMS_BMON_FIELDS> = defineStruct(
  'hl_debug_params_bmon',
  HL_DEBUG_PARAMS_BMON_FIELDS,
);

const HL_DEBUG_PARAMS_SPMU_FIELDS = {
  event_types: 'u64[10]',
  event_types_num: 'u32',
  pmtrc_val: 'u32',
  trc_ctrl_host_val: 'u32',
  trc_en_host_val: 'u32',
} as const;

/** Parameters of the SPMU op. */
export const HL_DEBUG_PARAMS_SPMU: Struct<typeof HL_DEBUG_PARAMS_SPMU_FIELDS> = defineStruct(
  'hl_debug_params_spmu',
  HL_DEBUG_PARAMS_SPMU_FIELDS,
);
