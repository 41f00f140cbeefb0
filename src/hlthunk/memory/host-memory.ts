/**
 * Host memory in the address space of a card: mapping pins the pages and assigns a device address. The caller owns the memory; the registration cache in a
 * higher layer caches mappings.
 */

import { HL_MEM, HL_MEM_OP } from '../../uapi/index.ts';
import { highWord, lowWord } from '../../ucs/type/int64.ts';
import type { AddressOwner, CardFile } from '../base/card-file.ts';
import {
  checkFlag,
  checkHostAddress,
  checkLength,
  checkObject,
  checkWord64,
  isDeviceLost,
} from '../base/gaudi-error.ts';
import { type CardRange, checkUnused, DmaMemory } from './dma-memory.ts';

/** All host mappings of the open cards of this process. */
const PINNED: Set<HostMapping> = new Set();

/** Whether an open card of this process has mapped any of these bytes of host memory. */
export function isPinned(address: number, byteLength: number): boolean {
  for (const { hostAddress, byteLength: mapped } of PINNED) {
    if (hostAddress < address + byteLength && address < hostAddress + mapped) return true;
  }
  return false;
}

/** Options of a mapping. */
export interface HostMapOptions {
  /** Preferred device address; ignored if it is in use or not aligned, unless `forceHint`. */
  readonly hint?: bigint | undefined;
  /** Fail with ERR_GAUDI_OUT_OF_MEMORY if the hint is not available. */
  readonly forceHint?: boolean | undefined;
}

/** Pinned host memory with a device address. Made by {@link HostMemory.map}. */
export class HostMapping extends DmaMemory {
  /** Host virtual address of the first byte. */
  readonly hostAddress: number;
  readonly #owner: HostMemory;

  constructor(owner: HostMemory, { card, address, byteLength }: CardRange, hostAddress: number) {
    super(card, lowWord(address), highWord(address), byteLength);
    this.hostAddress = hostAddress;
    this.#owner = owner;
  }

  /**
   * Unpins the memory. No effect after the device was closed, which unpins all memory.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY while a transfer uses the mapping; ERR_GAUDI_INVALID_PARAMS the second time
   */
  unmap(): void {
    this.#owner.unmap(this);
  }
}

/** The host mappings of one device. */
export class HostMemory implements AddressOwner {
  readonly #card: CardFile;
  readonly #mappings = new Set<HostMapping>();
  #pinnedBytes = 0;

  constructor(card: CardFile) {
    this.#card = card;
    card.addressOwners.push(this);
  }

  /** Bytes in live mappings, as requested. */
  get pinnedBytes(): number {
    return this.#pinnedBytes;
  }

  /** Number of live mappings. */
  get count(): number {
    return this.#mappings.size;
  }

  /**
   * Maps host memory (MEMORY MAP with USERPTR), at any byte alignment.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS for an invalid range or memory that cannot be pinned (EFAULT), because it is not mapped or not writable: the
   *   driver pins for writing (FOLL_WRITE in get_user_memory; kernels before 6.2 accept private read-only mappings, by FOLL_FORCE); ERR_GAUDI_OUT_OF_MEMORY for
   *   lack of addresses or pages; ERR_GAUDI_DEVICE_BUSY if the card is in reset
   */
  map(address: number, byteLength: number, options: HostMapOptions = {}): HostMapping {
    this.#card.checkOpen();
    checkHostAddress('address', address);
    checkLength('byteLength', byteLength);
    checkObject('options', options, ['hint', 'forceHint']);
    const hint = options.hint ?? 0n;
    checkWord64('hint', hint);
    checkFlag('forceHint', options.forceHint);
    const out = this.#card.memory(
      {
        map_host_host_virt_addr: BigInt(address),
        map_host_hint_addr: hint,
        map_host_mem_size: BigInt(byteLength),
        op: HL_MEM_OP.MAP,
        flags: HL_MEM.USERPTR | (options.forceHint === true ? HL_MEM.FORCE_HINT : 0),
      },
      `hostMemoryMap of ${byteLength} bytes at 0x${address.toString(16)}`,
    );
    const mapping = new HostMapping(this, { card: this.#card, address: out.device_virt_addr, byteLength }, address);
    this.#mappings.add(mapping);
    PINNED.add(mapping);
    this.#pinnedBytes += byteLength;
    return mapping;
  }

  /** See {@link HostMapping.unmap}. */
  unmap(mapping: HostMapping): void {
    if (this.#card.closed) return;
    checkUnused(mapping, this.#card, 'mapping');
    const result = this.#card.tryMemory({ unmap_device_virt_addr: mapping.address, op: HL_MEM_OP.UNMAP });
    // A card that was removed or is in reset has dropped its mappings, or does so when the file is closed.
    if (result < 0 && !isDeviceLost(result)) throw this.#card.error(result, 'memoryUnmap');
    this.#forget(mapping);
  }

  unmapAt(address: bigint): boolean {
    const mapping = [...this.#mappings].find((candidate) => candidate.address === address);
    if (mapping !== undefined) this.unmap(mapping);
    return mapping !== undefined;
  }

  /** Marks every mapping as ended, because closing the file unpins all of them. */
  close(): void {
    for (const mapping of this.#mappings) this.#forget(mapping);
  }

  #forget(mapping: HostMapping): void {
    mapping.live = false;
    this.#mappings.delete(mapping);
    PINNED.delete(mapping);
    this.#pinnedBytes -= mapping.byteLength;
  }
}
