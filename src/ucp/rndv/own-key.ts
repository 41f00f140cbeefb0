/**
 * The remote key of memory that is sent or received: a key of mapped memory for the messages of one connection, or of a registration for one message, with the
 * memory domains whose keys the peer can use.
 */

import { memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { isResizable } from '../../ucs/type/resizable.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MdFlag, MemAccess, type MemoryDomain } from '../../uct/api/memory-domain.ts';
import type { ProtocolContext } from '../base/protocol-host.ts';
import type { Connection } from '../base/request/request.ts';
import type { LocalPiece } from '../mem/memory-handle.ts';
import { HOST_PLACE, hasKeyPart, MemoryHandle } from '../mem/memory-handle.ts';
import type { OperationRegistrar } from '../mem/memory-map.ts';
import { packRkey } from '../mem/rkey-bytes.ts';
import { packPart } from '../mem/rkey-part.ts';
import { KEY_LIST, KEY_LIST_MAX, packKeyList } from './key-list.ts';

/** The key of memory of a message: of one piece, or a list. */
export interface OwnKey {
  readonly packed: Uint8Array;
  /** Byte of the memory behind the key at which the piece begins; KEY_LIST for a list. */
  readonly offset: number;
  /** Undoes the registration. */
  release(): void;
  /** Takes the key back from the peer, before the registration is undone; false if it cannot be, because other messages or registrations use it. */
  revoke(): boolean;
}

/** What one memory domain registered. */
interface Registered {
  readonly md: MemoryDomain;
  readonly registrar: OperationRegistrar;
  readonly memory: MdMemory;
}

/** Access of the registrations that registration caches share. */
const LOCAL_ACCESS = MemAccess.LOCAL_READ | MemAccess.LOCAL_WRITE;
/** Memory domains that register host memory but give no keys for it, found out at the first try. */
const KEYLESS: WeakSet<MemoryDomain> = new WeakSet();

/**
 * The key of a piece; undefined where no lane of the connection could use one, the memory is not mapped for the access, or can go away (a resizable ArrayBuffer).
 * @param access of the peer: bits of MemAccess
 */
function ownKey(
  context: ProtocolContext,
  connection: Connection,
  piece: LocalPiece,
  access: number,
): OwnKey | undefined {
  const { memory, offset } = piece;
  if (memory instanceof MemoryHandle) {
    if ((memory.access & access) !== access || !isOfUse(connection, memory)) return undefined;
    return mappedKey(context, connection, memory, offset);
  }
  if (isResizable(memory.buffer)) return undefined;
  const handle = context.handleOf(memory);
  // If peers may not access other memory in the same ArrayBuffer, these bytes get no key either: it would be a key of the whole ArrayBuffer.
  if (!context.permits(memory, access)) return undefined;
  if (handle !== undefined && isOfUse(connection, handle)) {
    const start = memory.byteOffset - handle.bytes!.byteOffset;
    return mappedKey(context, connection, handle, start + offset);
  }
  return transientKey(context, connection, { bytes: memory, offset }, access);
}

/** The key of a message: undefined where that of one of its pieces is, and for too many pieces. See {@link ownKey}. */
export function keyOfPieces(
  context: ProtocolContext,
  connection: Connection,
  pieces: readonly LocalPiece[],
  access: number,
): OwnKey | undefined {
  const parts = pieces.filter(({ byteLength }) => byteLength > 0);
  const [only] = parts;
  if (only !== undefined && parts.length === 1) return ownKey(context, connection, only, access);
  if (parts.length > KEY_LIST_MAX) return undefined;
  const keys: OwnKey[] = [];
  const release = (): void => {
    for (const key of keys) key.release();
  };
  try {
    for (const piece of parts) {
      const key = ownKey(context, connection, piece, access);
      if (key === undefined) {
        release();
        return undefined;
      }
      keys.push(key);
    }
  } catch (error) {
    release();
    throw error;
  }
  const ranges = keys.map(({ packed, offset }, i) => ({ packed, offset, byteLength: parts[i]!.byteLength }));
  const revoke = (): boolean => keys.every((key) => key.revoke());
  return { packed: packKeyList(ranges), offset: KEY_LIST, release, revoke };
}

/** The key of mapped memory that the connection keeps. */
function mappedKey(context: ProtocolContext, connection: Connection, handle: MemoryHandle, offset: number): OwnKey {
  const key = connection.messageKeys.acquire(handle, (missing) => context.makeMessageKey(missing));
  let isReleased = false;
  const release = (): void => {
    if (!isReleased) key.uses -= 1;
    isReleased = true;
  };
  const revoke = (): boolean => {
    // The key of a network device stays valid until the memory is unmapped.
    const isKept = connection.lanes.some(
      ({ md: { md, index } }) => hasKeyPart(handle, index) && (md.attributes.flags & MdFlag.PUBLISHES_KEYS) === 0,
    );
    if (key.uses > 1 || isKept) return false;
    key.revoke();
    return true;
  };
  return { packed: key.packed, offset, release, revoke };
}

/** Whether the key of mapped memory has a part for a lane of the connection. */
function isOfUse({ lanes }: Connection, memory: MemoryHandle): boolean {
  return lanes.some(({ md }) => hasKeyPart(memory, md.index));
}

function transientKey(
  { registrars }: ProtocolContext,
  connection: Connection,
  { bytes, offset }: { readonly bytes: Uint8Array; readonly offset: number },
  access: number,
): OwnKey | undefined {
  const registered: Registered[] = [];
  const release = (): void => {
    for (const { registrar, memory } of registered.splice(0)) registrar.memDereg(memory, { force: true });
  };
  // Registers the whole ArrayBuffer: registration caches know it as a whole, and small Buffers share one.
  const buffer = new Uint8Array(bytes.buffer);
  try {
    for (const { md, index } of new Set(connection.lanes.map(({ md: open }) => open))) {
      const registrar = registrars[index]!;
      const part = registerFor(md, registrar, buffer, access);
      if (part !== undefined) registered.push({ md, registrar, memory: part });
    }
  } catch (error) {
    release();
    throw error;
  }
  if (registered.length === 0) return undefined;
  const parts = registered.flatMap(({ md, memory }) => packPart(md, memory, undefined) ?? []);
  if (parts.length === 0) {
    release();
    return undefined;
  }
  const { address } = registered[0]!.memory;
  const packed = packRkey({ ...HOST_PLACE, address, byteLength: buffer.byteLength, access, parts });
  const revoke = (): boolean => {
    if (registered.some(({ md }) => md.attributes.cacheMemoryTypes !== 0)) return false;
    release();
    return true;
  };
  return { packed, offset: bytes.byteOffset + offset, release, revoke };
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
