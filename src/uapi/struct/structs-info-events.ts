/**
 * Results of INFO about faults, and the attestation reports.
 *
 * A timestamp of 0 means that nothing was recorded. Source: drm/habanalabs_accel.h, Linux 6.12.
 */

import { defineStruct, type Struct } from './struct.ts';

const HL_INFO_LAST_ERR_OPEN_DEV_TIME_FIELDS = {
  timestamp: 's64',
} as const;

/** Answer of LAST_ERR_OPEN_DEV_TIME: when an open was last refused. */
export const HL_INFO_LAST_ERR_OPEN_DEV_TIME: Struct<typeof HL_INFO_LAST_ERR_OPEN_DEV_TIME_FIELDS> = defineStruct(
  'hl_info_last_err_open_dev_time',
  HL_INFO_LAST_ERR_OPEN_DEV_TIME_FIELDS,
);

const HL_INFO_CS_TIMEOUT_EVENT_FIELDS = {
  timestamp: 's64',
  seq: 'u64',
} as const;

/** Answer of CS_TIMEOUT_EVENT. */
export const HL_INFO_CS_TIMEOUT_EVENT: Struct<typeof HL_INFO_CS_TIMEOUT_EVENT_FIELDS> = defineStruct(
  'hl_info_cs_timeout_event',
  HL_INFO_CS_TIMEOUT_EVENT_FIELDS,
);

const HL_INFO_RAZWI_EVENT_FIELDS = {
  timestamp: 's64',
  addr: 'u64',
  engine_id: 'u16[128]',
  num_of_possible_engines: 'u16',
  /** Bits of HL_RAZWI. */
  flags: 'u8',
  pad: 'bytes[5]',
} as const;

/** Answer of RAZWI_EVENT, 280 bytes: an access to an illegal address. Linux 6.1 has another layout, see HL_INFO_RAZWI_EVENT_6_1. */
export const HL_INFO_RAZWI_EVENT: Struct<typeof HL_INFO_RAZWI_EVENT_FIELDS> = defineStruct(
  'hl_info_razwi_event',
  HL_INFO_RAZWI_EVENT_FIELDS,
  '6.12',
);

const HL_INFO_UNDEFINED_OPCODE_EVENT_FIELDS = {
  timestamp: 's64',
  cb_addr_streams: 'u64[32]',
  cq_addr: 'u64',
  cq_size: 'u32',
  cb_addr_streams_len: 'u32',
  engine_id: 'u32',
  stream_id: 'u32',
} as const;

/** Answer of UNDEFINED_OPCODE_EVENT. `cb_addr_streams` is a matrix of 4 streams by 8 addresses, row by row. */
export const HL_INFO_UNDEFINED_OPCODE_EVENT: Struct<typeof HL_INFO_UNDEFINED_OPCODE_EVENT_FIELDS> = defineStruct(
  'hl_info_undefined_opcode_event',
  HL_INFO_UNDEFINED_OPCODE_EVENT_FIELDS,
);

const HL_INFO_HW_ERR_EVENT_FIELDS = {
  timestamp: 's64',
  event_id: 'u16',
  pad: 'u16[3]',
} as const;

/** Answer of HW_ERR_EVENT. */
export const HL_INFO_HW_ERR_EVENT: Struct<typeof HL_INFO_HW_ERR_EVENT_FIELDS> = defineStruct(
  'hl_info_hw_err_event',
  HL_INFO_HW_ERR_EVENT_FIELDS,
  '6.12',
);

const HL_INFO_FW_ERR_EVENT_FIELDS = {
  timestamp: 's64',
  err_type: 'u16',
  event_id: 'u16',
  pad: 'u32',
} as const;

/** Answer of FW_ERR_EVENT; `err_type` is one of HL_INFO_FW_ERR_TYPE. */
export const HL_INFO_FW_ERR_EVENT: Struct<typeof HL_INFO_FW_ERR_EVENT_FIELDS> = defineStruct(
  'hl_info_fw_err_event',
  HL_INFO_FW_ERR_EVENT_FIELDS,
  '6.12',
);

const HL_INFO_ENGINE_ERR_EVENT_FIELDS = {
  timestamp: 's64',
  engine_id: 'u16',
  error_count: 'u16',
  pad: 'u32',
} as const;

/** Answer of USER_ENGINE_ERR_EVENT. */
export const HL_INFO_ENGINE_ERR_EVENT: Struct<typeof HL_INFO_ENGINE_ERR_EVENT_FIELDS> = defineStruct(
  'hl_info_engine_err_event',
  HL_INFO_ENGINE_ERR_EVENT_FIELDS,
  '6.12',
);

const HL_PAGE_FAULT_INFO_FIELDS = {
  timestamp: 's64',
  addr: 'u64',
  engine_id: 'u16',
  pad: 'bytes[6]',
} as const;

/** Answer of PAGE_FAULT_EVENT; `engine_id` is set on gaudi3 only. */
export const HL_PAGE_FAULT_INFO: Struct<typeof HL_PAGE_FAULT_INFO_FIELDS> = defineStruct(
  'hl_page_fault_info',
  HL_PAGE_FAULT_INFO_FIELDS,
  '6.12',
);

const HL_USER_MAPPING_FIELDS = {
  dev_va: 'u64',
  size: 'u64',
} as const;

/** One element of the answer of USER_MAPPINGS: a mapping at the time of a page fault. */
export const HL_USER_MAPPING: Struct<typeof HL_USER_MAPPING_FIELDS> = defineStruct(
  'hl_user_mapping',
  HL_USER_MAPPING_FIELDS,
  '6.12',
);

const HL_INFO_SEC_ATTEST_FIELDS = {
  nonce: 'u32',
  pcr_quote_len: 'u16',
  pub_data_len: 'u16',
  certificate_len: 'u16',
  pcr_num_reg: 'u8',
  pcr_reg_len: 'u8',
  quote_sig_len: 'u8',
  pcr_data: 'bytes[256]',
  pcr_quote: 'bytes[510]',
  quote_sig: 'bytes[255]',
  public_data: 'bytes[510]',
  certificate: 'bytes[2046]',
  pad0: 'bytes[2]',
} as const;

/** Answer of SECURED_ATTESTATION (3592 bytes). */
export const HL_INFO_SEC_ATTEST: Struct<typeof HL_INFO_SEC_ATTEST_FIELDS> = defineStruct(
  'hl_info_sec_attest',
  HL_INFO_SEC_ATTEST_FIELDS,
);

const HL_INFO_SIGNED_FIELDS = {
  nonce: 'u32',
  pub_data_len: 'u16',
  certificate_len: 'u16',
  info_sig_len: 'u8',
  public_data: 'bytes[510]',
  certificate: 'bytes[2046]',
  info_sig: 'bytes[255]',
  dev_info_len: 'u16',
  dev_info: 'bytes[5120]',
  pad: 'bytes[2]',
} as const;

/** Answer of DEV_SIGNED (7944 bytes). */
export const HL_INFO_SIGNED: Struct<typeof HL_INFO_SIGNED_FIELDS> = defineStruct(
  'hl_info_signed',
  HL_INFO_SIGNED_FIELDS,
  '6.12',
);
