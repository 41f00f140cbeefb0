/**
 * Executes the packets of command buffers on the streams of one card. It checks no permissions: the driver above it parses
 * submissions; here packets are executed as hardware does.
 *
 * Data packets (LIN_DMA, MSG_LONG to memory) are translated at once and passed to the stream's channel; small ones run in this thread if
 * the stream is idle (linear-dma.ts). Packets that access registers wait until the stream has drained, which satisfies
 * every barrier. A stream that cannot continue (fence, full channel, registers behind data) is kept and retried by {@link pump}.
 */

import {
  arbPointPriority,
  arbPointRelease,
  fenceDecrement,
  fenceId,
  fenceTarget,
  msgOperation,
  msgShortBase,
  msgShortOffset,
  PacketOpcode,
  packetBytes,
  packetOpcode,
  packetPredicate,
  wreg32Offset,
} from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { highOf } from '../../ucs/type/int64.ts';
import { type AddressMap, Target } from './address-map.ts';
import type { DmaEngines } from './dma-engines.ts';
import { Opcode } from './dma-ring.ts';
import { EngineAccess, type FaultListener } from './engine-access.ts';
import { LinearDma, type Outcome } from './linear-dma.ts';
import type { WordAccess } from './memory-access.ts';
import { PACKET_BYTES_MAX, PacketFetch } from './packet-fetch.ts';
import { PhysicalMemory } from './physical-memory.ts';
import { Job, type PendingBuffer, Stall, type Stream } from './stream.ts';
import type { CardTraffic } from './traffic.ts';

/** Receives the writes of packets that do not go to memory. */
export interface DeviceRegisters {
  /** Writes a configuration register; `offset` counts from CFG_BASE. May add to fences of the device. */
  writeRegister(offset: number, value: number): void;
  /** Offset from CFG_BASE of message base 0..3 of a stream (CP_MSG_BASE). */
  messageBase(stream: Stream, base: number): number;
  /** Offset from CFG_BASE of the register block of a stream's engine; negative if unknown. */
  engineBase(stream: Stream): number;
}

/** Dependencies of a command processor, provided by its card. */
export interface CommandProcessorOptions {
  readonly addressMap: AddressMap;
  readonly engines: DmaEngines;
  readonly access: WordAccess;
  readonly registers: DeviceRegisters;
  readonly faults: FaultListener;
  readonly clock: Clock;
  /** Transfers up to this size run in the submitting thread when their stream is idle; 0 never. */
  readonly inlineBytesMax: number;
  readonly traffic: CardTraffic;
}

/** Executes packets. One per card. */
export class CommandProcessor {
  readonly #options: CommandProcessorOptions;
  readonly #map: AddressMap;
  readonly #reach: EngineAccess;
  readonly #linearDma: LinearDma;
  readonly #fetch: PacketFetch = new PacketFetch();
  /** Streams with pending buffers. */
  readonly #blocked: Set<Stream> = new Set();

  constructor(options: CommandProcessorOptions) {
    this.#options = options;
    this.#map = options.addressMap;
    this.#reach = new EngineAccess(options.addressMap, options.faults);
    this.#linearDma = new LinearDma({ ...options, access: this.#reach });
  }

  /** True if a stream waits for a fence, for its channel or behind another buffer. */
  get hasBlocked(): boolean {
    return this.#blocked.size > 0;
  }

  /**
   * Starts a command buffer on a stream.
   * @param memory copy held by the driver, from byte 0 on; undefined for a buffer that the card fetches at execution
   * @param high upper half of the device address for fetching
   * @param low lower half
   * @param byteLength bytes of packets
   * @param isHeld injected fault: while it returns true, the engine hangs at this buffer
   */
  execute(
    stream: Stream,
    job: Job,
    memory: PhysicalMemory | undefined,
    high: number,
    low: number,
    byteLength: number,
    isHeld?: () => boolean,
  ): void {
    let offset = 0;
    if (stream.pending.length === 0 && !stream.stopped && isHeld === undefined) {
      offset = this.#run(stream, job, memory, high, low, 0, byteLength);
      if (offset === byteLength && this.#decoded(stream, job)) return;
    }
    const rest: PendingBuffer = { job, memory, high, low, offset, end: byteLength, isHeld };
    stream.pending.push(stream.copies && memory !== undefined ? copied(rest, memory) : rest);
    this.#blocked.add(stream);
  }

  /** Retries every waiting stream until none makes progress. Arbiters grant when nothing else can run. */
  pump(): void {
    if (this.#blocked.size === 0) return;
    do {
      while (this.#advanceAll()) {}
    } while (this.#grant());
  }

  /** Forgets the waiting streams, for a reset. */
  reset(): void {
    this.#blocked.clear();
  }

  close(): void {
    this.#fetch.close();
  }

  #advanceAll(): boolean {
    let progress = false;
    for (const stream of this.#blocked) {
      if (this.#advance(stream)) progress = true;
      if (stream.pending.length === 0) this.#blocked.delete(stream);
    }
    return progress;
  }

  #grant(): boolean {
    let granted = false;
    for (const stream of this.#blocked) if (stream.arbiter.grant()) granted = true;
    return granted;
  }

  /** Runs a waiting stream; returns true if it executed at least one packet or finished a buffer. */
  #advance(stream: Stream): boolean {
    let progress = false;
    for (let head = stream.pending[0]; head !== undefined && !stream.stopped; head = stream.pending[0]) {
      if (head.isHeld?.() === true) return progress;
      const { job, offset, end } = head;
      head.offset = this.#run(stream, job, head.memory, head.high, head.low, offset, end);
      if (head.offset !== offset) progress = true;
      if (head.offset !== end || !this.#decoded(stream, job)) return progress;
      stream.pending.shift();
      progress = true;
    }
    return progress;
  }

  /** Called when all packets of a job are executed or in the channel. Returns false while the channel has no room for the completion time stamp. */
  #decoded(stream: Stream, job: Job): boolean {
    if (job.stampAddress !== 0) {
      const channel = job.channelOf(stream, this.#options.engines);
      if (channel.room === 0) return false;
      channel.immediate(Opcode.TIMESTAMP, 0, 0, job.stampAddress, 8);
      job.position = channel.position;
      channel.publish();
    }
    job.decoded = true;
    return true;
  }

  /**
   * Executes packets from byte `at` of a buffer on; returns the position where it stopped: `end`, or the packet to retry. A buffer that the
   * card fetches may span several translations, and a packet two of them.
   */
  #run(
    stream: Stream,
    job: Job,
    memory: PhysicalMemory | undefined,
    high: number,
    low: number,
    at: number,
    end: number,
  ): number {
    const written = job.position;
    this.#fetch.begin();
    let next = at;
    let piece = memory;
    /** Byte of `piece` at which the buffer starts, and the end of the piece in the buffer. */
    let base = 0;
    let pieceEnd = memory === undefined ? at : end;
    while (next < end && !stream.stopped) {
      if (next >= pieceEnd) {
        if (!this.#reach.reach(stream, high, low, next)) {
          stream.stopped = true;
          break;
        }
        piece = this.#map.memory;
        base = this.#map.offset - next;
        pieceEnd = Math.min(end, next + this.#map.available);
      }
      let fetched = pieceEnd - next;
      if (fetched < PACKET_BYTES_MAX && pieceEnd < end) fetched = this.#gather(high, low, next, end);
      else this.#fetch.show(piece!, base + next, fetched);
      const { words, index } = this.#fetch;
      const opcode = packetOpcode(words[index + 1]!);
      const bytes = packetBytes(opcode);
      if (fetched < bytes && next + fetched < end) {
        this.#reach.reach(stream, high, low, next + fetched);
        stream.stopped = true;
        break;
      }
      if (bytes === 0 || next + bytes > end) {
        this.#undefined(stream, opcode);
        break;
      }
      if (this.#packet(stream, job, opcode, words, index) === 'blocked') break;
      next += bytes;
    }
    if (job.channel !== undefined && job.position !== written) job.channel.publish();
    return next;
  }

  /** Fetches the packet at byte `at` of a buffer from several translations; returns the number of bytes before the first untranslated one. */
  #gather(high: number, low: number, at: number, end: number): number {
    const wanted = Math.min(PACKET_BYTES_MAX, end - at);
    const map = this.#map;
    let fetched = 0;
    this.#fetch.beginCopy();
    while (fetched < wanted) {
      const sum = (low >>> 0) + at + fetched;
      if (map.decode((high >>> 0) + highOf(sum), sum | 0) !== Target.MEMORY) break;
      const byteLength = Math.min(wanted - fetched, map.available);
      this.#fetch.copy(fetched, map.memory, map.offset, byteLength);
      fetched += byteLength;
    }
    return fetched;
  }

  #undefined(stream: Stream, opcode: number): void {
    stream.stopped = true;
    this.#options.faults.undefinedOpcode(stream, opcode);
  }

  #packet(stream: Stream, job: Job, opcode: number, words: Int32Array, index: number): Outcome {
    const { stall } = stream;
    if (stall === Stall.PACKETS || (stall === Stall.TRANSFERS && opcode === PacketOpcode.LIN_DMA)) return 'blocked';
    switch (opcode) {
      case PacketOpcode.LIN_DMA:
        return this.#linearDma.execute(stream, job, words, index);
      case PacketOpcode.MSG_LONG:
        return this.#messageLong(stream, job, words, index);
      case PacketOpcode.NOP:
        return 'next';
      case PacketOpcode.FENCE:
        return this.#fence(stream, words[index]!);
      case PacketOpcode.MSG_SHORT:
        return this.#messageShort(stream, words[index]!, words[index + 1]!);
      case PacketOpcode.CP_DMA:
        return this.#commandBufferFetch(stream, job, words, index);
      case PacketOpcode.ARB_POINT:
        return this.#arbitrate(stream, words[index]!);
      case PacketOpcode.WREG_32:
        return this.#writeOwnRegister(stream, words[index]!, words[index + 1]!);
      default:
        // REPEAT and LOAD_AND_EXE are among these, although the driver of gaudi accepts them: the emulator has no predicates to load and
        // no scalars to execute.
        this.#undefined(stream, opcode);
        return 'blocked';
    }
  }

  /** MSG_LONG: value, ctl, address. A 32-bit write, or the low word of the time stamp. */
  #messageLong(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    if (packetPredicate(words[index + 1]!) !== 0) return 'next';
    const map = this.#map;
    const low = words[index + 2]!;
    const high = words[index + 3]!;
    const isTime = msgOperation(words[index + 1]!) === 1;
    const value = isTime ? this.#options.clock.nowNs() | 0 : words[index]!;
    const target = map.decode(high, low);
    if (target === Target.REGISTER) return this.#register(stream, map.offset, value);
    if (target === Target.UNMAPPED || map.available < 4) {
      this.#options.faults.pageFault(stream, high, low);
      return 'next';
    }
    if (stream.drained) {
      this.#options.access.write(map.memory, map.offset, value);
      return 'next';
    }
    const channel = job.channelOf(stream, this.#options.engines);
    if (channel.room === 0) return 'blocked';
    const { pid } = map.memory;
    if (pid !== 0) channel.aimAt(pid);
    const write = pid === 0 ? Opcode.WRITE32 : Opcode.WRITE32_TO;
    channel.immediate(write, value, 0, map.memory.address + map.offset, 4);
    job.position = channel.position;
    return 'next';
  }

  #register(stream: Stream, offset: number, value: number): Outcome {
    if (!stream.drained) return 'blocked';
    this.#options.registers.writeRegister(offset, value);
    return 'next';
  }

  /** MSG_SHORT: value; 16-bit offset and base in ctl. It has no predicate: bits 0 to 4 belong to the offset. */
  #messageShort(stream: Stream, value: number, control: number): Outcome {
    const base = this.#options.registers.messageBase(stream, msgShortBase(control));
    return this.#register(stream, base + msgShortOffset(control), value);
  }

  /** FENCE: decrement 0-3, target 16-23, counter 30-31 of the first word. */
  #fence(stream: Stream, word: number): Outcome {
    const counter = fenceId(word);
    if (!stream.drained || stream.fences[counter]! < fenceTarget(word)) return 'blocked';
    stream.fences[counter] = stream.fences[counter]! - fenceDecrement(word);
    return 'next';
  }

  /** ARB_POINT: acquires the arbiter of the QMAN, or releases it after all earlier packets. The reserved bits of gaudi are 0. */
  #arbitrate(stream: Stream, word: number): Outcome {
    if (!arbPointRelease(word)) {
      return stream.arbiter.take(stream, arbPointPriority('gaudi2', word)) ? 'next' : 'blocked';
    }
    if (!stream.drained) return 'blocked';
    stream.arbiter.release(stream);
    return 'next';
  }

  /** WREG_32: a register of the engine of the stream. */
  #writeOwnRegister(stream: Stream, value: number, control: number): Outcome {
    return this.#register(stream, this.#options.registers.engineBase(stream) + wreg32Offset(control), value);
  }

  /** CP_DMA: the lower command processor fetches and runs a command buffer; the upper one continues. */
  #commandBufferFetch(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    const lower = stream.lower;
    if (lower === undefined) {
      this.#undefined(stream, PacketOpcode.CP_DMA);
      return 'blocked';
    }
    const fetched = new Job();
    job.fetched ??= [];
    job.fetched.push(fetched);
    this.execute(lower, fetched, undefined, words[index + 3]!, words[index + 2]!, words[index]! >>> 0);
    return 'next';
  }
}

/** The remaining part of a buffer that the driver copied at submission. */
function copied(rest: PendingBuffer, memory: PhysicalMemory): PendingBuffer {
  const { offset, end } = rest;
  const bytes = memory.window(offset).u8.slice(offset, end);
  const copy = new PhysicalMemory('patched command buffer', 0, bytes.byteLength, () => bytes.buffer);
  return { ...rest, memory: copy, offset: 0, end: bytes.byteLength };
}
