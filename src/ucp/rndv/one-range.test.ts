/** Which lists of pieces are one range of memory. */

import { describe, expect, it } from 'vitest';
import type { LocalMemory, LocalPiece } from '../mem/memory-handle.ts';
import { joinPieces } from './own-key.ts';

type Given = readonly [memory: LocalMemory, offset: number, byteLength: number];

/** Mapped memory is only compared here. */
const [A, B] = [{}, {}] as unknown as readonly [LocalMemory, LocalMemory];
const BUFFER = Uint8Array.from({ length: 64 }, (_, i) => i);

function piecesOf(...given: readonly Given[]): LocalPiece[] {
  let start = 0;
  return given.map(([memory, offset, byteLength]) => {
    const piece = { memory, offset, byteLength, start };
    start += byteLength;
    return piece;
  });
}

describe('joinPieces', () => {
  it('returns one piece as it is', () => {
    const pieces = piecesOf([A, 3, 5]);
    expect(joinPieces(pieces)).toBe(pieces);
  });

  it.each([
    ['two pieces behind each other', piecesOf([A, 3, 5], [A, 8, 2]), 3, 7],
    ['three pieces', piecesOf([A, 0, 1], [A, 1, 1], [A, 2, 7]), 0, 9],
    ['empty pieces at any place', piecesOf([B, 1, 0], [A, 3, 5], [B, 60, 0], [A, 8, 2], [A, 0, 0]), 3, 7],
  ])('joins %s of mapped memory', (_, pieces, offset, byteLength) => {
    const joined = joinPieces(pieces);
    expect(joined).toMatchObject([{ offset, byteLength, start: 0 }]);
    expect(joined[0]!.memory).toBe(A);
  });

  it('joins views of one ArrayBuffer', () => {
    const pieces = piecesOf([BUFFER.subarray(5, 20), 2, 13], [BUFFER, 20, 7], [BUFFER.subarray(27), 0, 3]);
    const [{ memory, offset, byteLength }] = joinPieces(pieces) as [LocalPiece];
    expect(byteLength).toBe(23);
    expect((memory as Uint8Array).subarray(offset, offset + 23)).toEqual(BUFFER.subarray(7, 30));
  });

  it.each([
    ['no pieces', piecesOf()],
    ['empty pieces only', piecesOf([A, 0, 0], [A, 1, 0])],
    ['a gap', piecesOf([A, 3, 5], [A, 9, 2])],
    ['an overlap', piecesOf([A, 3, 5], [A, 7, 2])],
    ['another order', piecesOf([A, 8, 2], [A, 3, 5])],
    ['two memories', piecesOf([A, 0, 4], [B, 4, 4])],
    ['two ArrayBuffers', piecesOf([BUFFER, 0, 4], [BUFFER.slice(), 4, 4])],
    ['mapped memory and an ArrayBuffer', piecesOf([A, 0, 4], [BUFFER, 4, 4])],
    ['a gap behind pieces that follow each other', piecesOf([A, 0, 4], [A, 4, 4], [A, 9, 1])],
  ])('leaves %s as they are', (_, pieces) => {
    expect(joinPieces(pieces)).toBe(pieces);
  });
});
