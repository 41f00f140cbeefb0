/** Memory in transports: memory that a memory domain has registered or allocated, and the unpacked key of remote memory. */

import type { MemoryType } from '../../ucs/memory/memory-type.ts';

/** Memory registered or allocated in one memory domain. It is opaque to other memory domains. */
export interface MdMemory {
  /** Name of the memory domain. */
  readonly mdName: string;
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device that holds the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte: a host virtual address or a device address. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The bytes of host memory; undefined for device memory, which the CPU cannot access. */
  readonly bytes: Uint8Array | undefined;
  /** Distinguishes successive allocations at the same address. */
  readonly generation: number;
  /** False after memDereg or memFree. */
  readonly live: boolean;
  /** False for memory that can only be the local side of transfers: `mkeyPack` rejects it. */
  readonly packable?: boolean | undefined;
  /** The reason why transports cannot access it, including those of its device, as text for users; undefined or absent if they can. */
  readonly limitation?: string | undefined;
  /** Number of transfers of this process in flight, if the transport counts them. The memory cannot be released while there are any. */
  readonly inFlight?: number | undefined;
  /**
   * The registration, if several memories of the same bytes can share it, with their number. {@link inFlight} then counts the transfers of all of them, and
   * prevents only the release of the last one.
   */
  readonly region?: { readonly references: number } | undefined;
}

/** An unpacked remote key: the data that an endpoint operation needs to access remote memory. */
export interface RemoteKey {
  /** Name of the memory domain that packed it. */
  readonly mdName: string;
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device of the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The remote bytes if they are mapped into this process (uct_rkey_ptr); otherwise undefined or absent. */
  readonly bytes?: Uint8Array | undefined;
  /** False once the owner has released the memory, if the transport can detect that without communication. */
  readonly live?: boolean;
  /** The source of the memory, as far as the key contains it; absent if the keys of the memory domain contain only the properties above. */
  describe?(): RemoteKeySource | undefined;
  /** Releases the resources of unpacking. Idempotent. */
  release(): void;
}

/** The source of remote device memory. */
export interface RemoteKeySource {
  /** PCI address of the card that has the memory. */
  readonly busId: string;
  /** The process that owns it. */
  readonly pid: number;
  /** Offset in its arena, which is what a dma-buf exports, in bytes. */
  readonly offset: number;
  /** Number of the arena in that process: memory that is allocated again has another one. */
  readonly generation: number;
  /** Length of the arena in bytes. */
  readonly arenaBytes: number;
  /** Ids of the channels that transfers with the key have used, as in {@link ChannelTraffic}. */
  readonly channels: readonly number[];
}

/** A channel: the traffic of a card with the memory of another card. It is created at the first transfer between the two. */
export interface ChannelTraffic {
  /** Number of the channel in its context, from 0 on. */
  readonly id: number;
  /** The card of this process that runs the transfers, such as `gaudi0`. */
  readonly local: string;
  /** PCI address of the card with the remote memory. */
  readonly remote: string;
  /** Transfers to the remote memory. */
  readonly puts: number;
  /** Transfers from it. */
  readonly gets: number;
  /** Bytes of the puts. */
  readonly bytesPut: number;
  /** Bytes of the gets. */
  readonly bytesGot: number;
}
