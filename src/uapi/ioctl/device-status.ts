/**
 * States of a card, the events that the driver reports for it, and server types. The C name of an entry is the object's name, `_` and the key, unless
 * noted otherwise.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12.
 */

/** `enum hl_device_status`. */
export const HL_DEVICE_STATUS = {
  OPERATIONAL: 0,
  IN_RESET: 1,
  MALFUNCTION: 2,
  /** Automatic reset is disabled. */
  NEEDS_RESET: 3,
  IN_DEVICE_CREATION: 4,
  IN_RESET_AFTER_DEVICE_RELEASE: 5,
} as const;

/**
 * The driver's string for each state (`hdev->status`, drivers/accel/habanalabs/common/habanalabs_drv.c). Its sysfs attribute `status` starts with an
 * upper-case letter (status_show, sysfs.c).
 */
export const HL_DEVICE_STATUS_TEXT: ReadonlyMap<number, string> = new Map([
  [HL_DEVICE_STATUS.OPERATIONAL, 'operational'],
  [HL_DEVICE_STATUS.IN_RESET, 'in reset'],
  [HL_DEVICE_STATUS.MALFUNCTION, 'disabled'],
  [HL_DEVICE_STATUS.NEEDS_RESET, 'needs reset'],
  [HL_DEVICE_STATUS.IN_DEVICE_CREATION, 'in device creation'],
  [HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE, 'in reset after device release'],
]);

/** One of the values of {@link HL_DEVICE_STATUS}. */
export type HlDeviceStatus = (typeof HL_DEVICE_STATUS)[keyof typeof HL_DEVICE_STATUS];

/** Bits of the u64 mask of GET_EVENTS. Linux 6.1 has bits 0 to 6. The header spells the last two CRITICL. */
export const HL_NOTIFIER_EVENT = {
  TPC_ASSERT: 0x001,
  UNDEFINED_OPCODE: 0x002,
  DEVICE_RESET: 0x004,
  CS_TIMEOUT: 0x008,
  DEVICE_UNAVAILABLE: 0x010,
  USER_ENGINE_ERR: 0x020,
  GENERAL_HW_ERR: 0x040,
  RAZWI: 0x080,
  PAGE_FAULT: 0x100,
  CRITICL_HW_ERR: 0x200,
  CRITICL_FW_ERR: 0x400,
} as const;

/** `enum hl_server_type`; in C HL_SERVER_TYPE_UNKNOWN and `HL_SERVER_<key>`. Linux 6.1 has 0 to 5; 8 to 12 are in the vendor's header only. */
export const HL_SERVER_TYPE = {
  UNKNOWN: 0,
  GAUDI_HLS1: 1,
  GAUDI_HLS1H: 2,
  GAUDI_TYPE1: 3,
  GAUDI_TYPE2: 4,
  GAUDI2_HLS2: 5,
  GAUDI2_TYPE1: 7,
  /** All 24 ports inside the server. */
  GAUDI3_HLS3_FULLSCALE_IN: 8,
  /** 14 ports inside the server. */
  GAUDI3_HLS3_FULLSCALE_OUT: 9,
  /** 21 ports inside the server. */
  GAUDI3_HLS3_FULL_OAM_3PORTS_SCALE_OUT: 10,
  /** 18 ports inside the server. */
  GAUDI3_HLS3_FULL_OAM_6PORTS_SCALE_OUT: 11,
  /** 10 ports, 7 of them inside the server. */
  GAUDI3_HLS3_SINGLEPORT_OAM_FULLSCALE_OUT: 12,
} as const;

/** One of the values of {@link HL_SERVER_TYPE}. */
export type HlServerType = (typeof HL_SERVER_TYPE)[keyof typeof HL_SERVER_TYPE];
