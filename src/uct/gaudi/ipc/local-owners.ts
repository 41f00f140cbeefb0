/**
 * The owners of shared device memory in this thread: between its own contexts no socket is needed. Several contexts may be there, with cards of their own.
 */

import type { SharedArena } from './channel-service.ts';
import type { IpcMemory } from './ipc-memory.ts';

/** Learns when memory of an owner is to be let go. */
export interface LocalImporter {
  onRetired(ownerKey: string, arenaGeneration: number): void;
  onClosed(ownerKey: string): void;
}

/** An owner in this thread. */
export interface LocalOwner {
  /** The memory of a key. Throws UcxError for a key that is not good. */
  find(key: Uint8Array): IpcMemory;
  /** Its arena. Throws likewise. */
  share(key: Uint8Array): SharedArena;
  readonly importers: Set<LocalImporter>;
}

/** By the name of their services. */
export const LOCAL_OWNERS: Map<string, LocalOwner> = new Map();

/** The name of a service in maps. */
export function ownerKeyOf(tag: Uint8Array): string {
  return Buffer.from(tag.buffer, tag.byteOffset, tag.byteLength).toString('hex');
}
