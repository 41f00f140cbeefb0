/**
 * TAG, TAG_SYNC and TAG_RTS: tagged messages, with their data or offered by rendezvous.
 *
 * TAG, TAG_SYNC
 *   0     endpoint
 *   1     request that gets a reply when the message is matched; 0 in a TAG
 *   2, 3  tag
 *         payload: the message
 *
 * TAG_RTS
 *   0     endpoint
 *   1     request of the sender
 *   2, 3  tag
 *   4, 5  bytes of the message
 *   6, 7  byte of the memory of the key at which the message begins; KEY_LIST (ucp/rndv/own-key.ts) for a key list
 *         payload: remote key of the message, key list, or nothing
 */

import { highOf, joinBig, joinWords } from '../../ucs/type/int64.ts';
import type { AmFrame } from '../../uct/api/iface.ts';
import { payloadIn } from './frame.ts';

export const TAG_BYTES = 16;
export const TAG_RTS_BYTES = 32;
const TAG = new Int32Array(TAG_BYTES / 4);
const RTS = new Int32Array(TAG_RTS_BYTES / 4);

const fields = { request: 0, tagLow: 0, tagHigh: 0, start: 0, byteLength: 0 };

/** The fields of a TAG or TAG_SYNC; the message is `byteLength` bytes of the frame from byte `start` on. */
export type TagFields = Readonly<typeof fields>;

/** The fields of a TAG_RTS. */
export interface TagRtsFields {
  readonly request: number;
  readonly tagLow: number;
  readonly tagHigh: number;
  readonly byteLength: number;
  readonly keyOffset: number;
}

/** A TAG_RTS with its key. */
export interface TagOffer extends TagRtsFields {
  readonly packedKey: Uint8Array | undefined;
}

/** Writes the header of a TAG or TAG_SYNC: valid until the next one. */
export function writeTag(to: number, request: number, tagLow: number, tagHigh: number): Int32Array {
  TAG[0] = to;
  TAG[1] = request;
  TAG[2] = tagLow;
  TAG[3] = tagHigh;
  return TAG;
}

/** Reads a TAG or TAG_SYNC. The fields are valid until the next call; nothing is allocated, because it is called for every message. */
export function readTag({ words, offset, byteLength }: AmFrame): TagFields {
  const at = offset >> 2;
  fields.request = words[at + 1]!;
  fields.tagLow = words[at + 2]!;
  fields.tagHigh = words[at + 3]!;
  fields.start = offset + TAG_BYTES;
  fields.byteLength = byteLength - TAG_BYTES;
  return fields;
}

/** The tag of a TAG, TAG_SYNC or TAG_RTS whose first word is at `at`; for traces. */
export function tagIn(words: Int32Array, at: number): bigint {
  return joinBig(words[at + 2]!, words[at + 3]!);
}

/** Writes the header of a TAG_RTS: valid until the next one. */
export function writeTagRts(to: number, rts: TagRtsFields): Int32Array {
  RTS[0] = to;
  RTS[1] = rts.request;
  RTS[2] = rts.tagLow;
  RTS[3] = rts.tagHigh;
  RTS[4] = rts.byteLength | 0;
  RTS[5] = highOf(rts.byteLength);
  RTS[6] = rts.keyOffset | 0;
  RTS[7] = highOf(rts.keyOffset);
  return RTS;
}

/** Reads a TAG_RTS; the key is valid as long as the frame. */
export function readTagRts(frame: AmFrame): TagOffer {
  const { words, offset } = frame;
  const at = offset >> 2;
  return {
    request: words[at + 1]!,
    tagLow: words[at + 2]!,
    tagHigh: words[at + 3]!,
    byteLength: joinWords(words[at + 4]!, words[at + 5]!),
    keyOffset: joinWords(words[at + 6]!, words[at + 7]!),
    packedKey: payloadIn(frame, TAG_RTS_BYTES),
  };
}
