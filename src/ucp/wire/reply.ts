/**
 * REPLY: the end of an operation that the peer has asked for (the ATS of UCX, and the answer to an atomic operation).
 *
 *   0     endpoint
 *   1     request that it ends
 *   2     status
 *   3     0
 *   4, 5  result
 *         payload: names of the carrier of the bytes (rndv/reply.ts), or nothing
 */

import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { endingOf, payloadIn } from './frame.ts';

export const REPLY_BYTES = 24;
const REPLY = new Int32Array(REPLY_BYTES / 4);

/** The fields of a REPLY. */
export interface ReplyFields {
  readonly request: number;
  readonly status: Status;
  readonly low: number;
  readonly high: number;
}

/** Writes the header of a REPLY: valid until the next one. */
export function writeReply(to: number, { request, status, low, high }: ReplyFields): Int32Array {
  REPLY[0] = to;
  REPLY[1] = request;
  REPLY[2] = status;
  REPLY[4] = low;
  REPLY[5] = high;
  return REPLY;
}

/** Reads a REPLY; the names of its carrier are valid as long as the frame. */
export function readReply(frame: AmFrame): ReplyFields & { readonly carrier: Uint8Array | undefined } {
  const { words, offset } = frame;
  const at = offset >> 2;
  const carrier = payloadIn(frame, REPLY_BYTES);
  return {
    request: words[at + 1]!,
    status: endingOf(words[at + 2]!),
    low: words[at + 4]!,
    high: words[at + 5]!,
    carrier,
  };
}
