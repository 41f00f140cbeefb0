/**
 * Device addresses of the driver's command buffers (CB CREATE with MAP). The buffers are in buffer-table.ts.
 */

import { RangeAllocator } from '../../../ucs/datastruct/range-allocator.ts';
import type { DriverBuffer } from './buffer-table.ts';
import { HOST_PAGE_BYTES, type VaRange } from './va-space.ts';

/** Range of device addresses that a context reserves for command buffers (CB_VA_POOL_SIZE). */
const POOL_BYTES = 4 * 2 ** 30;

/** The device addresses of mapped command buffers. The pool is allocated from the host range when the first buffer is mapped. */
export class CommandBufferVa {
  readonly #range: VaRange;
  #pool: RangeAllocator | undefined;
  #poolOffset = 0;

  constructor(range: VaRange) {
    this.#range = range;
  }

  /** Maps a buffer for the card. Returns its address, or 0 if the addresses are exhausted. */
  map(buffer: DriverBuffer): bigint {
    if (this.#pool === undefined) {
      const alignment = HOST_PAGE_BYTES;
      this.#poolOffset = this.#range.allocate({ byteLength: POOL_BYTES, alignment, hint: 0n, force: false });
      if (this.#poolOffset < 0) return 0n;
      this.#pool = new RangeAllocator(POOL_BYTES);
    }
    const { byteLength } = buffer.memory;
    const offset = this.#pool.allocate(byteLength, HOST_PAGE_BYTES);
    if (offset < 0) return 0n;
    this.#range.table.map(this.#poolOffset + offset, byteLength, buffer.memory, 0);
    return this.#range.addressOf(this.#poolOffset + offset);
  }

  /** Unmaps a buffer. */
  unmap(buffer: DriverBuffer): void {
    if (buffer.deviceAddress === 0n) return;
    const offset = Number(buffer.deviceAddress - this.#range.base);
    this.#range.table.unmap(offset, buffer.memory.byteLength);
    this.#pool?.free(offset - this.#poolOffset);
    buffer.deviceAddress = 0n;
  }

  /** Releases the pool. */
  close(): void {
    if (this.#pool !== undefined) this.#range.free(this.#poolOffset);
    this.#pool = undefined;
  }
}
