/**
 * Keys of local memory in the messages of one connection.
 *
 * A key that is published in shared memory stays valid when the connection ends. It can be revoked at that moment only if no other peer has it. Therefore,
 * where a memory domain publishes keys, local memory gets a separate registration for each connection.
 */

import type { Log } from '../../ucs/debug/log.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import type { MdMemory } from '../../uct/api/memory.ts';
import { MdFlag, type MemoryDomain, type RegistrationSource } from '../../uct/api/memory-domain.ts';
import type { OpenMd } from '../resources/resources.ts';
import type { MemoryHandle, RevocableKey } from './memory-handle.ts';
import { packPart, packRkey, type RkeyPart } from './remote-key.ts';

/** Maximum number of keys of one connection, which is also the number that peers keep. The least recently used key is revoked once no message uses it. */
export const KEYS_MAX = 64;

/** An additional registration, in a memory domain that publishes keys. */
interface Published {
  readonly md: MemoryDomain;
  readonly memory: MdMemory;
}

export class MessageKey implements RevocableKey {
  readonly packed: Uint8Array;
  /** Number of messages that use it. */
  uses = 0;
  readonly #published: readonly Published[];
  readonly #ofHandle: Set<RevocableKey>;
  #isRevoked = false;

  /** @param ofHandle the keys of the handle, from which this one is removed when it is revoked */
  constructor(packed: Uint8Array, published: readonly Published[], ofHandle: Set<RevocableKey>) {
    this.#ofHandle = ofHandle;
    ofHandle.add(this);
    this.packed = packed;
    this.#published = published;
  }

  get isRevoked(): boolean {
    return this.#isRevoked;
  }

  /** Revokes the key: peers can no longer use it. Idempotent. */
  revoke(): void {
    if (this.#isRevoked) return;
    this.#isRevoked = true;
    this.#ofHandle.delete(this);
    for (const { md, memory } of this.#published) if (memory.live) md.memDereg(memory, { force: true });
  }
}

/** The memory domains of a context, and the index of the one that allocated the memory. */
export interface KeySources {
  readonly mds: readonly OpenMd[];
  readonly log: Log;
  readonly allocator: number | undefined;
}

/** Creates a key of mapped memory. A memory domain that cannot register it again is left out: peers then use the other parts. */
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

/** The memory that a memory domain can register again. */
function sourceFor(handle: MemoryHandle, md: number, allocator: number | undefined): RegistrationSource {
  const { memoryType, sysDevice = -1, address, byteLength, bytes, mdMemory } = handle;
  if (allocator !== undefined && (md === allocator || bytes === undefined)) return mdMemory[allocator]!;
  return bytes ?? { memoryType, sysDevice, address, byteLength };
}

/** Undefined if the memory cannot be registered again, such as an imported dma-buf, or for lack of resources. */
function registerAgain(md: MemoryDomain, source: RegistrationSource, access: number): MdMemory | undefined {
  try {
    return md.memReg(source, { access });
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

export class MessageKeys {
  /** In the order of last use. */
  readonly #byHandle: Map<MemoryHandle, MessageKey> = new Map();

  /** The key of mapped memory for one more message; decrementing `uses` returns it. */
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

  /** Revokes all keys: the peer can no longer access memory of messages. */
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
