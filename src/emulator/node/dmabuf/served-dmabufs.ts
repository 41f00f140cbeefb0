/** The dma-bufs that RDMA devices of one client access, in the server: keeps them open, and marks them as withdrawn for the client, which moves the bytes. */

import { close as closeFd, dup, mapShareable, type ShareableMemory, schedYield } from '../../../sys/index.ts';
import { systemClock } from '../../../ucs/sys/clock.ts';
import type { ExportedDmabuf } from '../../driver/base/dmabuf.ts';
import { ATTACHED, ATTACHMENT_PAGE_BYTES, MOVING, WITHDRAWN } from './attachment-page.ts';

/** Maximum wait for the client to finish the copy of a packet; the thread yields the processor meanwhile. */
const MOVING_NS = 20e6;

interface Attachment {
  readonly dmabuf: ExportedDmabuf;
  /** Keeps the dma-buf alive. */
  readonly fd: number;
  readonly onLost: () => void;
}

/** The dma-bufs of one client. */
export class ServedDmabufs {
  readonly #attachments: Map<number, Attachment> = new Map();
  #page: ShareableMemory | undefined;
  #words: Int32Array = new Int32Array(0);
  /** True once the client has not finished a copy in time: the server no longer waits for its copies. */
  #isStuck = false;

  /** Descriptor of the attachment page, which is created at first use. Throws SyscallError EMFILE, ENOMEM. */
  get pageFd(): number {
    if (this.#page === undefined) {
      this.#page = mapShareable(ATTACHMENT_PAGE_BYTES);
      this.#words = new Int32Array(this.#page.buffer);
    }
    return this.#page.fd;
  }

  /** Whether a number is in use. */
  has(id: number): boolean {
    return this.#attachments.has(id);
  }

  /**
   * Attaches a dma-buf under a number that is not in use.
   * @param fd descriptor of the dma-buf; the caller keeps it
   * @throws SyscallError EMFILE, ENOMEM
   */
  attach(id: number, dmabuf: ExportedDmabuf, fd: number): void {
    // Creates the page.
    void this.pageFd;
    const onLost = (): void => this.#withdraw(id);
    this.#attachments.set(id, { dmabuf, fd: dup(fd), onLost });
    Atomics.store(this.#words, id, ATTACHED);
    dmabuf.attachDevice(onLost);
  }

  /** Ends an attachment; unknown numbers are ignored. */
  detach(id: number): void {
    const attachment = this.#attachments.get(id);
    if (attachment === undefined) return;
    this.#attachments.delete(id);
    attachment.dmabuf.detachDevice(attachment.onLost);
    closeFd(attachment.fd);
  }

  /** Ends all attachments. Idempotent. */
  close(): void {
    for (const id of this.#attachments.keys()) this.detach(id);
    this.#page?.close();
    this.#page = undefined;
  }

  /** Withdraws the memory, and waits for a copy that may be in progress: the memory may be allocated anew afterwards. */
  #withdraw(id: number): void {
    Atomics.store(this.#words, id, WITHDRAWN);
    if (this.#isStuck) return;
    const deadlineNs = systemClock.nowNs() + MOVING_NS;
    while (Atomics.load(this.#words, MOVING) !== 0 && !this.#isStuck) {
      schedYield();
      this.#isStuck = systemClock.nowNs() >= deadlineNs;
    }
  }
}
