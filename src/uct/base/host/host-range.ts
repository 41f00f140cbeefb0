/**
 * Host memory of another library in this process, given by its address: checked once, and accessed through one view. It neither owns the memory nor keeps it
 * mapped.
 */

import { isMapped, VIEW_LENGTH_MAX, viewAt } from '../../../sys/index.ts';
import { invalidParam, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { HostRange } from '../../api/memory-domain.ts';

/** Upper bound of user addresses of x86-64. */
const ADDRESS_END = 2 ** 47;

/** A range. Created by {@link hostRange}. */
export class RawRange implements HostRange {
  readonly address: number;
  readonly byteLength: number;
  readonly bytes: Uint8Array;

  constructor(address: number, byteLength: number) {
    this.address = address;
    this.byteLength = byteLength;
    this.bytes = new Uint8Array(viewAt(address, byteLength));
  }
}

/**
 * Creates a range of host memory from its address.
 * @param address of the first byte, below 2^47
 * @param byteLength 1 to 4 GiB, the maximum length of a view
 * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that is not mapped in this process
 */
export function hostRange(address: number | bigint, byteLength: number): HostRange {
  const place = typeof address === 'bigint' ? Number(address) : address;
  if (!(Number.isSafeInteger(place) && place > 0 && place < ADDRESS_END)) {
    throw invalidParam('address', 'must be a user address below 2^47', address);
  }
  if (!(Number.isSafeInteger(byteLength) && byteLength > 0 && byteLength <= VIEW_LENGTH_MAX)) {
    throw invalidParam('byteLength', `must be an integer from 1 to ${VIEW_LENGTH_MAX}`, byteLength);
  }
  if (place + byteLength <= ADDRESS_END && isMapped(place, byteLength)) return new RawRange(place, byteLength);
  throw new UcxError({
    code: 'ERR_INVALID_ADDR',
    status: Status.INVALID_ADDR,
    message: `[0x${place.toString(16)}, +${byteLength}) is not mapped in this process`,
  });
}
