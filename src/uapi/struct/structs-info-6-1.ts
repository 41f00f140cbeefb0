/**
 * The four results of INFO whose layout differs in Linux 6.1. For everything else 6.1 and 6.12 agree.
 *
 * INFO copies min(return_size, sizeof). In three of them, 6.12 added fields at the end, so that the layout of 6.1 is a prefix; in razwi, fields have another
 * meaning.
 * Source: misc/habanalabs.h, Linux 6.1.
 */

import { defineStruct, type Struct } from './struct.ts';

const HL_INFO_HW_IP_INFO_6_1_FIELDS = {
  sram_base_address: 'u64',
  dram_base_address: 'u64',
  dram_size: 'u64',
  sram_size: 'u32',
  num_of_events: 'u32',
  device_id: 'u32',
  module_id: 'u32',
  decoder_enabled_mask: 'u32',
  first_available_interrupt_id: 'u16',
  server_type: 'u16',
  cpld_version: 'u32',
  psoc_pci_pll_nr: 'u32',
  psoc_pci_pll_nf: 'u32',
  psoc_pci_pll_od: 'u32',
  psoc_pci_pll_div_factor: 'u32',
  tpc_enabled_mask: 'u8',
  dram_enabled: 'u8',
  security_enabled: 'u8',
  mme_master_slave_mode: 'u8',
  cpucp_version: 'bytes[128]',
  card_name: 'bytes[16]',
  tpc_enabled_mask_ext: 'u64',
  dram_page_size: 'u64',
  edma_enabled_mask: 'u32',
  number_of_user_interrupts: 'u16',
  pad2: 'u16',
  reserved4: 'u64',
  device_mem_alloc_default_page_size: 'u64',
} as const;

/** HW_IP_INFO of Linux 6.1 (256 bytes). */
export const HL_INFO_HW_IP_INFO_6_1: Struct<typeof HL_INFO_HW_IP_INFO_6_1_FIELDS> = defineStruct(
  'hl_info_hw_ip_info',
  HL_INFO_HW_IP_INFO_6_1_FIELDS,
  '6.1',
);

const HL_INFO_HW_IDLE_6_1_FIELDS = {
  is_idle: 'u32',
  busy_engines_mask: 'u32',
  busy_engines_mask_ext: 'u64[2]',
} as const;

/** HW_IDLE of Linux 6.1 (24 bytes). */
export const HL_INFO_HW_IDLE_6_1: Struct<typeof HL_INFO_HW_IDLE_6_1_FIELDS> = defineStruct(
  'hl_info_hw_idle',
  HL_INFO_HW_IDLE_6_1_FIELDS,
  '6.1',
);

const HL_INFO_TIME_SYNC_6_1_FIELDS = {
  device_time: 'u64',
  host_time: 'u64',
} as const;

/** TIME_SYNC of Linux 6.1 (16 bytes). */
export const HL_INFO_TIME_SYNC_6_1: Struct<typeof HL_INFO_TIME_SYNC_6_1_FIELDS> = defineStruct(
  'hl_info_time_sync',
  HL_INFO_TIME_SYNC_6_1_FIELDS,
  '6.1',
);

const HL_INFO_RAZWI_EVENT_6_1_FIELDS = {
  timestamp: 's64',
  addr: 'u64',
  engine_id_1: 'u16',
  engine_id_2: 'u16',
  no_engine_id: 'u8',
  error_type: 'u8',
  pad: 'bytes[2]',
} as const;

/** RAZWI_EVENT of Linux 6.1 (24 bytes), incompatible with 6.12. */
export const HL_INFO_RAZWI_EVENT_6_1: Struct<typeof HL_INFO_RAZWI_EVENT_6_1_FIELDS> = defineStruct(
  'hl_info_razwi_event',
  HL_INFO_RAZWI_EVENT_6_1_FIELDS,
  '6.1',
);
