/**
 * Device memory behind dma-bufs, as RDMA devices of an emulated node access it. Memory of the node's cards is read and written over the emulated PCIe
 * fabric; a foreign device is represented by a memfd sealed against shrinking, which udmabuf requires.
 */

import {
  close,
  dup,
  Errno,
  fileStatus,
  getSeals,
  isSyscallError,
  type MappedMemory,
  mapFile,
  memcpy,
  PAGE_SIZE,
  SealFlag,
  SyscallError,
  VIEW_LENGTH_MAX,
} from '../../../sys/index.ts';
import { type DmabufRegistry, type ExportedDmabuf, forEachRun } from '../../driver/base/dmabuf.ts';
import { type DmabufAccess, type DmaMemory, readPhysical, writePhysical } from './dma-memory.ts';

/** A range of a dma-buf of a card of this process. */
class CardDmaMemory implements DmaMemory {
  readonly byteLength: number;
  readonly #dmabuf: ExportedDmabuf;
  readonly #offset: number;
  /** Keeps the dma-buf open. */
  readonly #fd: number;
  /** False once the card was closed, reset or removed. */
  #attached = true;
  readonly #onLost = (): void => {
    this.#attached = false;
  };

  constructor(dmabuf: ExportedDmabuf, fd: number, offset: number, byteLength: number) {
    this.#dmabuf = dmabuf;
    this.#fd = fd;
    this.#offset = offset;
    this.byteLength = byteLength;
    dmabuf.attachDevice(this.#onLost);
  }

  read(offset: number, target: number, byteLength: number): boolean {
    return this.#move(offset, byteLength, (at, done, bytes) =>
      readPhysical(this.#dmabuf.memory, at, target + done, bytes),
    );
  }

  write(offset: number, source: number, byteLength: number): boolean {
    return this.#move(offset, byteLength, (at, done, bytes) =>
      writePhysical(this.#dmabuf.memory, at, source + done, bytes),
    );
  }

  release(): void {
    this.#dmabuf.detachDevice(this.#onLost);
    close(this.#fd);
  }

  #move(offset: number, byteLength: number, move: (at: number, done: number, bytes: number) => boolean): boolean {
    return this.#attached && forEachRun(this.#dmabuf.runs, this.#offset + offset, byteLength, move);
  }
}

/** Memory of a device outside of the node. */
class ForeignDmaMemory implements DmaMemory {
  readonly byteLength: number;
  readonly #mapped: MappedMemory;
  readonly #start: number;

  constructor(fd: number, offset: number, byteLength: number) {
    const skipped = offset % PAGE_SIZE;
    this.byteLength = byteLength;
    this.#mapped = mapFile(fd, skipped + byteLength, offset - skipped);
    this.#start = this.#mapped.address + skipped;
  }

  read(offset: number, target: number, byteLength: number): boolean {
    memcpy(target, this.#start + offset, byteLength);
    return true;
  }

  write(offset: number, source: number, byteLength: number): boolean {
    memcpy(this.#start + offset, source, byteLength);
    return true;
  }

  release(): void {
    this.#mapped.close();
  }
}

/** Whether a descriptor represents the dma-buf of a foreign device that contains a range. */
function isForeign(fd: number, offset: number, byteLength: number): boolean {
  try {
    const isWhole = (getSeals(fd) & SealFlag.SHRINK) !== 0 && byteLength <= VIEW_LENGTH_MAX;
    return isWhole && offset + byteLength <= fileStatus(fd).byteLength;
  } catch (error) {
    if (isSyscallError(error)) return false;
    throw error;
  }
}

/**
 * The dma-buf of a descriptor, for a range of it.
 * @throws SyscallError EBADF; EINVAL for a foreign descriptor or a range that is not inside the dma-buf; ENODEV after a reset or removal of the card
 */
export function dmabufOf(dmabufs: DmabufRegistry, fd: number, offset: number, byteLength: number): ExportedDmabuf {
  const dmabuf = dmabufs.find(fd);
  if (typeof dmabuf === 'number') throw callError(dmabuf, `descriptor ${fd} is not a dma-buf of a card of this node`);
  if (!dmabuf.isOnBus) throw callError(Errno.ENODEV, `the card of descriptor ${fd} was reset or removed`);
  if (offset + byteLength <= dmabuf.byteLength) return dmabuf;
  const range = `${byteLength} bytes at ${offset}`;
  throw callError(Errno.EINVAL, `${range} exceed the dma-buf of ${dmabuf.byteLength} bytes`);
}

/** The dma-bufs of the cards in this process, and of foreign devices. */
export function cardMemory(dmabufs: DmabufRegistry): DmabufAccess {
  return {
    attach(fd, offset, byteLength) {
      if (isForeign(fd, offset, byteLength)) return new ForeignDmaMemory(fd, offset, byteLength);
      return new CardDmaMemory(dmabufOf(dmabufs, fd, offset, byteLength), dup(fd), offset, byteLength);
    },
  };
}

/** Devices that do not register dma-bufs. */
export const NO_DMABUFS: DmabufAccess = {
  attach: (fd) => refuseDmabuf(fd),
};

/** @throws SyscallError EOPNOTSUPP */
export function refuseDmabuf(fd: number): never {
  throw callError(Errno.EOPNOTSUPP, `descriptor ${fd}`);
}

function callError(errno: number, what: string): SyscallError {
  return new SyscallError('ibv_reg_dmabuf_mr', errno, `${what} (emulated)`);
}
