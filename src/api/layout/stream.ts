/**
 * STREAM: the next bytes of a stream. The order of the messages is that of the bytes.
 *
 *   0     endpoint
 *   1     STREAM_ASKED if the receiver has requested this message (it uses no credit), else 0
 *         payload: the bytes
 */

import type { AmFrame } from '../../uct/api/iface.ts';

/** Flag of a STREAM: the receiver has requested it, and it uses no credit. */
export const STREAM_ASKED = 1;

export const STREAM_BYTES = 8;
const STREAM = new Int32Array(STREAM_BYTES / 4);

const fields = { flags: 0, start: 0, byteLength: 0 };

/** The fields of a STREAM; its bytes are `byteLength` bytes of the frame from byte `start` on. */
export type StreamFields = Readonly<typeof fields>;

/** Writes the header of a STREAM: valid until the next one. */
export function writeStream(to: number, flags: number): Int32Array {
  STREAM[0] = to;
  STREAM[1] = flags;
  return STREAM;
}

/** Reads a STREAM. The fields are valid until the next call; nothing is allocated, because it is called for every message. */
export function readStream({ words, offset, byteLength }: AmFrame): StreamFields {
  fields.flags = words[(offset >> 2) + 1]!;
  fields.start = offset + STREAM_BYTES;
  fields.byteLength = byteLength - STREAM_BYTES;
  return fields;
}
