/** Host memory of the domains that keep no registrations: allocated by the domain, or a buffer of the program that was registered. */

import { addressOf } from '../../sys/index.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { MdMemory } from '../api/memory.ts';

/** Memory that a domain allocated. */
export interface HostAllocation {
  /** Host virtual address. */
  readonly address: number;
  /** Gives it back. */
  close(): void;
}

/** What one memory is made of. */
export interface HostMemoryParams {
  readonly mdName: string;
  readonly bytes: Uint8Array;
  readonly generation: number;
  /** Present when the memory domain allocated it. */
  readonly allocation: HostAllocation | undefined;
  readonly packable: boolean;
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
  /** Transfers that use it right now, where the transport counts them. */
  inFlight = 0;
  live = true;

  constructor({ mdName, bytes, generation, allocation, packable }: HostMemoryParams) {
    this.mdName = mdName;
    this.location = allocation?.address ?? addressOf(bytes);
    this.bytes = bytes;
    this.generation = generation;
    this.allocation = allocation;
    this.packable = packable;
  }

  get address(): bigint {
    return BigInt(this.location);
  }

  /** 0 for a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes.byteLength;
  }
}
