/** An unpacked remote key, the part that all engines share: owner, and address and length of the memory. Engines add their own keys. */

import { type MemoryType, memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import { closedError, invalidParam } from '../../../ucs/type/error.ts';
import { showAs } from '../../../ucs/type/inspect.ts';
import { THREAD_BOUND } from '../../../ucs/type/thread-bound.ts';
import type { RemoteKey } from '../memory.ts';

/** Address and length of the memory behind a key. */
export interface RemoteExtent {
  readonly memoryType: MemoryType;
  readonly address: bigint;
  readonly byteLength: number;
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
  #released = false;

  constructor(owner: object, { memoryType, address, byteLength }: RemoteExtent) {
    this.owner = owner;
    this.memoryType = memoryType;
    this.address = address;
    this.byteLength = byteLength;
  }

  abstract get sysDevice(): number | undefined;
  abstract get bytes(): Uint8Array | undefined;
  abstract get live(): boolean;

  /** Whether a value is an unpacked key, and not merely an object with the same properties. */
  static isGenuine(value: unknown): value is OwnedRemoteKey {
    return typeof value === 'object' && value !== null && #released in value;
  }

  get released(): boolean {
    return this.#released;
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.releaseParts();
  }

  /** Releases the keys of the engine; called once. */
  protected abstract releaseParts(): void;
}

showAs(OwnedRemoteKey, 'RemoteKey', ({ memoryType, byteLength, address, released }) => ({
  memoryType: memoryTypeName(memoryType),
  byteLength,
  address: `0x${address.toString(16)}`,
  state: released ? 'released' : 'unpacked',
}));

/**
 * Checks the remote side of an operation: the key, its owner, and the range. `K` is the key class of the owner.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkRemote<K extends OwnedRemoteKey>(
  owner: object,
  rkey: RemoteKey,
  offset: number,
  byteLength: number,
): asserts rkey is K {
  const isGood =
    OwnedRemoteKey.isGenuine(rkey) && rkey.owner === owner && !rkey.released && Number.isSafeInteger(offset);
  if (!isGood || offset < 0 || offset + byteLength > rkey.byteLength) refuseRemote(owner, rkey, offset, byteLength);
}

/** Throws the error of {@link checkRemote}: apart from it, so that it is small enough to be compiled into its callers. */
function refuseRemote(owner: object, rkey: RemoteKey, offset: number, byteLength: number): never {
  if (!OwnedRemoteKey.isGenuine(rkey)) throw invalidParam('rkey', 'must be a remote key from unpackRkey', rkey);
  if (rkey.owner !== owner) throw invalidParam('rkey', 'must be unpacked by this endpoint', rkey.address);
  if (rkey.released) throw closedError('remote key');
  if (!Number.isSafeInteger(offset) || offset < 0) {
    throw invalidParam('remoteOffset', 'must be an integer of 0 or more', offset);
  }
  const rule = `must not reach beyond the remote memory of ${rkey.byteLength} bytes`;
  throw invalidParam('remoteOffset', rule, offset + byteLength);
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
  checkRemote<K>(owner, rkey, offset, wordBytes);
  if (offset % wordBytes === 0) return;
  throw invalidParam('remoteOffset', `must be a multiple of the ${wordBytes} bytes of the word`, offset);
}
