/** Unpacked remote keys of peers, kept for the next part that goes to the same memory: unpacking one maps the memory into this process. */

import type { Endpoint } from '../../../api/contract/endpoint.ts';
import type { RemoteKey } from '../../../api/contract/memory.ts';

/** Keys that are kept; those in use count, and are kept in any case. */
const KEYS_MAX = 128;

/** A key in the cache. */
export interface CachedKey {
  readonly rkey: RemoteKey;
  readonly name: string;
  users: number;
}

/** The keys of a team. */
export class KeyCache {
  /** By peer and packed bytes, which no other memory has; the longest unused first. */
  readonly #keys: Map<string, CachedKey> = new Map();

  /**
   * A key; {@link give} returns it.
   * @throws UcxError of Endpoint.unpackRkey
   */
  take(endpoint: Endpoint, peer: number, packed: Uint8Array): CachedKey {
    const name = `${peer} ${Buffer.from(packed.buffer, packed.byteOffset, packed.byteLength).toString('latin1')}`;
    const known = this.#keys.get(name);
    if (known?.rkey.live === true) {
      this.#keys.delete(name);
      this.#keys.set(name, known);
      known.users += 1;
      return known;
    }
    if (known !== undefined) this.#drop(known);
    const key = { rkey: endpoint.unpackRkey(packed), name, users: 1 };
    this.#keys.set(name, key);
    this.#evict();
    return key;
  }

  give(key: CachedKey): void {
    key.users -= 1;
    if (key.users === 0 && this.#keys.get(key.name) !== key) key.rkey.release();
  }

  /** Releases all keys; those in use when they are given back. */
  close(): void {
    for (const key of [...this.#keys.values()]) this.#drop(key);
  }

  #evict(): void {
    if (this.#keys.size <= KEYS_MAX) return;
    for (const key of this.#keys.values()) {
      if (key.users > 0) continue;
      this.#drop(key);
      return;
    }
  }

  #drop(key: CachedKey): void {
    this.#keys.delete(key.name);
    if (key.users === 0) key.rkey.release();
  }
}
