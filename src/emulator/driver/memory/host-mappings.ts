/**
 * Host memory that a context has pinned and mapped for the card (MEMORY MAP with USERPTR). Addresses are chosen in va-space.ts.
 */

import { Errno } from '../../../sys/index.ts';
import { HL_MEM } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';
import type { UserMapping } from '../base/user-mapping.ts';
import type { PinnedPages } from './pinned-memory.ts';
import { isUserRange, type UserMemory } from './user-memory.ts';
import { HOST_PAGE_BYTES, HUGE_PAGE_BYTES, type VaRange, type VaSpace } from './va-space.ts';

interface HostMapping {
  readonly range: VaRange;
  /** Offset of the first page of the mapping in its address range. */
  readonly offset: number;
  /** Size of its pages in bytes. */
  readonly byteLength: number;
  readonly pages: PinnedPages;
}

/** The host mappings of one context. */
export class HostMappings {
  readonly #card: CardPort;
  readonly #va: VaSpace;
  readonly #userMemory: UserMemory;
  /** By the address that MAP returned. */
  readonly #mappings: Map<bigint, HostMapping> = new Map();
  #pinnedBytes = 0;

  /** @param userMemory of the process that owns the context */
  constructor(card: CardPort, va: VaSpace, userMemory: UserMemory) {
    this.#card = card;
    this.#va = va;
    this.#userMemory = userMemory;
  }

  /** Bytes of host memory that the card can reach, in whole pages. */
  get pinnedBytes(): number {
    return this.#pinnedBytes;
  }

  /** All mappings. */
  *list(): Iterable<UserMapping> {
    for (const [address, mapping] of this.#mappings) yield { address, byteLength: mapping.byteLength };
  }

  /**
   * Pins and maps a range of the caller's memory, at any alignment.
   * @param hint preferred device address or 0
   * @param flags of HL_MEM: FORCE_HINT
   * @returns the device address of the first byte; or an errno: EINVAL for zero bytes, a wrap-around, or FORCE_HINT of memory inside a page, EFAULT for memory that
   * cannot be pinned, ENOMEM if the address space is exhausted
   */
  map(address: number, byteLength: number, hint: bigint, flags: number): bigint | number {
    if (byteLength === 0 || address + byteLength >= 2 ** 64) return Errno.EINVAL;
    if (!isUserRange(address, byteLength)) return Errno.EFAULT;
    const inPage = address % HOST_PAGE_BYTES;
    const page = address - inPage;
    const pageBytes = Math.ceil((inPage + byteLength) / HOST_PAGE_BYTES) * HOST_PAGE_BYTES;
    const pages = this.#userMemory.pin(page, pageBytes);
    if (pages === undefined) return Errno.EFAULT;
    const isAligned = address % HUGE_PAGE_BYTES === 0;
    const range = isAligned && byteLength % HUGE_PAGE_BYTES === 0 ? this.#va.hostHuge : this.#va.host;
    const alignment = isAligned ? HUGE_PAGE_BYTES : HOST_PAGE_BYTES;
    const force = (flags & HL_MEM.FORCE_HINT) !== 0;
    if (force && hint !== 0n && inPage !== 0) {
      pages.unpin();
      return Errno.EINVAL;
    }
    const offset = range.allocate({ byteLength: pageBytes, alignment, hint, force });
    if (offset < 0) {
      pages.unpin();
      return Errno.ENOMEM;
    }
    range.table.map(offset, pageBytes, pages.memory, 0);
    const mapped = range.addressOf(offset + inPage);
    this.#mappings.set(mapped, { range, offset, byteLength: pageBytes, pages });
    this.#pinnedBytes += pageBytes;
    return mapped;
  }

  /**
   * Unmaps and unpins. Returns once no engine accesses the memory any more.
   * @param address exactly what {@link map} returned
   * @returns false if no host mapping starts there
   */
  unmap(address: bigint): boolean {
    const mapping = this.#mappings.get(address);
    if (mapping === undefined) return false;
    this.#card.waitForEngines();
    this.#mappings.delete(address);
    this.#drop(mapping);
    return true;
  }

  /** Unmaps everything. The engines of the card have finished. */
  close(): void {
    for (const mapping of this.#mappings.values()) this.#drop(mapping);
    this.#mappings.clear();
  }

  #drop({ range, offset, byteLength, pages }: HostMapping): void {
    range.table.unmap(offset, byteLength);
    range.free(offset);
    pages.unpin();
    this.#pinnedBytes -= byteLength;
  }
}
