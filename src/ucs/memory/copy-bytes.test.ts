/** Copies between byte arrays: between buffers, and within one, with overlapping ranges. */

import fc from 'fast-check';
import { expect } from 'vitest';
import { property } from '../../../test/fixtures/property.ts';
import { copyBytes, moveBytes, storeWords } from './copy-bytes.ts';

const ROOM = 160;
const place = fc.nat({ max: ROOM / 2 });
const contents = fc.uint8Array({ minLength: ROOM, maxLength: ROOM });

property(
  'copies between buffers',
  [contents, contents, place, place, place],
  (target, source, to, from, byteLength) => {
    const expected = target.slice();
    expected.set(source.subarray(from, from + byteLength), to);
    copyBytes(target, to, source, from, byteLength);
    expect(target).toEqual(expected);
  },
);

property(
  'moves within one buffer, through views at different offsets',
  [contents, place, place, place, fc.nat({ max: 8 }), fc.nat({ max: 8 })],
  (bytes, to, from, byteLength, targetStart, sourceStart) => {
    const length = Math.min(byteLength, ROOM / 2 - 8);
    const expected = bytes.slice().copyWithin(targetStart + to, sourceStart + from, sourceStart + from + length);
    const { buffer } = bytes;
    moveBytes(new Uint8Array(buffer, targetStart), to, new Uint8Array(buffer, sourceStart), from, length);
    expect(bytes).toEqual(expected);
  },
);

property(
  'stores words and the bytes of a partial one',
  [contents, contents, fc.nat({ max: 20 }), place, fc.nat({ max: 80 })],
  (target, source, word, from, byteLength) => {
    const expected = target.slice();
    expected.set(source.subarray(from, from + byteLength), word * 4);
    storeWords(new Int32Array(target.buffer), word, target, source, from, byteLength);
    expect(target).toEqual(expected);
  },
);
