/**
 * 64-bit device addresses as two signed 32-bit words, because they exceed the integers that a JavaScript number holds exactly.
 * Signed words are small integers of V8: they pass between functions without allocation.
 */

import { highOf } from '../../ucs/type/int64.ts';

/** A range of device addresses: a mapping of host memory or a block of device memory. */
export interface DeviceRange {
  /** Low word of the address of the first byte, as a signed 32-bit number. */
  readonly low: number;
  /** High word of the device address, as a signed 32-bit number. */
  readonly high: number;
  /** Bytes. */
  readonly byteLength: number;
}

/** The low word of an address plus a byte offset below 2^53. */
export function lowAt(low: number, offset: number): number {
  return ((low >>> 0) + offset) | 0;
}

/** The high word of an address plus a byte offset below 2^53. */
export function highAt(low: number, high: number, offset: number): number {
  return (high + highOf((low >>> 0) + offset)) | 0;
}
