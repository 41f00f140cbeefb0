/**
 * Memory for transfers of the Gaudi transports: device memory, and host memory that is mapped into a card at its first use there. Also the one-sided operations
 * of a card in the attributes of interfaces, and the completion of transfers that read ArrayBuffers of the program. While a card reads such a buffer, a program
 * can transfer it elsewhere (structuredClone, postMessage, resize): the pages stay pinned, but their content may change, so the operation fails.
 */

import type { Device, DeviceBlock, DevicePart, DmaMemory, HostMapping } from '../../../hlthunk/index.ts';
import { isOwnMapping } from '../../../sys/index.ts';
import { hasBytes } from '../../../ucs/memory/bytes.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { RcacheRegion } from '../../../ucs/rcache/region.ts';
import { isUcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { type Completion, type IfaceAttributes, IfaceFlag, type IovEntry, type RmaLimits } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import { completeOne } from '../../base/checks.ts';
import type { GaudiCard } from './cards.ts';
import { IOV_MAX, SHORT_BYTES_MAX } from './config.ts';

/** Device memory in the address space of one card: memory of the card, or imported memory of another card. */
export class GaudiMemory implements MdMemory {
  readonly mdName: string;
  readonly memoryType: MemoryType = MemoryType.GAUDI;
  readonly card: GaudiCard;
  readonly sysDevice: number;
  readonly byteLength: number;
  readonly bytes: undefined = undefined;
  /** Offset of the memory in {@link dmaIn}. */
  readonly dmaOffset: number = 0;
  readonly #target: DmaMemory;

  /** @param target the memory for transfers of the card */
  constructor(mdName: string, card: GaudiCard, target: DmaMemory) {
    this.mdName = mdName;
    this.card = card;
    this.sysDevice = card.index;
    this.#target = target;
    this.byteLength = target.byteLength;
  }

  /** Whether a value is an instance of this class, rather than an object of the same shape. */
  static isGenuine(value: unknown): value is GaudiMemory {
    return typeof value === 'object' && value !== null && #target in value;
  }

  get address(): bigint {
    return this.#target.address;
  }

  get generation(): number {
    return this.#target.generation;
  }

  get live(): boolean {
    return this.#target.live;
  }

  get limitation(): string | undefined {
    return submitLimitation(this.card.device);
  }

  get inFlight(): number {
    return this.#target.inFlight;
  }

  /** The memory for transfers. */
  dmaIn(): DmaMemory {
    return this.#target;
  }
}

/** HBM of the card: a block that was allocated here, or a part of a block of the application. */
export class BlockMemory extends GaudiMemory {
  readonly block: DeviceBlock;
  /** The registered part of the block; undefined for a block that was allocated here. */
  readonly part: DevicePart | undefined;

  /** @param part the registered part of the block; undefined for a whole block that was allocated here */
  constructor(mdName: string, card: GaudiCard, block: DeviceBlock, part: DevicePart | undefined) {
    super(mdName, card, part ?? block);
    this.block = block;
    this.part = part;
  }
}

/**
 * Host pages in the address spaces of the cards: mapped into a card once, when the card first needs them. Stores only their address, so that a cached
 * registration does not keep the memory alive.
 */
export class HostPages {
  readonly address: number;
  readonly byteLength: number;
  /** True for a mapping that only its owner closes, so that the garbage collector cannot reuse the memory. */
  readonly isFixed: boolean;
  readonly #mappings: (HostMapping | undefined)[];
  readonly #evictIdle: () => boolean;

  /** @param evictIdle unmaps other idle pages; returns false if there are none */
  constructor(address: number, byteLength: number, cards: number, evictIdle: () => boolean) {
    this.address = address;
    this.byteLength = byteLength;
    this.isFixed = isOwnMapping(address, byteLength);
    this.#evictIdle = evictIdle;
    this.#mappings = new Array<HostMapping | undefined>(cards).fill(undefined);
  }

  /**
   * The mapping in the card at `position` among the open ones. Idle pages are evicted if the card is out of resources.
   * @throws UcxError of the driver: ERR_GAUDI_OUT_OF_MEMORY, ERR_GAUDI_INVALID_PARAMS
   */
  mappingIn(position: number, device: Device): HostMapping {
    const known = this.#mappings[position];
    if (known !== undefined) return known;
    const mapped = this.#map(device);
    this.#mappings[position] = mapped;
    return mapped;
  }

  /** Number of transfers in flight from or to the pages. */
  get inFlight(): number {
    return this.#mappings.reduce((sum, mapping) => sum + (mapping?.inFlight ?? 0), 0);
  }

  /**
   * Unmaps the pages from every card, and discards the mappings. If one card fails, the others are still unmapped.
   * @throws UcxError the first failure: ERR_GAUDI_DEVICE_BUSY, ERR_GAUDI_INVALID_PARAMS
   */
  unmap(): void {
    const failures: unknown[] = [];
    for (const [position, mapping] of this.#mappings.entries()) {
      this.#mappings[position] = undefined;
      try {
        mapping?.unmap();
      } catch (error) {
        failures.push(error);
      }
    }
    if (failures.length > 0) throw failures[0];
  }

  #map(device: Device): HostMapping {
    for (;;) {
      try {
        return device.hostMemoryMap(this.address, this.byteLength);
      } catch (error) {
        const isFull = isUcxError(error) && error.status === Status.NO_MEMORY;
        if (!isFull || !this.#evictIdle()) throw error;
      }
    }
  }
}

/** The memory domain that registers host memory. */
export interface RegisteringMd {
  readonly name: string;
  /** Whether it packs keys of the memory. */
  readonly packable: boolean;
}

/** Registered host memory: a range of a registered ArrayBuffer, or a range of addresses. */
export class RegisteredMemory implements MdMemory {
  readonly mdName: string;
  readonly memoryType: MemoryType = MemoryType.HOST;
  readonly sysDevice: undefined = undefined;
  /** Whether its memory domain creates keys of host memory. */
  readonly packable: boolean;
  readonly bytes: Uint8Array;
  readonly region: RcacheRegion<HostPages>;
  readonly pages: HostPages;
  /** Offset of the buffer in {@link dmaIn}, the registered pages. */
  readonly dmaOffset: number;
  readonly byteLength: number;
  readonly generation: number;
  live = true;

  /**
   * @param md its name, and whether it packs keys of the memory
   * @param location address of the first byte, inside the region
   */
  constructor(md: RegisteringMd, bytes: Uint8Array, location: number, region: RcacheRegion<HostPages>) {
    this.mdName = md.name;
    this.packable = md.packable;
    this.bytes = bytes;
    this.region = region;
    this.pages = region.registration;
    const offset = location - region.start;
    // V8 would allocate a heap number for a difference of addresses, even a small one, and for each sum with it in a transfer: the conversion to a small
    // integer avoids that.
    this.dmaOffset = offset === (offset | 0) ? offset | 0 : offset;
    this.byteLength = bytes.byteLength;
    this.generation = region.generation;
  }

  get address(): bigint {
    return BigInt(this.pages.address + this.dmaOffset);
  }

  get inFlight(): number {
    return this.pages.inFlight;
  }

  /** False after the buffer was detached: its bytes then belong to another buffer. */
  get attached(): boolean {
    return hasBytes(this.bytes, this.byteLength);
  }

  /** Whether a card may write directly to the memory: the owner of a range of addresses keeps it mapped, but an ArrayBuffer can be transferred. */
  get staysPut(): boolean {
    return this.pages.isFixed || this.region.buffer === undefined;
  }

  /** The mapping for transfers of the card at `position`. The first use there maps it, with the errors of {@link HostPages.mappingIn}. */
  dmaIn(position: number, device: Device): HostMapping {
    return this.pages.mappingIn(position, device);
  }
}

/** Memory for transfers. */
export type CardMemory = GaudiMemory | RegisteredMemory;

/** The completion of one list that reads memory which can be detached. */
export class SourceCheck implements Completion {
  count = 1;
  failure: Status = Status.OK;
  /** Source memories; entries are reused. */
  readonly #sources: (RegisteredMemory | undefined)[] = [];
  #length = 0;
  readonly #onEnd: (check: SourceCheck) => void;
  #completion: Completion | undefined = undefined;

  /** @param onEnd returns this object to its pool, before the completion of the list is called */
  constructor(onEnd: (check: SourceCheck) => void) {
    this.#onEnd = onEnd;
  }

  /**
   * Records the source memory.
   * @param remote the source if the list is the destination; undefined if the list is the source
   */
  begin(iov: readonly IovEntry[], remote: RegisteredMemory | undefined, completion: Completion): void {
    if (remote !== undefined) this.#add(remote);
    else for (let i = 0; i < iov.length; i++) this.#add(iov[i]!.memory);
    this.#completion = completion;
  }

  #add(memory: unknown): void {
    if (isDetachable(memory)) this.#sources[this.#length++] = memory;
  }

  /** Clears the record after a list of which no transfer was started. */
  reset(): void {
    this.count = 1;
    this.failure = Status.OK;
    while (this.#length > 0) this.#sources[--this.#length] = undefined;
    this.#completion = undefined;
  }

  onComplete(): void {
    const completion = this.#completion;
    let status = this.failure;
    for (let i = 0; i < this.#length && status === Status.OK; i++) {
      if (!this.#sources[i]!.attached) status = Status.INVALID_ADDR;
    }
    this.reset();
    this.#onEnd(this);
    if (completion !== undefined) completeOne(completion, status);
  }
}

/** Whether the source memory, as {@link SourceCheck.begin} records it, can be detached. */
export function mayDetach(iov: readonly IovEntry[], remote: RegisteredMemory | undefined): boolean {
  if (remote !== undefined) return isDetachable(remote);
  for (let i = 0; i < iov.length; i++) if (isDetachable(iov[i]!.memory)) return true;
  return false;
}

function isDetachable(memory: unknown): memory is RegisteredMemory {
  return memory instanceof RegisteredMemory && !memory.staysPut;
}

const NO_LIMITS: RmaLimits = { shortBytesMax: 0, zcopyBytesMin: 0, zcopyBytesMax: 0, iovMax: 0 };
const OPERATIONS: number = IfaceFlag.PUT_SHORT | IfaceFlag.PUT_ZCOPY | IfaceFlag.GET_SHORT | IfaceFlag.GET_ZCOPY;

/** The attributes of put and get; `flags` contains only those of these operations. */
export type CardRma = Pick<IfaceAttributes, 'flags' | 'put' | 'get' | 'limitation'>;

/** The operations of a card; none if there is a `limitation`. @param iovMax maximum number of entries of a list */
export function cardRma(limitation: string | undefined, iovMax: number = IOV_MAX): CardRma {
  if (limitation === undefined) {
    const limits = { shortBytesMax: SHORT_BYTES_MAX, zcopyBytesMin: 1, zcopyBytesMax: Number.MAX_SAFE_INTEGER, iovMax };
    return { flags: OPERATIONS, put: limits, get: limits, limitation };
  }
  return { flags: 0, put: NO_LIMITS, get: NO_LIMITS, limitation };
}

/** The reason why the card cannot execute transfers; undefined if it can. */
export function submitLimitation({ dma }: Device): string | undefined {
  return dma.limitation;
}
