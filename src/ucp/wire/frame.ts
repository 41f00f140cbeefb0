/**
 * What all messages of ucp have in common: the first word names the endpoint of the receiver, 64-bit values are two words, low first, and the
 * payload follows the header. Readers check nothing but what has a type: the protocol that uses a field checks its value.
 */

import { Status, statusOf } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

/** The id of no endpoint: endpoints count from 1. */
export const NO_ENDPOINT = 0;

/** The endpoint that a message names. */
export function endpointOf({ words, offset }: AmFrame): number {
  return words[offset >> 2]!;
}

/** What follows a header of so many bytes, valid as long as the frame; undefined for nothing. */
export function payloadIn({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.subarray(offset + headerBytes, offset + byteLength) : undefined;
}

/** A copy of what follows a header of so many bytes; undefined for nothing. */
export function payloadOf({ bytes, offset, byteLength }: AmFrame, headerBytes: number): Uint8Array | undefined {
  return byteLength > headerBytes ? bytes.slice(offset + headerBytes, offset + byteLength) : undefined;
}

/** The status of a word that says how an operation has ended: IO_ERROR for a value that no operation ends with. */
export function endingOf(word: number): Status {
  return word <= Status.OK && word >= Status.ENDPOINT_TIMEOUT ? statusOf(word) : Status.IO_ERROR;
}
