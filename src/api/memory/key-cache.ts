/**
 * Unpacked remote keys of peers, cached because a peer usually sends from and receives into the same memory repeatedly, and unpacking attaches memory.
 * Bounded in number and bytes. Keys in use are never evicted, and stale keys are not kept, because a key may hold the memory itself.
 */

import { OPEN } from '../../ucs/debug/diagnostics.ts';
import { equalBytes } from '../../ucs/memory/bytes.ts';
import type { RemoteKey } from '../contract/memory.ts';

/** The bounds of a cache. Keys in use count, but are never evicted. */
export interface KeyCacheLimits {
  readonly keysMax: number;
  /** Bytes behind the keys: attached memory stays allocated while its key is cached. Default: unlimited */
  readonly bytesMax?: number;
}

/** A cached key. */
interface Entry<K> {
  readonly peer: number;
  readonly packed: Uint8Array;
  readonly id: string;
  readonly rkey: K;
  uses: number;
}

/** The keys of one peer, or of several. */
export class KeyCache<K extends RemoteKey> {
  readonly #keysMax: number;
  readonly #bytesMax: number;
  /** In the order of the last use. */
  readonly #byId: Map<string, Entry<K>> = new Map();
  readonly #byKey: Map<K, Entry<K>> = new Map();

  /** The last acquired key: usually the next one is the same, and comparing bytes is cheaper than building an id from them. */
  #last: Entry<K> | undefined = undefined;
  #bytes = 0;

  constructor({ keysMax, bytesMax = Number.POSITIVE_INFINITY }: KeyCacheLimits) {
    this.#keysMax = keysMax;
    this.#bytesMax = bytesMax;
  }

  /** Number of cached keys. */
  get size(): number {
    return this.#byId.size;
  }

  /**
   * The key for these bytes, cached or unpacked now; {@link release} returns it. Throws what `unpack` throws.
   * @param packed copied if it is cached
   * @param unpack called with the copy
   * @param peer number of the peer, in a cache for several
   */
  acquire(packed: Uint8Array, unpack: (packed: Uint8Array) => K, peer = 0): K {
    this.#dropDead();
    const last = this.#last;
    const isLast = last !== undefined && last.peer === peer && last.rkey.live && equalBytes(last.packed, packed);
    const entry = isLast ? last : this.#find(packed, unpack, peer);
    entry.uses += 1;
    return entry.rkey;
  }

  #find(given: Uint8Array, unpack: (packed: Uint8Array) => K, peer: number): Entry<K> {
    // Copied first: the peer may be able to change the original bytes.
    const packed = given.slice();
    const id = `${peer} ${Buffer.from(packed.buffer).toString('latin1')}`;
    let entry = this.#byId.get(id);
    // The memory was released: the address may belong to other memory now.
    if (entry?.rkey.live === false) {
      this.#drop(entry);
      entry = undefined;
    }
    if (entry === undefined) {
      entry = { peer, packed, id, rkey: unpack(packed), uses: 0 };
      this.#byKey.set(entry.rkey, entry);
      OPEN.keptKeys += 1;
      this.#bytes += entry.rkey.byteLength;
      this.#evict();
    } else this.#byId.delete(id);
    this.#byId.set(id, entry);
    this.#last = entry;
    return entry;
  }

  /** Releases a key. @param isStale true if its memory was released: then the key is not cached */
  release(rkey: K, isStale = false): void {
    const entry = this.#byKey.get(rkey);
    if (entry === undefined) {
      rkey.release();
      return;
    }
    entry.uses -= 1;
    if (isStale || this.#byId.get(entry.id) !== entry) this.#drop(entry);
    this.#dropDead();
  }

  /** Evicts all keys; keys in use are dropped when they are released. */
  close(): void {
    for (const entry of [...this.#byId.values()]) this.#drop(entry);
  }

  #evict(): void {
    for (const entry of this.#byId.values()) {
      if (this.#byId.size < this.#keysMax && this.#bytes <= this.#bytesMax) return;
      if (entry.uses === 0) this.#drop(entry);
    }
  }

  #dropDead(): void {
    for (const entry of this.#byId.values()) if (entry.uses === 0 && !entry.rkey.live) this.#drop(entry);
  }

  #drop(entry: Entry<K>): void {
    if (this.#byId.get(entry.id) === entry) {
      this.#byId.delete(entry.id);
      this.#bytes -= entry.rkey.byteLength;
      if (this.#last === entry) this.#last = undefined;
    }
    if (entry.uses > 0) return;
    this.#byKey.delete(entry.rkey);
    OPEN.keptKeys -= 1;
    entry.rkey.release();
  }
}
