/**
 * Dma-bufs of a node server for RDMA devices in its clients. Client: maps the memory of the cards until the server withdraws it or ends; like a real NIC,
 * it accesses device memory without the engines of the card. Server: keeps open the dma-bufs that a client uses. When memory is gone, it sets a mark that
 * the client checks, because the client moves the bytes itself.
 */

import {
  close as closeFd,
  dup,
  Errno,
  type MappedMemory,
  mapFile,
  mapLarge,
  mapShareable,
  memcpy,
  PAGE_SIZE,
  type ShareableMemory,
  SyscallError,
  schedYield,
  unmapLarge,
} from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import { type ExportedDmabuf, forEachRun, type MemoryRun } from '../driver/base/dmabuf.ts';
import type { DmabufAccess, DmaMemory } from '../rdma/memory/dma-memory.ts';
import type { ServerConnection } from './connection.ts';

/** The largest descriptor number. */
const FD_MAX = 0x7fff_ffff;

/** Contiguous memory: the mapped pages, and the range of bytes in them. */
interface Piece {
  readonly pages: number;
  readonly pageBytes: number;
  /** The range of bytes; its offset is an address of this process. */
  readonly run: MemoryRun;
}

/** An attached range of a dma-buf. */
class RemoteDmaMemory implements DmaMemory {
  readonly byteLength: number;
  readonly #id: number;
  readonly #pieces: readonly Piece[];
  readonly #runs: readonly MemoryRun[];
  readonly #owner: RemoteDmabufs;

  constructor(id: number, byteLength: number, pieces: readonly Piece[], owner: RemoteDmabufs) {
    this.#id = id;
    this.byteLength = byteLength;
    this.#pieces = pieces;
    this.#runs = pieces.map(({ run }) => run);
    this.#owner = owner;
  }

  read(offset: number, target: number, byteLength: number): boolean {
    return this.#owner.move(this.#id, () =>
      forEachRun(this.#runs, offset, byteLength, (address, done, bytes) => {
        memcpy(target + done, address, bytes);
        return true;
      }),
    );
  }

  write(offset: number, source: number, byteLength: number): boolean {
    return this.#owner.move(this.#id, () =>
      forEachRun(this.#runs, offset, byteLength, (address, done, bytes) => {
        memcpy(address, source + done, bytes);
        return true;
      }),
    );
  }

  release(): void {
    unmapAll(this.#pieces);
    this.#owner.detach(this.#id);
  }
}

/** The dma-bufs that a client accesses. */
export class RemoteDmabufs implements DmabufAccess {
  readonly #server: ServerConnection;
  readonly #used: Set<number> = new Set();
  #page: MappedMemory | undefined;
  #words: Int32Array = new Int32Array(0);

  constructor(server: ServerConnection) {
    this.#server = server;
  }

  attach(fd: number, offset: number, byteLength: number): DmaMemory {
    if (!Number.isInteger(fd) || fd < 0 || fd > FD_MAX) throw callError(Errno.EBADF, `descriptor ${fd}`);
    this.#openPage();
    const id = this.#takeNumber();
    try {
      return new RemoteDmaMemory(id, byteLength, this.#map(id, fd, offset, byteLength), this);
    } catch (error) {
      this.#used.delete(id);
      throw error;
    }
  }

  /** Runs `copy` on the memory of an attachment; returns false if the memory was withdrawn or the server has ended. */
  move(id: number, copy: () => boolean): boolean {
    if (!this.#server.check()) return false;
    const words = this.#words;
    Atomics.store(words, MOVING, 1);
    const isMoved = Atomics.load(words, id) === ATTACHED && copy();
    Atomics.store(words, MOVING, 0);
    return isMoved;
  }

  /** Ends an attachment whose memory is not mapped any more. */
  detach(id: number): void {
    this.#endAttachment(id);
    this.#used.delete(id);
  }

  /** Unmaps the page after all attachments have ended. Idempotent. */
  close(): void {
    this.#page?.close();
    this.#page = undefined;
  }

  #openPage(): void {
    if (this.#page !== undefined) return;
    const { fd } = this.#server.requestDescriptor({ op: 'attachments' }, () => {});
    try {
      this.#page = mapFile(fd, ATTACHMENT_PAGE_BYTES, 0);
    } finally {
      closeFd(fd);
    }
    this.#words = new Int32Array(this.#page.buffer);
  }

  #takeNumber(): number {
    for (let id = 1; id <= ATTACHMENTS_MAX; id++) {
      if (this.#used.has(id)) continue;
      this.#used.add(id);
      return id;
    }
    throw callError(
      Errno.ENOMEM,
      `this process has registered ${ATTACHMENTS_MAX} dma-bufs of a node server, the maximum: unmap some of them`,
    );
  }

  #map(id: number, fd: number, offset: number, byteLength: number): readonly Piece[] {
    const request = { op: 'attach', attachment: id, offset, byteLength };
    const reply = this.#server.requestDescriptor(request, () => this.#endAttachment(id), fd);
    const pieces: Piece[] = [];
    try {
      // The attached range as ranges of the file of the descriptor.
      for (const run of reply.message['runs'] as MemoryRun[]) pieces.push(mapRun(reply.fd, run));
      return pieces;
    } catch (error) {
      unmapAll(pieces);
      this.#endAttachment(id);
      throw error;
    } finally {
      closeFd(reply.fd);
    }
  }

  #endAttachment(id: number): void {
    this.#server.query({ op: 'detach', attachment: id }, 'detached');
  }
}

/** Maps the pages of a run. Throws SyscallError ENOMEM. */
function mapRun(fd: number, { offset, byteLength }: MemoryRun): Piece {
  const inPage = offset % PAGE_SIZE;
  const pageBytes = Math.ceil((inPage + byteLength) / PAGE_SIZE) * PAGE_SIZE;
  const pages = mapLarge(fd, pageBytes, offset - inPage);
  return { pages, pageBytes, run: { offset: pages + inPage, byteLength } };
}

function unmapAll(pieces: readonly Piece[]): void {
  for (const { pages, pageBytes } of pieces) unmapLarge(pages, pageBytes);
}

function callError(errno: number, what: string): SyscallError {
  return new SyscallError('ibv_reg_dmabuf_mr', errno, `${what} (emulated)`);
}

/** Time limit for the client to finish copying a packet; the thread yields the processor meanwhile. */
const MOVING_NS = 20e6;

interface Attachment {
  readonly dmabuf: ExportedDmabuf;
  /** Keeps the dma-buf open. */
  readonly fd: number;
  readonly onLost: () => void;
}

/** The dma-bufs that a server has attached for one client. */
export class ServedDmabufs {
  readonly #attachments: Map<number, Attachment> = new Map();
  #page: ShareableMemory | undefined;
  #words: Int32Array = new Int32Array(0);
  /** True once the client did not finish a copy in time: the server no longer waits for its copies. */
  #isStuck = false;

  /** Descriptor of the attachment page, created at first use. Throws SyscallError EMFILE, ENOMEM. */
  get pageFd(): number {
    if (this.#page === undefined) {
      this.#page = mapShareable(ATTACHMENT_PAGE_BYTES);
      this.#words = new Int32Array(this.#page.buffer);
    }
    return this.#page.fd;
  }

  /** Whether an id is in use. */
  has(id: number): boolean {
    return this.#attachments.has(id);
  }

  /**
   * Attaches a dma-buf with an unused id.
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

  /** Ends an attachment; unknown ids are ignored. */
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

  /** Withdraws the memory, and waits for a running copy: afterwards the memory may be reallocated. */
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

/**
 * The rest of this file: layout of the shared page in which a node server marks dma-bufs of a client as withdrawn.
 *
 * The client sets {@link MOVING} before it reads the state of an attachment, and clears it after the copy; the server stores the state before it reads
 * {@link MOVING}. So no copy starts after the server has read 0 there. Offsets are in 32-bit words.
 */

/** 1 while the client copies bytes of an attachment. */
export const MOVING = 0;
/** Limit of attachments per client; the next one fails with ENOMEM. Word n, from 1, is the state of attachment n. */
export const ATTACHMENTS_MAX = 1023;
/** The memory is accessible. */
const ATTACHED = 0;
/** The card was closed, reset or removed. */
export const WITHDRAWN = 1;
/** Bytes of the page. */
export const ATTACHMENT_PAGE_BYTES = 4096;
