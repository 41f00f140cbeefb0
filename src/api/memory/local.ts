/**
 * Local memory of a message: a range or a list of ranges, with their checks, and copies between it and host bytes. Also worker addresses and remote keys as
 * passed by programs: their types, the engine that packed them, and options for those from programs without this library.
 */

import { copyBytes, hasBytes, isBytes } from '../../ucs/memory/bytes.ts';
import { checkOptions, isOptions } from '../../ucs/type/check-options.ts';
import { argumentError, describeValue, invalidParam, outsideOf, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { AddressEndpointOptions, RawRemoteMemory, RkeyOptions } from '../contract/endpoint.ts';
import type { EngineName } from '../contract/explanation.ts';
import { IOV_MAX, type IovPiece, type LocalMemory, type MessageBuffer } from '../contract/memory.ts';
import { OwnedMemory } from './owned.ts';

const PIECE_FIELDS: readonly string[] = ['memory', 'offset', 'byteLength'];

/** One range of local memory, with the handle type of an engine. */
export interface PieceOf<M extends LocalMemory> extends IovPiece {
  readonly memory: M;
}

/** A range of local memory. */
export interface LocalRange<M extends LocalMemory = LocalMemory> {
  readonly local: M;
  readonly localOffset: number;
  readonly byteLength: number;
}

/** Local memory as passed by a program: a range, or a list of ranges. */
export interface GivenMemory<M extends LocalMemory = LocalMemory> {
  readonly local: M | readonly PieceOf<M>[];
  readonly localOffset: number;
  readonly byteLength: number;
}

/** A checked range. */
export interface Piece<M extends LocalMemory = LocalMemory> {
  readonly memory: M;
  readonly offset: number;
  readonly byteLength: number;
  /** Offset of the range in the message. */
  readonly start: number;
}

/**
 * The length of unchecked memory: 0 for a value that is not memory.
 * @throws UcxError ERR_INVALID_PARAM for detached bytes, whose transfer would move nothing
 */
export function byteLengthOf(memory: unknown): number {
  if (OwnedMemory.isGenuine(memory)) return memory.byteLength;
  if (!isBytes(memory)) return 0;
  const { byteLength } = memory;
  if (byteLength === 0 && isLost(memory)) throw invalidParam('local', 'must not be detached or shortened', memory);
  return byteLength;
}

/** Whether an array of length 0 is detached: methods of arrays throw then. */
function isLost(bytes: Uint8Array): boolean {
  try {
    bytes.at(0);
    return false;
  } catch {
    return true;
  }
}

/** Bytes after an unchecked offset: 0 if it is not a number, because a bigint could not be subtracted. */
export function bytesFrom(byteLength: number, offset: number): number {
  return typeof offset === 'number' ? byteLength - offset : 0;
}

/**
 * Checks a range of local memory: type and owner of the memory, the range, and the access.
 * @param access required accesses: bits of MemAccess
 */
export function checkLocal(owner: object, { local, localOffset, byteLength }: LocalRange, access: number): void {
  if (isRangeOfBytes(local, localOffset, byteLength)) return;
  checkEach(owner, local, localOffset, byteLength);
  if (OwnedMemory.isGenuine(local)) local.requireAccess(access, 'local');
}

/** Whether a value is host bytes that contain a range, which needs no further checks. */
export function isRangeOfBytes(local: unknown, offset: number, byteLength: number): boolean {
  const areWhole = Number.isSafeInteger(offset) && Number.isSafeInteger(byteLength) && offset >= 0 && byteLength >= 0;
  return areWhole && isBytes(local) && hasBytes(local, offset + byteLength);
}

/** Checks every rule separately, for mapped memory and for error messages. */
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
      'must not change its length while mapped: its ArrayBuffer was detached',
      local.bytes.byteLength,
    );
  }
}

/** Checks the fields of a range in a list: a misspelt offset would move other bytes. @throws UcxError ERR_INVALID_PARAM */
export function checkPieceFields(piece: IovPiece, index: number): void {
  if (typeof piece !== 'object' || piece === null || !isOptions(piece) || OwnedMemory.isGenuine(piece)) {
    const rule = `element ${index} must be { memory, offset, byteLength }`;
    throw argumentError('local', rule, describeValue(piece), `${rule}, got ${describeValue(piece)}`);
  }
  checkOptions(piece, `local[${index}]`, PIECE_FIELDS);
}

/** Whether an unchecked value is one range, not memory or a list. */
export function isPiece(local: MessageBuffer): local is IovPiece {
  if (typeof local !== 'object' || local === null || isBytes(local) || Array.isArray(local)) return false;
  return !OwnedMemory.isGenuine(local) && 'memory' in local;
}

/** Memory, offset and length of one range; the rest is checked when the operation starts. @throws UcxError ERR_INVALID_PARAM */
export function rangeOfPiece(piece: IovPiece): readonly [memory: LocalMemory, offset: number, byteLength: number] {
  checkOptions(piece, 'local', PIECE_FIELDS);
  const { memory, offset = 0 } = piece;
  if (!isBytes(memory) && !OwnedMemory.isGenuine(memory))
    throw invalidParam('local.memory', 'must be a Uint8Array or a memory handle', memory);
  if (typeof offset !== 'number') throw invalidParam('local.offset', 'must be a number', offset);
  return [memory, offset, piece.byteLength ?? Math.max(0, byteLengthOf(memory) - offset)];
}

/**
 * Checks a list and computes the offset of every range.
 * @throws UcxError ERR_INVALID_PARAM for more than {@link IOV_MAX} ranges or an invalid range
 */
function checkPieces<M extends LocalMemory>(owner: object, iov: readonly PieceOf<M>[], access: number): Piece<M>[] {
  if (iov.length > IOV_MAX) throw invalidParam('local', `must have at most ${IOV_MAX} elements`, iov.length);
  let start = 0;
  return iov.map((given, index) => {
    checkPieceFields(given, index);
    const { memory, offset = 0 } = given;
    if (typeof offset !== 'number') throw invalidParam(`local[${index}].offset`, 'must be a number', offset);
    const { byteLength = Math.max(0, byteLengthOf(memory) - offset) } = given;
    checkLocal(owner, { local: memory, localOffset: offset, byteLength }, access);
    const piece = { memory, offset, byteLength, start };
    start += byteLength;
    return piece;
  });
}

/** The checked ranges of a list; undefined for other local memory, which is not checked. */
export function checkedList<M extends LocalMemory>(
  owner: object,
  local: M | readonly PieceOf<M>[],
  access: number,
): Piece<M>[] | undefined {
  return isList(local) ? checkPieces(owner, local, access) : undefined;
}

/** True for a list of ranges. */
export function isList<M extends LocalMemory>(local: M | readonly PieceOf<M>[]): local is readonly PieceOf<M>[] {
  return Array.isArray(local);
}

/** Checks local memory of either form: a range, or a list of ranges. */
export function piecesOf<M extends LocalMemory>(owner: object, given: GivenMemory<M>, access: number): Piece<M>[] {
  const { local, localOffset, byteLength } = given;
  if (isList(local)) return checkPieces(owner, local, access);
  const range = { local, localOffset, byteLength };
  checkLocal(owner, range, access);
  return [pieceOf(range)];
}

/** A checked range as the only range of a message. */
export function pieceOf<M extends LocalMemory>({ local, localOffset, byteLength }: LocalRange<M>): Piece<M> {
  return { memory: local, offset: localOffset, byteLength, start: 0 };
}

/** Bytes of a list of ranges. */
export function bytesOf(pieces: readonly Piece[]): number {
  const last = pieces.at(-1);
  return last === undefined ? 0 : last.start + last.byteLength;
}

/** The host bytes of local memory; undefined for device memory. */
export function hostBytes(local: LocalMemory): Uint8Array | undefined {
  return local instanceof Uint8Array ? local : local.bytes;
}

/** The first `byteLength` bytes of a list of ranges. */
export function cut<M extends LocalMemory>(pieces: readonly Piece<M>[], byteLength: number): Piece<M>[] {
  return pieces
    .filter(({ start }) => start < byteLength)
    .map((piece) => ({ ...piece, byteLength: Math.min(piece.byteLength, byteLength - piece.start) }));
}

/** True if the processor can access all ranges. */
export function areHost(pieces: readonly Piece[]): boolean {
  return pieces.every(({ memory }) => hostBytes(memory) !== undefined);
}

/** False if some of the memory has been unmapped, detached or shortened. */
export function areMapped(pieces: readonly Piece[]): boolean {
  return pieces.every(
    ({ memory, offset, byteLength }) =>
      (memory instanceof Uint8Array || memory.mapped) && holdsBytes(hostBytes(memory), offset, byteLength),
  );
}

/** False if host memory has been detached or shortened. */
export function areIntact(pieces: readonly Piece[]): boolean {
  return pieces.every(({ memory, offset, byteLength }) => holdsBytes(hostBytes(memory), offset, byteLength));
}

/** False for host bytes that are too short for a range, such as those of a detached ArrayBuffer. */
export function holdsBytes(bytes: Uint8Array | undefined, offset: number, byteLength: number): boolean {
  return bytes === undefined || hasBytes(bytes, offset + byteLength);
}

/** Calls `run` with the intersection of every range with `[from, from + byteLength)` of the message. */
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

/** Copies `[from, from + byteLength)` of a message in host memory to `target`. */
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

/** Copies bytes to `[to, to + byteLength)` of a message in host memory. */
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

/** The first address that is not a host address. */
const HOST_ADDRESSES_END = 2 ** 48;

/** Kind of packed bytes, for errors. */
export type PackedKind = 'worker address' | 'remote key';

/**
 * Marks of packed bytes, little-endian: for the native engine their first four bytes, for the engine libucx (`gUCX`, `gUCK`) the last four, after the bytes
 * of libucp.
 */
export const PACKED_MARKS: Readonly<Record<EngineName, Readonly<Record<PackedKind, number>>>> = {
  native: { 'worker address': 0x4150_4355, 'remote key': 0x5945_4b52 },
  libucx: { 'worker address': 0x5843_5567, 'remote key': 0x4b43_5567 },
};
const MARK_BYTES = 4;

/** Whether the address comes from another program. @throws UcxError ERR_INVALID_PARAM */
export function checkRawAddress({ rawAddress = false }: AddressEndpointOptions): boolean {
  if (typeof rawAddress !== 'boolean') throw invalidParam('rawAddress', 'must be true or false', rawAddress);
  return rawAddress;
}

/** Checks the type of a worker address, and that no other engine packed it. @throws UcxError ERR_INVALID_PARAM, ERR_ADDRESS_MALFORMED */
export function checkPackedAddress(packed: Uint8Array, engine: EngineName): void {
  if (!isBytes(packed)) {
    const [rule, got] = ['must be a Uint8Array', describeValue(packed)];
    throw argumentError('address', rule, got, `argument address ${rule}, got ${got}; use connect() for host and port`);
  }
  checkEngine(packed, 'worker address', engine);
}

/** Checks the type of a packed remote key, and that no other engine packed it. @throws UcxError ERR_INVALID_PARAM, ERR_RKEY_MALFORMED */
export function checkPackedKey(packed: Uint8Array, engine: EngineName): void {
  if (!isBytes(packed)) throw invalidParam('packed', 'must be a Uint8Array from packRkey', packed);
  checkEngine(packed, 'remote key', engine);
}

/** Detects bytes of the other engine or kind, which would be misread; libucp even aborts the process. */
function checkEngine(packed: Uint8Array, kind: PackedKind, engine: EngineName): void {
  if (packed.byteLength < MARK_BYTES) return;
  const view = new DataView(packed.buffer, packed.byteOffset, packed.byteLength);
  const marks = { native: view.getUint32(0, true), libucx: view.getUint32(packed.byteLength - MARK_BYTES, true) };
  const other = engine === 'native' ? 'libucx' : 'native';
  const otherKind = kind === 'remote key' ? 'worker address' : 'remote key';
  // A checksum may look like a mark: the mark of this engine has priority.
  if (marks[engine] === PACKED_MARKS[engine][kind]) return;
  if (marks[engine] === PACKED_MARKS[engine][otherKind]) throw malformed(kind, `is a ${otherKind}`);
  if (!Object.values(PACKED_MARKS[other]).includes(marks[other])) return;
  const what = marks[other] === PACKED_MARKS[other][kind] ? 'is' : `is a ${otherKind}, and`;
  throw malformed(
    kind,
    `${what} of the engine ${other}, but this context has the engine ${engine}: use one engine at both ends (UCX_ENGINE, or the option engine)`,
  );
}

/** The error for bytes that are not a valid address or key. */
export function malformed(kind: PackedKind, rule: string): UcxError {
  return new UcxError({
    code: kind === 'remote key' ? 'ERR_RKEY_MALFORMED' : 'ERR_ADDRESS_MALFORMED',
    status: Status.INVALID_PARAM,
    message: `${kind} ${rule}`,
    details: { rule },
  });
}

/** The memory behind the key of another program; undefined for a key of this library. @throws UcxError ERR_INVALID_PARAM */
export function checkRawMemory(options: RkeyOptions): RawRemoteMemory | undefined {
  checkOptions(options, 'options', ['raw']);
  const { raw } = options;
  if (raw === undefined) return undefined;
  if (typeof raw !== 'object' || raw === null) throw invalidParam('raw', 'must have address and byteLength', raw);
  const { address, byteLength } = raw;
  if (!Number.isSafeInteger(byteLength) || byteLength <= 0) {
    throw invalidParam('raw.byteLength', 'must be a positive integer', byteLength);
  }
  const isInteger = typeof address === 'bigint' || Number.isSafeInteger(address);
  if (!isInteger || address < 0 || Number(address) + byteLength > HOST_ADDRESSES_END) {
    throw invalidParam('raw.address', 'must be an address of host memory that ends below 2^48', address);
  }
  return raw;
}

/** The error of an engine that cannot communicate with other programs. */
export function otherPrograms(kind: string): UcxError {
  return new UcxError({
    code: 'ERR_UNSUPPORTED',
    status: Status.UNSUPPORTED,
    message: `a ${kind} of another UCX program needs the engine libucx (UCX_ENGINE=libucx): the native engine does not implement UCX's wire protocol`,
  });
}
