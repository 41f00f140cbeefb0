/**
 * A remote key of gaudi_ipc: the published key, and for each local card the import for transfers. Channels: traffic counters from one card to another, created
 * at the first transfer between the two. Import entries: remote memory that a card can access, either an imported arena in the cache or memory of the card
 * itself.
 */

import type { DmaMemory, ImportedMapping } from '../../../hlthunk/index.ts';
import type { ProcessIdentity } from '../../../sys/index.ts';
import type { LruEntry } from '../../../ucs/datastruct/lru-list.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import { busIdOf } from '../../../ucs/sys/topology.ts';
import type { UcxError } from '../../../ucs/type/error.ts';
import type { ChannelTraffic, RemoteKey, RemoteKeySource } from '../../api/memory.ts';
import type { PublishedKey } from '../../base/key/rkey-table-reader.ts';
import { GAUDI_IPC_NAME } from './config.ts';
import type { KeyPayload } from './layout.ts';

/** Location of the memory of a key. */
export interface KeyPlace extends KeyPayload {
  /** Name of the owner's channel service, as a key of maps. */
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

  /** False after the owner has revoked the key, or it was released. */
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

  /** Makes the next operation fail, because the request for the memory has failed. */
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

/** Traffic between a local and a remote card. */
export class Channel implements ChannelTraffic {
  readonly id: number;
  readonly local: string;
  readonly remote: string;
  puts = 0;
  gets = 0;
  /** Bytes. */
  bytesPut = 0;
  bytesGot = 0;

  constructor(id: number, local: string, remote: string) {
    this.id = id;
    this.local = local;
    this.remote = remote;
  }

  /** Counts an operation that the card has accepted. */
  count(byteLength: number, isPut: boolean): void {
    if (isPut) {
      this.puts += 1;
      this.bytesPut += byteLength;
    } else {
      this.gets += 1;
      this.bytesGot += byteLength;
    }
  }
}

/** The channels of one memory domain, which outlive its interfaces. */
export class Channels {
  /** The channels, indexed by their ids. */
  readonly all: Channel[] = [];

  /** The channel from a card of this process to another card, given by its bus number. Not on the fast path, because a key keeps its channels. */
  between(local: string, busNumber: number): Channel {
    const remote = busIdOf(busNumber);
    const known = this.all.find((channel) => channel.local === local && channel.remote === remote);
    if (known !== undefined) return known;
    const channel = new Channel(this.all.length, local, remote);
    this.all.push(channel);
    return channel;
  }
}

/** Memory in the address space of one card. */
export class ImportEntry implements LruEntry {
  /** The memory for transfers. */
  readonly target: DmaMemory;
  /** Undefined for memory of the card itself, which is not in the cache. */
  readonly mapping: ImportedMapping | undefined;
  /** Key in the cache: the names of the card, the owner and the arena. */
  readonly key: string;
  readonly ownerKey: string;
  readonly arenaGeneration: number;
  /** False after removal from the cache: the import ends with the last transfer that uses it. */
  valid = true;
  slot = 0;

  constructor(
    target: DmaMemory,
    mapping: ImportedMapping | undefined,
    { key, ownerKey, arenaGeneration }: Pick<ImportEntry, 'key' | 'ownerKey' | 'arenaGeneration'>,
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
