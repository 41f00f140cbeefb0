/** Advice about memory: checks for every memory domain, and backing the pages of host memory. */

import { MadviseAdvice, madvise, PAGE_SIZE } from '../../../sys/index.ts';
import { invalidParam, outsideOf } from '../../../ucs/type/error.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { MemoryAdvice } from '../../api/memory-domain.ts';
import { isInside } from '../range.ts';

/** @throws UcxError ERR_INVALID_PARAM for an unknown advice, or a range that is empty or outside the memory */
export function checkAdvice(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
  if (advice !== 'normal' && advice !== 'will-need') {
    throw invalidParam('advice', "must be 'normal' or 'will-need'", advice);
  }
  if (!(isInside(offset, byteLength, memory.byteLength) && byteLength > 0)) {
    if (!Number.isSafeInteger(offset) || offset < 0) {
      throw invalidParam('offset', 'must be an integer of 0 or more', offset);
    }
    const isBeyond = offset > memory.byteLength;
    if (!isBeyond && (!Number.isSafeInteger(byteLength) || byteLength < 1)) {
      throw invalidParam('byteLength', 'must be an integer of 1 or more', byteLength);
    }
    throw outsideOf('memory', 'byteLength', { offset, byteLength, size: memory.byteLength });
  }
}

/** Backs the pages of host memory, writable, as their first use would. Errors are left to that use; kernels before 5.14 do not have the call. */
export function prefault(address: number, byteLength: number): void {
  const start = address - (address % PAGE_SIZE);
  madvise(start, address + byteLength - start, MadviseAdvice.POPULATE_WRITE);
}
