/**
 * Unpacked remote keys of peers, kept because a peer sends from, and receives into, the same memory again and again, and unpacking attaches memory. Bounded in
 * number and bytes. Keys in use are never dropped, and stale keys are not kept, because a key may hold the memory itself.
 */

import { OPEN } from '../../ucs/debug/diagnostics.ts';
import { equalBytes } from '../../ucs/memory/bytes.ts';
import type { RemoteKey } from '../contract/memory.ts';

/** The bounds of a cache. Keys in use count, and are kept in any case. */
export interface KeyCacheLimits {
  readonly keysMax: number;
  /** Bytes behind the keys: attached memory stays allocated while a key of it is kept. Default without a bound */
  readonly bytesMax?: number;
}

/** A kept key. */
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
  /** In the order of their last use. */
  readonly #byId: Map<string, Entry<K>> = new Map();
  readonly #byKey: Map<K, Entry<K>> = new Map();

  /** The key that was acquired last: usually it is the next one too, and comparing bytes is cheaper than making an id of them. */
  #last: Entry<K> | undefined = undefined;
  #bytes = 0;

  constructor({ keysMax, bytesMax = Number.POSITIVE_INFINITY }: KeyCacheLimits) {
    this.#keysMax = keysMax;
    this.#bytesMax = bytesMax;
  }

  /** Keys that are kept. */
  get size(): number {
    return this.#byId.size;
  }

  /**
   * The key for these bytes, from before or unpacked now; {@link release} gives it back. Throws what `unpack` throws.
   * @param packed copied where it is kept
   * @param unpack is given that copy
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
    // Copied first: the peer may be able to change the given bytes.
    const packed = given.slice();
    const id = `${peer} ${Buffer.from(packed.buffer).toString('latin1')}`;
    let entry = this.#byId.get(id);
    // Of memory that is gone: there may be other memory now.
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

  /** Gives a key back. @param isStale the memory behind it is gone: the key is not kept */
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

  /** Drops all keys; those in use are dropped when they are released. */
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
