/**
 * Memory as transports see it: what a memory domain registered or allocated, and the unpacked key of remote memory. Types only.
 */

import type { MemoryType } from '../../ucs/memory/memory-type.ts';

/**
 * Memory registered or allocated in one memory domain. Only the MD that made it looks inside.
 */
export interface MdMemory {
  /** The MD's name, for checks and messages. */
  readonly mdName: string;
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device that holds the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Address of the first byte: a host virtual address or a device address. */
  readonly address: bigint;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The bytes, for host memory; a CPU does not reach device memory. */
  readonly bytes: Uint8Array | undefined;
  /** Distinguishes memory that comes to lie at the same address one after the other. */
  readonly generation: number;
  /** False after memDereg or memFree. */
  readonly live: boolean;
  /** False for memory that serves as the local side of transfers only: `mkeyPack` refuses it. */
  readonly packable?: boolean;
  /** Why nothing moves its bytes, not even the transports of its own device, in words for users; undefined, or absent, for memory that can be moved. */
  readonly limitation?: string | undefined;
  /** Transfers of this process that use it right now, where the transport counts them: it cannot be given up until there are none. */
  readonly inFlight?: number;
  /**
   * The registration behind it, where several memories of the same bytes share one, with how many do: {@link inFlight} counts for all of them,
   * and only the last cannot be given up before.
   */
  readonly region?: { readonly references: number };
}

/** A remote key after unpacking: what an endpoint operation needs to reach remote memory. */
export interface RemoteKey {
  /** Name of the memory domain that packed it. */
  readonly mdName: string;
  /** Kind of the memory. */
  readonly memoryType: MemoryType;
  /** System device that has the memory; undefined for host memory. */
  readonly sysDevice: number | undefined;
  /** Length in bytes. */
  readonly byteLength: number;
  /** The remote bytes, where they are mapped into this process (uct_rkey_ptr); undefined or absent elsewhere. */
  readonly bytes?: Uint8Array | undefined;
  /** False once the owner has taken the memory away, where the transport can tell without asking. */
  readonly live?: boolean;
  /** Drops what unpacking acquired. Idempotent. */
  release(): void;
}
