/**
 * One PDMA channel: the registers of its two blocks, the fences, and the progress of the packet at the head of its ring.
 *
 * Source: the vendor's headers, see pdma-channels.ts in uapi. "Inferred" and "unknown" mark what they leave open.
 */

import { EcmpltnCfg, PDMA_FENCE_MAX, PDMA_FENCES, PdmaChannelA, RING_IN_MEMORY } from '../../../uapi/index.ts';
import { RING_SLOTS } from '../engine/dma-ring.ts';
import { Job, TransferStream } from '../queue/stream.ts';

const BLOCK_WORDS = 0x400;
const FIFO_CFG: number = PdmaChannelA.DESC_SUBMIT_FIFO_CFG >>> 2;
const MODE_MASK = 0x3;
const BASE_HIGH: number = PdmaChannelA.MSQ_BASE_H >>> 2;
const BASE_LOW: number = PdmaChannelA.MSQ_BASE_L >>> 2;
const SIZE: number = PdmaChannelA.MSQ_SIZE >>> 2;
const PI: number = PdmaChannelA.MSQ_PI >>> 2;
const CI: number = PdmaChannelA.MSQ_CI >>> 2;
const PREDICATES: number = PdmaChannelA.CP_PRED >>> 2;
const FENCES: number = PdmaChannelA.FENCE_CNT >>> 2;
const COMPLETION_CFG: number = PdmaChannelA.ECMPLTN_Q_CH_CFG >>> 2;
const COUNTER_LOW: number = PdmaChannelA.ECMPLTN_Q_BASE_LO >>> 2;
const COUNTER_HIGH: number = PdmaChannelA.ECMPLTN_Q_BASE_HI >>> 2;
const MESSAGE_LOW: number = PdmaChannelA.ECMPLTN_Q_LBW_ADDR_L >>> 2;
const MESSAGE_HIGH: number = PdmaChannelA.ECMPLTN_Q_LBW_ADDR_H >>> 2;
const MESSAGE_DATA: number = PdmaChannelA.ECMPLTN_Q_LBW_PAYLD >>> 2;
const COMPLETION_HIGH: number = PdmaChannelA.WR_COMP0_ADDR_HI >>> 2;

/** High word of the addresses of registers, and reset value of WR_COMP0_ADDR_HI. */
const REGISTERS_HIGH = 0x0300_007f;
/** Bits of FENCE_INC that add. */
const FENCE_INC_MASK = 0xf;
const MESSAGES_MASK: number = RING_SLOTS - 1;

/** An injected fault of submitted packets: the channel does not run them, or their completion is not counted. */
export interface SubmissionHold {
  /** Number of the submission; the object is reused for later ones. */
  seq: number;
  withheld: boolean;
  hung: boolean;
}

/** Progress of a LIN_PDMA, in the order of its effects. */
export const TransferStep = { FENCE: 0, DATA: 1, WRITE_COMPLETION: 2, COUNTER: 3 } as const;
export type TransferStep = (typeof TransferStep)[keyof typeof TransferStep];

export class PdmaChannel extends TransferStream {
  readonly number: number;
  readonly job: Job = new Job();
  readonly hold: SubmissionHold = { seq: 0, withheld: false, hung: false };
  /** Whether the driver has yet to learn of an error. */
  isErrorDue = false;
  step: TransferStep = TransferStep.FENCE;
  /** Remaining 64-bit values of a CH_WREG_BULK, and the offset of the next register: in block A, or in block B, which follows it. */
  bulkLeft = 0;
  bulkRegister = 0;
  /** The completion counter while counts are on their way to memory; otherwise memory has it. */
  counterLow = 0;
  counterHigh = 0;
  isCounterLoaded = false;
  /** Block A. */
  #words: Int32Array = new Int32Array(BLOCK_WORDS);
  readonly #blockB: Int32Array = new Int32Array(BLOCK_WORDS);
  /** Positions in the channel to the DMA engines after which a completion message is due. */
  readonly #messages: Int32Array = new Int32Array(RING_SLOTS);
  #messagesTaken = 0;
  #messagesAdded = 0;

  constructor(number: number, engineId: number) {
    super(engineId);
    this.number = number;
    this.reset();
  }

  /** Whether packets come from a ring in memory. */
  get hasRing(): boolean {
    return (this.#words[FIFO_CFG]! & MODE_MASK) === RING_IN_MEMORY;
  }

  get ringHigh(): number {
    return this.#words[BASE_HIGH]!;
  }

  get ringLow(): number {
    return this.#words[BASE_LOW]!;
  }

  /** Bytes of the ring. */
  get ringBytes(): number {
    return (this.#words[SIZE]! >>> 0) + 1;
  }

  /** Bytes submitted, and bytes consumed, both modulo 2^32. */
  get producer(): number {
    return this.#words[PI]! >>> 0;
  }

  get consumer(): number {
    return this.#words[CI]! >>> 0;
  }

  consume(byteLength: number): void {
    this.#words[CI] = (this.#words[CI]! + byteLength) | 0;
  }

  /** Bytes submitted that were not consumed. */
  get pendingBytes(): number {
    return (this.producer - this.consumer) >>> 0;
  }

  /** True if the channel has nothing to execute, and its transfers have ended. */
  get idle(): boolean {
    return (this.stopped || !this.hasRing || this.pendingBytes === 0) && this.drained;
  }

  /** Whether a predicate holds. Predicate 0 always does. */
  holds(predicate: number): boolean {
    return (((this.#words[PREDICATES]! | 1) >>> predicate) & 1) !== 0;
  }

  /** Whether completions advance the counter in memory. */
  get counts(): boolean {
    const both = EcmpltnCfg.ENABLE | EcmpltnCfg.COUNTER;
    return (this.#words[COMPLETION_CFG]! & both) === both;
  }

  get counterAddressHigh(): number {
    return this.#words[COUNTER_HIGH]!;
  }

  get counterAddressLow(): number {
    return this.#words[COUNTER_LOW]!;
  }

  /** Whether a message follows each completion. */
  get sendsMessages(): boolean {
    return (this.#words[COMPLETION_CFG]! & EcmpltnCfg.LBW_WRITE) !== 0;
  }

  get messageHigh(): number {
    return this.#words[MESSAGE_HIGH]!;
  }

  get messageLow(): number {
    return this.#words[MESSAGE_LOW]!;
  }

  get messageData(): number {
    return this.#words[MESSAGE_DATA]!;
  }

  /** High word of the address of a write completion whose packet does not have it. */
  get completionHigh(): number {
    return this.#words[COMPLETION_HIGH]!;
  }

  /** Adds a message that is due when the DMA engines have passed `position`. If the list overflows, the oldest message takes the position of the newest. */
  addMessage(position: number): void {
    this.#messages[this.#messagesAdded & MESSAGES_MASK] = position;
    this.#messagesAdded = (this.#messagesAdded + 1) | 0;
  }

  get hasMessages(): boolean {
    return this.#messagesTaken !== this.#messagesAdded;
  }

  /** Takes the oldest message if it is due. */
  takeDueMessage(): boolean {
    if (!this.hasMessages || this.job.channel === undefined) return false;
    if (!this.job.channel.isDone(this.#messages[this.#messagesTaken & MESSAGES_MASK]!)) return false;
    this.#messagesTaken = (this.#messagesTaken + 1) | 0;
    return true;
  }

  /**
   * Waits for a fence: the first word of FENCE, or the fence word of LIN_PDMA.
   * @returns 'underflow' if it subtracts more than there is
   */
  fence(word: number): 'passed' | 'blocked' | 'underflow' {
    const at = FENCES + (word >>> 30);
    const target = (word >>> 16) & PDMA_FENCE_MAX;
    const decrement = word & FENCE_INC_MASK;
    const count = this.#words[at]!;
    if (count < target) return 'blocked';
    if (count < decrement) return 'underflow';
    this.#words[at] = count - decrement;
    return 'passed';
  }

  /** Reads a register of block A. */
  readA(offset: number): number {
    return this.#words[offset >>> 2]!;
  }

  readB(offset: number): number {
    return this.#blockB[offset >>> 2]!;
  }

  /** Writes a register of block A, with its effect on the channel. Returns false if a fence counter overflowed. */
  writeA(offset: number, value: number): boolean {
    const words = this.#words;
    const index = offset >>> 2;
    const fence = index - (PdmaChannelA.FENCE_INC >>> 2);
    if (fence >= 0 && fence < PDMA_FENCES) {
      const sum = words[FENCES + fence]! + (value & FENCE_INC_MASK);
      words[FENCES + fence] = Math.min(sum, PDMA_FENCE_MAX);
      return sum <= PDMA_FENCE_MAX;
    }
    words[index] = value;
    if (index === FIFO_CFG) this.#clearRing();
    else if (index >= COMPLETION_CFG && index <= COUNTER_HIGH) this.isCounterLoaded = false;
    else if (index === PI) this.hold.seq += 1;
    else if (index >= FENCES && index < FENCES + PDMA_FENCES) words[index] = value & PDMA_FENCE_MAX;
    return true;
  }

  writeB(offset: number, value: number): void {
    this.#blockB[offset >>> 2] = value;
  }

  /** Moves block A into other memory: a mapping that a user shares, or back. */
  moveBlock(words: Int32Array): void {
    words.set(this.#words);
    this.#words = words;
  }

  /** Whether a write of block A submits packets. */
  static isSubmission(offset: number): boolean {
    return offset >>> 2 === PI;
  }

  /** Stops the channel, and drops the submitted packets, until a reset. Descriptors that the DMA engines have are executed. */
  halt(): void {
    this.stopped = true;
    this.#words[PI] = this.#words[CI]!;
    this.#messagesTaken = this.#messagesAdded;
    this.hold.seq += 1;
    this.hold.withheld = false;
    this.hold.hung = false;
    this.#abandon();
  }

  /** Returns to the state after a reset. */
  reset(): void {
    this.halt();
    this.#words.fill(0);
    this.#words[PREDICATES] = 1;
    this.#words[COMPLETION_HIGH] = REGISTERS_HIGH;
    this.#blockB.fill(0);
    this.isCounterLoaded = false;
    this.stopped = false;
    this.isErrorDue = false;
  }

  /** Effect of a write to DESC_SUBMIT_FIFO_CFG (gaudi3_pdma_reset_pqm_ch of the vendor's tests). */
  #clearRing(): void {
    for (const index of [BASE_HIGH, BASE_LOW, SIZE, PI, CI]) this.#words[index] = 0;
    this.#abandon();
  }

  #abandon(): void {
    this.abandonTransfer();
    this.step = TransferStep.FENCE;
    this.bulkLeft = 0;
  }
}
