/** Finds the registration of local memory that is mapped, for the zero-copy lists of transports. It registers nothing. */

import type { MdMemory } from '../../uct/api/memory.ts';
import type { LocalMemory, MemoryHandle } from './memory-handle.ts';

/** The owner of the one entry of a list. */
export interface EntryOwner {
  setEntry(memory: MdMemory, offset: number, byteLength: number): void;
}

/** Finds the mapped memory that contains host bytes. */
export interface MappedMemoryIndex {
  handleOf(bytes: Uint8Array): MemoryHandle | undefined;
}

/**
 * Points the entry at mapped memory in one memory domain.
 * @param md index of the memory domain
 * @returns false for memory without a registration there: the entry stays as it is
 */
export function setMappedEntry(
  owner: EntryOwner,
  local: LocalMemory,
  offset: number,
  byteLength: number,
  md: number,
  index: MappedMemoryIndex,
): boolean {
  const isBytes = local instanceof Uint8Array;
  const handle = isBytes ? index.handleOf(local) : local;
  const memory = handle?.mdMemory[md];
  if (memory === undefined) return false;
  const start = isBytes ? local.byteOffset - handle!.bytes!.byteOffset : 0;
  owner.setEntry(memory, start + offset, byteLength);
  return true;
}
