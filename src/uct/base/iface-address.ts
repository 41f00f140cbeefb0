/** Addresses of interfaces that are reachable in one context only: random, unique bytes. */

import { isBytes } from '../../ucs/memory/is-bytes.ts';
import { systemRandomBytes } from '../../ucs/sys/random.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** Bytes of {@link uniqueAddress}. */
export const UNIQUE_ADDRESS_BYTES = 16;

/** Creates a unique address. */
export function uniqueAddress(): Uint8Array {
  return systemRandomBytes(UNIQUE_ADDRESS_BYTES);
}

/** The identity of an interface as text, as in {@link AmFrame.source}. */
export function identityText(bytes: Uint8Array): string {
  return Buffer.from(bytes.buffer, bytes.byteOffset, bytes.byteLength).toString('hex');
}

/** Whether two addresses have the same bytes; false if the first is not a Uint8Array. */
export function sameAddress(left: Uint8Array, right: Uint8Array): boolean {
  if (!isBytes(left)) return false;
  return left.byteLength === right.byteLength && left.every((byte, i) => byte === right[i]);
}

/** The error for an unreachable address. */
export function unreachable(transport: string, reason: string): UcxError {
  return new UcxError({
    code: 'ERR_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: `${transport}: ${reason}`,
    details: { transport, reason },
  });
}
