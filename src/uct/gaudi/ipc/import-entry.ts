/**
 * Remote memory that a card can reach: an imported arena in the cache, or memory of the card itself.
 */

import type { DmaMemory, ImportedMapping } from '../../../hlthunk/index.ts';
import type { LruEntry } from '../../../ucs/datastruct/lru-list.ts';

/** Memory in the address space of one card. */
export class ImportEntry implements LruEntry {
  /** What transfers name. */
  readonly target: DmaMemory;
  /** Undefined for memory of the card itself, which is not in the cache. */
  readonly mapping: ImportedMapping | undefined;
  /** Name in the cache, and the owner and arena that it is of. */
  readonly key: string;
  readonly ownerKey: string;
  readonly arenaGeneration: number;
  /** False once it left the cache: it ends with the transfers that still use it. */
  valid = true;
  slot = 0;

  constructor(
    target: DmaMemory,
    mapping: ImportedMapping | undefined,
    key: string,
    ownerKey: string,
    arenaGeneration: number,
  ) {
    this.target = target;
    this.mapping = mapping;
    this.key = key;
    this.ownerKey = ownerKey;
    this.arenaGeneration = arenaGeneration;
  }

  get byteLength(): number {
    return this.target.byteLength;
  }
}
