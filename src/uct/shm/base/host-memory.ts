/** Host memory of the shared-memory domains: allocated in a segment, or a buffer of the program that was registered. */

import { addressOf } from '../../../sys/index.ts';
import { MemoryType } from '../../../ucs/memory-type.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { Segment } from '../../base/segment.ts';

/** What one memory is made of. */
export interface HostMemoryParams {
  readonly mdName: string;
  readonly bytes: Uint8Array;
  readonly generation: number;
  /** Present when the memory domain allocated it. */
  readonly segment: Segment | undefined;
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
  readonly segment: Segment | undefined;
  readonly packable: boolean;
  live = true;

  constructor({ mdName, bytes, generation, segment, packable }: HostMemoryParams) {
    this.mdName = mdName;
    this.location = segment?.address ?? addressOf(bytes);
    this.bytes = bytes;
    this.generation = generation;
    this.segment = segment;
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
