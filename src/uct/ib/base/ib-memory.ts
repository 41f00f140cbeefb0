/** Memory of the memory domain of ib: regions with every device, for its own transfers and for peers. */

import type { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { IbRegions } from './ib-regions.ts';

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
  /** Address of the first byte in work requests of this process. */
  readonly iova: number;
  /** By the index of the device: keys of this process. */
  readonly lkeys: Uint32Array;
  /** What it may be used for: bits of MemAccess. */
  readonly access: number;
  /** Its regions in the cache; undefined for memory with regions of its own. */
  readonly cached?: RcacheRegion<IbRegions>;
  /** Its regions for transfers of this process that only read it, outside the cache. */
  readonly readOnly?: IbRegions;
  /** Regions of the keys of peers; undefined until the first key is packed. */
  readonly exposed?: IbRegions;
  /** Releases memory that the memory domain has allocated; undefined for other memory. */
  readonly free?: () => void;
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
  /** What it may be used for: bits of MemAccess. */
  readonly access: number;
  /** Its regions in the cache; undefined for memory with regions of its own. */
  readonly cached: RcacheRegion<IbRegions> | undefined;
  /** Its regions for transfers of this process that only read it, outside the cache. */
  readonly readOnly: IbRegions | undefined;
  /** Regions of the keys of peers; undefined until the first key is packed. */
  exposed: IbRegions | undefined;
  readonly free: (() => void) | undefined;
  inFlight = 0;
  live = true;
  readonly registeredBytes: number;
  #end: (() => void) | undefined = undefined;

  constructor(params: IbMemoryParams) {
    this.memoryType = params.memoryType;
    this.sysDevice = params.sysDevice;
    this.address = params.address;
    this.bytes = params.bytes;
    this.generation = params.generation;
    this.iova = params.iova;
    this.lkeys = params.lkeys;
    this.access = params.access;
    this.cached = params.cached;
    this.readOnly = params.readOnly;
    this.exposed = params.exposed;
    this.free = params.free;
    this.registeredBytes = params.byteLength;
  }

  /** 0 if it is a registered buffer that was detached. */
  get byteLength(): number {
    return this.bytes === undefined ? this.registeredBytes : this.bytes.byteLength;
  }

  /** Whether its buffer was detached. */
  get isDetached(): boolean {
    return this.bytes !== undefined && this.bytes.byteLength !== this.registeredBytes;
  }

  /** Ends the regions of the keys of peers. */
  hide(): void {
    this.exposed?.close();
    this.exposed = undefined;
  }

  /** Ends the use of a transfer. */
  unuse(): void {
    this.inFlight -= 1;
    if (this.inFlight === 0) this.#end?.();
  }

  /** No new use is possible. @param end ends the registrations: now, or with the last transfer that is in flight */
  retire(end: () => void): void {
    this.live = false;
    if (this.inFlight === 0) end();
    else this.#end = end;
  }
}
