/**
 * Device memory of any card that a context has mapped through dma-bufs (MEMORY REG_DMABUF_FD of the vendor's driver).
 */

import { close, dup, Errno, isSyscallError } from '../../../sys/index.ts';
import type { CardPort } from '../base/card-port.ts';
import type { ExportedDmabuf } from '../base/dmabuf.ts';
import type { UserMapping } from '../base/user-mapping.ts';
import { HOST_PAGE_BYTES, HUGE_PAGE_BYTES, type VaSpace } from './va-space.ts';

/** One import. */
interface Import {
  readonly dmabuf: ExportedDmabuf;
  /** The importer's own descriptor, which keeps the dma-buf alive. */
  readonly fd: number;
  readonly offset: number;
  readonly byteLength: number;
  readonly onRevoked: () => void;
}

/** The imports of one context. They are mapped in the host range: peer memory is reached through the PCIe port. */
export class DmabufImports {
  readonly #card: CardPort;
  readonly #va: VaSpace;
  readonly #imports: Map<bigint, Import> = new Map();

  constructor(card: CardPort, va: VaSpace) {
    this.#card = card;
    this.#va = va;
  }

  /** All mappings. */
  *list(): Iterable<UserMapping> {
    for (const [address, { byteLength }] of this.#imports) yield { address, byteLength };
  }

  /**
   * Maps the first `byteLength` bytes of a dma-buf.
   * @returns the device address; or an errno: EBADF, EINVAL for a foreign descriptor or a length outside the dma-buf, ENXIO for memory
   * of a card without a link to this one, or that was reset or removed, ENOMEM, EMFILE
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

  /** Unmaps everything. The engines of the card have finished. */
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
