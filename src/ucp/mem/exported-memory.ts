/**
 * The memory of a context for which remote keys were packed, as workers find it when a peer asks them to move bytes. The keys of
 * transports are the memory domains' own.
 *
 * A memory key is 24 bytes: u64 id, 16 bytes secret.
 */

import { systemRandomBytes } from '../../ucs/sys/random.ts';
import type { MemoryHandle } from './memory-handle.ts';

/** Name of the part of a remote key that holds the memory key. */
export const MEMORY_KEY_NAME = 'ucp';
/** Bytes of a memory key. */
export const MEMORY_KEY_BYTES = 24;
const SECRET_BYTES = 16;

interface Entry {
  readonly id: number;
  readonly handle: MemoryHandle;
  readonly key: Uint8Array;
}

/** The exported memory of one context. */
export class ExportedMemory {
  readonly #byId: Map<number, Entry> = new Map();
  readonly #byHandle: Map<MemoryHandle, Entry> = new Map();
  #nextId = 1;

  /** The key of memory: the same bytes until it is revoked. */
  keyOf(handle: MemoryHandle): Uint8Array {
    const known = this.#byHandle.get(handle);
    if (known !== undefined) return known.key;
    const id = this.#nextId++;
    const key = new Uint8Array(MEMORY_KEY_BYTES);
    new DataView(key.buffer).setBigUint64(0, BigInt(id), true);
    key.set(systemRandomBytes(SECRET_BYTES), MEMORY_KEY_BYTES - SECRET_BYTES);
    const entry = { id, handle, key };
    this.#byId.set(id, entry);
    this.#byHandle.set(handle, entry);
    return key;
  }

  /** The memory behind a key that a peer sent, for an access of it; undefined for a key that is malformed, stale or forged, and for other memory. */
  find(bytes: Uint8Array, offset: number, access: number): MemoryHandle | undefined {
    if (offset + MEMORY_KEY_BYTES > bytes.byteLength) return undefined;
    // Of an id this large there is no memory: the numbers begin at 1.
    if (bytes[offset + 6]! !== 0 || bytes[offset + 7]! !== 0) return undefined;
    let id = 0;
    for (let i = 5; i >= 0; i--) id = id * 256 + bytes[offset + i]!;
    const entry = this.#byId.get(id);
    if (entry === undefined) return undefined;
    // In constant time, so that the duration tells a forger nothing about the secret.
    let difference = 0;
    for (let i = 0; i < MEMORY_KEY_BYTES; i++) difference |= entry.key[i]! ^ bytes[offset + i]!;
    const { handle } = entry;
    return difference === 0 && handle.mapped && (handle.access & access) === access ? handle : undefined;
  }

  /** Revokes the key of memory. */
  revoke(handle: MemoryHandle): void {
    const entry = this.#byHandle.get(handle);
    if (entry === undefined) return;
    this.#byId.delete(entry.id);
    this.#byHandle.delete(handle);
  }
}
