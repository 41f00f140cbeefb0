/** Completion queues of an emulated RDMA device, and the channel on which they raise events. */

import { Errno, EventFd } from '../../../sys/index.ts';
import { Wc, WcStatus } from '../../../verbs/abi.ts';
import type { CompletionChannel, CompletionQueue, VerbsBlock } from '../../../verbs/port.ts';

/** A channel: a descriptor that is readable while an event is pending. */
export class EmulatedChannel implements CompletionChannel {
  readonly #event: EventFd = new EventFd();
  readonly #onClose: (object: object) => void;

  /** @param onClose called with the channel when it is closed */
  constructor(onClose: (object: object) => void) {
    this.#onClose = onClose;
  }

  get fd(): number {
    return this.#event.fd;
  }

  signal(): void {
    if (!this.#event.closed) this.#event.signal();
  }

  consume(): void {
    if (!this.#event.closed) this.#event.tryRead();
  }

  close(): void {
    this.#event.close();
    this.#onClose(this);
  }
}

/** A completion. */
export interface CompletionFields {
  readonly idLow: number;
  readonly idHigh: number;
  readonly status: WcStatus;
  readonly opcode: number;
  readonly byteLength: number;
  readonly qpNum: number;
  readonly sourceQp: number;
  readonly flags: number;
  readonly immediate: number;
}

/** A completion queue. */
export class EmulatedCq implements CompletionQueue {
  readonly depth: number;
  readonly #ring: Uint32Array;
  readonly #channel: EmulatedChannel | undefined;
  readonly #onClose: (object: object) => void;
  readonly #onPoll: () => void;
  #head = 0;
  #count = 0;
  #isArmed = false;
  #hasOverrun = false;

  /**
   * @param onClose called with the queue when it is destroyed
   * @param onPoll lets the device progress
   */
  constructor(
    depth: number,
    channel: EmulatedChannel | undefined,
    onClose: (object: object) => void,
    onPoll: () => void,
  ) {
    this.depth = depth;
    this.#ring = new Uint32Array(depth * Wc.WORDS);
    this.#channel = channel;
    this.#onClose = onClose;
    this.#onPoll = onPoll;
  }

  /** Adds a completion; false if the queue is full: the queue and its queue pairs are in error. */
  push(entry: CompletionFields): boolean {
    if (this.#hasOverrun || this.#count === this.depth) {
      this.#hasOverrun = true;
      return false;
    }
    const at = ((this.#head + this.#count) % this.depth) * Wc.WORDS;
    const ring = this.#ring;
    ring[at + Wc.WR_ID] = entry.idLow;
    ring[at + Wc.WR_ID + 1] = entry.idHigh;
    ring[at + Wc.STATUS] = entry.status;
    ring[at + Wc.OPCODE] = entry.opcode;
    ring[at + Wc.VENDOR_ERR] = 0;
    ring[at + Wc.BYTE_LEN] = entry.byteLength;
    ring[at + Wc.IMM_DATA] = entry.immediate;
    ring[at + Wc.QP_NUM] = entry.qpNum;
    ring[at + Wc.SRC_QP] = entry.sourceQp;
    ring[at + Wc.WC_FLAGS] = entry.flags;
    this.#count += 1;
    if (this.#isArmed) {
      this.#isArmed = false;
      this.#channel?.signal();
    }
    return true;
  }

  poll(block: VerbsBlock, count: number): number {
    this.#onPoll();
    if (this.#hasOverrun && this.#count === 0) return -Errno.EIO;
    const taken = Math.min(count, this.#count);
    for (let i = 0; i < taken; i++) {
      const at = this.#head * Wc.WORDS;
      for (let word = 0; word < Wc.WORDS; word++) block.words[i * Wc.WORDS + word] = this.#ring[at + word]!;
      this.#head = this.#head + 1 === this.depth ? 0 : this.#head + 1;
    }
    this.#count -= taken;
    return taken;
  }

  requestNotify(): void {
    this.#isArmed = true;
  }

  /** Removes the completions of a queue pair that is destroyed. */
  forget(qpNum: number): void {
    const kept: number[] = [];
    for (let i = 0; i < this.#count; i++) {
      const at = ((this.#head + i) % this.depth) * Wc.WORDS;
      if (this.#ring[at + Wc.QP_NUM] !== qpNum) kept.push(...this.#ring.subarray(at, at + Wc.WORDS));
    }
    this.#ring.set(kept);
    this.#head = 0;
    this.#count = kept.length / Wc.WORDS;
  }

  close(): void {
    this.#onClose(this);
  }
}

/** The completion of a work request that was not executed. */
export function flushed(idLow: number, idHigh: number, qpNum: number): CompletionFields {
  return failed(idLow, idHigh, qpNum, WcStatus.WR_FLUSH_ERR);
}

/** The completion of a work request that failed. */
export function failed(idLow: number, idHigh: number, qpNum: number, status: WcStatus): CompletionFields {
  return { idLow, idHigh, status, opcode: 0, byteLength: 0, qpNum, sourceQp: 0, flags: 0, immediate: 0 };
}
