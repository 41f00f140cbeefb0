/** An unpacked remote key, the part that all engines share: owner, and address and length of the memory. Engines add their own keys. */

import { type MemoryType, memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import { closedError, invalidParam, outsideOf } from '../../../ucs/type/error.ts';
import { showAs } from '../../../ucs/type/inspect.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import type { MemoryProtection, RemoteKey, RemoteKeyPart } from '../operation/memory.ts';
import { ATOMIC_ACCESS, protectionOf, refusedAccess, withAtomics } from './protection.ts';

/** Address and length of the memory behind a key, and what peers may do with it. */
export interface RemoteExtent {
  readonly memoryType: MemoryType;
  readonly address: bigint;
  readonly byteLength: number;
  /** Bits of REMOTE_ACCESS. */
  readonly access: number;
}

/** An unpacked remote key. */
export abstract class OwnedRemoteKey implements RemoteKey {
  readonly thread: symbol = THREAD_BOUND;
  /** The endpoint or connection for which it was unpacked. */
  readonly owner: object;
  readonly memoryType: MemoryType;
  /** Address of the first byte at the owner of the memory. */
  readonly address: bigint;
  readonly byteLength: number;
  /** What operations with it may do: bits of MemAccess. */
  readonly access: number;
  #released = false;

  constructor(owner: object, { memoryType, address, byteLength, access }: RemoteExtent) {
    this.owner = owner;
    this.memoryType = memoryType;
    this.address = address;
    this.byteLength = byteLength;
    this.access = withAtomics(access);
  }

  abstract get sysDevice(): number | undefined;
  abstract get bytes(): Uint8Array | undefined;
  abstract get live(): boolean;

  /** Whether a value is an unpacked key, and not merely an object with the same properties. */
  static isGenuine(value: unknown): value is OwnedRemoteKey {
    return typeof value === 'object' && value !== null && #released in value;
  }

  get protection(): readonly MemoryProtection[] {
    return protectionOf(this.access);
  }

  get released(): boolean {
    return this.#released;
  }

  describe(): readonly RemoteKeyPart[] {
    return this.#released ? [] : this.describeParts();
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.releaseParts();
  }

  /** The parts of a key that is not released. */
  protected abstract describeParts(): readonly RemoteKeyPart[];
  /** Releases the keys of the engine; called once. */
  protected abstract releaseParts(): void;
}

showAs(OwnedRemoteKey, 'RemoteKey', (key) => {
  const { memoryType, byteLength, address, released, access } = key;
  return {
    memoryType: memoryTypeName(memoryType),
    byteLength,
    address: `0x${address.toString(16)}`,
    source: OwnedRemoteKey.isGenuine(key) ? sourceText(key.describe()) : undefined,
    protection: access === ATOMIC_ACCESS ? undefined : protectionOf(access).join(', '),
    state: released ? 'released' : 'unpacked',
  };
});

/** The first source that a key tells. */
function sourceText(parts: readonly RemoteKeyPart[]): string | undefined {
  const source = parts.find((part) => part.source !== undefined)?.source;
  if (source === undefined) return undefined;
  return `offset ${source.offset} of arena ${source.generation} of process ${source.pid} on the card at ${source.busId}`;
}

/**
 * Checks the remote side of an operation: the key, its owner, the range, and the access. `K` is the key class of the owner.
 * @param access accesses of the operation: bits of MemAccess
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkRemote<K extends OwnedRemoteKey>(
  owner: object,
  rkey: RemoteKey,
  offset: number,
  byteLength: number,
  access: number,
): asserts rkey is K {
  const isGood =
    OwnedRemoteKey.isGenuine(rkey) && rkey.owner === owner && !rkey.released && (rkey.access & access) === access;
  const isInside = isGood && Number.isSafeInteger(offset) && offset >= 0 && offset + byteLength <= rkey.byteLength;
  if (!isInside) refuseRemote(owner, rkey, offset, byteLength, access);
}

/** Throws the error of {@link checkRemote}: apart from it, so that it is small enough to be compiled into its callers. */
function refuseRemote(owner: object, rkey: RemoteKey, offset: number, byteLength: number, access: number): never {
  if (!OwnedRemoteKey.isGenuine(rkey)) throw invalidParam('rkey', 'must be a remote key from unpackRkey', rkey);
  if (rkey.owner !== owner) throw invalidParam('rkey', 'must be unpacked by this endpoint, not by another one', rkey);
  if (rkey.released) throw closedError('remote key');
  if ((rkey.access & access) !== access) throw refusedAccess('rkey', access, rkey.access);
  if (!Number.isSafeInteger(offset) || offset < 0) {
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', offset);
  }
  throw outsideOf('remote memory', 'remoteOffset', { offset, byteLength, size: rkey.byteLength });
}

/**
 * The same for an atomic operation, whose word must be aligned.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkRemoteWord<K extends OwnedRemoteKey>(
  owner: object,
  rkey: RemoteKey,
  offset: number,
  wordBytes: number,
): asserts rkey is K {
  checkRemote<K>(owner, rkey, offset, wordBytes, ATOMIC_ACCESS);
  if (offset % wordBytes === 0) return;
  throw invalidParam('remoteOffset', `must be a multiple of the ${wordBytes} bytes of the word`, offset);
}
