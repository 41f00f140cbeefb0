/** Local memory of a message: one piece or a list of pieces, checked, and copies between it and host bytes. It does not access device memory. */

import { copyBytes } from '../../../ucs/memory/copy-bytes.ts';
import { hasBytes } from '../../../ucs/memory/has-bytes.ts';
import { isBytes } from '../../../ucs/memory/is-bytes.ts';
import { checkOptions, isOptions } from '../../../ucs/type/check-options.ts';
import { argumentError, describeValue, invalidParam, outsideOf } from '../../../ucs/type/error.ts';
import { IOV_MAX, type IovPiece, type LocalMemory, type MessageBuffer } from '../operation/memory.ts';
import { OwnedMemory } from './owned-memory.ts';

const PIECE_FIELDS: readonly string[] = ['memory', 'offset', 'byteLength'];

/** One piece of local memory, with the handle type of an engine. */
export interface PieceOf<M extends LocalMemory> extends IovPiece {
  readonly memory: M;
}

/** A checked piece. */
export interface Piece<M extends LocalMemory = LocalMemory> {
  readonly memory: M;
  readonly offset: number;
  readonly byteLength: number;
  /** Offset of the piece in the message. */
  readonly start: number;
}

/**
 * The length of memory that is not checked yet: 0 for a value that is not memory.
 * @throws UcxError ERR_INVALID_PARAM for bytes that were detached, which would be a transfer of nothing
 */
export function byteLengthOf(memory: unknown): number {
  if (OwnedMemory.isGenuine(memory)) return memory.byteLength;
  if (!isBytes(memory)) return 0;
  const { byteLength } = memory;
  if (byteLength === 0 && isLost(memory)) throw invalidParam('local', 'must not be detached or shortened', memory);
  return byteLength;
}

/** Whether an array of length 0 has lost its bytes: methods of arrays throw then. */
function isLost(bytes: Uint8Array): boolean {
  try {
    bytes.at(0);
    return false;
  } catch {
    return true;
  }
}

/** The bytes of memory from an offset that is not checked yet: 0 if it is no number, which would not be subtracted if it were a bigint. */
export function bytesFrom(byteLength: number, offset: number): number {
  return typeof offset === 'number' ? byteLength - offset : 0;
}

/**
 * Checks one piece of local memory: its type, its owner, the range, and the access.
 * @param access accesses of the operation to it: bits of MemAccess
 */
export function checkLocal(
  owner: object,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  access: number,
): void {
  const areWhole = Number.isSafeInteger(offset) && Number.isSafeInteger(byteLength) && offset >= 0 && byteLength >= 0;
  if (areWhole && isBytes(local) && hasBytes(local, offset + byteLength)) return;
  checkEach(owner, local, offset, byteLength);
  if (OwnedMemory.isGenuine(local)) local.requireAccess(access, 'local');
}

/** Checks every rule separately, for mapped memory and for the message of an error. */
function checkEach(owner: object, local: LocalMemory, offset: number, byteLength: number): void {
  const isHandle = OwnedMemory.isGenuine(local);
  if (!isHandle && !isBytes(local)) throw invalidParam('local', 'must be a Uint8Array or a memory handle', local);
  if (isHandle && !local.mapped) throw local.unmappedError('local memory');
  if (isHandle && local.owner !== owner)
    throw invalidParam('local', 'must be mapped by the context of the endpoint, not by another one', local);
  const end = local.byteLength;
  if (!Number.isSafeInteger(offset) || offset < 0)
    throw invalidParam('offset', 'must be an integer of 0 or more', offset);
  if (!Number.isSafeInteger(byteLength) || byteLength < 0) {
    throw invalidParam('byteLength', 'must be an integer of 0 or more', byteLength);
  }
  if (offset + byteLength > end) {
    throw outsideOf('local memory', 'byteLength', { offset, byteLength, size: end });
  }
  if (isHandle && local.bytes !== undefined && local.bytes.byteLength !== end) {
    throw invalidParam(
      'local',
      'must keep the length it was mapped with: its ArrayBuffer was detached',
      local.bytes.byteLength,
    );
  }
}

/** Checks the fields of a piece of a list: a misspelt offset would move other bytes. @throws UcxError ERR_INVALID_PARAM */
export function checkPieceFields(piece: IovPiece, index: number): void {
  if (typeof piece !== 'object' || piece === null || !isOptions(piece) || OwnedMemory.isGenuine(piece)) {
    const rule = `element ${index} must be { memory, offset, byteLength }`;
    throw argumentError('local', rule, describeValue(piece), `${rule}, got ${describeValue(piece)}`);
  }
  checkOptions(piece, `local[${index}]`, PIECE_FIELDS);
}

/** Whether a value that is not checked yet is one piece, and not memory or a list. */
export function isPiece(local: MessageBuffer): local is IovPiece {
  if (typeof local !== 'object' || local === null || isBytes(local) || Array.isArray(local)) return false;
  return !OwnedMemory.isGenuine(local) && 'memory' in local;
}

/** The range of one piece; the rest is checked when the operation starts. @throws UcxError ERR_INVALID_PARAM */
export function rangeOfPiece(piece: IovPiece): readonly [memory: LocalMemory, offset: number, byteLength: number] {
  checkOptions(piece, 'local', PIECE_FIELDS);
  const { memory, offset = 0 } = piece;
  if (!isBytes(memory) && !OwnedMemory.isGenuine(memory))
    throw invalidParam('local.memory', 'must be a Uint8Array or a memory handle', memory);
  if (typeof offset !== 'number') throw invalidParam('local.offset', 'must be a number', offset);
  return [memory, offset, piece.byteLength ?? Math.max(0, byteLengthOf(memory) - offset)];
}

/**
 * Checks a list and computes the offset of every piece.
 * @throws UcxError ERR_INVALID_PARAM for more than {@link IOV_MAX} pieces or an invalid piece
 */
export function checkPieces<M extends LocalMemory>(
  owner: object,
  iov: readonly PieceOf<M>[],
  access: number,
): Piece<M>[] {
  if (iov.length > IOV_MAX) throw invalidParam('local', `must have at most ${IOV_MAX} elements`, iov.length);
  let start = 0;
  return iov.map((given, index) => {
    checkPieceFields(given, index);
    const { memory, offset = 0 } = given;
    if (typeof offset !== 'number') throw invalidParam(`local[${index}].offset`, 'must be a number', offset);
    const { byteLength = Math.max(0, byteLengthOf(memory) - offset) } = given;
    checkLocal(owner, memory, offset, byteLength, access);
    const piece = { memory, offset, byteLength, start };
    start += byteLength;
    return piece;
  });
}

/** True for a list of pieces. */
export function isList<M extends LocalMemory>(local: M | readonly PieceOf<M>[]): local is readonly PieceOf<M>[] {
  return Array.isArray(local);
}

/** Checks local memory of either form: one piece, or a list whose pieces have their own ranges. */
export function piecesOf<M extends LocalMemory>(
  owner: object,
  local: M | readonly PieceOf<M>[],
  offset: number,
  byteLength: number,
  access: number,
): Piece<M>[] {
  if (isList(local)) return checkPieces(owner, local, access);
  checkLocal(owner, local, offset, byteLength, access);
  return [{ memory: local, offset, byteLength, start: 0 }];
}

/** Bytes of a list of pieces. */
export function bytesOf(pieces: readonly Piece[]): number {
  const last = pieces.at(-1);
  return last === undefined ? 0 : last.start + last.byteLength;
}

/** The host bytes of local memory; undefined for device memory. */
export function hostBytes(local: LocalMemory): Uint8Array | undefined {
  return local instanceof Uint8Array ? local : local.bytes;
}

/** The first `byteLength` bytes of a list of pieces. */
export function cut<M extends LocalMemory>(pieces: readonly Piece<M>[], byteLength: number): Piece<M>[] {
  return pieces
    .filter(({ start }) => start < byteLength)
    .map((piece) => ({ ...piece, byteLength: Math.min(piece.byteLength, byteLength - piece.start) }));
}

/** True if the processor can access all pieces. */
export function areHost(pieces: readonly Piece[]): boolean {
  return pieces.every(({ memory }) => hostBytes(memory) !== undefined);
}

/** False if some of the memory was unmapped, detached or shortened meanwhile. */
export function areMapped(pieces: readonly Piece[]): boolean {
  return pieces.every(
    ({ memory, offset, byteLength }) =>
      (memory instanceof Uint8Array || memory.mapped) && holdsBytes(hostBytes(memory), offset, byteLength),
  );
}

/** False if host memory was detached or shortened meanwhile. */
export function areIntact(pieces: readonly Piece[]): boolean {
  return pieces.every(({ memory, offset, byteLength }) => holdsBytes(hostBytes(memory), offset, byteLength));
}

/** False for host bytes that are shorter than a range in them, such as those of a detached ArrayBuffer. */
export function holdsBytes(bytes: Uint8Array | undefined, offset: number, byteLength: number): boolean {
  return bytes === undefined || hasBytes(bytes, offset + byteLength);
}

/** Calls `run` for the part of every piece that lies in `[from, from + byteLength)` of the message. */
export function eachPart<M extends LocalMemory>(
  pieces: readonly Piece<M>[],
  from: number,
  byteLength: number,
  run: (memory: M, offset: number, byteLength: number, at: number) => void,
): void {
  for (const { memory, offset, byteLength: bytes, start } of pieces) {
    const begin = Math.max(from, start);
    const end = Math.min(from + byteLength, start + bytes);
    if (begin < end) run(memory, offset + begin - start, end - begin, begin - from);
  }
}

/** Copies `[from, from + byteLength)` of a message of host pieces to `target`. */
export function gather(
  pieces: readonly Piece[],
  from: number,
  byteLength: number,
  target: Uint8Array,
  to: number,
): void {
  eachPart(pieces, from, byteLength, (memory, offset, bytes, at) => {
    copyBytes(target, to + at, hostBytes(memory)!, offset, bytes);
  });
}

/** Copies bytes into `[to, to + byteLength)` of a message of host pieces. */
export function scatter(
  pieces: readonly Piece[],
  to: number,
  byteLength: number,
  source: Uint8Array,
  from: number,
): void {
  eachPart(pieces, to, byteLength, (memory, offset, bytes, at) => {
    copyBytes(hostBytes(memory)!, offset, source, from + at, bytes);
  });
}
