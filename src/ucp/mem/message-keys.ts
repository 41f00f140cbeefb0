/**
 * The keys of the messages of one connection: of own memory, and those of the peer.
 *
 * Keys that are published to other processes work without their connection: they end with it only if no other peer has them. So own memory gets a
 * registration of its own for each connection, where a memory domain publishes keys.
 *
 * Keys of the peer are kept unpacked, because a peer sends from the same memory again and again, and unpacking attaches memory. Bounded in number and
 * bytes. Keys in use are never dropped, and stale keys are not kept, because a key may hold the memory itself.
 */

import type { Log } from '../../ucs/debug/log.ts';
import { equalBytes } from '../../ucs/memory/bytes.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MdFlag, type MemoryDomain, type RegistrationSource } from '../../uct/api/memory-domain.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { MemoryHandle, RevocableKey } from './memory-handle.ts';
import { packPart, packRkey, type RemoteKey, type RkeyPart } from './remote-key.ts';

/** Keys of one connection, at most: peers keep as many. The least recently used one is revoked, once no message uses it. */
const KEYS_MAX = 64;

/** A second registration, in a memory domain that publishes keys. */
interface Published {
  readonly md: MemoryDomain;
  readonly memory: MdMemory;
}

/** A key of mapped memory. */
export class MessageKey implements RevocableKey {
  readonly packed: Uint8Array;
  /** Messages that use it. */
  uses = 0;
  readonly #published: readonly Published[];
  readonly #ofHandle: Set<RevocableKey>;
  #isRevoked = false;

  /** @param ofHandle the keys of the handle, of which it is one until it is revoked */
  constructor(packed: Uint8Array, published: readonly Published[], ofHandle: Set<RevocableKey>) {
    this.#ofHandle = ofHandle;
    ofHandle.add(this);
    this.packed = packed;
    this.#published = published;
  }

  get isRevoked(): boolean {
    return this.#isRevoked;
  }

  /** Peers cannot use the key from here on. Idempotent. */
  revoke(): void {
    if (this.#isRevoked) return;
    this.#isRevoked = true;
    this.#ofHandle.delete(this);
    for (const { md, memory } of this.#published) if (memory.live) md.memDereg(memory, { force: true });
  }
}

/** The memory domains of a context, with the index of the one that allocated the memory. */
export interface KeySources {
  readonly mds: readonly OpenMd[];
  readonly log: Log;
  readonly allocator: number | undefined;
}

/** Makes a key of mapped memory. A memory domain that cannot register it again is left out: peers use the others. */
export function makeMessageKey({ mds, log, allocator }: KeySources, handle: MemoryHandle): MessageKey {
  const published: Published[] = [];
  const parts: RkeyPart[] = [];
  for (const [index, memory] of handle.mdMemory.entries()) {
    if (memory === undefined || memory.packable === false) continue;
    const { md } = mds[index]!;
    const isPublished = (md.attributes.flags & MdFlag.PUBLISHES_KEYS) !== 0;
    const own = isPublished ? registerAgain(md, sourceFor(handle, index, allocator), handle.access) : memory;
    if (own === undefined) continue;
    if (isPublished) published.push({ md, memory: own });
    const part = packPart(md, own, log);
    if (part !== undefined) parts.push(part);
  }
  const { memoryType, sysDevice, address, byteLength, access } = handle;
  const packed = packRkey({ memoryType, sysDevice, address, byteLength, access, parts });
  return new MessageKey(packed, published, handle.messageKeys);
}

/** What a memory domain can register again. */
function sourceFor(handle: MemoryHandle, md: number, allocator: number | undefined): RegistrationSource {
  const { memoryType, sysDevice = -1, address, byteLength, bytes, mdMemory } = handle;
  if (allocator !== undefined && (md === allocator || bytes === undefined)) return mdMemory[allocator]!;
  return bytes ?? { memoryType, sysDevice, address, byteLength };
}

/** Undefined for memory that cannot be registered again, such as an imported dma-buf, or for lack of resources. */
function registerAgain(md: MemoryDomain, source: RegistrationSource, access: number): MdMemory | undefined {
  try {
    return md.memReg(source, { access });
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

/** The keys of own memory of one connection. */
export class MessageKeys {
  /** In the order of their last use. */
  readonly #byHandle: Map<MemoryHandle, MessageKey> = new Map();

  /** The key of mapped memory for one more message, which gives it back by `uses`. */
  acquire(handle: MemoryHandle, make: (handle: MemoryHandle) => MessageKey): MessageKey {
    let key = this.#byHandle.get(handle);
    if (key === undefined || key.isRevoked) {
      this.#evict();
      key = make(handle);
    } else this.#byHandle.delete(handle);
    this.#byHandle.set(handle, key);
    key.uses += 1;
    return key;
  }

  /** Revokes all keys: the peer cannot reach memory of messages any more. */
  revoke(): void {
    for (const key of this.#byHandle.values()) key.revoke();
    this.#byHandle.clear();
  }

  #evict(): void {
    for (const [handle, key] of this.#byHandle) {
      if (this.#byHandle.size < KEYS_MAX && !key.isRevoked) return;
      if (key.uses > 0) continue;
      key.revoke();
      this.#byHandle.delete(handle);
    }
  }
}

/** The bytes behind the keys of a peer that are kept, at most: attached memory stays allocated while a key of it is kept. */
const BYTES_MAX = 256 * 2 ** 20;

/** A kept key of the peer. */
interface Entry {
  readonly packed: Uint8Array;
  readonly id: string;
  readonly rkey: RemoteKey;
  uses: number;
}

/** The keys of the peer of one connection. */
export class RkeyCache {
  /** In the order of their last use. */
  readonly #byId: Map<string, Entry> = new Map();
  readonly #byKey: Map<RemoteKey, Entry> = new Map();

  /** The key that was acquired last: usually it is the next one too, and comparing bytes is cheaper than making an id of them. */
  #last: Entry | undefined = undefined;
  #bytes = 0;

  /** Keys that are kept. */
  get size(): number {
    return this.#byId.size;
  }

  /**
   * The key for these bytes, from before or unpacked now; {@link release} gives it back. Throws what `unpack` throws.
   * @param packed copied where it is kept
   * @param unpack is given that copy
   */
  acquire(packed: Uint8Array, unpack: (packed: Uint8Array) => RemoteKey): RemoteKey {
    this.#dropDead();
    const last = this.#last;
    const entry = last !== undefined && equalBytes(last.packed, packed) ? last : this.#find(packed, unpack);
    entry.uses += 1;
    return entry.rkey;
  }

  #find(given: Uint8Array, unpack: (packed: Uint8Array) => RemoteKey): Entry {
    // Copied first: the peer may be able to change the given bytes.
    const packed = given.slice();
    const id = Buffer.from(packed.buffer).toString('latin1');
    let entry = this.#byId.get(id);
    if (entry === undefined) {
      entry = { packed, id, rkey: unpack(packed), uses: 0 };
      this.#byKey.set(entry.rkey, entry);
      this.#bytes += entry.rkey.byteLength;
      this.#evict();
    } else this.#byId.delete(id);
    this.#byId.set(id, entry);
    this.#last = entry;
    return entry;
  }

  /** Gives a key back. @param isStale the memory behind it is gone: the key is not kept */
  release(rkey: RemoteKey, isStale = false): void {
    const entry = this.#byKey.get(rkey);
    if (entry === undefined) {
      rkey.release();
      return;
    }
    entry.uses -= 1;
    if (isStale || this.#byId.get(entry.id) !== entry) this.#drop(entry);
    this.#dropDead();
  }

  /** Drops all keys; those in use are dropped when they are released. */
  close(): void {
    for (const entry of [...this.#byId.values()]) this.#drop(entry);
  }

  #evict(): void {
    for (const entry of this.#byId.values()) {
      if (this.#byId.size < KEYS_MAX && this.#bytes <= BYTES_MAX) return;
      if (entry.uses === 0) this.#drop(entry);
    }
  }

  #dropDead(): void {
    for (const entry of this.#byId.values()) if (entry.uses === 0 && !entry.rkey.live) this.#drop(entry);
  }

  #drop(entry: Entry): void {
    if (this.#byId.get(entry.id) === entry) {
      this.#byId.delete(entry.id);
      this.#bytes -= entry.rkey.byteLength;
      if (this.#last === entry) this.#last = undefined;
    }
    if (entry.uses > 0) return;
    this.#byKey.delete(entry.rkey);
    entry.rkey.release();
  }
}
