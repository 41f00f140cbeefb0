/** Remote memory that a card can access: an imported arena in the cache, or memory of the card itself. */

import type { DmaMemory, ImportedMapping } from '../../../../hlthunk/index.ts';
import type { LruEntry } from '../../../../ucs/datastruct/lru-list.ts';

/** Memory in the address space of one card. */
export class ImportEntry implements LruEntry {
  /** The memory for transfers. */
  readonly target: DmaMemory;
  /** Undefined for memory of the card itself, which is not in the cache. */
  readonly mapping: ImportedMapping | undefined;
  /** Key in the cache; with its owner and arena. */
  readonly key: string;
  readonly ownerKey: string;
  readonly arenaGeneration: number;
  /** False once it was removed from the cache: it ends with the last transfer that uses it. */
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
