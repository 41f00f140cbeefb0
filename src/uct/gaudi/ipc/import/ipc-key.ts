/** A remote key of gaudi_ipc: the published key, and for each local card the import for transfers. */

import { MemoryType } from '../../../../ucs/memory/memory-type.ts';
import { busIdOf } from '../../../../ucs/sys/topology.ts';
import type { UcxError } from '../../../../ucs/type/error.ts';
import type { RemoteKey, RemoteKeySource } from '../../../api/memory.ts';
import type { ProcessIdentity } from '../../../base/key/process-identity.ts';
import type { PublishedKey } from '../../../base/key/rkey-table-reader.ts';
import type { Channel } from '../base/channels.ts';
import { GAUDI_IPC_NAME } from '../base/ipc-names.ts';
import type { KeyPayload } from '../base/key-payload.ts';
import type { ImportEntry } from './import-entry.ts';

/** Location of the memory of a key. */
export interface KeyPlace extends KeyPayload {
  /** The owner's channel service, as a key of maps. */
  readonly ownerKey: string;
}

/** An unpacked key. */
export class IpcKey implements RemoteKey {
  readonly mdName: string = GAUDI_IPC_NAME;
  readonly memoryType: MemoryType = MemoryType.GAUDI;
  /** The owner's system device for the card. */
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  /** The process that owns the memory. */
  readonly owner: ProcessIdentity;
  readonly place: KeyPlace;
  /** The bytes of the key. */
  readonly packed: Uint8Array;
  /** By the position of the local card: the import, and the offset of the memory in it. */
  readonly entries: (ImportEntry | undefined)[];
  readonly offsets: number[];
  readonly channels: (Channel | undefined)[];
  readonly #published: PublishedKey;
  #failure: UcxError | undefined = undefined;
  #released = false;

  /** @param cards number of local cards */
  constructor(published: PublishedKey, place: KeyPlace, packed: Uint8Array, cards: number) {
    this.sysDevice = published.device;
    this.byteLength = published.byteLength;
    this.owner = published.owner;
    this.place = place;
    this.packed = packed;
    this.entries = new Array<ImportEntry | undefined>(cards).fill(undefined);
    this.offsets = new Array<number>(cards).fill(0);
    this.channels = new Array<Channel | undefined>(cards).fill(undefined);
    this.#published = published;
  }

  /** False once the owner has revoked the key, or it was released. */
  get live(): boolean {
    return !this.#released && this.#published.live;
  }

  /** Whether the memory is available to transfers of the card at `position`. */
  isReady(position: number): boolean {
    const entry = this.entries[position];
    return entry?.valid === true && this.live;
  }

  /** Sets the import for transfers. */
  use(position: number, entry: ImportEntry, offset: number): void {
    this.entries[position] = entry;
    this.offsets[position] = offset;
  }

  /** Makes the next operation fail, because the request for its memory has failed. */
  fail(error: UcxError): void {
    this.#failure = error;
  }

  /** Returns the failure of {@link fail}, once. */
  takeFailure(): UcxError | undefined {
    const failure = this.#failure;
    this.#failure = undefined;
    return failure;
  }

  describe(): RemoteKeySource {
    const { busNumber, arenaOffset, arenaGeneration, arenaBytes } = this.place;
    return {
      busId: busIdOf(busNumber),
      pid: this.owner.pid,
      offset: arenaOffset,
      generation: arenaGeneration,
      arenaBytes,
      channels: this.channels.flatMap((channel) => (channel === undefined ? [] : [channel.id])),
    };
  }

  release(): void {
    if (this.#released) return;
    this.#released = true;
    this.#published.release();
  }
}
