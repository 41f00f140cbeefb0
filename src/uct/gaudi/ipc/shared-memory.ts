/**
 * Device memory that is registered with gaudi_ipc: an allocation of gaudi_copy of the same context, a part of a block of the application, or an imported
 * dma-buf; and the keys that a memory domain has published for it. Contexts of one thread find each other without a socket, in the list of the thread's owners.
 */

import { type DmaMemory, type IpcHandle, ipcWrapArena } from '../../../hlthunk/index.ts';
import { busNumberOf } from '../../../ucs/sys/topology.ts';
import { sameSecret } from '../../base/key/keys.ts';
import { RKEY_TABLE_KEY_BYTES, RkeyTable, unpackTableKey } from '../../base/key/rkey-table.ts';
import type { GaudiCard } from '../base/cards.ts';
import type { ImportedDmabuf, PartOfCard } from '../base/foreign-memory.ts';
import { GaudiMemory } from '../base/memory.ts';
import type { SharedArena } from './channel-service.ts';
import { forgedKey, GAUDI_IPC_NAME, staleKey } from './config.ts';
import type { ImportCache } from './import-cache.ts';
import { packPayload } from './layout.ts';

/** The object that peers import to access registered memory: an arena, or a dma-buf that was imported here. */
export interface SharedSource {
  /** Unique in this process. */
  readonly generation: number;
  /** Length in bytes. */
  readonly byteLength: number;
  /** Offset of the registered memory in the arena or dma-buf. */
  readonly offset: number;
  /** Creates a handle. The caller owns the descriptor. Throws UcxError. */
  wrap(): IpcHandle;
  /**
   * Releases the resources of the registration.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY, without any change, unless forced
   */
  end(isForced: boolean): void;
}

/** Registered device memory. */
export class IpcMemory extends GaudiMemory {
  readonly source: SharedSource;
  /** Whether the application may free the memory before the registration ends. It must deregister the memory in any case. */
  readonly isOfApplication: boolean;
  #registered = true;

  constructor(card: GaudiCard, target: DmaMemory, source: SharedSource, isOfApplication: boolean) {
    super(GAUDI_IPC_NAME, card, target);
    this.source = source;
    this.isOfApplication = isOfApplication;
  }

  override get live(): boolean {
    return this.#registered && super.live;
  }

  /** Ends the registration. Throws like {@link SharedSource.end}. */
  end(isForced: boolean): void {
    this.source.end(isForced);
    this.#registered = false;
  }
}

/** The arena of a block that was allocated here. */
class BlockSource implements SharedSource {
  readonly generation: number;
  readonly byteLength: number;
  readonly offset: number;
  readonly #place: Place;
  readonly #stopWatching: () => void;

  /** @param stopWatching ends the watch of the block */
  constructor(place: Place, stopWatching: () => void) {
    const { block, part } = place;
    this.generation = block.arena.generation;
    this.byteLength = block.arena.byteLength;
    this.offset = block.offset + (part?.offset ?? 0);
    this.#place = place;
    this.#stopWatching = stopWatching;
  }

  wrap(): IpcHandle {
    return ipcWrapArena(this.#place.card.device, this.#place.block);
  }

  end(): void {
    const { block, part } = this.#place;
    this.#stopWatching();
    if (part !== undefined) block.endPart(part);
  }
}

/** A dma-buf that was imported here. */
class ImportedSource implements SharedSource {
  readonly generation: number;
  readonly byteLength: number;
  readonly offset: number;
  readonly #imported: ImportedDmabuf;

  constructor(imported: ImportedDmabuf) {
    this.generation = imported.mapping.generation;
    this.byteLength = imported.offset + imported.mapping.byteLength;
    this.offset = imported.offset;
    this.#imported = imported;
  }

  wrap(): IpcHandle {
    return this.#imported.wrap();
  }

  end(isForced: boolean): void {
    this.#imported.close(isForced);
  }
}

/**
 * Registers a block that was allocated here, or a part of one.
 * @param onFree called when the block is about to be freed while it is registered here
 */
export function ipcBlock(place: Place, onFree: (memory: IpcMemory) => void): IpcMemory {
  const { card, block, part } = place;
  const stopWatching = block.onFree(() => onFree(memory));
  const memory = new IpcMemory(card, part ?? block, new BlockSource(place, stopWatching), part !== undefined);
  return memory;
}

/** Registers an imported dma-buf. */
export function ipcImport(imported: ImportedDmabuf): IpcMemory {
  return new IpcMemory(imported.card, imported.mapping, new ImportedSource(imported), false);
}

/** A block and its registered part; `part` is undefined if the whole block is registered. */
type Place = Omit<PartOfCard, 'part'> & { readonly part: PartOfCard['part'] | undefined };

interface Published {
  readonly memory: IpcMemory;
  readonly packed: Uint8Array;
}

/** The published keys of a memory domain, and the contexts of this thread that have imported their memory. */
export class OwnedKeys {
  /** The imports of contexts of this thread. */
  readonly importers: Set<ImportCache> = new Set();
  readonly #table: RkeyTable<IpcMemory> = new RkeyTable(GAUDI_IPC_NAME);
  readonly #byId: Map<string, Published> = new Map();
  readonly #ids: Map<IpcMemory, string> = new Map();

  /**
   * Writes the key of memory; the first call publishes the key.
   * @param serviceTag tag of the channel service for the memory
   */
  pack(memory: IpcMemory, serviceTag: Uint8Array, target: Uint8Array, offset: number): void {
    if (!this.#table.has(memory)) this.#publish(memory, serviceTag);
    this.#table.pack(memory, target, offset);
  }

  /**
   * Finds the memory of a key.
   * @throws UcxError ERR_RKEY_STALE, ERR_RKEY_FORGED
   */
  find(packed: Uint8Array): IpcMemory {
    const id = idOf(packed);
    const published = id === undefined ? undefined : this.#byId.get(id);
    if (published === undefined) throw staleKey('belongs to memory that is no longer registered');
    if (!sameSecret(published.packed, packed)) throw forgedKey('does not match the published key');
    return published.memory;
  }

  /** Exports the arena of the memory of a key. Throws like {@link find}. */
  share(packed: Uint8Array): SharedArena {
    return this.find(packed).source.wrap();
  }

  /** Revokes the keys of memory. */
  revoke(memory: IpcMemory): void {
    this.#table.revoke(memory);
    const id = this.#ids.get(memory);
    if (id === undefined) return;
    this.#ids.delete(memory);
    this.#byId.delete(id);
  }

  /** Revokes all keys. */
  close(): void {
    this.#table.close();
    this.#ids.clear();
    this.#byId.clear();
  }

  #publish(memory: IpcMemory, serviceTag: Uint8Array): void {
    const { generation, offset, byteLength } = memory.source;
    const payload = packPayload({
      arenaGeneration: generation,
      arenaOffset: offset,
      arenaBytes: byteLength,
      busNumber: busNumberOf(memory.card.device.busId),
      serviceTag,
    });
    this.#table.publish(memory, payload);
    const packed = new Uint8Array(RKEY_TABLE_KEY_BYTES);
    this.#table.pack(memory, packed, 0);
    const id = idOf(packed)!;
    this.#ids.set(memory, id);
    this.#byId.set(id, { memory, packed });
  }
}

/** Identifies a key uniquely: rkey table, slot and generation. */
function idOf(packed: Uint8Array): string | undefined {
  const key = unpackTableKey(packed);
  if (key === undefined) return undefined;
  return `${Buffer.from(key.table).toString('hex')}:${key.slot}:${key.generation}`;
}

/** The owners of this thread, by the names of their services. */
export const LOCAL_OWNERS: Map<string, OwnedKeys> = new Map();

/** The name of a service, as a key of maps. */
export function ownerKeyOf(tag: Uint8Array): string {
  return Buffer.from(tag.buffer, tag.byteOffset, tag.byteLength).toString('hex');
}
