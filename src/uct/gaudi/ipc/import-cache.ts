/**
 * The imported arenas of one memory domain: each mapped once per local card, kept up to bounds, given up in the order of their last use, never
 * while a transfer uses them. It does not know how arenas are obtained.
 */

import { ipcCloseHandle, ipcOpenHandle } from '../../../hlthunk/index.ts';
import { isUcxError } from '../../../ucs/error.ts';
import type { Log } from '../../../ucs/log.ts';
import { Status } from '../../../ucs/status.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';
import type { SharedArena } from './channel-service.ts';
import { ImportEntry } from './import-entry.ts';

/** What the cache has done. */
export interface ImportCounters {
  /** Keys that had no import at hand and found one. */
  hits: number;
  /** Keys for which the owner had to be asked. */
  misses: number;
  /** Arenas mapped. */
  imports: number;
  /** Given up for the bounds. */
  evictions: number;
  /** Given up because the owner has freed the memory, has closed or is gone. */
  invalidations: number;
}

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
export class ImportCache {
  readonly counters: ImportCounters = { hits: 0, misses: 0, imports: 0, evictions: 0, invalidations: 0 };
  readonly #options: ImportCacheOptions;
  readonly #entries: Map<string, ImportEntry> = new Map();
  /** Entries that are no longer valid and that transfers still use. */
  readonly #leaving: Set<ImportEntry> = new Set();
  #bytes = 0;
  #uses = 0;

  constructor(options: ImportCacheOptions) {
    this.#options = options;
  }

  /** Imports that keys can find. */
  get count(): number {
    return this.#entries.size;
  }

  /** Bytes of them. */
  get byteLength(): number {
    return this.#bytes;
  }

  /** Imports that only transfers on their way keep. */
  get leaving(): number {
    return this.#leaving.size;
  }

  /** The import of this name, if there is one. */
  find(key: string): ImportEntry | undefined {
    return this.#entries.get(key);
  }

  /** Notes a use. */
  touch(entry: ImportEntry): void {
    this.#uses += 1;
    entry.lastUse = this.#uses;
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
    this.#bytes += mapping.byteLength;
    this.counters.imports += 1;
    this.touch(entry);
    this.#trim(entry);
    return entry;
  }

  /** Gives up what `isGone` names. What transfers use ends with them. */
  invalidate(isGone: (entry: ImportEntry) => boolean): void {
    for (const entry of this.#entries.values()) {
      if (!isGone(entry)) continue;
      this.counters.invalidations += 1;
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
    return this.#entries.size > this.#options.maxRegions || this.#bytes > this.#options.maxSize;
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
    let oldest: ImportEntry | undefined;
    for (const entry of this.#entries.values()) {
      if (entry === except || entry.target.inFlight > 0) continue;
      if (oldest === undefined || entry.lastUse < oldest.lastUse) oldest = entry;
    }
    if (oldest === undefined) return false;
    this.counters.evictions += 1;
    this.#remove(oldest);
    return true;
  }

  #remove(entry: ImportEntry): void {
    entry.valid = false;
    this.#entries.delete(entry.key);
    this.#bytes -= entry.target.byteLength;
    this.#leaving.add(entry);
    if (entry.target.inFlight === 0) this.#unmap(entry);
  }

  #unmap(entry: ImportEntry): void {
    this.#leaving.delete(entry);
    if (entry.mapping === undefined || !entry.mapping.live) return;
    try {
      ipcCloseHandle(entry.mapping);
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#options.log.error(`gaudi_ipc: an import cannot be ended: ${error.message}`);
    }
  }
}
