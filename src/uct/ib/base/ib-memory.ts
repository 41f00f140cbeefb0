/** Memory of the memory domain of ib: a memory region with every device. */

import type { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { MemoryRegion } from '../../../verbs/port.ts';
import type { MdMemory } from '../../api/memory.ts';

/** Name of component and memory domain. */
export const IB_NAME = 'ib';
/** Name of the transport. */
export const RC_NAME = 'rc';

/** Parameters of a memory. */
export interface IbMemoryParams {
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly byteLength: number;
  readonly bytes: Uint8Array | undefined;
  readonly generation: number;
  /** Address of the first byte in work requests, of this process and of peers: its offset in its page. */
  readonly iova: number;
  /** By the index of the device. */
  readonly regions: readonly MemoryRegion[];
  /** Releases memory that the memory domain has allocated; undefined for other memory. */
  readonly free: (() => void) | undefined;
}

/** Registered memory. */
export class IbMemory implements MdMemory {
  readonly mdName: string = IB_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly address: bigint;
  readonly bytes: Uint8Array | undefined;
  readonly generation: number;
  readonly packable: boolean = true;
  readonly iova: number;
  /** By the index of the device. */
  readonly lkeys: Uint32Array;
  readonly rkeys: Uint32Array;
  readonly free: (() => void) | undefined;
  inFlight = 0;
  live = true;
  readonly registeredBytes: number;
  readonly #regions: readonly MemoryRegion[];

  constructor(params: IbMemoryParams) {
    this.memoryType = params.memoryType;
    this.sysDevice = params.sysDevice;
    this.address = params.address;
    this.bytes = params.bytes;
    this.generation = params.generation;
    this.iova = params.iova;
    this.lkeys = Uint32Array.from(params.regions, ({ lkey }) => lkey);
    this.rkeys = Uint32Array.from(params.regions, ({ rkey }) => rkey);
    this.free = params.free;
    this.registeredBytes = params.byteLength;
    this.#regions = params.regions;
  }

  /** 0 if it is a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes === undefined ? this.registeredBytes : this.bytes.byteLength;
  }

  /** Whether its buffer was detached. */
  get isDetached(): boolean {
    return this.bytes !== undefined && this.bytes.byteLength !== this.registeredBytes;
  }

  /** Ends the registrations. */
  deregister(): void {
    this.live = false;
    for (const region of this.#regions) region.close();
  }
}
