/** Receive queues of an emulated RDMA device: posted receive work requests, of one queue pair or shared. */

import { Errno } from '../../../sys/index.ts';
import { joinWords } from '../../../ucs/type/int64.ts';
import { RecvWr } from '../../../verbs/abi.ts';
import type { SharedReceiveQueue, VerbsBlock } from '../../../verbs/port.ts';
import { SgeList, wordIndex } from '../memory/dma-memory.ts';

/** A posted receive. */
export class ReceiveWqe {
  idLow = 0;
  idHigh = 0;
  readonly sges: SgeList;

  constructor(maxSge: number) {
    this.sges = new SgeList(maxSge);
  }
}

/** A ring of receives. */
export class ReceiveRing {
  /** The entries, created at first use. */
  readonly #ring: (ReceiveWqe | undefined)[];
  readonly #maxSge: number;
  /** Receives that are not in the ring. */
  readonly #spare: ReceiveWqe[] = [];
  #head = 0;
  #count = 0;

  constructor(maxWr: number, maxSge: number) {
    this.#maxSge = maxSge;
    this.#ring = new Array<ReceiveWqe | undefined>(maxWr).fill(undefined);
  }

  get length(): number {
    return this.#count;
  }

  /** The oldest receive, without removing it; undefined if there is none. */
  get first(): ReceiveWqe | undefined {
    return this.#count === 0 ? undefined : this.#ring[this.#head];
  }

  /** Removes the oldest receive. Its contents stay valid until the next post. */
  take(): ReceiveWqe {
    const taken = this.#ring[this.#head]!;
    this.#head = this.#head + 1 === this.#ring.length ? 0 : this.#head + 1;
    this.#count -= 1;
    return taken;
  }

  /** Removes the oldest receive for a message of several packets: its contents stay valid until it is given to {@link release}. */
  detach(): ReceiveWqe {
    const at = this.#head;
    const taken = this.take();
    this.#ring[at] = this.#spare.pop();
    return taken;
  }

  /** Returns a receive of {@link detach}. */
  release(wqe: ReceiveWqe): void {
    this.#spare.push(wqe);
  }

  /** See ReceiveQueue.postReceive. */
  post(block: VerbsBlock, offset: number): number {
    let at = offset / 4;
    for (;;) {
      if (this.#count === this.#ring.length) return Errno.ENOMEM;
      const { words } = block;
      const index = (this.#head + this.#count) % this.#ring.length;
      this.#ring[index] ??= new ReceiveWqe(this.#maxSge);
      const wqe = this.#ring[index];
      const numSge = words[at + RecvWr.NUM_SGE]!;
      if (numSge > wqe.sges.capacity) return Errno.EINVAL;
      wqe.idLow = words[at + RecvWr.WR_ID]!;
      wqe.idHigh = words[at + RecvWr.WR_ID + 1]!;
      wqe.sges.read(block, joinWords(words[at + RecvWr.SG_LIST]!, words[at + RecvWr.SG_LIST + 1]!), numSge);
      this.#count += 1;
      const next = joinWords(words[at + RecvWr.NEXT]!, words[at + RecvWr.NEXT + 1]!);
      if (next === 0) return 0;
      at = wordIndex(block, next);
    }
  }
}

/** A shared receive queue. */
export class EmulatedSrq implements SharedReceiveQueue {
  readonly ring: ReceiveRing;
  /** The protection domain. */
  readonly pd: object;
  readonly #onClose: (object: object) => void;

  /** @param onClose called with the queue when it is destroyed */
  constructor(pd: object, maxWr: number, maxSge: number, onClose: (object: object) => void) {
    this.pd = pd;
    this.ring = new ReceiveRing(maxWr, maxSge);
    this.#onClose = onClose;
  }

  postReceive(block: VerbsBlock, offset: number): number {
    return this.ring.post(block, offset);
  }

  close(): void {
    this.#onClose(this);
  }
}
