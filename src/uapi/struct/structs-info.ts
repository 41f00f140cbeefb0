/**
 * The INFO ioctl: its arguments and the results that describe a healthy device.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12. Layouts that differ in misc/habanalabs.h of Linux 6.1 are in structs-info-6-1.ts.
 */

import { defineStruct, type Struct } from './struct.ts';

const HL_INFO_ARGS_FIELDS = {
  /** Host address of the answer's buffer. */
  return_pointer: 'u64',
  /** Bytes of that buffer; the driver copies min(return_size, sizeof answer). */
  return_size: 'u32',
  /** One of HL_INFO_OP. */
  op: 'u32',
  dcore_id: { kind: 'u32', at: 16 },
  ctx_id: { kind: 'u32', at: 16 },
  period_ms: { kind: 'u32', at: 16 },
  pll_index: { kind: 'u32', at: 16 },
  eventfd: { kind: 'u32', at: 16 },
  user_buffer_actual_size: { kind: 'u32', at: 16 },
  sec_attest_nonce: { kind: 'u32', at: 16 },
  array_size: { kind: 'u32', at: 16, only: '6.12' },
  fw_sub_opcode: { kind: 'u32', at: 16, only: '6.12' },
  /** Must be 0. */
  pad: 'u32',
} as const;

/** Arguments of the INFO ioctl (24 bytes). The union at byte 16 belongs to the op; `user_buffer_actual_size` and `array_size` are answers. */
export const HL_INFO_ARGS: Struct<typeof HL_INFO_ARGS_FIELDS> = defineStruct('hl_info_args', HL_INFO_ARGS_FIELDS);

const HL_INFO_HW_IP_INFO_FIELDS = {
  /** First SRAM address that the user owns. */
  sram_base_address: 'u64',
  /** First DRAM address that the user owns: physical on gaudi, virtual from gaudi2 on. */
  dram_base_address: 'u64',
  /** Bytes of DRAM that the user owns. */
  dram_size: 'u64',
  sram_size: 'u32',
  /** Entries of the arrays that HW_EVENTS and HW_EVENTS_AGGREGATE return. */
  num_of_events: 'u32',
  /** PCI device id. */
  device_id: 'u32',
  /** OCP module id of a mezzanine card. */
  module_id: 'u32',
  decoder_enabled_mask: 'u32',
  /** First user interrupt; 0xFFFF when the ASIC has none. */
  first_available_interrupt_id: 'u16',
  /** One of HL_SERVER_TYPE. */
  server_type: 'u16',
  cpld_version: 'u32',
  psoc_pci_pll_nr: 'u32',
  psoc_pci_pll_nf: 'u32',
  psoc_pci_pll_od: 'u32',
  psoc_pci_pll_div_factor: 'u32',
  /** TPCs of goya and gaudi; later ASICs use `tpc_enabled_mask_ext`. */
  tpc_enabled_mask: 'u8',
  dram_enabled: 'u8',
  security_enabled: 'u8',
  mme_master_slave_mode: 'u8',
  /** Firmware version, NUL-terminated. */
  cpucp_version: 'bytes[128]',
  /** Card name, NUL-terminated. */
  card_name: 'bytes[16]',
  tpc_enabled_mask_ext: 'u64',
  /** Bytes of one page of device memory. */
  dram_page_size: 'u64',
  /** EDMA engines that work; gaudi2 and later. */
  edma_enabled_mask: 'u32',
  number_of_user_interrupts: 'u16',
  reserved1: 'u8',
  reserved2: 'u8',
  reserved3: 'u64',
  device_mem_alloc_default_page_size: 'u64',
  reserved4: 'u64',
  reserved5: 'u64',
  reserved6: 'u32',
  reserved7: 'u8',
  revision_id: 'u8',
  tpc_interrupt_id: 'u16',
  rotator_enabled_mask: 'u32',
  reserved9: 'u32',
  engine_core_interrupt_reg_addr: 'u64',
  /** Bytes of DRAM kept by driver and firmware. */
  reserved_dram_size: 'u64',
  /** Versions of the interposer and the substrate, from the firmware. */
  interposer_version: { kind: 'u8', at: 238, only: 'vendor' },
  substrate_version: { kind: 'u8', at: 239, only: 'vendor' },
  /** PDMA channels that users program; bit n is channel n. Drivers differ in the channel that they keep. */
  pdma_user_owned_ch_mask: { kind: 'u64', at: 240, only: 'vendor' },
  nic_ports_mask: { kind: 'u64', at: 256, only: 'vendor' },
  nic_ports_external_mask: { kind: 'u64', at: 264, only: 'vendor' },
  mme_enabled_mask: { kind: 'u32', at: 272, only: 'vendor' },
  /** Whether MEMORY MAP need not pin host memory (on-demand paging). */
  odp_supported: { kind: 'u8', at: 276, only: 'vendor' },
  sched_arc_enabled_mask: { kind: 'u32', at: 284, only: 'vendor' },
} as const;

/** Answer of HW_IP_INFO, 304 bytes (256 in Linux 6.1). The vendor's header (Intel_Gaudi3_Software) names fields that are reserved in that of Linux. */
export const HL_INFO_HW_IP_INFO: Struct<typeof HL_INFO_HW_IP_INFO_FIELDS> = defineStruct(
  'hl_info_hw_ip_info',
  HL_INFO_HW_IP_INFO_FIELDS,
  '6.12',
);

const HL_INFO_DRAM_USAGE_FIELDS = {
  dram_free_mem: 'u64',
  ctx_dram_mem: 'u64',
} as const;

/** Answer of DRAM_USAGE: bytes free for the user, and bytes of the calling context. */
export const HL_INFO_DRAM_USAGE: Struct<typeof HL_INFO_DRAM_USAGE_FIELDS> = defineStruct(
  'hl_info_dram_usage',
  HL_INFO_DRAM_USAGE_FIELDS,
);

const HL_INFO_HW_IDLE_FIELDS = {
  is_idle: 'u32',
  busy_engines_mask: 'u32',
  busy_engines_mask_ext: 'u64[4]',
} as const;

/** Answer of HW_IDLE, 40 bytes (24 in Linux 6.1). Busy bits are numbered by the engine ids of the ASIC. */
export const HL_INFO_HW_IDLE: Struct<typeof HL_INFO_HW_IDLE_FIELDS> = defineStruct(
  'hl_info_hw_idle',
  HL_INFO_HW_IDLE_FIELDS,
  '6.12',
);

const HL_INFO_DEVICE_STATUS_FIELDS = {
  status: 'u32',
  pad: 'u32',
} as const;

/** Answer of DEVICE_STATUS: one of HL_DEVICE_STATUS. */
export const HL_INFO_DEVICE_STATUS: Struct<typeof HL_INFO_DEVICE_STATUS_FIELDS> = defineStruct(
  'hl_info_device_status',
  HL_INFO_DEVICE_STATUS_FIELDS,
);

const HL_INFO_DEVICE_UTILIZATION_FIELDS = {
  utilization: 'u32',
  pad: 'u32',
} as const;

/** Answer of DEVICE_UTILIZATION, in percent. */
export const HL_INFO_DEVICE_UTILIZATION: Struct<typeof HL_INFO_DEVICE_UTILIZATION_FIELDS> = defineStruct(
  'hl_info_device_utilization',
  HL_INFO_DEVICE_UTILIZATION_FIELDS,
);

const HL_INFO_CLK_RATE_FIELDS = {
  cur_clk_rate_mhz: 'u32',
  max_clk_rate_mhz: 'u32',
} as const;

/** Answer of CLK_RATE. */
export const HL_INFO_CLK_RATE: Struct<typeof HL_INFO_CLK_RATE_FIELDS> = defineStruct(
  'hl_info_clk_rate',
  HL_INFO_CLK_RATE_FIELDS,
);

const HL_INFO_RESET_COUNT_FIELDS = {
  hard_reset_cnt: 'u32',
  soft_reset_cnt: 'u32',
} as const;

/** Answer of RESET_COUNT; `soft_reset_cnt` counts compute resets. */
export const HL_INFO_RESET_COUNT: Struct<typeof HL_INFO_RESET_COUNT_FIELDS> = defineStruct(
  'hl_info_reset_count',
  HL_INFO_RESET_COUNT_FIELDS,
);

const HL_INFO_TIME_SYNC_FIELDS = {
  device_time: 'u64',
  host_time: 'u64',
  tsc_time: 'u64',
} as const;

/** Answer of TIME_SYNC, 24 bytes (16 in Linux 6.1). `host_time` is CLOCK_MONOTONIC_RAW in nanoseconds. */
export const HL_INFO_TIME_SYNC: Struct<typeof HL_INFO_TIME_SYNC_FIELDS> = defineStruct(
  'hl_info_time_sync',
  HL_INFO_TIME_SYNC_FIELDS,
  '6.12',
);

const HL_INFO_PCI_COUNTERS_FIELDS = {
  rx_throughput: 'u64',
  tx_throughput: 'u64',
  replay_cnt: 'u64',
} as const;

/** Answer of PCI_COUNTERS; throughput in KB/s. */
export const HL_INFO_PCI_COUNTERS: Struct<typeof HL_INFO_PCI_COUNTERS_FIELDS> = defineStruct(
  'hl_info_pci_counters',
  HL_INFO_PCI_COUNTERS_FIELDS,
);

const HL_INFO_CLK_THROTTLE_FIELDS = {
  clk_throttling_reason: 'u32',
  pad: 'u32',
  clk_throttling_timestamp_us: 'u64[2]',
  clk_throttling_duration_ns: 'u64[2]',
} as const;

/** Answer of CLK_THROTTLE_REASON; the two entries of the arrays are power and thermal. */
export const HL_INFO_CLK_THROTTLE: Struct<typeof HL_INFO_CLK_THROTTLE_FIELDS> = defineStruct(
  'hl_info_clk_throttle',
  HL_INFO_CLK_THROTTLE_FIELDS,
);

const HL_INFO_ENERGY_FIELDS = {
  total_energy_consumption: 'u64',
} as const;

/** Answer of TOTAL_ENERGY. */
export const HL_INFO_ENERGY: Struct<typeof HL_INFO_ENERGY_FIELDS> = defineStruct(
  'hl_info_energy',
  HL_INFO_ENERGY_FIELDS,
);

const HL_PLL_FREQUENCY_INFO_FIELDS = {
  output: 'u16[4]',
} as const;

/** Answer of PLL_FREQUENCY: the four outputs of one PLL, in MHz. */
export const HL_PLL_FREQUENCY_INFO: Struct<typeof HL_PLL_FREQUENCY_INFO_FIELDS> = defineStruct(
  'hl_pll_frequency_info',
  HL_PLL_FREQUENCY_INFO_FIELDS,
);

const HL_OPEN_STATS_INFO_FIELDS = {
  open_counter: 'u64',
  last_open_period_ms: 'u64',
  is_compute_ctx_active: 'u8',
  compute_ctx_in_release: 'u8',
  pad: 'bytes[6]',
  /** A mapping or dma-buf holds the context. Its place is inferred from the order of the vendor's driver. */
  compute_ctx_has_mapped_resources: { kind: 'u8', at: 18, only: 'vendor' },
} as const;

/** Answer of OPEN_STATS. */
export const HL_OPEN_STATS_INFO: Struct<typeof HL_OPEN_STATS_INFO_FIELDS> = defineStruct(
  'hl_open_stats_info',
  HL_OPEN_STATS_INFO_FIELDS,
);

const HL_POWER_INFO_FIELDS = {
  power: 'u64',
} as const;

/** Answer of POWER. */
export const HL_POWER_INFO: Struct<typeof HL_POWER_INFO_FIELDS> = defineStruct('hl_power_info', HL_POWER_INFO_FIELDS);

const HL_INFO_SYNC_MANAGER_FIELDS = {
  first_available_sync_object: 'u32',
  first_available_monitor: 'u32',
  first_available_cq: 'u32',
  reserved: 'u32',
} as const;

/** Answer of SYNC_MANAGER: the first objects of a dcore that the user owns. */
export const HL_INFO_SYNC_MANAGER: Struct<typeof HL_INFO_SYNC_MANAGER_FIELDS> = defineStruct(
  'hl_info_sync_manager',
  HL_INFO_SYNC_MANAGER_FIELDS,
);

const HL_INFO_CS_COUNTERS_FIELDS = {
  total_out_of_mem_drop_cnt: 'u64',
  ctx_out_of_mem_drop_cnt: 'u64',
  total_parsing_drop_cnt: 'u64',
  ctx_parsing_drop_cnt: 'u64',
  total_queue_full_drop_cnt: 'u64',
  ctx_queue_full_drop_cnt: 'u64',
  total_device_in_reset_drop_cnt: 'u64',
  ctx_device_in_reset_drop_cnt: 'u64',
  total_max_cs_in_flight_drop_cnt: 'u64',
  ctx_max_cs_in_flight_drop_cnt: 'u64',
  total_validation_drop_cnt: 'u64',
  ctx_validation_drop_cnt: 'u64',
} as const;

/** Answer of CS_COUNTERS: refused submissions by reason, of the device and of the calling context. */
export const HL_INFO_CS_COUNTERS: Struct<typeof HL_INFO_CS_COUNTERS_FIELDS> = defineStruct(
  'hl_info_cs_counters',
  HL_INFO_CS_COUNTERS_FIELDS,
);

const HL_INFO_DEV_MEMALLOC_PAGE_SIZES_FIELDS = {
  page_order_bitmask: 'u64',
} as const;

/** Answer of DEV_MEM_ALLOC_PAGE_SIZES: bit n set means that pages of 2^n bytes can be requested; 0 when the size is fixed. */
export const HL_INFO_DEV_MEMALLOC_PAGE_SIZES: Struct<typeof HL_INFO_DEV_MEMALLOC_PAGE_SIZES_FIELDS> = defineStruct(
  'hl_info_dev_memalloc_page_sizes',
  HL_INFO_DEV_MEMALLOC_PAGE_SIZES_FIELDS,
);
