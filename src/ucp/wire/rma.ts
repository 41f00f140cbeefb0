/**
 * PUT, GET and GET_READY: software put and get, for memory that no transport reaches. How they run is in rma-sw/emulated.ts, and over libucp in
 * libucx/device/service.ts, which answers a GET with DATA.
 *
 * PUT, GET
 *   0     endpoint
 *   1     request of the sender
 *   2, 3  first byte in the memory of the key
 *   4, 5  bytes
 *         payload: key of the memory
 *
 * GET_READY: the answer to a GET
 *   0     endpoint
 *   1     request of the getter
 *   2     request of the sender, which offers the bytes; 0 for a failure
 *   3     status
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { Status } from '../../ucs/type/status.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { endingOf } from './frame.ts';

export const RMA_BYTES = 24;
export const GET_READY_BYTES = 16;
const RMA = new Int32Array(RMA_BYTES / 4);
const READY = new Int32Array(GET_READY_BYTES / 4);

/** The fields of a PUT or GET. */
export interface RmaFields {
  readonly request: number;
  readonly remoteOffset: number;
  readonly byteLength: number;
}

/** A PUT or GET that has come; its key is `keyBytes` bytes of the frame from byte `keyAt` on. */
export interface AskedRma extends RmaFields {
  readonly keyAt: number;
  readonly keyBytes: number;
}

/** The fields of a GET_READY. */
export interface GetReadyFields {
  readonly request: number;
  readonly peerRequest: number;
  readonly status: Status;
}

/** Writes the header of a PUT or GET: valid until the next one. */
export function writeRma(to: number, { request, remoteOffset, byteLength }: RmaFields): Int32Array {
  RMA[0] = to;
  RMA[1] = request;
  RMA[2] = remoteOffset | 0;
  RMA[3] = highOf(remoteOffset);
  RMA[4] = byteLength | 0;
  RMA[5] = highOf(byteLength);
  return RMA;
}

/** Reads a PUT or GET. */
export function readRma(frame: AmFrame): AskedRma {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    remoteOffset: joinWords(words[at + 2]!, words[at + 3]!),
    byteLength: joinWords(words[at + 4]!, words[at + 5]!),
    keyAt: offset + RMA_BYTES,
    keyBytes: frame.byteLength - RMA_BYTES,
  };
}

/** Writes a GET_READY: valid until the next one. */
export function writeGetReady(to: number, { request, peerRequest, status }: GetReadyFields): Int32Array {
  READY[0] = to;
  READY[1] = request;
  READY[2] = peerRequest;
  READY[3] = status;
  return READY;
}

/** Reads a GET_READY. */
export function readGetReady({ words, offset }: AmFrame): GetReadyFields {
  const at = offset >> 2;
  return { request: words[at + 1]!, peerRequest: words[at + 2]!, status: endingOf(words[at + 3]!) };
}
