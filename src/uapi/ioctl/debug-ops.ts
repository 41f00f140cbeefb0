/**
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
} as const;

/** One of the values of {@link HL_DEBUG_OP}. */
export type HlDebugOp = (typeof HL_DEBUG_OP)[keyof typeof HL_DEBUG_OP];
