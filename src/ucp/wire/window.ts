/**
 * DATA and ATP: a part of a window that the receiver of a rendezvous has asked for arrives in a message, or was written. Receivers handle them in
 * rndv/receive-transfer.ts.
 *
 * DATA
 *   0     endpoint
 *   1     request of the receiver
 *   2, 3  first byte of the part in the message
 *         payload: the part
 *
 * ATP
 *   0     endpoint
 *   1     request of the receiver
 *   2, 3  first byte of the part in the message
 *   4, 5  bytes of the part
 *   6     ATP_IN_TARGET or 0
 *   7     0
 *         payload: names of its carrier (rndv/reply.ts), or nothing
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { payloadIn } from './frame.ts';

export const DATA_BYTES = 16;
export const ATP_BYTES = 32;
const DATA = new Int32Array(DATA_BYTES / 4);
const ATP = new Int32Array(ATP_BYTES / 4);

/** Flag of an ATP: the bytes are in the target, and not in the fragment. */
export const ATP_IN_TARGET = 1;

const fields = { request: 0, from: 0, start: 0, byteLength: 0 };

/** The fields of a DATA; the part is `byteLength` bytes of the frame from byte `start` on. */
export type DataFields = Readonly<typeof fields>;

/** The fields of an ATP. */
export interface AtpFields {
  readonly request: number;
  readonly from: number;
  readonly byteLength: number;
  readonly flags: number;
}

/** Writes the header of a DATA: valid until the next one. */
export function writeData(to: number, request: number, from: number): Int32Array {
  DATA[0] = to;
  DATA[1] = request;
  DATA[2] = from | 0;
  DATA[3] = highOf(from);
  return DATA;
}

/** Reads a DATA. The fields are valid until the next one is read: for every message, so nothing is allocated. */
export function readData({ words, offset, byteLength }: AmFrame): DataFields {
  const at = offset >> 2;
  fields.request = words[at + 1]!;
  fields.from = joinWords(words[at + 2]!, words[at + 3]!);
  fields.start = offset + DATA_BYTES;
  fields.byteLength = byteLength - DATA_BYTES;
  return fields;
}

/** Writes the header of an ATP: valid until the next one. */
export function writeAtp(to: number, { request, from, byteLength, flags }: AtpFields): Int32Array {
  ATP[0] = to;
  ATP[1] = request;
  ATP[2] = from | 0;
  ATP[3] = highOf(from);
  ATP[4] = byteLength | 0;
  ATP[5] = highOf(byteLength);
  ATP[6] = flags;
  return ATP;
}

/** Reads an ATP; the names of its carrier are valid as long as the frame. */
export function readAtp(frame: AmFrame): AtpFields & { readonly carrier: Uint8Array | undefined } {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    from: joinWords(words[at + 2]!, words[at + 3]!),
    byteLength: joinWords(words[at + 4]!, words[at + 5]!),
    flags: words[at + 6]!,
    carrier: payloadIn(frame, ATP_BYTES),
  };
}
