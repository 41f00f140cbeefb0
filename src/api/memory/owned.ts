/**
 * Implementation of mapped memory that all engines share: owner, address, length and state; and of unpacked remote keys: owner, address and length of the
 * memory. Engines add their registrations and keys.
 */

import { type MemoryType, memoryTypeName } from '../../ucs/memory/memory-type.ts';
import { argumentError, closedError, invalidParam, outsideOf, type UcxError } from '../../ucs/type/error.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import { MemAccess } from '../../uct/api/memory-domain.ts';
import type { Context } from '../contract/context.ts';
import {
  ATOMIC_ACCESS,
  type CopyOptions,
  type MemoryHandle,
  type MemoryProtection,
  type MemoryRange,
  protectionOf,
  type RemoteKey,
  type RemoteKeyPart,
  refusedAccess,
  withAtomics,
} from '../contract/memory.ts';
import type { MemoryCopier } from './copier.ts';

/** Address and length of memory. */
export interface MemoryExtent {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
}

/** A context of the native engine, as the owner of memory. */
export interface MemoryOwner {
  /** Copies to and from the memory of the context. */
  readonly copier: MemoryCopier;
}

/** Mapped memory of the native engine. */
export type NativeMemory = OwnedMemory & { readonly owner: MemoryOwner };

/** Mapped memory. */
export abstract class OwnedMemory implements MemoryHandle {
  /** The context that mapped it. Must be the first field, because it makes cloning fail before bytes are cloned. */
  readonly owner: object;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  /** Permitted accesses: bits of MemAccess. */
  readonly access: number;
  #mapped = true;
  #lost: UcxError | undefined = undefined;

  constructor(owner: object, extent: MemoryExtent, bytes: Uint8Array | undefined, access: number) {
    this.owner = owner;
    this.memoryType = extent.memoryType;
    this.sysDevice = extent.sysDevice;
    this.address = extent.address;
    this.byteLength = extent.byteLength;
    this.bytes = bytes;
    this.access = access;
  }

  /** Whether a value is mapped memory, and not merely an object with the same properties. */
  static isGenuine(value: unknown): value is OwnedMemory {
    return typeof value === 'object' && value !== null && #mapped in value;
  }

  get mapped(): boolean {
    return this.#mapped && this.#lost === undefined;
  }

  /** The error for a use of unmapped memory. @param name of the handle in the message */
  unmappedError(name = 'memory'): UcxError {
    return this.#lost ?? closedError(name, 'unmapped');
  }

  /**
   * Rejects a handle that a context has not mapped.
   * @throws UcxError ERR_INVALID_PARAM with the reason: not a handle, of another context, already unmapped
   */
  static refuse(owner: object, handle: unknown): never {
    if (!OwnedMemory.isGenuine(handle)) throw invalidParam('handle', 'must be a memory handle from memMap', handle);
    if (handle.owner !== owner)
      throw invalidParam('handle', 'must be mapped by this context, not by another one', handle);
    throw argumentError('handle', 'must be mapped', 'unmapped', 'the memory has been unmapped');
  }

  /** Marks the memory as lost, with the error for later uses; for the context. It can still be unmapped. */
  lose(error: UcxError): void {
    this.#lost ??= error;
  }

  get protection(): readonly MemoryProtection[] {
    return protectionOf(this.access);
  }

  view(): Uint8Array | undefined {
    if (!this.mapped) throw this.unmappedError();
    return this.bytes;
  }

  write(bytes: Uint8Array, options: MemoryRange = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_WRITE, (memory, copier) => copier.write(memory, bytes, options));
  }

  read(target?: Uint8Array, options: MemoryRange = {}): Promise<Uint8Array> {
    return this.#copied(MemAccess.LOCAL_READ, (memory, copier) => copier.read(memory, target, options));
  }

  fill(value: number, options: MemoryRange = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_WRITE, (memory, copier) => copier.fill(memory, value, options));
  }

  copyTo(other: MemoryHandle, options: CopyOptions = {}): Promise<void> {
    return this.#copied(MemAccess.LOCAL_READ, (memory, copier) => {
      if (!OwnedMemory.isGenuine(other)) throw invalidParam('other', 'must be a memory handle', other);
      if (other.owner !== this.owner) throw invalidParam('other', 'must be mapped by the same context', other);
      if (!other.mapped) throw other.unmappedError();
      other.requireAccess(MemAccess.LOCAL_WRITE);
      return copier.copy(memory, other.native, options);
    });
  }

  /** The same memory as a handle of the native engine. */
  protected abstract get native(): NativeMemory;

  async #copied<T>(access: number, run: (memory: NativeMemory, copier: MemoryCopier) => Promise<T>): Promise<T> {
    if (!this.mapped) throw this.unmappedError();
    this.requireAccess(access);
    const { native } = this;
    return await run(native, native.owner.copier);
  }

  /** Rejects an operation that the protection does not permit. @throws UcxError ERR_INVALID_PARAM */
  requireAccess(access: number, argument = 'memory'): void {
    if ((this.access & access) !== access) throw refusedAccess(argument, access, this.access);
  }

  [Symbol.dispose](): void {
    if (this.#mapped) (this.owner as Context).memUnmap(this);
  }

  /** Marks the handle as unmapped; for the context. */
  retire(): void {
    this.#mapped = false;
  }
}

showAs(OwnedMemory, 'MemoryHandle', ({ memoryType, sysDevice, byteLength, address, mapped, access }) => ({
  memoryType: memoryTypeName(memoryType),
  card: sysDevice,
  byteLength,
  address: `0x${address.toString(16)}`,
  protection: access === MemAccess.ALL ? undefined : protectionOf(access).join(', '),
  state: mapped ? 'mapped' : 'unmapped',
}));

/** Address and length of the memory behind a key, and the permitted accesses of peers. */
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
  /** The endpoint or connection that unpacked it. */
  readonly owner: object;
  readonly memoryType: MemoryType;
  /** Address of the first byte at the owner of the memory. */
  readonly address: bigint;
  readonly byteLength: number;
  /** Permitted accesses: bits of MemAccess. */
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

  [Symbol.dispose](): void {
    this.release();
  }

  /** The components of an unreleased key. */
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

/** The first source in the components of a key. */
function sourceText(parts: readonly RemoteKeyPart[]): string | undefined {
  const source = parts.find((part) => part.source !== undefined)?.source;
  if (source === undefined) return undefined;
  return `offset ${source.offset} of arena ${source.generation} of process ${source.pid} on the card at ${source.busId}`;
}

/** A range of remote memory. */
export interface RemoteRange<K extends RemoteKey = RemoteKey> {
  readonly rkey: K;
  readonly remoteOffset: number;
  readonly byteLength: number;
}

/**
 * Checks the remote side of an operation: the key, its owner, the range, and the access.
 * @param access accesses of the operation: bits of MemAccess
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkRemote(owner: object, range: RemoteRange, access: number): void {
  const { rkey, remoteOffset: offset, byteLength } = range;
  const isGood =
    OwnedRemoteKey.isGenuine(rkey) && rkey.owner === owner && !rkey.released && (rkey.access & access) === access;
  const isInside = isGood && Number.isSafeInteger(offset) && offset >= 0 && offset + byteLength <= rkey.byteLength;
  if (!isInside) refuseRemote(owner, range, access);
}

/** Throws the error of {@link checkRemote}; a separate function, so that checkRemote is small enough to be inlined. */
function refuseRemote(owner: object, { rkey, remoteOffset: offset, byteLength }: RemoteRange, access: number): never {
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
 * Checks the remote side of an atomic operation, whose word must be aligned.
 * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
 */
export function checkRemoteWord(owner: object, word: RemoteRange): void {
  checkRemote(owner, word, ATOMIC_ACCESS);
  const { remoteOffset, byteLength } = word;
  if (remoteOffset % byteLength === 0) return;
  throw invalidParam('remoteOffset', `must be a multiple of the word size of ${byteLength} bytes`, remoteOffset);
}
