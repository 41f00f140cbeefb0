/**
 * Executes the packets of command buffers on the streams of one card. It checks no permissions: the driver above it has parsed
 * what it must parse; here packets meet the device as the hardware would see them.
 *
 * Data packets (LIN_DMA, MSG_LONG to memory) are translated at once and handed to the stream's channel; small ones run right here when
 * the stream is idle, as fast engines would. Everything that touches registers waits until the stream has drained, which satisfies
 * every barrier. A stream that cannot go on (fence, full channel, registers behind data) is kept and retried by {@link pump}.
 */

import {
  fenceDecrement,
  fenceId,
  fenceTarget,
  linDmaMemset,
  msgOperation,
  msgShortBase,
  msgShortOffset,
  PacketOpcode,
  packetBytes,
  packetOpcode,
  packetPredicate,
} from '../../uapi/index.ts';
import type { Clock } from '../../ucs/clock.ts';
import { type AddressMap, Target } from './address-map.ts';
import type { DmaEngines } from './dma-engines.ts';
import { Opcode } from './dma-ring.ts';
import { copyMemory, type WordAccess } from './memory-access.ts';
import { PhysicalMemory, windowIndex } from './physical-memory.ts';
import { Job, type PendingBuffer, type Stream } from './stream.ts';

/** Where the command processor sends what is not memory. */
export interface DeviceRegisters {
  /** Writes a configuration register; `offset` counts from CFG_BASE. May add to fences through the device. */
  writeRegister(offset: number, value: number): void;
  /** Offset from CFG_BASE of message base 0..3 of a stream (CP_MSG_BASE). */
  messageBase(stream: Stream, base: number): number;
}

/** Faults that the device reports to the driver. */
export interface FaultListener {
  /** An engine met an address without translation. The packet moved nothing. */
  pageFault(stream: Stream, high: number, low: number): void;
  /** A packet asked for what the hardware does not do: host to host, or data to registers. */
  razwi(stream: Stream, high: number, low: number): void;
  /** A packet with an opcode that is unknown, or that this device model does not execute: the stream has stopped. */
  undefinedOpcode(stream: Stream, opcode: number): void;
}

/** What a card hands to its command processor. */
export interface CommandProcessorOptions {
  readonly addressMap: AddressMap;
  readonly engines: DmaEngines;
  readonly access: WordAccess;
  readonly registers: DeviceRegisters;
  readonly faults: FaultListener;
  readonly clock: Clock;
  /** Transfers up to this size run in the submitting thread when their stream is idle; 0 never. */
  readonly inlineBytesMax: number;
}

const HIGH = 0x1_0000_0000;

/** One contiguous piece of a transfer, in host virtual addresses. */
interface CopyPiece {
  readonly source: number;
  readonly destination: number;
  readonly byteLength: number;
}

/** The outcome of one packet: go on with the next, or stop here and retry later. */
type Outcome = 'next' | 'blocked';

/** Executes packets. One per card. */
export class CommandProcessor {
  readonly #options: CommandProcessorOptions;
  readonly #map: AddressMap;
  /** Streams with pending buffers. */
  readonly #blocked: Set<Stream> = new Set();

  constructor(options: CommandProcessorOptions) {
    this.#options = options;
    this.#map = options.addressMap;
  }

  /** True when some stream waits for a fence, for its channel or behind another buffer. */
  get hasBlocked(): boolean {
    return this.#blocked.size > 0;
  }

  /**
   * Starts a command buffer on a stream.
   * @param offset byte of `memory` at which the first packet starts, 4-byte aligned
   * @param byteLength bytes of packets
   * @param isHeld a fault: while it says so, the engine hangs at this buffer
   */
  execute(
    stream: Stream,
    job: Job,
    memory: PhysicalMemory,
    offset: number,
    byteLength: number,
    isHeld?: () => boolean,
  ): void {
    if (stream.pending.length === 0 && !stream.stopped && isHeld === undefined) {
      const stopped = this.#run(stream, job, memory, offset, offset + byteLength);
      if (stopped === offset + byteLength) {
        this.#decoded(stream, job);
        return;
      }
      stream.pending.push(this.#kept(stream, job, memory, stopped, offset + byteLength, undefined));
    } else {
      stream.pending.push(this.#kept(stream, job, memory, offset, offset + byteLength, isHeld));
    }
    this.#blocked.add(stream);
  }

  /** Retries every stream that waits, until none gets further. */
  pump(): void {
    let progress = true;
    while (progress && this.#blocked.size > 0) {
      progress = false;
      for (const stream of this.#blocked) {
        if (this.#advance(stream)) progress = true;
        if (stream.pending.length === 0) this.#blocked.delete(stream);
      }
    }
  }

  /** Forgets all waiting work, for a reset. */
  reset(): void {
    this.#blocked.clear();
  }

  /** Runs a waiting stream; true when it executed at least one packet or finished a buffer. */
  #advance(stream: Stream): boolean {
    let progress = false;
    for (let head = stream.pending[0]; head !== undefined && !stream.stopped; head = stream.pending[0]) {
      if (head.isHeld?.() === true) return progress;
      const from = head.offset;
      head.offset = this.#run(stream, head.job, head.memory, head.offset, head.end);
      if (head.offset !== from) progress = true;
      if (head.offset !== head.end) return progress;
      this.#decoded(stream, head.job);
      stream.pending.shift();
      progress = true;
    }
    return progress;
  }

  /** The rest of a buffer that has to wait: a copy of it where the driver copies at submission. */
  #kept(
    stream: Stream,
    job: Job,
    memory: PhysicalMemory,
    offset: number,
    end: number,
    isHeld: (() => boolean) | undefined,
  ): PendingBuffer {
    if (!stream.copies) return { job, memory, offset, end, isHeld };
    const from = windowIndex(offset);
    const bytes = memory.window(offset).u8.slice(from, from + end - offset);
    const copy = new PhysicalMemory('patched command buffer', 0, bytes.byteLength, () => bytes.buffer);
    return { job, memory: copy, offset: 0, end: bytes.byteLength, isHeld };
  }

  /** All packets of a job are executed or handed to the channel. */
  #decoded(stream: Stream, job: Job): void {
    job.decoded = true;
    if (job.stampAddress === 0) return;
    const channel = this.#channelOf(stream, job);
    channel.immediate(Opcode.TIMESTAMP, 0, 0, job.stampAddress, 8);
    job.position = channel.position;
    channel.publish();
  }

  /** Executes packets from `at`; returns where it stopped: `end`, or the packet to retry. */
  #run(stream: Stream, job: Job, memory: PhysicalMemory, at: number, end: number): number {
    let next = at;
    const written = job.position;
    while (next < end && !stream.stopped) {
      const words = this.#packetWords(memory, next);
      const index = windowIndex(next) >>> 2;
      const opcode = packetOpcode(words[index + 1]!);
      const bytes = packetBytes(opcode);
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

  #undefined(stream: Stream, opcode: number): void {
    stream.stopped = true;
    this.#options.faults.undefinedOpcode(stream, opcode);
  }

  #packetWords(memory: PhysicalMemory, offset: number): Int32Array {
    return memory.window(offset).words;
  }

  #packet(stream: Stream, job: Job, opcode: number, words: Int32Array, index: number): Outcome {
    switch (opcode) {
      case PacketOpcode.LIN_DMA:
        return this.#linDma(stream, job, words, index);
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
      default:
        this.#undefined(stream, opcode);
        return 'blocked';
    }
  }

  /** LIN_DMA: tsize, ctl, source, destination. */
  #linDma(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    if (words[index] === 0) return 'next';
    if (linDmaMemset(words[index + 1]!)) return this.#memset(stream, job, words, index);
    const byteLength = words[index]! >>> 0;
    const map = this.#map;
    if (map.decode(words[index + 3]!, words[index + 2]!) !== Target.MEMORY || map.available < byteLength) {
      return this.#copyPieces(stream, job, words, index);
    }
    const source = map.memory;
    const sourceOffset = map.offset;
    if (map.decode(words[index + 5]!, words[index + 4]!) !== Target.MEMORY || map.available < byteLength) {
      return this.#copyPieces(stream, job, words, index);
    }
    if (source.isHost && map.memory.isHost) return this.#refuse(stream, words[index + 5]!, words[index + 4]!);
    if (byteLength <= this.#options.inlineBytesMax && stream.drained) {
      copyMemory(map.memory, map.offset, source, sourceOffset, byteLength);
      return 'next';
    }
    const channel = this.#channelOf(stream, job);
    if (channel.room === 0) return 'blocked';
    channel.copy(source.address + sourceOffset, map.memory.address + map.offset, byteLength);
    job.position = channel.position;
    return 'next';
  }

  /** A transfer that crosses translations, or that faults: checked whole before the first byte moves. */
  #copyPieces(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    const pieces = this.#pieces(stream, words, index);
    if (pieces === undefined) return 'next';
    const channel = this.#channelOf(stream, job);
    if (channel.room < pieces.length) return 'blocked';
    for (const piece of pieces) channel.copy(piece.source, piece.destination, piece.byteLength);
    job.position = channel.position;
    return 'next';
  }

  /** The contiguous pieces of a transfer as host virtual addresses; undefined when any byte of it faults. */
  #pieces(stream: Stream, words: Int32Array, index: number): CopyPiece[] | undefined {
    const bytes = words[index]! >>> 0;
    const map = this.#map;
    const pieces: CopyPiece[] = [];
    for (let done = 0; done < bytes; ) {
      if (!this.#decodeMemory(stream, words, index + 2, done)) return undefined;
      const fromHost = map.memory.isHost;
      const source = map.memory.address + map.offset;
      const available = map.available;
      if (!this.#decodeMemory(stream, words, index + 4, done)) return undefined;
      if (fromHost && map.memory.isHost) {
        this.#options.faults.razwi(stream, words[index + 5]!, words[index + 4]!);
        return undefined;
      }
      const byteLength = Math.min(bytes - done, available, map.available);
      pieces.push({ source, destination: map.memory.address + map.offset, byteLength });
      done += byteLength;
    }
    return pieces;
  }

  /** Decodes the address in a packet plus `bytes`, which must be memory; reports the fault otherwise. */
  #decodeMemory(stream: Stream, words: Int32Array, index: number, bytes: number): boolean {
    const sum = (words[index]! >>> 0) + bytes;
    const low = sum % HIGH;
    const high = words[index + 1]! + Math.floor(sum / HIGH);
    const target = this.#map.decode(high, low);
    if (target === Target.UNMAPPED) this.#options.faults.pageFault(stream, high, low);
    else if (target === Target.REGISTER) this.#options.faults.razwi(stream, high, low);
    return target === Target.MEMORY;
  }

  #refuse(stream: Stream, high: number, low: number): Outcome {
    this.#options.faults.razwi(stream, high, low);
    return 'next';
  }

  /** LIN_DMA in memset mode: the source address is a 64-bit pattern. */
  #memset(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    const bytes = words[index]! >>> 0;
    const map = this.#map;
    const runs: { destination: number; byteLength: number }[] = [];
    for (let done = 0; done < bytes; ) {
      if (!this.#decodeMemory(stream, words, index + 4, done)) return 'next';
      const byteLength = Math.min(bytes - done, map.available);
      runs.push({ destination: map.memory.address + map.offset, byteLength });
      done += byteLength;
    }
    const channel = this.#channelOf(stream, job);
    if (channel.room < runs.length) return 'blocked';
    for (const run of runs) {
      channel.immediate(Opcode.FILL, words[index + 2]!, words[index + 3]!, run.destination, run.byteLength);
    }
    job.position = channel.position;
    return 'next';
  }

  /** MSG_LONG: value, ctl, address. A 32-bit write, or the low word of the time. */
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
    const channel = this.#channelOf(stream, job);
    if (channel.room === 0) return 'blocked';
    channel.immediate(Opcode.WRITE32, value, 0, map.memory.address + map.offset, 4);
    job.position = channel.position;
    return 'next';
  }

  #register(stream: Stream, offset: number, value: number): Outcome {
    if (!stream.drained) return 'blocked';
    this.#options.registers.writeRegister(offset, value);
    return 'next';
  }

  /** MSG_SHORT: value; 16-bit offset and base in ctl. */
  #messageShort(stream: Stream, value: number, control: number): Outcome {
    if (packetPredicate(control) !== 0) return 'next';
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

  /** CP_DMA: the lower command processor fetches and runs a command buffer; the upper one goes on. */
  #commandBufferFetch(stream: Stream, job: Job, words: Int32Array, index: number): Outcome {
    const lower = stream.lower;
    if (lower === undefined) {
      this.#undefined(stream, PacketOpcode.CP_DMA);
      return 'next';
    }
    const byteLength = words[index]! >>> 0;
    if (!this.#decodeMemory(stream, words, index + 2, 0)) return 'next';
    if (this.#map.available < byteLength) {
      this.#options.faults.pageFault(stream, words[index + 3]!, words[index + 2]!);
      return 'next';
    }
    const fetched = new Job();
    job.fetched ??= [];
    job.fetched.push(fetched);
    this.execute(lower, fetched, this.#map.memory, this.#map.offset, byteLength);
    return 'next';
  }

  #channelOf(stream: Stream, job: Job): NonNullable<Job['channel']> {
    const channel = stream.channel(this.#options.engines);
    job.channel = channel;
    return channel;
  }
}
