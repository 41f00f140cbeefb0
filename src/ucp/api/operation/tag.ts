/** Tags as parameters: 64 bits, as a number if that is exact, or a bigint. */

import { invalidParam } from '../../../ucs/type/error.ts';
import { highOf, highWord, joinBig, lowWord } from '../../../ucs/type/int64.ts';

/** A tag or a mask: a non-negative safe integer, or a bigint below 2^64. */
export type Tag = number | bigint;

/** The mask with all bits: matches only an equal tag. */
export const TAG_MASK_FULL = 0xffff_ffff_ffff_ffffn;

const TAG_END = 1n << 64n;

/** The low 32 bits of a tag, as a signed word. @throws UcxError ERR_INVALID_PARAM for a value that is not a tag */
export function tagLow(argument: string, tag: Tag): number {
  if (typeof tag === 'number' && tag >= 0 && Number.isSafeInteger(tag)) return tag | 0;
  if (typeof tag === 'bigint' && tag >= 0n && tag < TAG_END) return lowWord(tag);
  throw invalidParam(argument, 'must be an integer from 0 to 2^64 - 1, as a bigint from 2^53 on', tag);
}

/** The high 32 bits of a tag that {@link tagLow} has accepted, as a signed word. */
export function tagHigh(tag: Tag): number {
  if (typeof tag === 'number') return highOf(tag);
  return highWord(tag);
}

/** `0x12` for a tag. */
export function tagText(tag: Tag): string {
  return `0x${tag.toString(16)}`;
}

/** `0x12` for the two signed words of a tag. */
export function tagWordsText(low: number, high: number): string {
  return tagText(joinBig(low, high));
}

/** What a receive waits for. */
export function wantedText(tag: Tag, mask: Tag): string {
  const bits = BigInt(mask) === TAG_MASK_FULL ? '' : ` in the bits ${tagText(mask)}`;
  return `a message with tag ${tagText(tag)}${bits}`;
}
