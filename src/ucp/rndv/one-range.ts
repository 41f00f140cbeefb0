/** Pieces of a message that follow each other without a gap in one memory: they have one remote key, and move as one piece. */

import type { LocalMemory, LocalPiece } from '../mem/memory-handle.ts';

/**
 * The pieces as one piece if they are one range in the order of the message, else as they are. Empty pieces do not count, and views of one ArrayBuffer are
 * one memory. No piece may be detached.
 */
export function joinPieces(pieces: readonly LocalPiece[]): readonly LocalPiece[] {
  if (pieces.length === 1) return pieces;
  const range = oneRange(pieces);
  return range === undefined ? pieces : [range];
}

/** The range of the pieces; undefined for pieces of several memories, in another order, or with gaps. */
function oneRange(pieces: readonly LocalPiece[]): LocalPiece | undefined {
  let range: LocalPiece | undefined;
  for (const piece of pieces) {
    if (piece.byteLength === 0) continue;
    range = range === undefined ? piece : joined(range, piece);
    if (range === undefined) return undefined;
  }
  return range;
}

function joined(range: LocalPiece, next: LocalPiece): LocalPiece | undefined {
  const { memory, start } = range;
  if (originOf(memory) !== originOf(next.memory) || placeOf(range) + range.byteLength !== placeOf(next))
    return undefined;
  const byteLength = range.byteLength + next.byteLength;
  // A view of both: that of the first piece may end before the second one.
  if (memory instanceof Uint8Array) {
    return { memory: new Uint8Array(memory.buffer, placeOf(range), byteLength), offset: 0, byteLength, start };
  }
  return { memory, offset: range.offset, byteLength, start };
}

/** What two pieces have in common that are in the same memory. */
function originOf(memory: LocalMemory): object {
  return memory instanceof Uint8Array ? memory.buffer : memory;
}

/** Offset of a piece in it. */
function placeOf({ memory, offset }: LocalPiece): number {
  return memory instanceof Uint8Array ? memory.byteOffset + offset : offset;
}
