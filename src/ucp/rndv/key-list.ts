/**
 * Key lists: the keys of a message whose pieces are apart, in place of the one key of a TAG_RTS, AM_RTS or RTR, whose offset is {@link KEY_LIST} then. Little-endian.
 *
 *   0        u32 ranges
 *   4 + 20 i u32 bytes of the key; 0 for the key of the range before
 *            u64 byte of the memory of the key at which the range begins
 *            u64 bytes of the range
 *            keys, in the order of the ranges
 */

import { highOf, joinWords } from '../../ucs/type/int64.ts';

/** Offset that says that the key is a list: no memory is as long. */
export const KEY_LIST: number = Number.MAX_SAFE_INTEGER;
/** Ranges of a list, at most: bytes in more pieces go through fragments. */
export const KEY_LIST_MAX = 64;

const RANGE_BYTES = 20;

/** A range of memory of a peer. */
export interface KeyRange {
  /** The packed key. */
  readonly packed: Uint8Array;
  readonly offset: number;
  readonly byteLength: number;
}

/** Packs a list of up to {@link KEY_LIST_MAX} ranges. Adjacent ranges with the same array as key share it. */
export function packKeyList(ranges: readonly KeyRange[]): Uint8Array {
  const keys = ranges.map(({ packed }, i) => (packed === ranges[i - 1]?.packed ? undefined : packed));
  let at = 4 + ranges.length * RANGE_BYTES;
  const list = new Uint8Array(keys.reduce((sum, key) => sum + (key?.byteLength ?? 0), at));
  const view = new DataView(list.buffer);
  view.setUint32(0, ranges.length, true);
  for (const [i, { offset, byteLength }] of ranges.entries()) {
    const start = 4 + i * RANGE_BYTES;
    const key = keys[i];
    view.setUint32(start, key?.byteLength ?? 0, true);
    view.setInt32(start + 4, offset | 0, true);
    view.setInt32(start + 8, highOf(offset), true);
    view.setInt32(start + 12, byteLength | 0, true);
    view.setInt32(start + 16, highOf(byteLength), true);
    if (key === undefined) continue;
    list.set(key, at);
    at += key.byteLength;
  }
  return list;
}

/** Reads a list that a peer has sent: any bytes. Undefined if it is malformed, or its ranges are not `byteLength` bytes together. */
export function unpackKeyList(list: Uint8Array, byteLength: number): readonly KeyRange[] | undefined {
  const view = new DataView(list.buffer, list.byteOffset, list.byteLength);
  const count = list.byteLength >= 4 ? view.getUint32(0, true) : 0;
  let at = 4 + count * RANGE_BYTES;
  if (count === 0 || count > KEY_LIST_MAX || at > list.byteLength) return undefined;
  const ranges: KeyRange[] = [];
  let total = 0;
  for (let i = 0; i < count; i++) {
    const start = 4 + i * RANGE_BYTES;
    const keyBytes = view.getUint32(start, true);
    const packed = keyBytes === 0 ? ranges[i - 1]?.packed : list.subarray(at, at + keyBytes);
    at += keyBytes;
    const offset = joinWords(view.getInt32(start + 4, true), view.getInt32(start + 8, true));
    const bytes = joinWords(view.getInt32(start + 12, true), view.getInt32(start + 16, true));
    if (packed === undefined || at > list.byteLength || bytes === 0) return undefined;
    ranges.push({ packed, offset, byteLength: bytes });
    total += bytes;
  }
  return total === byteLength && at === list.byteLength ? ranges : undefined;
}
