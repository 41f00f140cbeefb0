/** The rules for addresses and ranges that come from callers: whole numbers, not negative, inside. */

import { invalidParam } from '../../ucs/type/error.ts';

const ADDRESS_END: bigint = 2n ** 64n;

/** True when `[offset, offset + byteLength)` lies inside `[0, limit)`; false also for fractions and NaN. */
export function isInside(offset: number, byteLength: number, limit: number): boolean {
  return (
    Number.isSafeInteger(offset) &&
    Number.isSafeInteger(byteLength) &&
    offset >= 0 &&
    byteLength >= 0 &&
    offset + byteLength <= limit
  );
}

/** True for a message of so many header words and payload that `bytesMax` has room for: what is no number could make a copy never end. */
export function fitsMessage(
  headerWords: number,
  payload: Uint8Array | undefined,
  payloadOffset: number,
  payloadLength: number,
  bytesMax: number,
): boolean {
  if (!isInside(headerWords * 4, payloadLength, bytesMax)) return false;
  return payloadLength === 0 || (payload !== undefined && isInside(payloadOffset, payloadLength, payload.byteLength));
}

/** @throws UcxError ERR_INVALID_PARAM for what is no address of 64 bits */
export function checkAddress(address: bigint): void {
  if (typeof address === 'bigint' && address >= 0n && address < ADDRESS_END) return;
  throw invalidParam('address', 'must be a bigint of 64 bits', address);
}

/** @throws UcxError ERR_INVALID_PARAM for what is no index of a device; undefined stands for none */
export function checkSysDevice(sysDevice: number | undefined): void {
  if (sysDevice === undefined || (Number.isInteger(sysDevice) && sysDevice >= 0)) return;
  throw invalidParam('sysDevice', 'must be the index of a device', sysDevice);
}

/** @throws UcxError ERR_INVALID_PARAM for what is no length */
export function checkByteLength(byteLength: number): void {
  if (Number.isSafeInteger(byteLength) && byteLength > 0) return;
  throw invalidParam('byteLength', 'must be a positive integer', byteLength);
}

/** @throws UcxError ERR_INVALID_PARAM for what has no room for a key of `keyBytes` */
export function checkKeyTarget(target: Uint8Array, offset: number, keyBytes: number): void {
  if (!(target instanceof Uint8Array)) throw invalidParam('target', 'must be a Uint8Array', target);
  if (isInside(offset, keyBytes, target.byteLength)) return;
  throw invalidParam(
    'offset',
    `plus the ${keyBytes} bytes of a key must lie in the ${target.byteLength} bytes`,
    offset,
  );
}
