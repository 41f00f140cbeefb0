/**
 * Host memory that a context has pinned and mapped for the card (MEMORY MAP with USERPTR), and memory of other cards that it has mapped through dma-bufs
 * (MEMORY REG_DMABUF_FD of the vendor's driver).
 */

import { close, dup, Errno, isSyscallError } from '../../../sys/index.ts';
import { HL_MEM } from '../../../uapi/index.ts';
import type { ExportedDmabuf } from '../base/dmabuf.ts';
import type { UserMapping } from '../base/error-records.ts';
import type { CardState } from '../card-state.ts';
import { HOST_PAGE_BYTES, HUGE_PAGE_BYTES, type VaRange, type VaSpace } from './address-blocks.ts';
import type { PinnedPages } from './pinned-memory.ts';
import { isUserRange, type UserMemory } from './user-memory.ts';

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
  readonly #card: CardState;
  readonly #va: VaSpace;
  readonly #userMemory: UserMemory;
  /** By the address that MAP returned. */
  readonly #mappings: Map<bigint, HostMapping> = new Map();
  #pinnedBytes = 0;

  /** @param userMemory memory of the process that owns the context */
  constructor(card: CardState, va: VaSpace, userMemory: UserMemory) {
    this.#card = card;
    this.#va = va;
    this.#userMemory = userMemory;
  }

  /** Bytes of host memory that the card can access, in whole pages. */
  get pinnedBytes(): number {
    return this.#pinnedBytes;
  }

  *list(): Iterable<UserMapping> {
    for (const [address, mapping] of this.#mappings) yield { address, byteLength: mapping.byteLength };
  }

  /**
   * Pins and maps a range of the caller's memory, with any alignment.
   * @param hint preferred device address or 0
   * @param flags of HL_MEM: FORCE_HINT
   * @returns the device address of the first byte, or an errno: EINVAL for zero bytes, a wrap-around, or FORCE_HINT of memory inside a page; EFAULT for
   * memory that cannot be pinned; ENOMEM if the address space is exhausted
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
   * Unmaps and unpins. Returns when no engine accesses the memory any more.
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

  /** Unmaps everything. Call this when the engines of the card have finished. */
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

/** An imported dma-buf. */
interface Import {
  readonly dmabuf: ExportedDmabuf;
  /** Descriptor of the importer, which keeps the dma-buf open. */
  readonly fd: number;
  readonly offset: number;
  readonly byteLength: number;
  readonly onRevoked: () => void;
}

/** The imports of one context, mapped in the host range, because peer memory is accessed through the PCIe port. */
export class DmabufImports {
  readonly #card: CardState;
  readonly #va: VaSpace;
  readonly #imports: Map<bigint, Import> = new Map();

  constructor(card: CardState, va: VaSpace) {
    this.#card = card;
    this.#va = va;
  }

  *list(): Iterable<UserMapping> {
    for (const [address, { byteLength }] of this.#imports) yield { address, byteLength };
  }

  /**
   * Maps the first `byteLength` bytes of a dma-buf.
   * @returns the device address, or an errno: EBADF; EINVAL for a foreign descriptor or a length that exceeds the dma-buf; ENXIO for memory of a card
   * without a link to this one, or that was reset or removed; ENOMEM, EMFILE
   */
  map(fd: number, byteLength: number): bigint | number {
    const dmabuf = this.#card.dmabufs.find(fd);
    if (typeof dmabuf === 'number') return dmabuf;
    if (byteLength === 0 || byteLength > dmabuf.byteLength) return Errno.EINVAL;
    const isReached = dmabuf.isOnBus && this.#card.links.isLinked(this.#card.place.minor, dmabuf.minor);
    if (!isReached) return Errno.ENXIO;
    const own = duplicate(fd);
    if (own < 0) return -own;
    const bytes = Math.ceil(byteLength / HOST_PAGE_BYTES) * HOST_PAGE_BYTES;
    const { host } = this.#va;
    const offset = host.allocate({ byteLength: bytes, alignment: HUGE_PAGE_BYTES, hint: 0n, force: false });
    if (offset < 0) {
      close(own);
      return Errno.ENOMEM;
    }
    this.#mapRuns(dmabuf, offset, bytes);
    // The addresses stay allocated until UNMAP: accesses are page faults. Transfers that engines have already taken still access the memory,
    // which may then belong to another allocation.
    const onRevoked = (): void => {
      host.table.unmap(offset, bytes);
      this.#card.waitForEngines();
    };
    dmabuf.attach(onRevoked);
    const address = host.addressOf(offset);
    this.#imports.set(address, { dmabuf, fd: own, offset, byteLength: bytes, onRevoked });
    return address;
  }

  /** Unmaps an import; returns false if none starts at `address`. */
  unmap(address: bigint): boolean {
    const found = this.#imports.get(address);
    if (found === undefined) return false;
    this.#card.waitForEngines();
    this.#imports.delete(address);
    this.#drop(found);
    return true;
  }

  /** Unmaps everything. Call this when the engines of the card have finished. */
  close(): void {
    for (const found of this.#imports.values()) this.#drop(found);
    this.#imports.clear();
  }

  #mapRuns(dmabuf: ExportedDmabuf, offset: number, byteLength: number): void {
    let mapped = 0;
    for (const run of dmabuf.runs) {
      const bytes = Math.min(run.byteLength, byteLength - mapped);
      if (bytes === 0) return;
      this.#va.host.table.map(offset + mapped, bytes, dmabuf.memory, run.offset);
      mapped += bytes;
    }
  }

  #drop({ dmabuf, fd, offset, byteLength, onRevoked }: Import): void {
    dmabuf.detach(onRevoked);
    this.#va.host.table.unmap(offset, byteLength);
    this.#va.host.free(offset);
    close(fd);
  }
}

/** Duplicates a descriptor for the driver; or returns a negative errno. */
function duplicate(fd: number): number {
  try {
    return dup(fd);
  } catch (error) {
    if (isSyscallError(error)) return -error.errno;
    throw error;
  }
}
