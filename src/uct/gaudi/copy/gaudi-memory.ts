/**
 * Memory of the gaudi_copy domain: blocks of HBM, and host memory that is mapped into cards at its first use there.
 */

import type { Device, DeviceBlock, HostMapping } from '../../../hlthunk/index.ts';
import { MemoryType } from '../../../ucs/memory-type.ts';
import type { RcacheRegion } from '../../../ucs/rcache-region.ts';
import type { MdMemory, RemoteKey } from '../../api/memory.ts';
import type { GaudiCard } from '../base/gaudi-cards.ts';

/** Name of component and memory domain. */
export const GAUDI_COPY_NAME = 'gaudi_copy';
/** Name of the transport, and the other names that UCX_TLS accepts for it. */
export const GAUDI_COPY_TRANSPORT = 'gaudi_cpy';
export const GAUDI_COPY_ALIASES: readonly string[] = ['gaudi_copy', 'gaudi'];

/** A block of HBM. */
export class GaudiMemory implements MdMemory {
  readonly mdName: string = GAUDI_COPY_NAME;
  readonly memoryType: MemoryType = MemoryType.GAUDI;
  readonly sysDevice: number;
  readonly block: DeviceBlock;
  /** As the user asked; the block may be longer. */
  readonly byteLength: number;
  readonly bytes: undefined = undefined;

  constructor(card: GaudiCard, block: DeviceBlock, byteLength: number) {
    this.sysDevice = card.index;
    this.block = block;
    this.byteLength = byteLength;
  }

  get address(): bigint {
    return this.block.address;
  }

  get generation(): number {
    return this.block.generation;
  }

  get live(): boolean {
    return this.block.live;
  }
}

/**
 * Host pages in the address spaces of the cards: mapped into a card when that card first needs them, once. Holds the address only,
 * so that a cached registration does not keep the memory alive.
 */
export class HostPages {
  readonly address: number;
  readonly byteLength: number;
  readonly #mappings: (HostMapping | undefined)[];

  constructor(address: number, byteLength: number, cards: number) {
    this.address = address;
    this.byteLength = byteLength;
    this.#mappings = new Array<HostMapping | undefined>(cards).fill(undefined);
  }

  /**
   * The mapping in the card at `position` among the open ones.
   * @throws UcxError of the driver: ERR_GAUDI_OUT_OF_MEMORY, ERR_GAUDI_INVALID_PARAMS
   */
  mappingIn(position: number, device: Device): HostMapping {
    const known = this.#mappings[position];
    if (known !== undefined) return known;
    const mapped = device.hostMemoryMap(this.address, this.byteLength);
    this.#mappings[position] = mapped;
    return mapped;
  }

  /** Transfers on their way from or to the pages. */
  get inFlight(): number {
    return this.#mappings.reduce((sum, mapping) => sum + (mapping?.inFlight ?? 0), 0);
  }

  /** Unmaps the pages from every card. */
  unmap(): void {
    for (const mapping of this.#mappings) mapping?.unmap();
    this.#mappings.fill(undefined);
  }
}

/** Registered host memory: a piece of a registered ArrayBuffer. */
export class HostMemory implements MdMemory {
  readonly mdName: string = GAUDI_COPY_NAME;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  readonly bytes: Uint8Array;
  readonly region: RcacheRegion<HostPages>;
  readonly pages: HostPages;
  /** Byte of the registered pages at which the buffer begins. */
  readonly pagesOffset: number;
  readonly byteLength: number;
  readonly generation: number;
  live = true;

  constructor(bytes: Uint8Array, region: RcacheRegion<HostPages>) {
    this.bytes = bytes;
    this.region = region;
    this.pages = region.registration;
    this.pagesOffset = bytes.byteOffset;
    this.byteLength = bytes.byteLength;
    this.generation = region.generation;
  }

  get address(): bigint {
    return BigInt(this.pages.address + this.pagesOffset);
  }

  /** False once the buffer was detached: its bytes belong to somebody else. */
  get attached(): boolean {
    return this.bytes.byteLength === this.byteLength;
  }
}

/** A remote key of the gaudi_copy domain: the memory itself, since both sides are this process. */
export class GaudiKey implements RemoteKey {
  readonly mdName: string = GAUDI_COPY_NAME;
  readonly memoryType: MemoryType;
  readonly sysDevice: number | undefined;
  readonly byteLength: number;
  readonly memory: GaudiMemory | HostMemory;

  constructor(memory: GaudiMemory | HostMemory) {
    this.memory = memory;
    this.memoryType = memory.memoryType;
    this.sysDevice = memory.sysDevice;
    this.byteLength = memory.byteLength;
  }

  release(): void {}
}
