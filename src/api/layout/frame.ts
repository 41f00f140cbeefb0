/**
 * The common form of all messages of ucp: the first word is the endpoint of the receiver, 64-bit values are two words, low first, and the payload follows the
 * header. Readers check fields of a special type, such as Status; the protocol that uses another field checks its value.
 */

import { Status, statusOf } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

/** The id that means no endpoint: endpoints count from 1. */
export const NO_ENDPOINT = 0;

/** The endpoint id in a message. */
export function endpointOf({ words, offset }: AmFrame): number {
  return words[offset >> 2]!;
}

/** The payload after a header of `headerBytes`, valid as long as the frame; undefined if it is empty. */
export function payloadIn({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.subarray(offset + headerBytes, offset + byteLength) : undefined;
}

/** A copy of the payload after a header of `headerBytes`; undefined if it is empty. */
export function payloadOf({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.slice(offset + headerBytes, offset + byteLength) : undefined;
}

/** The final status of an operation in a word: IO_ERROR for a value that is not a final status. */
export function endingOf(word: number): Status {
  return word <= Status.OK && word >= Status.ENDPOINT_TIMEOUT ? statusOf(word) : Status.IO_ERROR;
}
