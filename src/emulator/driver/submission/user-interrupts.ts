/**
 * User interrupts of a context: waits for a counter that the card increments with an interrupt (WAIT_CS with INTERRUPT), and timestamps that the driver
 * writes when the interrupt is raised (REGISTER_INTERRUPT).
 *
 * Source: drivers/accel/habanalabs/common/command_submission.c and irq.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  HandleType,
  HL_WAIT_CS_ARGS,
  HL_WAIT_CS_FLAGS,
  HL_WAIT_CS_STATUS,
  WAIT_CS_INTERRUPT_SHIFT,
} from '../../../uapi/index.ts';
import { readNumber, readU64 } from '../base/numbers.ts';
import type { DriverBuffer } from '../memory/buffer-table.ts';
import { type ContextPort, timeoutOf, writeStatus, writeTimestamp } from './answers.ts';

const IN = HL_WAIT_CS_ARGS.in.words;
const COUNTER_BYTES = 8;

/** Interrupt ids for any completion queue and for any decoder. */
const ANY_CQ_ID = 0xfff;
const ANY_DECODER_ID = 0xffe;

/** Limit of incomplete registered records per context; the driver is limited by its timestamp buffers. */
const RECORDS_MAX = 65536;

/** Reads a 64-bit counter in a driver command buffer or in user memory; undefined once it is not readable. */
type Counter = () => bigint | undefined;

/** A timestamp to write when a counter reaches its target. */
interface InterruptRecord {
  readonly interrupt: number;
  readonly counter: Counter;
  readonly target: bigint;
  readonly buffer: DriverBuffer;
  readonly offset: number;
}

export class UserInterrupts {
  readonly #context: ContextPort;
  /** By buffer and offset. */
  readonly #records: Map<string, InterruptRecord> = new Map();
  /** The records of each interrupt, by the same keys. */
  readonly #lists: Map<number, Map<string, InterruptRecord>> = new Map();
  readonly #wide: Uint8Array = new Uint8Array(COUNTER_BYTES);
  readonly #wideView: DataView = new DataView(this.#wide.buffer);
  #raised = 0;

  constructor(context: ContextPort) {
    this.#context = context;
  }

  /** Number of interrupts that the card has raised. */
  get raised(): number {
    return this.#raised;
  }

  /** Number of registered timestamps that are not written yet. */
  get registered(): number {
    return this.#records.size;
  }

  /** Called when the card raises an interrupt: waiters for it, or for any interrupt of its kind, read their counters again. */
  raise(vector: number): void {
    this.#raised += 1;
    const { interrupts, engines } = this.#context.card.profile;
    const user = vector - interrupts.firstUserInterrupt;
    if (user >= 0 && user < interrupts.userInterruptCount) {
      this.#serve(vector);
      this.#serve(ANY_CQ_ID);
      return;
    }
    const decoder = vector - interrupts.firstDecoderVector;
    if (decoder < 0 || decoder >= engines.decoderCount) return;
    this.#serve(decoder);
    this.#serve(ANY_DECODER_ID);
  }

  /** WAIT_CS with INTERRUPT. A rejected call does not change the arguments. */
  waitIoctl(block: ArgumentBlock): number {
    const { words } = block;
    const flags = words[IN.flags]!;
    if (!this.#context.card.profile.capabilities.userInterrupts) return -Errno.EPERM;
    const interrupt = interruptOf(flags);
    if (!this.#isKnown(interrupt)) return -Errno.EINVAL;
    const isKernelCq = (flags & HL_WAIT_CS_FLAGS.INTERRUPT_KERNEL_CQ) !== 0;
    const counter = isKernelCq ? this.#kernelCounter(words) : this.#userCounter(words);
    if (typeof counter === 'number') return -counter;
    const target = readU64(words, IN.target);
    if ((flags & HL_WAIT_CS_FLAGS.REGISTER_INTERRUPT) !== 0) return this.#register(block, interrupt, counter, target);
    return this.#wait(block, counter, target, isKernelCq);
  }

  /** Drops the registered records. */
  close(): void {
    this.#records.clear();
    this.#lists.clear();
  }

  #serve(interrupt: number): void {
    const list = this.#lists.get(interrupt);
    if (list !== undefined) for (const [key, record] of list) if (this.#complete(record)) this.#drop(key);
    this.#context.card.waiters.wakeInterrupt(interrupt);
  }

  #keep(key: string, record: InterruptRecord): void {
    this.#drop(key);
    this.#records.set(key, record);
    const list = this.#lists.get(record.interrupt) ?? new Map<string, InterruptRecord>();
    this.#lists.set(record.interrupt, list);
    list.set(key, record);
  }

  #drop(key: string): void {
    const record = this.#records.get(key);
    if (record === undefined) return;
    this.#records.delete(key);
    this.#lists.get(record.interrupt)?.delete(key);
  }

  /**
   * A reset or removal of the card ends a wait with EIO for a counter in a command buffer, and with status ABORTED for a counter in user memory
   * (hl_release_pending_user_interrupts).
   */
  #wait(block: ArgumentBlock, counter: Counter, target: bigint, isKernelCq: boolean): number {
    const { card } = this.#context;
    const timeoutNs = timeoutOf(block.words, IN.interrupt_timeout_us);
    const reached = (): boolean => {
      const value = counter();
      return value === undefined || value >= target;
    };
    if (!reached() && timeoutNs > 0) card.waiters.block(timeoutNs, () => reached() || !card.permitsWaits);
    const value = counter();
    if (value === undefined) return -Errno.EFAULT;
    if (value < target) {
      if (card.permitsWaits) {
        writeStatus(block, 0, HL_WAIT_CS_STATUS.BUSY);
        // When a counter in a command buffer is polled, the driver writes a timestamp even if the target is not reached.
        if (isKernelCq && timeoutNs === 0) writeTimestamp(block, card.config.clock.nowNs());
        return 0;
      }
      return isKernelCq ? -Errno.EIO : writeStatus(block, 0, HL_WAIT_CS_STATUS.ABORTED);
    }
    writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
    writeTimestamp(block, card.config.clock.nowNs());
    return 0;
  }

  #register(block: ArgumentBlock, interrupt: number, counter: Counter, target: bigint): number {
    const { words } = block;
    const low = words[IN.timestamp_handle]!;
    const buffer = this.#context.buffers.find(HandleType.TS, low, words[IN.timestamp_handle + 1]!);
    const offset = readNumber(words, IN.timestamp_offset);
    if (buffer === undefined || (offset + 1) * COUNTER_BYTES > buffer.byteLength) return -Errno.EINVAL;
    const key = `${buffer.id}:${offset}`;
    const record: InterruptRecord = { interrupt, counter, target, buffer, offset };
    if (this.#complete(record)) {
      this.#drop(key);
      return writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
    }
    if (this.#records.size >= RECORDS_MAX && !this.#records.has(key)) return -Errno.ENOMEM;
    this.#keep(key, record);
    return writeStatus(block, 0, HL_WAIT_CS_STATUS.COMPLETED);
  }

  /** Writes the time if the counter has reached the target. Returns true if the record is complete. */
  #complete({ counter, target, buffer, offset }: InterruptRecord): boolean {
    const value = counter();
    if (value === undefined) return true;
    if (value < target) return false;
    const now = BigInt(this.#context.card.config.clock.nowNs());
    buffer.view.setBigUint64(offset * COUNTER_BYTES, now, true);
    return true;
  }

  #isKnown(interrupt: number): boolean {
    const { interrupts, engines } = this.#context.card.profile;
    if (interrupt === ANY_CQ_ID || interrupt === ANY_DECODER_ID) return true;
    if (interrupt < engines.decoderCount) return (engines.decoderMask & (1 << interrupt)) !== 0;
    const first = interrupts.firstUserInterrupt;
    return interrupt >= first && interrupt < first + interrupts.userInterruptCount;
  }

  #kernelCounter(words: Uint32Array): Counter | number {
    const low = words[IN.cq_counters_handle]!;
    const buffer = this.#context.buffers.findCommandBuffer(low, words[IN.cq_counters_handle + 1]!);
    const offset = readNumber(words, IN.cq_counters_offset);
    if (buffer === undefined || (offset + 1) * COUNTER_BYTES > buffer.byteLength) return Errno.EINVAL;
    const { view } = buffer;
    return () => view.getBigUint64(offset * COUNTER_BYTES, true);
  }

  #userCounter(words: Uint32Array): Counter | number {
    const address = readNumber(words, IN.addr);
    const { userMemory } = this.#context;
    const read: Counter = () => {
      return userMemory.read(address, this.#wide) ? this.#wideView.getBigUint64(0, true) : undefined;
    };
    return read() === undefined ? Errno.EFAULT : read;
  }
}

/** The interrupt of a wait with these flags. */
export function interruptOf(flags: number): number {
  return (flags >>> WAIT_CS_INTERRUPT_SHIFT) & 0xfff;
}
