/**
 * Host memory of a context that is a dma-buf, or can be exported as one: memory in sealed memfds, and mapped dma-bufs of other exporters. The context
 * registers it.
 */

import {
  close as closeFd,
  dup,
  Errno,
  forgetDescriptor,
  type HostDmabufDevice,
  isReadable,
  isSyscallError,
  type MappedMemory,
  mapFile,
  mapShareable,
  PAGE_SIZE,
  type ShareableMemory,
  type SyscallError,
  shareableAt,
  VIEW_LENGTH_MAX,
} from '../../../sys/index.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import { DmabufCounts } from '../../../ucs/stats/dmabuf-counts.ts';
import type { StatsNode } from '../../../ucs/stats/stats-node.ts';
import { invalidParam, statusError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import type { DmabufMemory, DmabufRange, HostDmabufs as HostDmabufsApi } from '../../api/host-dmabufs.ts';
import type { DmabufExport } from '../../api/memory-domain.ts';

/** Errors of mmap for a file whose driver does not support mapping, or not for writing. */
const NOT_MAPPABLE: readonly number[] = [
  Errno.ENODEV,
  Errno.EACCES,
  Errno.EINVAL,
  Errno.ENXIO,
  Errno.EOPNOTSUPP,
  Errno.EPERM,
];

abstract class Memory implements DmabufMemory {
  readonly bytes: Uint8Array;
  readonly isPinnable: boolean;
  /** Host virtual address of the first byte. */
  readonly address: number;
  readonly #onClose: (memory: Memory) => void;
  #closed = false;

  constructor(bytes: Uint8Array, address: number, onClose: (memory: Memory) => void) {
    this.bytes = bytes;
    this.address = address;
    // The pages of a mapping are of one kind, so testing one byte is sufficient.
    this.isPinnable = isReadable(address, 1);
    this.#onClose = onClose;
  }

  protected abstract release(): void;

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.release();
    this.#onClose(this);
  }
}

/** Memory in a sealed memfd. */
class AllocatedMemory extends Memory {
  readonly #memory: ShareableMemory;

  constructor(memory: ShareableMemory, onClose: (memory: Memory) => void) {
    super(memory.u8, memory.address, onClose);
    this.#memory = memory;
  }

  protected release(): void {
    this.#memory.close();
  }
}

/** Memory of a dma-buf of another exporter. */
class ForeignMemory extends Memory {
  readonly #memory: MappedMemory;
  readonly #fd: number;
  readonly #offset: number;

  /** @param fd own descriptor */
  constructor(
    memory: MappedMemory,
    fd: number,
    { offset, byteLength }: DmabufRange,
    onClose: (memory: ForeignMemory) => void,
  ) {
    const skip = offset % PAGE_SIZE;
    super(memory.u8.subarray(skip, skip + byteLength), memory.address + skip, () => onClose(this));
    this.#memory = memory;
    this.#fd = fd;
    this.#offset = offset;
  }

  /** See {@link ContextDmabufs.export}, from the first byte on. */
  export(): DmabufPlace {
    return { fd: dup(this.#fd), offset: this.#offset };
  }

  protected release(): void {
    this.#memory.close();
    closeFd(this.#fd);
  }
}

/** The memory of one context. */
export class ContextDmabufs implements HostDmabufsApi {
  readonly #device: HostDmabufDevice;
  readonly #live: Set<Memory> = new Set();
  readonly #counts: DmabufCounts;
  readonly #onClose = (memory: Memory): void => void this.#live.delete(memory);
  readonly #onForeignClose = (memory: ForeignMemory): void => {
    this.#live.delete(memory);
    this.#counts.closed();
    this.#counts.released(memory.bytes.byteLength, rangeOf(memory));
  };

  /** @param device creates dma-bufs from memfds @param log for exports and imports */
  constructor(device: HostDmabufDevice, log?: Log) {
    this.#device = device;
    this.#counts = new DmabufCounts(log);
  }

  allocate(byteLength: number): DmabufMemory {
    return this.#add(new AllocatedMemory(mapShareable(byteLength), this.#onClose));
  }

  map(range: DmabufRange): DmabufMemory {
    const { fd, offset, byteLength } = range;
    this.#check(range);
    const own = dup(fd);
    try {
      const skip = offset % PAGE_SIZE;
      const mapped = mapFile(own, skip + byteLength, offset - skip);
      const memory = this.#add(new ForeignMemory(mapped, own, range, this.#onForeignClose));
      this.#counts.kept();
      this.#counts.imported(byteLength, `fd ${fd} from offset ${offset}, as ${rangeOf(memory)}`);
      return memory;
    } catch (error) {
      closeFd(own);
      throw isSyscallError(error) && NOT_MAPPABLE.includes(error.errno) ? notMappable(error) : error;
    }
  }

  export(address: bigint, byteLength: number): DmabufExport {
    const start = Number(address);
    for (const memory of this.#live) {
      const skip = start - memory.address;
      const isInside = skip >= 0 && skip + byteLength <= memory.bytes.byteLength;
      if (isInside && memory instanceof ForeignMemory) return this.#hand(memory.export(), skip, byteLength);
    }
    // Also memory of another context, or of a device, that the program has registered here.
    const memory = shareableAt(start, byteLength);
    if (memory !== undefined && start + byteLength <= memory.address + memory.byteLength) {
      return this.#hand({ fd: this.#create(memory), offset: 0 }, start - memory.address, byteLength);
    }
    throw refused(
      `[0x${address.toString(16)}, +${byteLength}) is not in a memfd of this library, and the kernel makes dma-bufs of sealed memfds only: copy the data to memMap({ allocate, shared: true })`,
    );
  }

  stats(): StatsNode {
    return this.#counts.node('host');
  }

  close(): void {
    for (const memory of this.#live) memory.close();
  }

  #hand(place: DmabufPlace, skip: number, byteLength: number): OwnedDmabuf {
    const exported = new OwnedDmabuf(place, skip);
    this.#counts.exported(
      byteLength,
      `${byteLength} bytes of host memory, fd ${exported.fd} from offset ${exported.offset}`,
    );
    return exported;
  }

  #add<M extends Memory>(memory: M): M {
    this.#live.add(memory);
    return memory;
  }

  #create({ fd, byteLength }: ShareableMemory): number {
    const missing = this.#device.unavailableReason;
    if (missing !== undefined) throw refused(missing);
    try {
      return this.#device.create(fd, 0, Math.ceil(byteLength / PAGE_SIZE) * PAGE_SIZE);
    } catch (error) {
      if (!isSyscallError(error, Errno.EINVAL)) throw error;
      throw refused('the limit of the udmabuf module is its parameter size_limit_mb, 64 MiB by default', error);
    }
  }

  /** Rejects an invalid range of a dma-buf. */
  #check({ fd, offset, byteLength }: DmabufRange): void {
    if (byteLength + (offset % PAGE_SIZE) > VIEW_LENGTH_MAX) {
      throw invalidParam('dmabuf.byteLength', 'must end at most 4 GiB after the start of its first page', byteLength);
    }
    const available = this.#byteLengthOf(fd);
    if (available === undefined) throw invalidParam('dmabuf.fd', 'must be a dma-buf', fd);
    if (offset + byteLength <= available) return;
    throw invalidParam(
      'dmabuf.byteLength',
      `plus offset ${offset} must be at most the length of the dma-buf, ${available}`,
      byteLength,
    );
  }

  #byteLengthOf(fd: number): number | undefined {
    try {
      return this.#device.byteLengthOf(fd);
    } catch (error) {
      if (isSyscallError(error, Errno.EBADF)) throw invalidParam('dmabuf.fd', 'must be an open descriptor', fd);
      throw error;
    }
  }
}

function rangeOf({ address, bytes }: Memory): string {
  return `${bytes.byteLength} bytes of host memory at 0x${address.toString(16)}`;
}

function refused(reason: string, cause?: unknown): UcxError {
  return statusError(Status.UNSUPPORTED, `export a dma-buf of host memory (${reason})`, cause);
}

function notMappable(error: SyscallError): UcxError {
  return statusError(
    Status.UNSUPPORTED,
    'map a dma-buf as host memory: its exporter does not support mapping by the CPU; use memoryType gaudi for the memory of a card',
    error,
  );
}

/** Descriptor of a dma-buf, and the offset of the memory in it. */
export type DmabufPlace = Pick<DmabufExport, 'fd' | 'offset'>;

/** An exported dma-buf. From now on the caller owns its descriptor, even if the caller's thread is terminated. */
export class OwnedDmabuf implements DmabufExport {
  readonly fd: number;
  readonly offset: number;
  #isOpen = true;

  constructor({ fd, offset }: DmabufPlace, skip: number) {
    forgetDescriptor(fd);
    this.fd = fd;
    this.offset = offset + skip;
  }

  close(): void {
    if (this.#isOpen) closeFd(this.fd);
    this.#isOpen = false;
  }
}
