/**
 * AM and AM_RTS: active messages, with their data or offered by rendezvous.
 *
 * AM
 *   0     endpoint
 *   1     id of the handler
 *   2     bytes of the user header
 *   3     0
 *         payload: user header, padded to 8 bytes, and the data
 *
 * AM_RTS
 *   0     endpoint
 *   1     id of the handler
 *   2     bytes of the user header
 *   3     bytes of the key
 *   4, 5  bytes of the data
 *   6     request of the sender
 *   7     0
 *   8, 9  byte of the memory of the key at which the data begins; KEY_LIST for a key list
 *         payload: user header, padded to 8 bytes, and remote key of the data, or nothing
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';

export const AM_BYTES = 16;
export const AM_RTS_BYTES = 40;
const AM = new Int32Array(AM_BYTES / 4);
const RTS = new Int32Array(AM_RTS_BYTES / 4);

const fields = { handler: 0, headerBytes: 0, headerAt: 0, dataAt: 0, dataBytes: 0 };

/** The fields of an AM, and the offsets of user header and data in the frame; a negative `dataBytes` means that the user header is truncated. */
export type AmFields = Readonly<typeof fields>;

/** The fields of an AM_RTS. */
export interface AmRtsFields {
  readonly handler: number;
  readonly headerBytes: number;
  readonly keyBytes: number;
  readonly byteLength: number;
  readonly request: number;
  readonly keyOffset: number;
}

/** Offsets of the payload of an AM_RTS in a frame; `isCut` if it is longer than the frame. */
export interface AmRtsPlaces {
  readonly headerAt: number;
  readonly keyAt: number;
  readonly isCut: boolean;
}

/** Bytes of a user header with its padding. */
export function paddedTo8(byteLength: number): number {
  return (byteLength + 7) & ~7;
}

/** Writes the header of an AM: valid until the next one. */
export function writeAm(to: number, handler: number, headerBytes: number): Int32Array {
  AM[0] = to;
  AM[1] = handler;
  AM[2] = headerBytes;
  return AM;
}

/** Reads an AM. The fields are valid until the next call; nothing is allocated, because it is called for every message. */
export function readAm({ words, offset, byteLength }: AmFrame): AmFields {
  const at = offset >> 2;
  const headerBytes = words[at + 2]!;
  const padded = paddedTo8(headerBytes);
  fields.handler = words[at + 1]!;
  fields.headerBytes = headerBytes;
  fields.headerAt = offset + AM_BYTES;
  fields.dataAt = offset + AM_BYTES + padded;
  fields.dataBytes = byteLength - AM_BYTES - padded;
  return fields;
}

/** The id of the handler in an AM or AM_RTS whose first word is at `at`; for traces. */
export function handlerIn(words: Int32Array, at: number): number {
  return words[at + 1]!;
}

/** Writes the header of an AM_RTS: valid until the next one. */
export function writeAmRts(to: number, rts: AmRtsFields): Int32Array {
  RTS[0] = to;
  RTS[1] = rts.handler;
  RTS[2] = rts.headerBytes;
  RTS[3] = rts.keyBytes;
  RTS[4] = rts.byteLength | 0;
  RTS[5] = highOf(rts.byteLength);
  RTS[6] = rts.request;
  RTS[8] = rts.keyOffset | 0;
  RTS[9] = highOf(rts.keyOffset);
  return RTS;
}

/** Reads an AM_RTS. */
export function readAmRts({ words, offset, byteLength }: AmFrame): AmRtsFields & AmRtsPlaces {
  const at = offset >> 2;
  const [headerBytes, keyBytes] = [words[at + 2]!, words[at + 3]!];
  const headerAt = offset + AM_RTS_BYTES;
  const padded = paddedTo8(headerBytes);
  return {
    handler: words[at + 1]!,
    headerBytes,
    keyBytes,
    byteLength: joinWords(words[at + 4]!, words[at + 5]!),
    request: words[at + 6]!,
    keyOffset: joinWords(words[at + 8]!, words[at + 9]!),
    headerAt,
    keyAt: headerAt + padded,
    isCut: padded + keyBytes > byteLength - AM_RTS_BYTES,
  };
}
