/** Checks of arguments (addresses, ranges, handlers, services), and completion of operations by transports. */

import { hasBytes, isBytes } from '../../ucs/memory/bytes.ts';
import { checkMethods, checkOptions } from '../../ucs/type/check-options.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AmHandler, Completion } from '../api/iface.ts';
import type { ComponentServices } from '../api/memory-domain.ts';

const ADDRESS_END: bigint = 2n ** 64n;

/** Whether `[offset, offset + byteLength)` is inside `[0, limit)`; false for fractions and NaN. */
export function isInside(offset: number, byteLength: number, limit: number): boolean {
  return isRange(offset, byteLength) && offset + byteLength <= limit;
}

/** Whether `[offset, offset + byteLength)` is inside a byte array, which may have been detached; false for fractions, NaN and values that are not arrays. */
export function isInBytes(offset: number, byteLength: number, bytes: Uint8Array | undefined): boolean {
  return isRange(offset, byteLength) && isBytes(bytes) && hasBytes(bytes, offset + byteLength);
}

/** Whether both are integers of 0 or more. Few bytecodes, because V8 limits those that it compiles into one function: numbers of 32 bits come first. */
function isRange(offset: number, byteLength: number): boolean {
  if (typeof offset !== 'number' || typeof byteLength !== 'number') return false;
  return (offset >>> 0 === offset && byteLength >>> 0 === byteLength) || isLongRange(offset, byteLength);
}

function isLongRange(offset: number, byteLength: number): boolean {
  return Number.isSafeInteger(offset) && Number.isSafeInteger(byteLength) && offset >= 0 && byteLength >= 0;
}

/** Whether a message of header words and payload fits into `bytesMax`. Also rejects values that are not numbers, which could make a copy endless. */
export function fitsMessage(
  headerWords: number,
  payload: Uint8Array | undefined,
  payloadOffset: number,
  payloadLength: number,
  bytesMax: number,
): boolean {
  if (!isInside(headerWords * 4, payloadLength, bytesMax)) return false;
  return payloadLength === 0 || isInBytes(payloadOffset, payloadLength, payload);
}

/** @throws UcxError ERR_INVALID_PARAM if it is not an address of 64 bits */
export function checkAddress(address: bigint): void {
  if (typeof address === 'bigint' && address >= 0n && address < ADDRESS_END) return;
  throw invalidParam('address', 'must be a bigint of 64 bits', address);
}

/** @throws UcxError ERR_INVALID_PARAM if it is neither a device index nor undefined, which means none */
export function checkSysDevice(sysDevice: number | undefined): void {
  if (sysDevice === undefined || (Number.isInteger(sysDevice) && sysDevice >= 0)) return;
  throw invalidParam('sysDevice', 'must be the index of a device', sysDevice);
}

/** @throws UcxError ERR_INVALID_PARAM if it is not a valid length */
export function checkByteLength(byteLength: number): void {
  if (Number.isSafeInteger(byteLength) && byteLength > 0) return;
  throw invalidParam('byteLength', 'must be a positive integer', byteLength);
}

/** @throws UcxError ERR_INVALID_PARAM if `target` does not have `keyBytes` bytes at `offset` */
export function checkKeyTarget(target: Uint8Array, offset: number, keyBytes: number): void {
  if (!isBytes(target)) throw invalidParam('target', 'must be a Uint8Array', target);
  if (isInside(offset, keyBytes, target.byteLength)) return;
  throw invalidParam(
    'offset',
    `plus the ${keyBytes} bytes of a key must be at most the length of target, ${target.byteLength}`,
    offset,
  );
}

/** @throws UcxError ERR_INVALID_PARAM */
export function checkServices(services: ComponentServices): void {
  checkOptions(services, 'services');
  const { log, clock, config, isDeviceAllowed, memoryTypes, onDeviceLost } = services;
  checkMethods('services.log', log, ['error', 'warn', 'diag', 'info', 'debug', 'child']);
  checkMethods('services.clock', clock, ['nowNs', 'setTimer']);
  checkMethods('services.config', config, ['get']);
  if (memoryTypes !== undefined) checkMethods('services.memoryTypes', memoryTypes, ['insert', 'remove']);
  if (isDeviceAllowed !== undefined) checkHandler(isDeviceAllowed, 'services.isDeviceAllowed');
  if (onDeviceLost !== undefined) checkHandler(onDeviceLost, 'services.onDeviceLost');
}

/** @throws UcxError ERR_INVALID_PARAM if it is neither a function nor undefined */
export function checkAmHandler(handler: AmHandler | undefined): void {
  if (handler !== undefined) checkHandler(handler);
}

/** @throws UcxError ERR_INVALID_PARAM if it is not a function */
export function checkHandler(handler: unknown, argument = 'handler'): void {
  if (typeof handler !== 'function') throw invalidParam(argument, 'must be a function', handler);
}

/** Whether a value is a completion. Checked before a transfer starts, because an error at its end would have no caller. */
export function isCompletion(value: unknown): boolean {
  return typeof value === 'object' && value !== null;
}

/** Reports to a completion that one of its operations has ended with `status`. */
export function completeOne(completion: Completion, status: Status): void {
  if (status < 0 && completion.failure === Status.OK) completion.failure = status;
  completion.count -= 1;
  if (completion.count === 0) completion.onComplete();
}

/** @throws UcxError ERR_INVALID_PARAM if it is negative, infinite or NaN */
export function checkTimeout(timeoutNs: number): void {
  if (Number.isFinite(timeoutNs) && timeoutNs >= 0) return;
  throw invalidParam('timeoutNs', 'must be finite and not negative', timeoutNs);
}
