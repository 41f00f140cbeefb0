/**
 * RTR: the receiver of a rendezvous requests a window of the message from its sender. DATA, ATP and REPLY follow below.
 *
 *   0     endpoint
 *   1     request of the sender
 *   2     request of the receiver
 *   3     bytes of the key of the target
 *   4, 5  first byte of the window
 *   6, 7  bytes of the window
 *   8, 9  byte of the target at which the message begins; KEY_LIST for a key list
 *         payload: key or key list of the target (the memory into which the message is received), or nothing;
 *         then the key of the fragment that takes the window, or nothing
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { endingOf, payloadIn } from './frame.ts';

export const RTR_BYTES = 40;
const RTR = new Int32Array(RTR_BYTES / 4);

/** The fields of an RTR. */
export interface RtrFields {
  readonly request: number;
  readonly peerRequest: number;
  readonly targetBytes: number;
  readonly from: number;
  readonly byteLength: number;
  readonly targetOffset: number;
}

/** Writes the header of an RTR: valid until the next one. */
export function writeRtr(to: number, rtr: RtrFields): Int32Array {
  RTR[0] = to;
  RTR[1] = rtr.request;
  RTR[2] = rtr.peerRequest;
  RTR[3] = rtr.targetBytes;
  RTR[4] = rtr.from | 0;
  RTR[5] = highOf(rtr.from);
  RTR[6] = rtr.byteLength | 0;
  RTR[7] = highOf(rtr.byteLength);
  RTR[8] = rtr.targetOffset | 0;
  RTR[9] = highOf(rtr.targetOffset);
  return RTR;
}

/** Reads an RTR; its keys, in sequence, are valid as long as the frame. */
export function readRtr(frame: AmFrame): RtrFields & { readonly keys: Uint8Array | undefined } {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    peerRequest: words[at + 2]!,
    targetBytes: words[at + 3]!,
    from: joinWords(words[at + 4]!, words[at + 5]!),
    byteLength: joinWords(words[at + 6]!, words[at + 7]!),
    targetOffset: joinWords(words[at + 8]!, words[at + 9]!),
    keys: payloadIn(frame, RTR_BYTES),
  };
}

/*
 * DATA and ATP: a slice of a window that the receiver of a rendezvous has requested arrives in a message, or was written. Receivers handle them in
 * ucp/rndv/receive.ts.
 *
 * DATA
 *   0     endpoint
 *   1     request of the receiver
 *   2, 3  offset of the slice in the message
 *         payload: the slice
 *
 * ATP
 *   0     endpoint
 *   1     request of the receiver
 *   2, 3  offset of the slice in the message
 *   4, 5  bytes of the slice
 *   6     ATP_IN_TARGET or 0
 *   7     0
 *         payload: names of transport and device (rndv/reply.ts), or nothing
 */

export const DATA_BYTES = 16;
export const ATP_BYTES = 32;
const DATA = new Int32Array(DATA_BYTES / 4);
const ATP = new Int32Array(ATP_BYTES / 4);

/** Flag of an ATP: the bytes are in the target, not in the fragment. */
export const ATP_IN_TARGET = 1;

const fields = { request: 0, from: 0, start: 0, byteLength: 0 };

/** The fields of a DATA; the slice is `byteLength` bytes of the frame from byte `start` on. */
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

/** Reads a DATA. The fields are valid until the next call; nothing is allocated, because it is called for every message. */
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

/** Reads an ATP; transport and device names are valid as long as the frame. */
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

/*
 * REPLY: the end of an operation that the peer has requested (the ATS of UCX, and the reply to an atomic operation).
 *
 *   0     endpoint
 *   1     request that it ends
 *   2     status
 *   3     0
 *   4, 5  result
 *         payload: names of transport and device (rndv/reply.ts), or nothing
 */

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

/** Reads a REPLY; transport and device names are valid as long as the frame. */
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
