/**
 * The remote key of memory that is sent or received: for mapped memory, the key that the connection uses in its messages; for other memory, a key that is
 * made for the message and revoked at its end. The key has parts only for memory domains that the peer can use. Adjacent list elements in one memory are
 * joined: they have one remote key, and move together.
 */

import { isResizable } from '../../ucs/memory/bytes.ts';
import { memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { highOf, joinWords } from '../../ucs/type/int64.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MdFlag, MemAccess, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import type { ContextCore } from '../base/context-core.ts';
import {
  HOST_PLACE,
  hasKeyPart,
  type LocalMemory,
  type LocalPiece,
  MemoryHandle,
  type OperationRegistrar,
} from '../mem/memory-handle.ts';
import type { MessageKey } from '../mem/message-keys.ts';
import { packPart, packRkey } from '../mem/remote-key.ts';

/** The key of a message's memory: of contiguous memory, or of a list. */
export interface OwnKey {
  readonly packed: Uint8Array;
  /** Offset of the message in the memory of the key; KEY_LIST for a list. */
  readonly offset: number;
  /** Undoes the registration. */
  release(): void;
  /** Revokes the key before the registration is undone; false if that is impossible, because other messages or registrations use it. */
  revoke(): boolean;
}

/** A registration with one memory domain. */
interface Registered {
  readonly md: MemoryDomain;
  readonly registrar: OperationRegistrar;
  readonly memory: MdMemory;
}

/** Access of registrations that are shared through registration caches. */
const LOCAL_ACCESS = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;
/** Memory domains that register host memory but cannot pack keys for it, detected at the first attempt. */
const KEYLESS: WeakSet<MemoryDomain> = new WeakSet();

/**
 * The key of contiguous memory; undefined if no lane of the connection could use it, the memory is not mapped for the access, or the memory may be freed
 * (a resizable ArrayBuffer).
 * @param access of the peer: bits of MemAccess
 */
function ownKey(context: ContextCore, connection: Connection, piece: LocalPiece, access: number): OwnKey | undefined {
  const { memory, offset } = piece;
  if (memory instanceof MemoryHandle) {
    if ((memory.access & access) !== access || !hasUsableKey(connection, memory)) return undefined;
    return new MappedKey(context, connection, memory, offset);
  }
  if (isResizable(memory.buffer)) return undefined;
  const handle = context.memory.handleOf(memory);
  // The key would cover the whole ArrayBuffer: if peers may not access other memory in it, these bytes get no key either.
  if (!context.memory.permits(memory, access)) return undefined;
  if (handle !== undefined && hasUsableKey(connection, handle)) {
    const start = memory.byteOffset - handle.bytes!.byteOffset;
    return new MappedKey(context, connection, handle, start + offset);
  }
  return transientKey(context, connection, { bytes: memory, offset }, access);
}

/** The key of a message; undefined if one of its elements has none, and for too many elements. See {@link ownKey}. */
export function keyOfPieces(
  context: ContextCore,
  connection: Connection,
  pieces: readonly LocalPiece[],
  access: number,
): OwnKey | undefined {
  const parts = pieces.filter(({ byteLength }) => byteLength > 0);
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return ownKey(context, connection, only, access);
  if (parts.length > KEY_LIST_MAX) return undefined;
  const keys: OwnKey[] = [];
  try {
    for (const piece of parts) {
      const key = ownKey(context, connection, piece, access);
      if (key === undefined) {
        for (const given of keys) given.release();
        return undefined;
      }
      keys.push(key);
    }
  } catch (error) {
    for (const given of keys) given.release();
    throw error;
  }
  return new KeyList(keys, parts);
}

/** The keys of a list. */
class KeyList implements OwnKey {
  readonly packed: Uint8Array;
  readonly offset: number = KEY_LIST;
  readonly #keys: readonly OwnKey[];

  /** @param pieces memory of the keys, in the same order */
  constructor(keys: readonly OwnKey[], pieces: readonly LocalPiece[]) {
    this.#keys = keys;
    const ranges = keys.map(({ packed, offset }, i) => ({ packed, offset, byteLength: pieces[i]!.byteLength }));
    this.packed = packKeyList(ranges);
  }

  release(): void {
    for (const key of this.#keys) key.release();
  }

  revoke(): boolean {
    return this.#keys.every((key) => key.revoke());
  }
}

/** The key of mapped memory, which the connection keeps. */
class MappedKey implements OwnKey {
  readonly packed: Uint8Array;
  readonly offset: number;
  readonly #connection: Connection;
  readonly #handle: MemoryHandle;
  readonly #key: MessageKey;
  #isReleased = false;

  constructor(context: ContextCore, connection: Connection, handle: MemoryHandle, offset: number) {
    const key = connection.messageKeys.acquire(handle, (missing) => context.memory.makeMessageKey(missing));
    this.packed = key.packed;
    this.offset = offset;
    this.#connection = connection;
    this.#handle = handle;
    this.#key = key;
  }

  release(): void {
    if (!this.#isReleased) this.#key.uses -= 1;
    this.#isReleased = true;
  }

  revoke(): boolean {
    const handle = this.#handle;
    // The key of a network device stays valid until the memory is unmapped.
    const isKept = this.#connection.lanes.some(
      ({ md: { md, index } }) => hasKeyPart(handle, index) && (md.attributes.flags & MdFlag.PUBLISHES_KEYS) === 0,
    );
    if (this.#key.uses > 1 || isKept) return false;
    this.#key.revoke();
    return true;
  }
}

/** True if the key of mapped memory has a part for a lane of the connection. */
function hasUsableKey({ lanes }: Connection, memory: MemoryHandle): boolean {
  return lanes.some(({ md }) => hasKeyPart(memory, md.index));
}

function transientKey(
  { memory: { registrars } }: ContextCore,
  connection: Connection,
  { bytes, offset }: { readonly bytes: Uint8Array; readonly offset: number },
  access: number,
): OwnKey | undefined {
  const registered: Registered[] = [];
  // Registers the whole ArrayBuffer, because registration caches use it as their unit, and small Buffers share one.
  const buffer = new Uint8Array(bytes.buffer);
  try {
    for (const { md, index } of new Set(connection.lanes.map(({ md: open }) => open))) {
      const registrar = registrars[index]!;
      const part = registerFor(md, registrar, buffer, access);
      if (part !== undefined) registered.push({ md, registrar, memory: part });
    }
  } catch (error) {
    deregister(registered);
    throw error;
  }
  if (registered.length === 0) return undefined;
  const parts = registered.flatMap(({ md, memory }) => packPart(md, memory, undefined) ?? []);
  if (parts.length === 0) {
    deregister(registered);
    return undefined;
  }
  const { address } = registered[0]!.memory;
  const packed = packRkey({ ...HOST_PLACE, address, byteLength: buffer.byteLength, access, parts });
  return new TransientKey(packed, bytes.byteOffset + offset, registered);
}

/** The key of a registration for one message. */
class TransientKey implements OwnKey {
  readonly packed: Uint8Array;
  readonly offset: number;
  readonly #registered: Registered[];

  constructor(packed: Uint8Array, offset: number, registered: Registered[]) {
    this.packed = packed;
    this.offset = offset;
    this.#registered = registered;
  }

  release(): void {
    deregister(this.#registered);
  }

  revoke(): boolean {
    if (this.#registered.some(({ md }) => md.attributes.cacheMemoryTypes !== 0)) return false;
    this.release();
    return true;
  }
}

/** Undoes registrations, once. */
function deregister(registered: Registered[]): void {
  for (const { registrar, memory } of registered.splice(0)) registrar.memDereg(memory, { force: true });
}

function registerFor(
  md: MemoryDomain,
  registrar: OperationRegistrar,
  buffer: Uint8Array,
  access: number,
): MdMemory | undefined {
  const { flags, registerMemoryTypes } = md.attributes;
  const registersHost =
    (flags & MdFlag.REG) !== 0 && (registerMemoryTypes & memoryTypeBit(HOST_PLACE.memoryType)) !== 0;
  if (!registersHost || KEYLESS.has(md)) return undefined;
  const memory = registrar.memReg(buffer, { access: LOCAL_ACCESS | access });
  if (memory.packable !== false) return memory;
  registrar.memDereg(memory, { force: true });
  KEYLESS.add(md);
  return undefined;
}

/**
 * The list as one element if it is one contiguous range in the order of the message; otherwise unchanged. Ignores empty elements, and treats views of one
 * ArrayBuffer as one memory. No element may be detached.
 */
export function joinPieces(pieces: readonly LocalPiece[]): readonly LocalPiece[] {
  if (pieces.length === 1) return pieces;
  const range = oneRange(pieces);
  return range === undefined ? pieces : [range];
}

/** The range of all elements; undefined if they are in several memories, in another order, or have gaps. */
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
  // A view of both, as the view of the first element may end before the second one.
  if (memory instanceof Uint8Array) {
    return { memory: new Uint8Array(memory.buffer, placeOf(range), byteLength), offset: 0, byteLength, start };
  }
  return { memory, offset: range.offset, byteLength, start };
}

/** The memory that two elements must share to be joined. */
function originOf(memory: LocalMemory): object {
  return memory instanceof Uint8Array ? memory.buffer : memory;
}

/** Offset of an element in that memory. */
function placeOf({ memory, offset }: LocalPiece): number {
  return memory instanceof Uint8Array ? memory.byteOffset + offset : offset;
}

/*
 * Key lists: the keys of a message whose memory is not contiguous. They replace the single key of a TAG_RTS, AM_RTS or RTR, whose offset is then {@link
 * KEY_LIST}. Little-endian.
 *
 *   0        u32 ranges
 *   4 + 20 i u32 bytes of the key; 0 for the key of the range before
 *            u64 byte of the memory of the key at which the range begins
 *            u64 bytes of the range
 *            keys, in the order of the ranges
 */

/** Offset that marks a key list: no memory is that long. */
export const KEY_LIST: number = Number.MAX_SAFE_INTEGER;
/** Maximum number of ranges of a list: messages with more go through fragments. */
export const KEY_LIST_MAX = 64;

const RANGE_BYTES = 20;

/** A range of peer memory. */
export interface KeyRange {
  /** The packed key. */
  readonly packed: Uint8Array;
  readonly offset: number;
  readonly byteLength: number;
}

/** Packs a list of up to {@link KEY_LIST_MAX} ranges. Adjacent ranges whose key is the same array share it. */
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

/** Reads a list from untrusted bytes. Undefined if it is malformed, or its ranges do not add up to `byteLength`. */
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
