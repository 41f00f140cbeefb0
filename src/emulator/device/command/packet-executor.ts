/**
 * The effect of each packet on the memories and registers of a card, and on the command processor that executes it.
 *
 * Layouts: gaudi_packets.h and gaudi2_packets.h, Linux 6.12; for predicates, WREG, LOAD_AND_EXE, CP_DMA and CB_LIST those of hl-thunk, whose tests show
 * their effects (tests/common/command_submission.c). Packets that access registers or load data wait until the stream has drained, which satisfies every
 * barrier.
 */

import {
  arbPointPriority,
  arbPointRelease,
  CP_DMA_UPPER_CP,
  fenceDecrement,
  fenceId,
  fenceTarget,
  hasPredicate,
  LoadAndExeCfg,
  linDmaMemset,
  linDmaSwapBytes,
  linDmaWrComp,
  MSG_LONG_BYTES,
  msgOperation,
  msgShortBase,
  msgShortOffset,
  type PacketAsic,
  PacketOpcode,
  packetBytes,
  packetOpcode,
  packetPredicate,
  SHORT_PACKET_BYTES,
  WregCtl,
  wregOffset,
} from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import type { DmaEngines } from '../engine/dma-engines.ts';
import { Target } from '../memory/address-map.ts';
import type { WordAccess } from '../memory/memory-access.ts';
import type { EngineAccess, EngineReader } from '../queue/engine-access.ts';
import { type Job, Stall, type Stream } from '../queue/stream.ts';
import type { RegisterFile } from '../register-file.ts';
import type { DmaCores } from './dma-core.ts';
import type { LinearDma, PacketOutcome, SwappedDma } from './linear-dma.ts';

/** Runs a command buffer that a packet refers to; returns false if the queue is full or the budget of the pass is used up. */
export type BufferStart = (stream: Stream, job: Job, words: Int32Array, index: number) => boolean;

/** Connections of an executor. */
export interface PacketExecutorOptions {
  readonly asic: PacketAsic;
  readonly engines: DmaEngines;
  readonly access: EngineAccess;
  readonly words: WordAccess;
  readonly reader: EngineReader;
  readonly registers: RegisterFile;
  readonly clock: Clock;
  readonly linearDma: LinearDma;
  readonly swappedDma: SwappedDma;
  readonly dmaCores: DmaCores;
  /** Runs a buffer on the lower command processor of the stream. */
  readonly fetchBuffer: BufferStart;
  /** Runs a buffer on the same command processor, behind the current one. */
  readonly chainBuffer: BufferStart;
}

/** Bytes of the predicates in memory: stored as one word each, or as one bit each. */
const PREDICATE_WORDS_BYTES = 128;
const PREDICATE_BITS_BYTES = 4;
const SCALAR_BYTES = 16;
const CB_LIST_ENTRY_BYTES = 16;
/** Opcodes of packets that LOAD_AND_EXE cannot execute from scalars. */
const NOT_IN_SCALARS: ReadonlySet<number> = new Set([
  PacketOpcode.LOAD_AND_EXE,
  PacketOpcode.REPEAT,
  PacketOpcode.WREG_BULK,
]);

/** Executes single packets. One per card. */
export class PacketExecutor {
  readonly #options: PacketExecutorOptions;

  constructor(options: PacketExecutorOptions) {
    this.#options = options;
  }

  /** Executes the packet at `words[index]`; 'blocked' to repeat it later, or if the stream has stopped. */
  execute(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const opcode = packetOpcode(words[index + 1]!);
    const { stall } = stream;
    if (stall === Stall.PACKETS || (stall === Stall.TRANSFERS && opcode === PacketOpcode.LIN_DMA)) return 'blocked';
    if (hasPredicate(opcode) && !stream.cp.holds(packetPredicate(words[index + 1]!))) return 'next';
    switch (opcode) {
      case PacketOpcode.LIN_DMA:
        return this.#transfer(stream, job, words, index);
      case PacketOpcode.MSG_LONG:
        return this.#messageLong(stream, job, words, index);
      case PacketOpcode.NOP:
        return 'next';
      case PacketOpcode.FENCE:
        return this.#fence(stream, words[index]!);
      case PacketOpcode.MSG_SHORT:
        return this.#messageShort(stream, words[index]!, words[index + 1]!);
      case PacketOpcode.CP_DMA:
        return this.#fetchBuffer(stream, job, words, index);
      case PacketOpcode.CB_LIST:
        return this.#bufferList(stream, job, words, index);
      case PacketOpcode.LOAD_AND_EXE:
        return this.#loadAndExecute(stream, job, words, index);
      case PacketOpcode.ARB_POINT:
        return this.#arbitrate(stream, words[index]!);
      case PacketOpcode.WREG_32:
        return this.#writeRegister32(stream, job, words[index]!, words[index + 1]!);
      case PacketOpcode.WREG_BULK:
        stream.cp.bulkLeft = words[index]! & 0xffff;
        stream.cp.bulkRegister = wregOffset(words[index + 1]!);
        return 'next';
      default:
        return this.undefinedOpcode(stream, opcode);
    }
  }

  /** Writes the next 64-bit value of a WREG_BULK, at `words[index]`, to two registers. */
  writeBulk(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { cp } = stream;
    if (stream.stall === Stall.PACKETS) return 'blocked';
    if (!cp.bulkHalf) {
      if (this.#writeOwn(stream, job, cp.bulkRegister, words[index]!) === 'blocked') return 'blocked';
      cp.bulkHalf = true;
    }
    if (this.#writeOwn(stream, job, cp.bulkRegister + 4, words[index + 1]!) === 'blocked') return 'blocked';
    cp.bulkHalf = false;
    cp.bulkRegister += 8;
    cp.bulkLeft -= 1;
    return 'next';
  }

  /** Reports an opcode, and stops the stream. */
  undefinedOpcode(stream: Stream, opcode: number): PacketOutcome {
    stream.stopped = true;
    this.#options.access.faults.undefinedOpcode(stream, opcode);
    return 'blocked';
  }

  /** LIN_DMA: a copy or a fill, with the completion message of the engine if it is enabled. */
  #transfer(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { dmaCores, registers } = this.#options;
    const { cp } = stream;
    if (!cp.completing) {
      if (this.#move(stream, job, words, index) === 'blocked') return 'blocked';
      if (!linDmaWrComp(words[index + 1]!) || !dmaCores.has(stream)) return 'next';
      cp.completing = true;
    }
    if (!dmaCores.complete(stream, registers.engineBase(stream))) return 'blocked';
    cp.completing = false;
    return 'next';
  }

  #move(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { asic, linearDma, swappedDma } = this.#options;
    const control = words[index + 1]!;
    const elementBytes = asic === 'gaudi2' && !linDmaMemset(control) ? linDmaSwapBytes(control) : 1;
    if (elementBytes > 1) return swappedDma.execute(stream, words, index, elementBytes);
    return linearDma.execute(stream, job, words, index);
  }

  /** MSG_LONG: value, ctl, address. A 32-bit write, or the low word of the time stamp. */
  #messageLong(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { access, engines } = this.#options;
    const { map } = access;
    const low = words[index + 2]!;
    const high = words[index + 3]!;
    const value = this.#valueOf(words[index]!, words[index + 1]!);
    const target = map.decode(high, low);
    if (target === Target.REGISTER) return this.#register(stream, map.offset, value);
    if (target === Target.UNMAPPED || map.available < 4) {
      access.faults.pageFault(stream, high, low, true);
      return 'next';
    }
    if (stream.drained) {
      this.#options.words.write(map.memory, map.offset, value);
      return 'next';
    }
    const channel = job.channelOf(stream, engines);
    if (channel.room === 0) return 'blocked';
    channel.writeWord(map.memory.space, value, map.memory.address + map.offset);
    job.position = channel.position;
    return 'next';
  }

  /** The word that a message sends: its value, or the low word of the time. */
  #valueOf(value: number, control: number): number {
    return msgOperation(control) === 1 ? this.#options.clock.nowNs() | 0 : value;
  }

  #register(stream: Stream, offset: number, value: number): PacketOutcome {
    if (!stream.drained) return 'blocked';
    this.#options.registers.writeRegister(offset, value);
    return 'next';
  }

  /** MSG_SHORT: value; 16-bit offset and base in ctl. It has no predicate: bits 0 to 4 belong to the offset. */
  #messageShort(stream: Stream, value: number, control: number): PacketOutcome {
    const base = this.#options.registers.messageBase(stream, msgShortBase(control));
    return this.#register(stream, base + msgShortOffset(control), this.#valueOf(value, control));
  }

  /** FENCE: decrement 0-3, target 16-23, counter 30-31 of the first word. */
  #fence(stream: Stream, word: number): PacketOutcome {
    const counter = fenceId(word);
    if (!stream.drained || stream.fences[counter]! < fenceTarget(word)) return 'blocked';
    stream.fences[counter] = stream.fences[counter]! - fenceDecrement(word);
    return 'next';
  }

  /** ARB_POINT: acquires the arbiter of the QMAN, or releases it after all earlier packets. */
  #arbitrate(stream: Stream, word: number): PacketOutcome {
    if (!arbPointRelease(word)) {
      return stream.arbiter.take(stream, arbPointPriority(this.#options.asic, word)) ? 'next' : 'blocked';
    }
    if (!stream.drained) return 'blocked';
    stream.arbiter.release(stream);
    return 'next';
  }

  /** WREG_32: a register of the engine of the stream; gaudi2 can send a scalar instead of the value. */
  #writeRegister32(stream: Stream, job: Job, value: number, control: number): PacketOutcome {
    const isScalar = this.#options.asic === 'gaudi2' && (control & WregCtl.REG) !== 0;
    return this.#writeOwn(stream, job, wregOffset(control), isScalar ? stream.cp.scalars[value & 3]! : value);
  }

  /** Writes a register in the block of the stream's engine. A write to COMMIT is complete when its whole transfer is in the channel. */
  #writeOwn(stream: Stream, job: Job, offset: number, value: number): PacketOutcome {
    const { registers, dmaCores } = this.#options;
    const { cp } = stream;
    const base = registers.engineBase(stream);
    if (cp.transfer === undefined) {
      if (this.#register(stream, base + offset, value) === 'blocked') return 'blocked';
      if (!dmaCores.isCommit(stream, offset)) return 'next';
      cp.transfer = dmaCores.describe(base, value);
      if (cp.transfer === undefined) return this.undefinedOpcode(stream, PacketOpcode.WREG_32);
    }
    return dmaCores.advance(stream, job, base);
  }

  /** CP_DMA: the lower command processor fetches and runs a command buffer; the upper one continues. With upper_cp it runs the buffer itself. */
  #fetchBuffer(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { asic, fetchBuffer, chainBuffer } = this.#options;
    if (asic === 'gaudi2' && (words[index + 1]! & CP_DMA_UPPER_CP) !== 0) {
      return chainBuffer(stream, job, words, index) ? 'next' : 'blocked';
    }
    if (stream.lower === undefined) return this.undefinedOpcode(stream, PacketOpcode.CP_DMA);
    return fetchBuffer(stream, job, words, index) ? 'next' : 'blocked';
  }

  /** CB_LIST: reads an index from memory, and executes the CP_DMA packet with that index in a table. */
  #bufferList(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { asic, reader } = this.#options;
    if (asic !== 'gaudi2') return this.undefinedOpcode(stream, PacketOpcode.CB_LIST);
    if (!stream.drained) return 'blocked';
    const [tableLow, tableHigh] = [words[index + 4]!, words[index + 5]!];
    if (!reader.read(stream, [words[index + 3]!, words[index + 2]!], 0, 4)) return 'blocked';
    const entry = (reader.words[0]! >>> 0) * CB_LIST_ENTRY_BYTES;
    if (!reader.read(stream, [tableHigh, tableLow], entry, CB_LIST_ENTRY_BYTES)) return 'blocked';
    const opcode = packetOpcode(reader.words[1]!);
    if (opcode !== PacketOpcode.CP_DMA) return this.undefinedOpcode(stream, opcode);
    return this.execute(stream, job, reader.words, 0);
  }

  /** LOAD_AND_EXE: loads predicates or scalars from memory, and executes the scalars as packets. */
  #loadAndExecute(stream: Stream, job: Job, words: Int32Array, index: number): PacketOutcome {
    const { cp } = stream;
    const configuration = words[index]!;
    if (!stream.drained) return 'blocked';
    if (cp.step === 0) {
      const loads = (configuration & LoadAndExeCfg.LOAD) !== 0;
      if (loads && !this.#load(stream, configuration, words[index + 3]!, words[index + 2]!)) return 'blocked';
      cp.step = 1;
    }
    const executes = (configuration & LoadAndExeCfg.EXE) !== 0;
    const isUpper = (configuration & LoadAndExeCfg.ETYPE) !== 0;
    if (executes && this.#executeScalars(stream, job, isUpper) === 'blocked') return 'blocked';
    cp.step = 0;
    return 'next';
  }

  /** Loads predicates or scalars; returns false after a fault, which stops the stream. */
  #load(stream: Stream, configuration: number, high: number, low: number): boolean {
    const { asic, reader } = this.#options;
    const { cp } = stream;
    if ((configuration & LoadAndExeCfg.DST) !== 0) {
      if (!reader.read(stream, [high, low], 0, SCALAR_BYTES)) return false;
      cp.scalars.set(reader.words.subarray(0, SCALAR_BYTES / 4));
      return true;
    }
    const isBits = asic === 'gaudi2' && (configuration & LoadAndExeCfg.PMAP) !== 0;
    if (!reader.read(stream, [high, low], 0, isBits ? PREDICATE_BITS_BYTES : PREDICATE_WORDS_BYTES)) return false;
    let predicates = reader.words[0]!;
    if (!isBits) {
      predicates = 0;
      for (let n = 0; n < PREDICATE_WORDS_BYTES / 4; n++) predicates |= (reader.words[n]! & 1) << n;
    }
    cp.predicates = predicates | 1;
    return true;
  }

  /**
   * Executes the four scalars as packets. If `isUpper`, executes the packet in scalars 2 and 3. Otherwise executes the packet that starts in scalar 0;
   * if that packet has only two words, also the one in scalars 2 and 3, unless both are 0 (inferred).
   */
  #executeScalars(stream: Stream, job: Job, isUpper: boolean): PacketOutcome {
    const { cp } = stream;
    if (isUpper) return this.#executeScalar(stream, job, 2, SHORT_PACKET_BYTES);
    if (cp.step === 1) {
      if (this.#executeScalar(stream, job, 0, SCALAR_BYTES) === 'blocked') return 'blocked';
      const isLong = packetBytes(packetOpcode(cp.scalars[1]!)) === MSG_LONG_BYTES;
      if (isLong || (cp.scalars[2] === 0 && cp.scalars[3] === 0)) return 'next';
      cp.step = 2;
    }
    return this.#executeScalar(stream, job, 2, SHORT_PACKET_BYTES);
  }

  #executeScalar(stream: Stream, job: Job, first: number, bytesMax: number): PacketOutcome {
    const { scalars } = stream.cp;
    const opcode = packetOpcode(scalars[first + 1]!);
    const bytes = packetBytes(opcode);
    if (bytes === 0 || bytes > bytesMax || NOT_IN_SCALARS.has(opcode)) return this.undefinedOpcode(stream, opcode);
    return this.execute(stream, job, scalars, first);
  }
}
