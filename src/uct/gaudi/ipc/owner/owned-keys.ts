/** The keys that a memory domain has published: finds the memory for the bytes of a key. */

import { busNumberOf } from '../../../../ucs/sys/topology.ts';
import { sameSecret } from '../../../base/key/keys.ts';
import { RKEY_TABLE_KEY_BYTES, RkeyTable, unpackTableKey } from '../../../base/key/rkey-table.ts';
import { forgedKey, staleKey } from '../base/ipc-errors.ts';
import { GAUDI_IPC_NAME } from '../base/ipc-names.ts';
import { packPayload } from '../base/key-payload.ts';
import type { IpcMemory } from './ipc-memory.ts';

interface Published {
  readonly memory: IpcMemory;
  readonly packed: Uint8Array;
}

/** The published keys. */
export class OwnedKeys {
  readonly #table: RkeyTable<IpcMemory> = new RkeyTable(GAUDI_IPC_NAME);
  readonly #byPlace: Map<string, Published> = new Map();
  readonly #places: Map<IpcMemory, string> = new Map();

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
    const place = placeOf(packed);
    const published = place === undefined ? undefined : this.#byPlace.get(place);
    if (published === undefined) throw staleKey('belongs to memory that is not registered any more');
    if (!sameSecret(published.packed, packed)) throw forgedKey('does not match the key that was handed out');
    return published.memory;
  }

  /** Revokes the keys of memory. */
  revoke(memory: IpcMemory): void {
    this.#table.revoke(memory);
    const place = this.#places.get(memory);
    if (place === undefined) return;
    this.#places.delete(memory);
    this.#byPlace.delete(place);
  }

  /** Revokes all keys. */
  close(): void {
    this.#table.close();
    this.#places.clear();
    this.#byPlace.clear();
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
    const place = placeOf(packed)!;
    this.#places.set(memory, place);
    this.#byPlace.set(place, { memory, packed });
  }
}

/** Identifies a key uniquely: rkey table, slot and generation. */
function placeOf(packed: Uint8Array): string | undefined {
  const key = unpackTableKey(packed);
  if (key === undefined) return undefined;
  return `${Buffer.from(key.table).toString('hex')}:${key.slot}:${key.generation}`;
}
