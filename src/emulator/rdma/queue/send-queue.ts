/** The send queue of an emulated queue pair: posted work requests as entries of a ring, with the progress of each. */

import { Errno } from '../../../sys/index.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { SendFlag, SendWr, WrOpcode } from '../../../verbs/abi.ts';
import type { VerbsBlock } from '../../../verbs/port.ts';
import { SgeList, wordIndex } from '../memory/dma-memory.ts';

/** A posted work request. */
export class SendWqe {
  idLow = 0;
  idHigh = 0;
  opcode = 0;
  flags = 0;
  immediate = 0;
  remoteAddress = 0;
  rkey = 0;
  compareLow = 0;
  compareHigh = 0;
  swapLow = 0;
  swapHigh = 0;
  /** Address handle, queue pair and Q_Key of a datagram. */
  addressHandle = 0;
  remoteQpNum = 0;
  qkey = 0;
  byteLength = 0;
  readonly sges: SgeList;
  /** Offset of its inline data in the memory of the queue. */
  readonly inlineOffset: number;
  /** First sequence number of the request, and the number of sequence numbers that it uses; valid once it has started. */
  psn = 0;
  packets = 0;
  hasStarted = false;
  /** Number of packets sent, and of responses received. */
  sent = 0;
  received = 0;

  constructor(maxSge: number, inlineOffset: number) {
    this.sges = new SgeList(maxSge);
    this.inlineOffset = inlineOffset;
  }

  get isRead(): boolean {
    return this.opcode === WrOpcode.RDMA_READ;
  }

  get isAtomic(): boolean {
    return this.opcode === WrOpcode.ATOMIC_CMP_AND_SWP || this.opcode === WrOpcode.ATOMIC_FETCH_AND_ADD;
  }

  /** Whether a response with data completes it. */
  get hasResponse(): boolean {
    return this.isRead || this.isAtomic;
  }

  /** Whether all of its responses have arrived. */
  get isAnswered(): boolean {
    return this.received === (this.isRead ? this.packets : 1);
  }
}

export class SendQueue {
  readonly maxInlineBytes: number;
  /** The entries, created at first use. */
  readonly #ring: (SendWqe | undefined)[];
  readonly #maxSge: number;
  readonly #inline: Uint8Array;
  /** Positions of the oldest entry, of the next entry to send, and of the next to post. Positions are counted from the first posted entry on. */
  head = 0;
  next = 0;
  tail = 0;

  constructor(maxWr: number, maxSge: number, maxInlineBytes: number) {
    this.maxInlineBytes = maxInlineBytes;
    this.#maxSge = maxSge;
    this.#ring = new Array<SendWqe | undefined>(maxWr).fill(undefined);
    this.#inline = new Uint8Array(maxWr * maxInlineBytes);
  }

  at(position: number): SendWqe {
    const index = position % this.#ring.length;
    this.#ring[index] ??= new SendWqe(this.#maxSge, index * this.maxInlineBytes);
    return this.#ring[index];
  }

  /**
   * Copies a chain of work requests.
   * @param check returns the errno for an unsupported request; 0 for a supported one
   * @returns 0 or an errno; the requests before the rejected one are posted
   */
  post(block: VerbsBlock, offset: number, check: (wqe: SendWqe) => number): number {
    let at = offset / 4;
    for (;;) {
      if (this.tail - this.head === this.#ring.length) return Errno.ENOMEM;
      const wqe = this.at(this.tail);
      const errno = this.#read(block, at, wqe) || check(wqe);
      if (errno !== 0) return errno;
      this.tail += 1;
      const next = joinWords(block.words[at + SendWr.NEXT]!, block.words[at + SendWr.NEXT + 1]!);
      if (next === 0) return 0;
      at = wordIndex(block, next);
    }
  }

  /** Copies bytes from `offset` of the inline data of an entry. */
  copyInline({ inlineOffset }: SendWqe, offset: number, target: Uint8Array, byteLength: number): void {
    const from = inlineOffset + offset;
    target.set(this.#inline.subarray(from, from + byteLength));
  }

  #read(block: VerbsBlock, at: number, wqe: SendWqe): number {
    const { words } = block;
    const numSge = words[at + SendWr.NUM_SGE]!;
    if (numSge > wqe.sges.capacity) return Errno.EINVAL;
    wqe.idLow = words[at + SendWr.WR_ID]!;
    wqe.idHigh = words[at + SendWr.WR_ID + 1]!;
    wqe.opcode = words[at + SendWr.OPCODE]!;
    wqe.flags = words[at + SendWr.SEND_FLAGS]!;
    wqe.immediate = words[at + SendWr.IMM_DATA]!;
    wqe.remoteAddress = joinWords(words[at + SendWr.RDMA_REMOTE_ADDR]!, words[at + SendWr.RDMA_REMOTE_ADDR + 1]!);
    wqe.addressHandle = wqe.remoteAddress;
    wqe.remoteQpNum = words[at + SendWr.UD_REMOTE_QPN]!;
    wqe.qkey = words[at + SendWr.UD_REMOTE_QKEY]!;
    wqe.rkey = words[at + (wqe.isAtomic ? SendWr.ATOMIC_RKEY : SendWr.RDMA_RKEY)]!;
    wqe.compareLow = words[at + SendWr.ATOMIC_COMPARE_ADD]!;
    wqe.compareHigh = words[at + SendWr.ATOMIC_COMPARE_ADD + 1]!;
    wqe.swapLow = words[at + SendWr.ATOMIC_SWAP]!;
    wqe.swapHigh = words[at + SendWr.ATOMIC_SWAP + 1]!;
    wqe.sges.read(block, joinWords(words[at + SendWr.SG_LIST]!, words[at + SendWr.SG_LIST + 1]!), numSge);
    wqe.byteLength = wqe.sges.byteLength;
    wqe.hasStarted = false;
    wqe.sent = 0;
    wqe.received = 0;
    if ((wqe.flags & SendFlag.INLINE) === 0) return 0;
    if (wqe.byteLength > this.maxInlineBytes || wqe.hasResponse) return Errno.EINVAL;
    if (wqe.byteLength > 0) {
      wqe.sges.copyInline(block, this.#inline.subarray(wqe.inlineOffset, wqe.inlineOffset + wqe.byteLength));
    }
    return 0;
  }
}
