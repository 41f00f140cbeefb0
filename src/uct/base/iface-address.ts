/**
 * Addresses of interfaces that are reached from one place only: random bytes that no other interface has.
 */

import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Bytes of {@link uniqueAddress}. */
export const UNIQUE_ADDRESS_BYTES = 16;

/** A new address that no other interface has. */
export function uniqueAddress(): Uint8Array {
  return systemRandomBytes(UNIQUE_ADDRESS_BYTES);
}

/** The bytes that identify an interface, as {@link AmFrame.source} has them. */
export function identityText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

/** True when two addresses are the same bytes; false for a first one that is no bytes at all. */
export function sameAddress(left: Uint8Array, right: Uint8Array): boolean {
  if (!(left instanceof Uint8Array)) return false;
  return left.byteLength === right.byteLength && left.every((byte, i) => byte === right[i]);
}

/** The refusal to connect. */
export function unreachable(transport: string, reason: string): UcxError {
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `${transport}: ${reason}`,
    details: { transport, reason },
  });
}
