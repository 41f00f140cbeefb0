/** Memory of the cards of an emulated node, as its RDMA devices access it: attached dma-bufs, read and written across the PCIe fabric of the node. */

import { close, dup, Errno, SyscallError } from '../../../sys/index.ts';
import type { DmabufRegistry, ExportedDmabuf, MemoryRun } from '../../driver/base/dmabuf.ts';
import { type DmabufAccess, type DmaMemory, readPhysical, writePhysical } from './dma-memory.ts';

/** A range of a dma-buf of a card of this process. */
class CardDmaMemory implements DmaMemory {
  readonly byteLength: number;
  readonly #dmabuf: ExportedDmabuf;
  readonly #offset: number;
  /** Keeps the dma-buf alive. */
  readonly #fd: number;
  /** False once the exporter has withdrawn the memory: the card was closed. */
  #attached = true;
  readonly #onRevoked = (): void => {
    this.#attached = false;
  };

  constructor(dmabuf: ExportedDmabuf, fd: number, offset: number, byteLength: number) {
    this.#dmabuf = dmabuf;
    this.#fd = fd;
    this.#offset = offset;
    this.byteLength = byteLength;
    dmabuf.attach(this.#onRevoked);
  }

  read(offset: number, target: number, byteLength: number): boolean {
    return this.#eachRun(offset, byteLength, ({ offset: at }, from, done, bytes) =>
      readPhysical(this.#dmabuf.memory, at + from, target + done, bytes),
    );
  }

  write(offset: number, source: number, byteLength: number): boolean {
    return this.#eachRun(offset, byteLength, ({ offset: at }, from, done, bytes) =>
      writePhysical(this.#dmabuf.memory, at + from, source + done, bytes),
    );
  }

  release(): void {
    this.#dmabuf.detach(this.#onRevoked);
    close(this.#fd);
  }

  #eachRun(
    offset: number,
    byteLength: number,
    move: (run: MemoryRun, from: number, done: number, bytes: number) => boolean,
  ): boolean {
    if (!this.#attached) return false;
    let from = this.#offset + offset;
    let done = 0;
    for (const run of this.#dmabuf.runs) {
      if (done === byteLength) break;
      if (from >= run.byteLength) {
        from -= run.byteLength;
        continue;
      }
      const bytes = Math.min(run.byteLength - from, byteLength - done);
      if (!move(run, from, done, bytes)) return false;
      done += bytes;
      from = 0;
    }
    return done === byteLength;
  }
}

/** The dma-bufs of the cards in this process. */
export function cardMemory(dmabufs: DmabufRegistry): DmabufAccess {
  return {
    attach(fd, offset, byteLength) {
      const dmabuf = dmabufs.find(fd);
      if (typeof dmabuf === 'number')
        throw refusal(dmabuf, `descriptor ${fd} is none of a dma-buf of a card of this node`);
      if (offset + byteLength > dmabuf.byteLength) {
        throw refusal(
          Errno.EINVAL,
          `${byteLength} bytes at ${offset} are not inside the dma-buf of ${dmabuf.byteLength} bytes`,
        );
      }
      return new CardDmaMemory(dmabuf, dup(fd), offset, byteLength);
    },
  };
}

/** Devices that do not register dma-bufs. */
export const NO_DMABUFS: DmabufAccess = {
  attach(fd) {
    throw refusal(Errno.EOPNOTSUPP, `descriptor ${fd}`);
  },
};

function refusal(errno: number, what: string): SyscallError {
  return new SyscallError('ibv_reg_dmabuf_mr', errno, `${what} (emulated)`);
}
