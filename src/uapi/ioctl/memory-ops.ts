/**
 * Ops and flags of the MEMORY ioctl. Layouts are in structs-memory.ts.
 *
 * Source: drm/habanalabs_accel.h, Linux 6.12. The same in Linux 6.1.
 */

/** Ops of the MEMORY ioctl. */
export const HL_MEM_OP = {
  ALLOC: 0,
  FREE: 1,
  /** Host memory with HL_MEM.USERPTR, else device memory. */
  MAP: 2,
  UNMAP: 3,
  /** Handle for mapping a block of registers. */
  MAP_BLOCK: 4,
  EXPORT_DMABUF_FD: 5,
  /** Buffer of timestamps for REGISTER_INTERRUPT. */
  TS_ALLOC: 6,
  /** Imports a dma-buf; `reg_dmabuf_fd` of the input. Vendor's out-of-tree header only; no kernel has it. */
  REG_DMABUF_FD: 99,
} as const;

/** One of the values of {@link HL_MEM_OP}. */
export type HlMemOp = (typeof HL_MEM_OP)[keyof typeof HL_MEM_OP];

/** Flags of the MEMORY ioctl. */
export const HL_MEM = {
  CONTIGUOUS: 0x01,
  SHARED: 0x02,
  /** The address is one of the host. */
  USERPTR: 0x04,
  /** Fail when the hint cannot be had. */
  FORCE_HINT: 0x08,
  PREFETCH: 0x40,
} as const;

/** Largest number of timestamps of one TS_ALLOC. */
export const TS_MAX_ELEMENTS_NUM = 0x100000;
