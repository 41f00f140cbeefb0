/**
 * The dma-bufs of a node server in the client, for its RDMA devices: maps the memory of the cards until the server withdraws it or ends. Like a real NIC, and
 * unlike a program, it reaches device memory without the engines of the card.
 */

import {
  close as closeFd,
  Errno,
  type MappedMemory,
  mapFile,
  mapLarge,
  memcpy,
  PAGE_SIZE,
  SyscallError,
  unmapLarge,
} from '../../../sys/index.ts';
import { forEachRun, type MemoryRun } from '../../driver/base/dmabuf.ts';
import type { DmabufAccess, DmaMemory } from '../../rdma/memory/dma-memory.ts';
import { ATTACHED, ATTACHMENT_PAGE_BYTES, ATTACHMENTS_MAX, MOVING } from './attachment-page.ts';

/** The largest descriptor. */
const FD_MAX = 0x7fff_ffff;

/** Memory that the server has attached. */
export interface AttachedRuns {
  /** The attached range, as ranges of the file {@link fd}. */
  readonly runs: readonly MemoryRun[];
  /** Descriptor of the memory of the card, owned by the caller. */
  readonly fd: number;
}

/** Requests to the server. */
export interface DmabufServer {
  /** False once the server has ended. */
  check(): boolean;
  /** The descriptor of the attachment page, owned by the caller. Throws SyscallError. */
  openPage(): number;
  /** Attaches a range of a dma-buf. Throws SyscallError if the server refuses, or has ended. */
  attach(id: number, fd: number, offset: number, byteLength: number): AttachedRuns;
  /** Ends an attachment. Never fails. */
  detach(id: number): void;
}

/** A piece of contiguous memory: the mapped pages, and the range of bytes in them. */
interface Piece {
  readonly pages: number;
  readonly pageBytes: number;
  /** The bytes; the offset is an address of this process. */
  readonly run: MemoryRun;
}

/** A range of a dma-buf. */
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

/** The dma-bufs. */
export class RemoteDmabufs implements DmabufAccess {
  readonly #server: DmabufServer;
  readonly #used: Set<number> = new Set();
  #page: MappedMemory | undefined;
  #words: Int32Array = new Int32Array(0);

  constructor(server: DmabufServer) {
    this.#server = server;
  }

  attach(fd: number, offset: number, byteLength: number): DmaMemory {
    if (!Number.isInteger(fd) || fd < 0 || fd > FD_MAX) throw refusal(Errno.EBADF, `descriptor ${fd}`);
    this.#openPage();
    const id = this.#takeNumber();
    try {
      return new RemoteDmaMemory(id, byteLength, this.#map(id, fd, offset, byteLength), this);
    } catch (error) {
      this.#used.delete(id);
      throw error;
    }
  }

  /** Runs `copy` on the memory of an attachment; false if the memory was withdrawn, or the server has ended. */
  move(id: number, copy: () => boolean): boolean {
    if (!this.#server.check()) return false;
    const words = this.#words;
    Atomics.store(words, MOVING, 1);
    const isMoved = Atomics.load(words, id) === ATTACHED && copy();
    Atomics.store(words, MOVING, 0);
    return isMoved;
  }

  /** Ends an attachment, whose memory is not mapped any more. */
  detach(id: number): void {
    this.#server.detach(id);
    this.#used.delete(id);
  }

  /** Unmaps the page; all attachments have ended. Idempotent. */
  close(): void {
    this.#page?.close();
    this.#page = undefined;
  }

  #openPage(): void {
    if (this.#page !== undefined) return;
    const fd = this.#server.openPage();
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
    throw refusal(Errno.ENOMEM, `${ATTACHMENTS_MAX} dma-bufs of a node server`);
  }

  #map(id: number, fd: number, offset: number, byteLength: number): readonly Piece[] {
    const attached = this.#server.attach(id, fd, offset, byteLength);
    const pieces: Piece[] = [];
    try {
      for (const run of attached.runs) pieces.push(mapRun(attached.fd, run));
      return pieces;
    } catch (error) {
      unmapAll(pieces);
      this.#server.detach(id);
      throw error;
    } finally {
      closeFd(attached.fd);
    }
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

function refusal(errno: number, what: string): SyscallError {
  return new SyscallError('ibv_reg_dmabuf_mr', errno, `${what} (emulated)`);
}
