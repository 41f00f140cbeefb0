/** Interface of a context to host memory that is a dma-buf, or can be exported as one. */

import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { DmabufExport } from './memory-domain.ts';

/** A range of a dma-buf. */
export interface DmabufRange {
  /** The dma-buf. */
  readonly fd: number;
  /** Offset of its first byte. */
  readonly offset: number;
  readonly byteLength: number;
}

/** Mapped host memory of a context. */
export interface DmabufMemory {
  readonly bytes: Uint8Array;
  /** False if the kernel cannot pin its pages: see MdFlag.PINS_PAGES. */
  readonly isPinnable: boolean;
  /** Unmaps it; dma-bufs of it keep their memory. Idempotent. */
  close(): void;
}

/** The memory of one context. */
export interface HostDmabufs {
  /**
   * Allocates zeroed memory that can be exported. Holds a descriptor.
   * @param byteLength 1 to 4 GiB
   * @throws UcxError ERR_INVALID_PARAM; SyscallError EMFILE, ENFILE, ENOMEM
   */
  allocate(byteLength: number): DmabufMemory;
  /**
   * Maps a range of a dma-buf, at any offset. Holds a duplicate of the descriptor.
   * @throws UcxError ERR_INVALID_PARAM that names field and rule: a descriptor that is closed or not a dma-buf, a range that is not inside it, more than 4
   * GiB; ERR_UNSUPPORTED if its exporter does not support mapping by the CPU; SyscallError EMFILE, ENFILE, ENOMEM
   */
  map(range: DmabufRange): DmabufMemory;
  /**
   * Exports a range of memory of {@link allocate} or {@link map} as a dma-buf.
   * @returns a descriptor that the caller owns, and the offset of the range in the dma-buf
   * @throws UcxError ERR_UNSUPPORTED, with the reason, for other memory and if no dma-buf can be created; SyscallError EMFILE, ENFILE, ENOMEM
   */
  export(address: bigint, byteLength: number): DmabufExport;
  /** Counters: a node of class `dmabuf`. */
  stats(): StatsNode;
  /** Unmaps all remaining memory. */
  close(): void;
}
