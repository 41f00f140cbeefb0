/**
 * The MEMORY ioctl: allocate, free, map, unmap, export device memory; map host memory.
 *
 * A nested C member `alloc.mem_size` is the field `alloc_mem_size` here. Source: drm/habanalabs_accel.h, Linux 6.12, and
 * misc/habanalabs.h, Linux 6.1 (`export_dmabuf_fd.handle`, which is `addr` in 6.12). `reg_dmabuf_fd` is in the vendor's
 * out-of-tree header only.
 */

import { type ArgsUnion, defineArgs, defineStruct, type Struct } from './struct.ts';

const HL_MEM_IN_FIELDS = {
  alloc_mem_size: { kind: 'u64', at: 0, c: 'alloc.mem_size' },
  alloc_page_size: { kind: 'u64', at: 8, c: 'alloc.page_size' },
  free_handle: { kind: 'u64', at: 0, c: 'free.handle' },
  map_device_hint_addr: { kind: 'u64', at: 0, c: 'map_device.hint_addr' },
  map_device_handle: { kind: 'u64', at: 8, c: 'map_device.handle' },
  map_host_host_virt_addr: { kind: 'u64', at: 0, c: 'map_host.host_virt_addr' },
  map_host_hint_addr: { kind: 'u64', at: 8, c: 'map_host.hint_addr' },
  map_host_mem_size: { kind: 'u64', at: 16, c: 'map_host.mem_size' },
  map_block_block_addr: { kind: 'u64', at: 0, c: 'map_block.block_addr' },
  unmap_device_virt_addr: { kind: 'u64', at: 0, c: 'unmap.device_virt_addr' },
  export_dmabuf_fd_addr: { kind: 'u64', at: 0, c: 'export_dmabuf_fd.addr', only: '6.12' },
  export_dmabuf_fd_handle: { kind: 'u64', at: 0, c: 'export_dmabuf_fd.handle', only: '6.1' },
  export_dmabuf_fd_mem_size: { kind: 'u64', at: 8, c: 'export_dmabuf_fd.mem_size' },
  export_dmabuf_fd_offset: { kind: 'u64', at: 16, c: 'export_dmabuf_fd.offset', only: '6.12' },
  reg_dmabuf_fd_fd: { kind: 's32', at: 0, c: 'reg_dmabuf_fd.fd', only: 'vendor' },
  reg_dmabuf_fd_length: { kind: 'u64', at: 8, c: 'reg_dmabuf_fd.length', only: 'vendor' },
  /** One of HL_MEM_OP. */
  op: { kind: 'u32', at: 24 },
  /** Bits of HL_MEM; for EXPORT_DMABUF_FD the O_* flags of the new file descriptor. */
  flags: 'u32',
  ctx_id: 'u32',
  /** TS_ALLOC: number of 64-bit timestamps. */
  num_of_elements: 'u32',
} as const;

/** Input of the MEMORY ioctl (40 bytes). Bytes 0 to 23 are a union that belongs to the op. */
export const HL_MEM_IN: Struct<typeof HL_MEM_IN_FIELDS> = defineStruct('hl_mem_in', HL_MEM_IN_FIELDS);

const HL_MEM_OUT_FIELDS = {
  /** MAP: the device address; 0 when it failed. */
  device_virt_addr: { kind: 'u64', at: 0 },
  /** ALLOC: the allocation; TS_ALLOC: the mmap cookie. */
  handle: { kind: 'u64', at: 0 },
  /** MAP_BLOCK: the mmap cookie. */
  block_handle: { kind: 'u64', at: 0 },
  /** MAP_BLOCK: bytes of the block. */
  block_size: { kind: 'u32', at: 8 },
  pad: { kind: 'u32', at: 12 },
  /** EXPORT_DMABUF_FD: the file descriptor. */
  fd: { kind: 's32', at: 0 },
} as const;

/** Output of the MEMORY ioctl (16 bytes). */
export const HL_MEM_OUT: Struct<typeof HL_MEM_OUT_FIELDS> = defineStruct('hl_mem_out', HL_MEM_OUT_FIELDS);

/** Arguments of the MEMORY ioctl (40 bytes). */
export const HL_MEM_ARGS: ArgsUnion<typeof HL_MEM_IN_FIELDS, typeof HL_MEM_OUT_FIELDS> = defineArgs(
  'hl_mem_args',
  HL_MEM_IN,
  HL_MEM_OUT,
);
