/**
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
  /** CREATE: map the buffer for the device; gaudi refuses. */
  MAP: 0x1,
  /** INFO: return the device address instead of the usage count. */
  GET_DEVICE_VA: 0x2,
} as const;

/** Largest kernel command buffer in bytes: 2 MiB less room for two MSG_PROT packets. */
export const HL_MAX_CB_SIZE: number = 0x200000 - 32;
