/**
 * The common form of all messages of ucp: the first word names the endpoint of the receiver, 64-bit values are two words, low first, and the payload
 * follows the header. Readers check fields of a special type, such as Status; the protocol that uses another field checks its value.
 */

import { Status, statusOf } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

/** The id of no endpoint: endpoints count from 1. */
export const NO_ENDPOINT = 0;

/** The endpoint that a message names. */
export function endpointOf({ words, offset }: AmFrame): number {
  return words[offset >> 2]!;
}

/** The payload behind a header of `headerBytes`, valid as long as the frame; undefined if it is empty. */
export function payloadIn({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.subarray(offset + headerBytes, offset + byteLength) : undefined;
}

/** A copy of the payload behind a header of `headerBytes`; undefined if it is empty. */
export function payloadOf({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.slice(offset + headerBytes, offset + byteLength) : undefined;
}

/** The status of a word that says how an operation has ended: IO_ERROR for a value that no operation ends with. */
export function endingOf(word: number): Status {
  return word <= Status.OK && word >= Status.ENDPOINT_TIMEOUT ? statusOf(word) : Status.IO_ERROR;
}
