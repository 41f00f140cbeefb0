/** The owners of shared device memory in this thread, since contexts of one thread need no socket. There may be several contexts, with different cards. */

import type { SharedArena } from './channel-service.ts';
import type { IpcMemory } from './ipc-memory.ts';

/** Is notified when memory of an owner has to be released. */
export interface LocalImporter {
  onRetired(ownerKey: string, arenaGeneration: number): void;
  onClosed(ownerKey: string): void;
}

/** An owner in this thread. */
export interface LocalOwner {
  /** Finds the memory of a key. Throws UcxError if the key is invalid. */
  find(key: Uint8Array): IpcMemory;
  /** Exports its arena. Throws likewise. */
  share(key: Uint8Array): SharedArena;
  readonly importers: Set<LocalImporter>;
}

/** Owners by the names of their services. */
export const LOCAL_OWNERS: Map<string, LocalOwner> = new Map();

/** The name of a service, as a key of maps. */
export function ownerKeyOf(tag: Uint8Array): string {
  return Buffer.from(tag.buffer, tag.byteOffset, tag.byteLength).toString('hex');
}
