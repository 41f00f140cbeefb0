/** Sums of mapped memory by type and card, and of registration caches. Data only. */

import { type MemoryType, memoryTypeName } from '../../../ucs/memory/memory-type.ts';
import type { RegistrationCache } from '../../../uct/api/memory-domain.ts';
import type { CacheSnapshot, MemorySnapshot } from '../snapshot.ts';

/** The properties of mapped memory that are summed up. */
export interface MappedMemory {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
}

/** The sums. */
export function memorySummary(mapped: Iterable<MappedMemory>): MemorySnapshot[] {
  const sums = new Map<string, { -readonly [K in keyof MemorySnapshot]: MemorySnapshot[K] }>();
  for (const { memoryType, sysDevice, byteLength } of mapped) {
    const key = `${memoryType}/${sysDevice}`;
    const sum = sums.get(key) ?? { memoryType: memoryTypeName(memoryType), sysDevice, mappings: 0, byteLength: 0 };
    sum.mappings += 1;
    sum.byteLength += byteLength;
    sums.set(key, sum);
  }
  return [...sums.values()];
}

/** The caches. */
export function cacheSummary(caches: readonly RegistrationCache[]): CacheSnapshot[] {
  return caches.map(({ name, numRegions, totalSize }) => ({ name, regions: numRegions, byteLength: totalSize }));
}
