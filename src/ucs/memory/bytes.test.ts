/** Copies between byte arrays: between buffers, and within one, with overlapping ranges. */

import fc from 'fast-check';
import { expect, it } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import { copyBytes, moveBytes, storeWords } from './bytes.ts';

const ROOM = 160;
const place = fc.nat({ max: ROOM / 2 });
const contents = fc.uint8Array({ minLength: ROOM, maxLength: ROOM });

/** A range of the bytes: as a part of them, or as all of a view. */
function sourceOf(
  bytes: Uint8Array,
  from: number,
  byteLength: number,
  isWhole: boolean,
): readonly [Uint8Array, number] {
  return isWhole ? [bytes.subarray(from, from + byteLength), 0] : [bytes, from];
}

property(
  'copies between buffers',
  [contents, contents, place, place, place, fc.boolean()],
  (target, source, to, from, byteLength, isWhole) => {
    const expected = target.slice();
    expected.set(source.subarray(from, from + byteLength), to);
    copyBytes(target, to, ...sourceOf(source, from, byteLength, isWhole), byteLength);
    expect(target).toEqual(expected);
  },
);

property(
  'moves within one buffer, through views at different offsets',
  [contents, place, place, place, fc.nat({ max: 8 }), fc.nat({ max: 8 }), fc.boolean()],
  (bytes, to, from, byteLength, targetStart, sourceStart, isWhole) => {
    const length = Math.min(byteLength, ROOM / 2 - 8);
    const expected = bytes.slice().copyWithin(targetStart + to, sourceStart + from, sourceStart + from + length);
    const { buffer } = bytes;
    const source = sourceOf(new Uint8Array(buffer, sourceStart), from, length, isWhole);
    moveBytes(new Uint8Array(buffer, targetStart), to, ...source, length);
    expect(bytes).toEqual(expected);
  },
);

property(
  'stores words and the bytes of a partial one',
  [contents, contents, fc.nat({ max: 20 }), place, place, fc.boolean()],
  (target, source, word, from, byteLength, isWhole) => {
    const expected = target.slice();
    expected.set(source.subarray(from, from + byteLength), word * 4);
    storeWords(new Int32Array(target.buffer), word, target, ...sourceOf(source, from, byteLength, isWhole), byteLength);
    expect(target).toEqual(expected);
  },
);

it('moves each short length by a few bytes, up and down', () => {
  for (let byteLength = 1; byteLength <= 34; byteLength++) {
    for (const by of [1, 2, -1, -2]) {
      const bytes = Uint8Array.from({ length: 48 }, (_, i) => i + 1);
      const expected = bytes.slice().copyWithin(4 + by, 4, 4 + byteLength);
      moveBytes(bytes, 4 + by, bytes, 4, byteLength);
      expect(bytes).toEqual(expected);
    }
  }
});
