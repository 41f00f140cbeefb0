/** Host memory of domains without registrations: allocated by the domain, or a registered buffer of the program. */

import { addressOf } from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { MdMemory } from '../../api/memory.ts';

/** Memory that a domain allocated. */
export interface HostAllocation {
  /** Host virtual address. */
  readonly address: number;
  /** Releases it. */
  close(): void;
}

/** Parameters of a memory. */
export interface HostMemoryParams {
  readonly mdName: string;
  readonly bytes: Uint8Array;
  readonly generation: number;
  /** Present if the memory domain allocated it. */
  readonly allocation: HostAllocation | undefined;
  readonly packable: boolean;
  /** Bits of MemAccess. */
  readonly access: number;
}

/** Host memory of one memory domain. */
export class HostMemory implements MdMemory {
  readonly mdName: string;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  /** The address as a number, for system calls. */
  readonly location: number;
  readonly bytes: Uint8Array;
  readonly generation: number;
  readonly allocation: HostAllocation | undefined;
  readonly packable: boolean;
  /** What it may be used for: bits of MemAccess. */
  readonly access: number;
  /** Number of transfers in flight, if the transport counts them. */
  inFlight = 0;
  live = true;

  constructor({ mdName, bytes, generation, allocation, packable, access }: HostMemoryParams) {
    this.mdName = mdName;
    this.location = allocation?.address ?? addressOf(bytes);
    this.bytes = bytes;
    this.generation = generation;
    this.allocation = allocation;
    this.packable = packable;
    this.access = access;
  }

  get address(): bigint {
    return BigInt(this.location);
  }

  /** 0 if it is a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes.byteLength;
  }
}
