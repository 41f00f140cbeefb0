/** Host memory that is a dma-buf, or can be exported as one, as a context is handed it. Types only. */

import type { DmabufExport } from './memory-domain.ts';

/** Bytes of a dma-buf. */
export interface DmabufRange {
  /** The dma-buf. */
  readonly fd: number;
  /** First byte of it. */
  readonly offset: number;
  readonly byteLength: number;
}

/** Mapped host memory of a context. */
export interface DmabufMemory {
  readonly bytes: Uint8Array;
  /** False where the kernel cannot pin its pages: see MdFlag.PINS_PAGES. */
  readonly isPinnable: boolean;
  /** Unmaps it; dma-bufs of it keep their bytes. Idempotent. */
  close(): void;
}

/** The memory of one context. */
export interface HostDmabufs {
  /**
   * Allocates zeroed memory that can be exported. It keeps a descriptor.
   * @param byteLength 1 to 4 GiB
   * @throws UcxError ERR_INVALID_PARAM; SyscallError EMFILE, ENFILE, ENOMEM
   */
  allocate(byteLength: number): DmabufMemory;
  /**
   * Maps bytes of a dma-buf, at any offset. It keeps a duplicate of the descriptor.
   * @throws UcxError ERR_INVALID_PARAM that names field and rule: a descriptor that is closed or no dma-buf, a range that does not lie in it, more than 4 GiB;
   *   ERR_UNSUPPORTED where its exporter lets no CPU map it; SyscallError EMFILE, ENFILE, ENOMEM
   */
  map(range: DmabufRange): DmabufMemory;
  /**
   * A dma-buf of a range of memory of {@link allocate} or {@link map}.
   * @returns a descriptor that belongs to the caller, and the byte of the dma-buf at which the range begins
   * @throws UcxError ERR_UNSUPPORTED, with the reason, for other memory and where no dma-buf can be made; SyscallError EMFILE, ENFILE, ENOMEM
   */
  export(address: bigint, byteLength: number): DmabufExport;
  /** Unmaps what is left. */
  close(): void;
}
