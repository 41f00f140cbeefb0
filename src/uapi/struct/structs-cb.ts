/**
 * The CB ioctl: create, destroy and query a kernel command buffer.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12; the same in misc/habanalabs.h of Linux 6.1.
 */

import { type ArgsUnion, defineArgs, defineStruct, type Struct } from './struct.ts';

const HL_CB_IN_FIELDS = {
  /** Handle (mmap cookie) for DESTROY and INFO. */
  cb_handle: 'u64',
  /** One of HL_CB_OP. */
  op: 'u32',
  /** Bytes wanted by CREATE, at most HL_MAX_CB_SIZE. */
  cb_size: 'u32',
  ctx_id: 'u32',
  /** Bits of HL_CB_FLAGS. */
  flags: 'u32',
} as const;

/** Input of the CB ioctl. */
export const HL_CB_IN: Struct<typeof HL_CB_IN_FIELDS> = defineStruct('hl_cb_in', HL_CB_IN_FIELDS);

const HL_CB_OUT_FIELDS = {
  cb_handle: { kind: 'u64', at: 0 },
  /** Command submissions that use the buffer now. */
  usage_cnt: { kind: 'u32', at: 0 },
  pad: { kind: 'u32', at: 4 },
  device_va: { kind: 'u64', at: 0 },
} as const;

/** Output of the CB ioctl: a handle (CREATE), a usage count, or a device address (INFO with GET_DEVICE_VA). */
export const HL_CB_OUT: Struct<typeof HL_CB_OUT_FIELDS> = defineStruct('hl_cb_out', HL_CB_OUT_FIELDS);

/** Arguments of the CB ioctl (24 bytes). */
export const HL_CB_ARGS: ArgsUnion<typeof HL_CB_IN_FIELDS, typeof HL_CB_OUT_FIELDS> = defineArgs(
  'hl_cb_args',
  HL_CB_IN,
  HL_CB_OUT,
);
