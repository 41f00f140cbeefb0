/**
 * The imported arenas of one memory domain: each mapped once for each local card, up to limits, evicted in the order of their last use, and never while a
 * transfer uses them.
 *
 * It uses the LRU order, limits and counters of ucs/rcache/rcache.ts, but not its regions: an import is identified by its owner instead of an address of this
 * process, it is in use while a transfer uses it instead of while a handle holds it, and its owner announces its end.
 */

import { ipcCloseHandle, ipcOpenHandle } from '../../../hlthunk/index.ts';
import { LruList } from '../../../ucs/datastruct/lru-list.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import { noCounts, type RcacheCounters } from '../../../ucs/rcache/options.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { RegistrationCache } from '../../api/memory-domain.ts';
import type { GaudiCard } from '../base/cards.ts';
import type { SharedArena } from './channel-service.ts';
import { ImportEntry } from './key.ts';

/** Limits of the cache, which imports in use may exceed. */
export interface ImportCacheOptions {
  readonly maxRegions: number;
  /** Total bytes of arenas. */
  readonly maxSize: number;
  readonly log: Log;
}

/** Key of an import, and its destination. */
export interface ImportPlace {
  readonly card: GaudiCard;
  readonly key: string;
  readonly ownerKey: string;
  readonly arenaGeneration: number;
}

export class ImportCache implements RegistrationCache {
  /** Name in statistics. */
  readonly name = 'gaudi_ipc';
  /** A registration is an import, and a report of unmapped memory is a notification from its owner. There are no explicit releases, so `puts` stays 0. */
  readonly counters: RcacheCounters = noCounts();
  readonly #options: ImportCacheOptions;
  readonly #entries: Map<string, ImportEntry> = new Map();
  /** The entries in the order of their last use. */
  readonly #used: LruList<ImportEntry> = new LruList();
  /** Entries that are no longer valid but still used by transfers. */
  readonly #leaving: Set<ImportEntry> = new Set();

  constructor(options: ImportCacheOptions) {
    this.#options = options;
  }

  /** Number of imports that can be found. */
  get numRegions(): number {
    return this.#used.count;
  }

  /** Total bytes of the imports that can be found. */
  get totalSize(): number {
    return this.#used.byteLength;
  }

  /** Number of invalid imports that transfers in flight still use. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** The import with this key, if there is one. */
  find(key: string): ImportEntry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.counters.gets += 1;
    this.counters.hits_fast += 1;
    return entry;
  }

  /** Counts a miss when a request is sent to the owner: once, however often the key is looked up until the reply. */
  missed(): void {
    this.counters.gets += 1;
    this.counters.misses += 1;
  }

  /** Records a use. */
  touch(entry: ImportEntry): void {
    // Memory of the card itself is not an import.
    if (entry.mapping !== undefined && entry.valid) this.#used.touch(entry);
  }

  /**
   * Maps an arena into a card. The caller keeps the descriptor.
   * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY, after all idle imports were evicted; ERR_GAUDI_INVALID_PARAMS
   */
  add(place: ImportPlace, shared: SharedArena): ImportEntry {
    const { card, key } = place;
    const mapping = this.#open(card, shared);
    const entry = new ImportEntry(mapping, mapping, place);
    this.#entries.set(key, entry);
    this.#used.add(entry);
    this.counters.mem_regs += 1;
    this.#trim(entry);
    return entry;
  }

  /** Removes the entries for which `isEnded` is true. Those in use end with their transfers. */
  invalidate(isEnded: (entry: ImportEntry) => boolean): void {
    this.counters.unmap_events += 1;
    for (const entry of this.#entries.values()) {
      if (!isEnded(entry)) continue;
      this.counters.regions_inv_unmap += 1;
      this.#remove(entry);
    }
  }

  /** Invalidates the imports of an owner: all of them, or those of one arena. */
  invalidateOwner(ownerKey: string, arenaGeneration?: number): void {
    this.invalidate((entry) => {
      return entry.ownerKey === ownerKey && (arenaGeneration ?? entry.arenaGeneration) === entry.arenaGeneration;
    });
  }

  /** Releases entries whose transfers have ended, and evicts above the limits. Cheap if there is nothing to do. */
  sweep(): void {
    for (const entry of this.#leaving) if (entry.target.inFlight === 0) this.#unmap(entry);
    if (this.#isOver) this.#trim(undefined);
  }

  /** Releases all imports that transfers do not use; closing the card releases the rest. */
  close(): void {
    for (const entry of this.#entries.values()) this.#remove(entry);
    this.sweep();
  }

  get #isOver(): boolean {
    return this.#used.count > this.#options.maxRegions || this.#used.byteLength > this.#options.maxSize;
  }

  #open(card: GaudiCard, { fd, handle }: SharedArena): ReturnType<typeof ipcOpenHandle> {
    try {
      return ipcOpenHandle(card.device, fd, handle);
    } catch (error) {
      if (!isUcxError(error) || error.status !== Status.NO_MEMORY || !this.#evictOldest(undefined)) throw error;
      while (this.#evictOldest(undefined)) {
        // All idle imports are evicted before the second and last attempt.
      }
      return ipcOpenHandle(card.device, fd, handle);
    }
  }

  #trim(newest: ImportEntry | undefined): void {
    while (this.#isOver && this.#evictOldest(newest)) {
      // One at a time.
    }
  }

  /** Evicts the least recently used import; false if all are in use. */
  #evictOldest(except: ImportEntry | undefined): boolean {
    const oldest = this.#used.oldest((entry) => entry !== except && entry.target.inFlight === 0);
    if (oldest === undefined) return false;
    this.#remove(oldest);
    return true;
  }

  #remove(entry: ImportEntry): void {
    entry.valid = false;
    this.#entries.delete(entry.key);
    this.#used.remove(entry);
    this.#leaving.add(entry);
    if (entry.target.inFlight === 0) this.#unmap(entry);
  }

  #unmap(entry: ImportEntry): void {
    this.#leaving.delete(entry);
    this.counters.mem_deregs += 1;
    if (entry.mapping === undefined || !entry.mapping.live) return;
    try {
      ipcCloseHandle(entry.mapping);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#options.log.error(`gaudi_ipc: cannot end an import: ${error.message}`);
    }
  }
}
