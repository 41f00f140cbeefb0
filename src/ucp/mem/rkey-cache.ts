/**
 * Unpacked remote keys from messages of one peer, kept because a peer sends from the same memory again and again, and unpacking attaches memory.
 * Bounded in number and bytes. Keys in use are never dropped, and stale keys are not kept, because a key may hold the memory itself.
 */

import { equalBytes } from '../../ucs/memory/bytes.ts';
import type { RemoteKey } from './remote-key.ts';

/** Keys that are kept at most, and the bytes behind those: attached memory stays allocated while a key of it is kept. */
const KEYS_MAX = 64;
const BYTES_MAX = 256 * 2 ** 20;

interface Entry {
  readonly packed: Uint8Array;
  readonly id: string;
  readonly rkey: RemoteKey;
  uses: number;
}

/** The keys of one connection. */
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
