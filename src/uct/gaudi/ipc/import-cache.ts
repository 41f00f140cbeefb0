/**
 * The imported arenas of one memory domain: each mapped once per local card, kept up to bounds, given up in the order of their last use, never
 * while a transfer uses them. It does not know how arenas are obtained.
 *
 * It has the order of use, the bounds and the counters of ucs/rcache/rcache.ts, but not its regions: an import is found by the name of its owner and not
 * by an address of this process, it is in use while a transfer names it and not while a handle holds it, and its owner says when it ends.
 */

import { ipcCloseHandle, ipcOpenHandle } from '../../../hlthunk/index.ts';
import { LruList } from '../../../ucs/datastruct/lru-list.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import { noCounts, type RcacheCounters } from '../../../ucs/rcache/options.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { RegistrationCache } from '../../api/memory-domain.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import type { SharedArena } from './channel-service.ts';
import { ImportEntry } from './import-entry.ts';

/** Bounds of the cache; what transfers use may exceed them. */
export interface ImportCacheOptions {
  readonly maxRegions: number;
  /** Bytes of arenas. */
  readonly maxSize: number;
  readonly log: Log;
}

/** Where an import belongs. */
export interface ImportPlace {
  readonly card: GaudiCard;
  readonly key: string;
  readonly ownerKey: string;
  readonly arenaGeneration: number;
}

/** The cache. */
export class ImportCache implements RegistrationCache {
  /** What it is called in statistics. */
  readonly name = 'gaudi_ipc';
  /** A registration is an import, a report of unmapped memory the word of its owner; imports are not given back, so that `puts` stays 0. */
  readonly counters: RcacheCounters = noCounts();
  readonly #options: ImportCacheOptions;
  readonly #entries: Map<string, ImportEntry> = new Map();
  /** The same in the order of their last use. */
  readonly #used: LruList<ImportEntry> = new LruList();
  /** Entries that are no longer valid and that transfers still use. */
  readonly #leaving: Set<ImportEntry> = new Set();

  constructor(options: ImportCacheOptions) {
    this.#options = options;
  }

  /** Imports that keys can find. */
  get numRegions(): number {
    return this.#used.count;
  }

  /** Bytes of them. */
  get totalSize(): number {
    return this.#used.byteLength;
  }

  /** Imports that only transfers on their way keep. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** The import of this name, if there is one. */
  find(key: string): ImportEntry | undefined {
    const entry = this.#entries.get(key);
    if (entry === undefined) return undefined;
    this.counters.gets += 1;
    this.counters.hits_fast += 1;
    return entry;
  }

  /** Notes that the owner of an import is asked, which is not here: once, however often it is looked for meanwhile. */
  missed(): void {
    this.counters.gets += 1;
    this.counters.misses += 1;
  }

  /** Notes a use. */
  touch(entry: ImportEntry): void {
    // Memory of the card itself is no import.
    if (entry.mapping !== undefined && entry.valid) this.#used.touch(entry);
  }

  /**
   * Maps an arena into a card. The descriptor stays the caller's.
   * @throws UcxError ERR_GAUDI_OUT_OF_MEMORY, after everything that nothing uses was given up; ERR_GAUDI_INVALID_PARAMS
   */
  add(place: ImportPlace, shared: SharedArena): ImportEntry {
    const { card, key, ownerKey, arenaGeneration } = place;
    const mapping = this.#open(card, shared);
    const entry = new ImportEntry(mapping, mapping, key, ownerKey, arenaGeneration);
    this.#entries.set(key, entry);
    this.#used.add(entry);
    this.counters.mem_regs += 1;
    this.#trim(entry);
    return entry;
  }

  /** Gives up what `isGone` names. What transfers use ends with them. */
  invalidate(isGone: (entry: ImportEntry) => boolean): void {
    this.counters.unmap_events += 1;
    for (const entry of this.#entries.values()) {
      if (!isGone(entry)) continue;
      this.counters.regions_inv_unmap += 1;
      this.#remove(entry);
    }
  }

  /** Ends what transfers have left meanwhile, and what exceeds the bounds. Cheap when there is nothing of the kind. */
  sweep(): void {
    for (const entry of this.#leaving) if (entry.target.inFlight === 0) this.#unmap(entry);
    if (this.#isOver) this.#trim(undefined);
  }

  /** Gives up everything that no transfer uses; closing the card ends the rest. */
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
        // Everything that is idle goes before the second and last try.
      }
      return ipcOpenHandle(card.device, fd, handle);
    }
  }

  #trim(newest: ImportEntry | undefined): void {
    while (this.#isOver && this.#evictOldest(newest)) {
      // One after the other.
    }
  }

  /** Gives up the import that was used longest ago; false when all are in use. */
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
      this.#options.log.error(`gaudi_ipc: an import cannot be ended: ${error.message}`);
    }
  }
}
