/**
 * The route of a card with PDMA channels that a process maps (gaudi3): packets in a ring in host memory, a store to the producer index for each batch, and a
 * counter in host memory that the channel advances after the last transfer of a batch. A sleeping thread waits for the interrupt of the completion.
 *
 * Follows the direct mode of the vendor's software (scal and synapse of Intel_Gaudi3_Software). Not tested on a card.
 */

import type { DriverFile, RegisterMapping } from '../../driver/port.ts';
import { allocateScratch, Errno, mapShareable, type ScratchBlock, type ShareableMemory } from '../../sys/index.ts';
import {
  EcmpltnCfg,
  HL_DEVICE_STATUS,
  HL_INFO_ARGS,
  HL_INFO_OP,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  LIN_PDMA_BYTES,
  LinPdmaCtl,
  linPdmaCtl,
  PdmaChannelA,
  PQM_NOP_CTL,
  PQM_SHORT_BYTES,
  RING_IN_MEMORY,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../uapi/index.ts';
import { highOf } from '../../ucs/type/int64.ts';
import { highAt, lowAt } from '../base/card-file.ts';
import { type DmaQueueDevice, type RingMapping, SLOT_DATA_BYTES } from './command-ring.ts';
import type { DmaRequest } from './request.ts';
import type { DmaRoute } from './route.ts';
import { type Batches, CompletionWait, type WaitWriter } from './submission.ts';

/** The counter has a separate page. */
const HEADER_BYTES = 4096;
/** Bytes of the ring for each slot: 85 transfers. A batch may use more while other batches use less. */
const SLOT_RING_BYTES = 2048;
const RING_BYTES_MIN = 4096;
const LIN_PDMA_WORDS: number = LIN_PDMA_BYTES / 4;
/** Maximum number of bytes of NOPs before a packet that does not fit into the end of the ring. */
const FILL_BYTES_MAX: number = LIN_PDMA_BYTES - PQM_SHORT_BYTES;

/**
 * Producer index from which the ring starts anew as soon as it is empty, and producer index from which batches wait until it is empty. The hardware misreads
 * an index that has wrapped at 2^32 (SW-172941).
 */
const RESTART_BYTES = 2 ** 30;
const RESTART_BYTES_MAX = 2 ** 31;

/** Interval between reads of the counter if the driver rejects waits or has no user interrupts. */
const LOOK_NS = 1e6;

/**
 * Time without progress after which batches fail on a card that the driver will reset. The reset follows at the close of the card, or after 30 s; a channel may
 * hang until then.
 */
const LOST_NS = 1e9;

/** What a route needs of its device. */
export type ChannelRouteDevice = Pick<DmaQueueDevice, 'mapHost' | 'clock' | 'checkFaults'> & {
  readonly file: DriverFile;
};

/** The channel of a route. */
export interface ChannelRouteOptions {
  readonly channel: number;
  readonly engineId: number;
  /** Block A of the channel, which the route closes. */
  readonly registers: RegisterMapping;
  /** Whether transfers go from host memory to device memory. */
  readonly toDevice: boolean;
  /** The interrupt of completions, and the address of the register that raises it; undefined if the driver has no user interrupts. */
  readonly interrupt: { readonly id: number; readonly doorbell: bigint } | undefined;
  /** Maximum number of batches in flight, a power of two. */
  readonly slots: number;
  /** Time without progress after which a batch has timed out, in nanoseconds. */
  readonly timeoutNs: number;
  /** Number of the batch before the first; tests start shortly before numbers wrap. */
  readonly batchesBefore?: number | undefined;
  /** See {@link RESTART_BYTES} and {@link RESTART_BYTES_MAX}; tests use small values. */
  readonly restart?: { readonly empty: number; readonly always: number } | undefined;
}

export class ChannelRoute implements DmaRoute {
  readonly number: number;
  readonly engineId: number;
  readonly slots: number;
  readonly data: Uint8Array;
  readonly #options: ChannelRouteOptions;
  readonly #registers: RegisterMapping;
  readonly #control: number;
  readonly #restartBytes: number;
  readonly #restartBytesMax: number;
  readonly #memory: ShareableMemory;
  readonly #mapping: RingMapping;
  readonly #words: Uint32Array;
  readonly #counter: Int32Array;
  readonly #ringOffset: number;
  readonly #ringBytes: number;
  readonly #file: DriverFile;
  readonly #status: ScratchBlock;
  readonly #statusAnswer: ScratchBlock;
  readonly #wait: CompletionWait;
  readonly #clock: ChannelRouteDevice['clock'];
  readonly #device: Pick<ChannelRouteDevice, 'checkFaults'>;
  #onWatched: (result: number) => void = () => {};
  /** Bytes submitted since the ring started, without and with the batch in preparation. */
  #submitted = 0;
  #written = 0;
  /** Index of the control word of the last transfer in the batch. */
  #lastControl = 0;
  /** Value of the counter after the last submitted batch, and after the batch in each slot. */
  #count: number;
  readonly #counts: Float64Array;
  /** Producer index before the batch in each slot. */
  readonly #starts: Float64Array;
  /** Counter and time of the last progress, for time-outs; the time is negative without a batch in flight. */
  #seenCount = 0;
  #seenNs = -1;
  #isLooking = false;
  #isLost = false;
  #isConnected = true;

  constructor(device: ChannelRouteDevice, options: ChannelRouteOptions) {
    const { channel, engineId, slots, registers, batchesBefore = 0 } = options;
    this.#options = options;
    this.number = channel;
    this.engineId = engineId;
    this.slots = slots;
    this.#registers = registers;
    this.#control = linPdmaCtl(options.toDevice, false);
    this.#restartBytes = options.restart?.empty ?? RESTART_BYTES;
    this.#restartBytesMax = options.restart?.always ?? RESTART_BYTES_MAX;
    this.#file = device.file;
    this.#clock = device.clock;
    this.#device = device;
    this.#ringBytes = Math.max(RING_BYTES_MIN, slots * SLOT_RING_BYTES);
    this.#ringOffset = HEADER_BYTES + Math.ceil((slots * SLOT_DATA_BYTES) / HEADER_BYTES) * HEADER_BYTES;
    this.#memory = mapShareable(this.#ringOffset + this.#ringBytes);
    try {
      this.#mapping = device.mapHost(this.#memory.address, this.#memory.byteLength);
    } catch (error) {
      this.#memory.close();
      throw error;
    }
    this.#memory.closeFile();
    this.#words = this.#memory.words;
    this.data = this.#memory.u8;
    this.#counter = new Int32Array(this.#memory.buffer, 0, 2);
    this.#counter[0] = batchesBefore;
    this.#count = batchesBefore >>> 0;
    this.#seenCount = batchesBefore | 0;
    this.#counts = new Float64Array(slots);
    this.#starts = new Float64Array(slots);
    this.#status = allocateScratch(HL_INFO_ARGS.size);
    this.#statusAnswer = allocateScratch(HL_INFO_ARGS.size);
    const write = waitWriter(this.#memory.address, options.interrupt?.id ?? 0);
    this.#wait = new CompletionWait(device.file, (result) => this.#waitEnded(result), write);
    this.#configureCompletion();
    this.#startRing();
  }

  get completed(): number {
    return Atomics.load(this.#counter, 0);
  }

  dataOffset(slot: number): number {
    return HEADER_BYTES + slot * SLOT_DATA_BYTES;
  }

  dataLow(offset: number): number {
    return lowAt(this.#mapping.low, offset);
  }

  dataHigh(offset: number): number {
    return highAt(this.#mapping.low, this.#mapping.high, offset);
  }

  begin({ nextSlot, inFlight }: Batches): number {
    if (inFlight === 0 && this.#submitted >= this.#restartBytes && this.#isConsumed) this.#startRing();
    if (this.#submitted >= this.#restartBytesMax) return 0;
    this.#written = this.#submitted;
    this.#starts[nextSlot] = this.#submitted;
    const oldest = this.#starts[(nextSlot - inFlight) & (this.slots - 1)]!;
    const free = this.#ringBytes - (this.#submitted - oldest);
    return Math.max(0, Math.floor((free - FILL_BYTES_MAX) / LIN_PDMA_BYTES));
  }

  add(request: DmaRequest, from: number, bytes: number): void {
    const words = this.#words;
    const at = this.#nextPacket();
    words[at] = bytes;
    words[at + 1] = this.#control;
    words[at + 2] = lowAt(request.sourceLow, from);
    words[at + 3] = lowAt(request.destinationLow, from);
    words[at + 4] = highAt(request.sourceLow, request.sourceHigh, from);
    words[at + 5] = highAt(request.destinationLow, request.destinationHigh, from);
    this.#lastControl = at + 1;
    this.#written += LIN_PDMA_BYTES;
  }

  submit(slot: number): number {
    // Transfers of a channel complete in order: the last one counts for all.
    this.#words[this.#lastControl] = this.#control | LinPdmaCtl.ADVANCE_COUNTER;
    this.#submitted = this.#written;
    // The first batch after a pause: the time before it does not count for its time-out.
    if ((this.#count | 0) === this.completed) this.#seenNs = -1;
    this.#count += 1;
    this.#counts[slot] = this.#count;
    this.#registers.write(PdmaChannelA.MSQ_PI, this.#submitted | 0);
    return 0;
  }

  seqOf(slot: number): number {
    return this.#counts[slot]!;
  }

  /**
   * Reads the events of the card, one of which may end the batches ({@link isStoppedBy}), and its status. Batches also fail after a time-out without
   * progress, when the channel is stopped.
   */
  poll(): number {
    this.#device.checkFaults();
    const lost = this.#lostErrno();
    if (lost !== 0) return lost;
    const nowNs = this.#clock.nowNs();
    const { completed } = this;
    if (this.#seenNs < 0 || completed !== this.#seenCount) {
      this.#seenCount = completed;
      this.#seenNs = nowNs;
      return 0;
    }
    const timeoutNs = this.#isLost ? Math.min(LOST_NS, this.#options.timeoutNs) : this.#options.timeoutNs;
    if (nowNs - this.#seenNs < timeoutNs) return 0;
    this.#registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, 0);
    return this.#isLost ? -Errno.EIO : -Errno.ETIMEDOUT;
  }

  watch(slot: number, timeoutNs: number): void {
    if (this.#options.interrupt !== undefined) this.#wait.start(this.#counts[slot]!, timeoutNs);
    else this.#lookLater();
  }

  listen(onWatched: (result: number) => void): void {
    this.#onWatched = onWatched;
  }

  isStoppedBy(engineIds: readonly number[]): boolean {
    return engineIds.includes(this.engineId);
  }

  lose(): void {
    this.#isLost = true;
  }

  /** Stops the channel and unmaps its registers: the driver makes a hard reset of a card that is closed with a mapped block. */
  disconnect(): void {
    if (!this.#isConnected) return;
    this.#isConnected = false;
    const registers = this.#registers;
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, 0);
    registers.close();
  }

  close(): void {
    this.disconnect();
    this.#wait.close();
    this.#status.free();
    this.#statusAnswer.free();
    this.#mapping.unmap();
    this.#memory.close();
  }

  /** Index of the first word of the next packet. A packet does not cross the end of the ring (unknown whether the hardware permits it): NOPs fill the rest. */
  #nextPacket(): number {
    const words = this.#words;
    const first = this.#ringOffset >>> 2;
    const ringWords = this.#ringBytes >>> 2;
    for (;;) {
      const at = (this.#written % this.#ringBytes) >>> 2;
      if (at + LIN_PDMA_WORDS <= ringWords) return first + at;
      words[first + at] = 0;
      words[first + at + 1] = PQM_NOP_CTL;
      this.#written += PQM_SHORT_BYTES;
    }
  }

  #configureCompletion(): void {
    const registers = this.#registers;
    const { interrupt } = this.#options;
    const { low, high } = this.#mapping;
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, 0);
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_LO, low);
    registers.write(PdmaChannelA.ECMPLTN_Q_BASE_HI, high);
    registers.write(PdmaChannelA.ECMPLTN_Q_SIZE, 8);
    let configuration: number = EcmpltnCfg.ENABLE | EcmpltnCfg.COUNTER;
    if (interrupt !== undefined) {
      registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_L, Number(interrupt.doorbell & 0xffff_ffffn));
      registers.write(PdmaChannelA.ECMPLTN_Q_LBW_ADDR_H, Number(interrupt.doorbell >> 32n));
      registers.write(PdmaChannelA.ECMPLTN_Q_LBW_PAYLD, interrupt.id);
      configuration |= EcmpltnCfg.LBW_WRITE;
    }
    registers.write(PdmaChannelA.ECMPLTN_Q_CH_CFG, configuration);
  }

  /** Whether the channel has consumed everything that was submitted. It may write the counter before its consumer index. */
  get #isConsumed(): boolean {
    return this.#registers.read(PdmaChannelA.MSQ_CI) >>> 0 === this.#submitted;
  }

  /**
   * Starts the empty ring at its first byte. The write of the mode clears both indices; that is inferred, so the consumer index is read back. It is not
   * cleared by a separate write before: until the mode is written, the old producer index would submit the old packets again.
   */
  #startRing(): void {
    const registers = this.#registers;
    registers.write(PdmaChannelA.DESC_SUBMIT_FIFO_CFG, RING_IN_MEMORY);
    registers.write(PdmaChannelA.MSQ_BASE_H, this.dataHigh(this.#ringOffset));
    registers.write(PdmaChannelA.MSQ_BASE_L, this.dataLow(this.#ringOffset));
    registers.write(PdmaChannelA.MSQ_SIZE, this.#ringBytes - 1);
    this.#submitted = registers.read(PdmaChannelA.MSQ_CI) >>> 0;
  }

  /** The errno of a card that is removed or in reset, which stops all channels; 0 if the card works, or waits for the program to close it. */
  #lostErrno(): number {
    const { words } = this.#status;
    const args = HL_INFO_ARGS.words;
    words.fill(0);
    words[args.return_pointer] = this.#statusAnswer.address;
    words[args.return_pointer + 1] = highOf(this.#statusAnswer.address);
    words[args.return_size] = this.#statusAnswer.byteLength;
    words[args.op] = HL_INFO_OP.DEVICE_STATUS;
    const result = this.#file.ioctl(this.#file.numbers.INFO | 0, this.#status);
    if (result === -Errno.ENODEV || result === -Errno.EBADF) return result;
    if (result < 0) return 0;
    return this.#statusAnswer.words[0] === HL_DEVICE_STATUS.OPERATIONAL ? 0 : -Errno.EBUSY;
  }

  /** A card that waits for the program to close it accepts no waits, but its channels run: the counter is read from time to time. */
  #waitEnded(result: number): void {
    const lost = this.#lostErrno();
    if (lost === 0 && result < 0) this.#lookLater();
    else this.#onWatched(lost);
  }

  #lookLater(): void {
    if (this.#isLooking) return;
    this.#isLooking = true;
    this.#clock.setTimer(LOOK_NS, () => {
      this.#isLooking = false;
      this.#onWatched(0);
    });
  }
}

/** Writes the arguments of a wait for a counter in host memory. */
function waitWriter(counter: number, interruptId: number): WaitWriter {
  const { words: at } = HL_WAIT_CS_ARGS.in;
  const flags = (HL_WAIT_CS_FLAGS.INTERRUPT | (interruptId << WAIT_CS_INTERRUPT_SHIFT)) >>> 0;
  return ({ words }, count, timeoutUs) => {
    words.fill(0);
    words[at.addr] = counter;
    words[at.addr + 1] = highOf(counter);
    words[at.target] = count;
    words[at.target + 1] = highOf(count);
    words[at.interrupt_timeout_us] = timeoutUs;
    words[at.interrupt_timeout_us + 1] = highOf(timeoutUs);
    words[at.flags] = flags;
  };
}
