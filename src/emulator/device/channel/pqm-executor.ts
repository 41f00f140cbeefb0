/**
 * The effect of each packet of a PDMA channel (PQM packets of gaudi3).
 *
 * Effects of a transfer: data, then the write completion, then the counter, then its message. Messages wait for earlier data, unless the card is strict: then
 * they overtake it, as hardware may, and a program without a barrier reads stale data.
 */

import {
  LinPdmaCtl,
  msgOperation,
  PDMA_MESSAGE_BASES,
  PdmaChannelA,
  PqmOpcode,
  packetPredicate,
  pqmOpcode,
} from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import type { LinearDma, SwappedDma } from '../command/linear-dma.ts';
import type { DmaEngines } from '../engine/dma-engines.ts';
import type { WordAccess } from '../memory/memory-access.ts';
import type { EngineAccess } from '../queue/engine-access.ts';
import { type PdmaChannel, TransferStep } from './pdma-channel.ts';

/** Result of a packet: continue with the next, retry later, or stop the channel. */
export type PqmOutcome = 'next' | 'blocked' | 'failed';

/** Words of a LIN_PDMA. */
const SIZE = 0;
const CONTROL = 1;
const SOURCE_LOW = 2;
const DESTINATION_LOW = 3;
const SOURCE_HIGH = 4;
const DESTINATION_HIGH = 5;
const COMPLETION_LOW = 6;
const COMPLETION_DATA = 7;
const COMPLETION_HIGH = 8;
const FENCE_AFTER_COMPLETION = 9;

/** Bits of the control word of the CH_WREG packets: a byte offset, and the block. */
const CH_REGISTER_SHIFT = 6;
const CH_REGISTER_MASK = 0xfff;
const CH_BLOCK_B = 1 << 18;
/** Bits of MSG_SHORT. */
const SHORT_BASE_SHIFT = 16;
const SHORT_DOUBLE = 1 << 19;
const WAIT_INCREMENT_SHIFT = 24;
const WAIT_FENCE_SHIFT = 28;

/** Register of the values of a bulk whose predicate does not hold. */
const NO_REGISTER = -1;

/** Bytes of block A: higher registers of a bulk are in block B. */
const BLOCK_BYTES = 0x1000;

/** What the executor needs of its card. */
export interface PqmExecutorOptions {
  readonly access: EngineAccess;
  readonly engines: DmaEngines;
  readonly words: WordAccess;
  readonly linearDma: LinearDma;
  readonly swappedDma: SwappedDma;
  readonly clock: Clock;
  /** Whether messages overtake data. */
  readonly isStrict: boolean;
  /** Writes to a register over the low-bandwidth bus; false if the address is not one that users may write. */
  readonly writeRegister: (channel: PdmaChannel, high: number, low: number, value: number) => boolean;
  /** Word of a message base of the channel's group; its low word is `2 * base`. */
  readonly messageBase: (channel: PdmaChannel, word: number) => number;
  /** Writes a register of one of the channel's blocks; false on an error. */
  readonly writeOwn: (channel: PdmaChannel, offset: number, value: number) => boolean;
}

/** Executes packets. One per card. */
export class PqmExecutor {
  readonly #options: PqmExecutorOptions;
  /** A transfer in the layout of LIN_DMA: size, control, source, destination. */
  readonly #transfer: Int32Array = new Int32Array(6);

  constructor(options: PqmExecutorOptions) {
    this.#options = options;
  }

  /** Executes the packet at `words[index]`. */
  execute(channel: PdmaChannel, words: Int32Array, index: number): PqmOutcome {
    const value = words[index]!;
    const control = words[index + 1]!;
    const opcode = pqmOpcode(control);
    if (opcode === PqmOpcode.LIN_PDMA) return this.#linPdma(channel, words, index);
    if (opcode === PqmOpcode.MSG_SHORT) return this.#messageShort(channel, value, control);
    const holds = channel.holds(packetPredicate(control));
    if (opcode === PqmOpcode.CH_WREG_BULK) {
      // Its values follow in any case.
      channel.bulkLeft = value & 0xffff;
      channel.bulkRegister = holds ? ownRegister(control) : NO_REGISTER;
      return 'next';
    }
    if (!holds) return 'next';
    switch (opcode) {
      case PqmOpcode.MSG_LONG:
        return this.#message(channel, words[index + 3]!, words[index + 2]!, this.#valueOf(value, control));
      case PqmOpcode.FENCE:
        return fenceOutcome(channel, value);
      case PqmOpcode.NOP:
        // Messages are posted in order: a barrier has nothing to wait for.
        return 'next';
      case PqmOpcode.WAIT:
        return this.#wait(channel, value);
      case PqmOpcode.CH_WREG_32:
        return this.#writeOwn(channel, ownRegister(control), value);
      default:
        // STOP reports an error. The other WREG packets are refused: their layouts or their registers are unknown.
        return 'failed';
    }
  }

  /** Writes the next 64-bit value of a CH_WREG_BULK to two registers, or skips it. */
  writeBulk(channel: PdmaChannel, words: Int32Array, index: number): PqmOutcome {
    const register = channel.bulkRegister;
    if (register === NO_REGISTER) {
      channel.bulkLeft -= 1;
      return 'next';
    }
    if (!channel.drained) return 'blocked';
    if (this.#writeOwn(channel, register, words[index]!) !== 'next') return 'failed';
    channel.bulkLeft -= 1;
    channel.bulkRegister = register + 8;
    return this.#writeOwn(channel, register + 4, words[index + 1]!);
  }

  /** A copy or a fill, its write completion, and its count. */
  #linPdma(channel: PdmaChannel, words: Int32Array, index: number): PqmOutcome {
    const control = words[index + CONTROL]!;
    // Without the commit bit nothing would move (unknown what hardware does): refused.
    if ((control & LinPdmaCtl.COMMIT) === 0 || (control & LinPdmaCtl.WRCOMP_MASK) > 1) return 'failed';
    if ((control & LinPdmaCtl.UNKNOWN_MASK) !== 0) return 'failed';
    const completes = (control & LinPdmaCtl.WRCOMP_MASK) !== 0;
    if (channel.step === TransferStep.FENCE) {
      if ((control & LinPdmaCtl.FENCE) !== 0) {
        const outcome = fenceOutcome(channel, words[index + (completes ? FENCE_AFTER_COMPLETION : COMPLETION_DATA)]!);
        if (outcome !== 'next') return outcome;
      }
      channel.step = TransferStep.DATA;
    }
    if (channel.step === TransferStep.DATA) {
      // No count is on its way to memory, where the program may have changed the counter.
      if (channel.drained) channel.isCounterLoaded = false;
      if (this.#move(channel, words, index) === 'blocked') return 'blocked';
      if (channel.stopped) return 'failed';
      channel.step = TransferStep.WRITE_COMPLETION;
    }
    if (channel.step === TransferStep.WRITE_COMPLETION) {
      if (completes) {
        if (!channel.drained) return 'blocked';
        const isInRegister = (control & LinPdmaCtl.WRCOMP_HIGH_IN_REGISTER) !== 0;
        const high = isInRegister ? channel.completionHigh : words[index + COMPLETION_HIGH]!;
        const { writeRegister } = this.#options;
        if (!writeRegister(channel, high, words[index + COMPLETION_LOW]!, words[index + COMPLETION_DATA]!))
          return 'failed';
      }
      channel.step = TransferStep.COUNTER;
    }
    if ((control & LinPdmaCtl.ADVANCE_COUNTER) !== 0 && channel.counts) {
      const outcome = this.#count(channel);
      if (outcome !== 'next') return outcome;
    }
    channel.step = TransferStep.FENCE;
    return 'next';
  }

  #move(channel: PdmaChannel, words: Int32Array, index: number): 'next' | 'blocked' {
    const transfer = this.#transfer;
    const control = words[index + CONTROL]!;
    transfer[0] = words[index + SIZE]!;
    // The bit of LIN_DMA for fills is the same.
    transfer[1] = control & LinPdmaCtl.MEMSET;
    transfer[2] = words[index + SOURCE_LOW]!;
    transfer[3] = words[index + SOURCE_HIGH]!;
    transfer[4] = words[index + DESTINATION_LOW]!;
    transfer[5] = words[index + DESTINATION_HIGH]!;
    const swaps = (control & LinPdmaCtl.ENDIAN_MASK) >>> LinPdmaCtl.ENDIAN_SHIFT;
    if (swaps !== 0 && transfer[1] === 0) {
      return this.#options.swappedDma.execute(channel, transfer, 0, 1 << swaps);
    }
    return this.#options.linearDma.execute(channel, channel.job, transfer, 0);
  }

  /** Adds 1 to the completion counter, after the data, and sends the message of the completion. */
  #count(channel: PdmaChannel): PqmOutcome {
    if (channel.hold.withheld) return 'blocked';
    const { access, engines, words } = this.#options;
    const { map } = access;
    const low = channel.counterAddressLow;
    const high = channel.counterAddressHigh;
    if (!access.reachToWrite(channel, high, low, 0) || map.available < 8) return 'failed';
    const { memory, offset } = map;
    const queue = channel.drained ? undefined : channel.job.channelOf(channel, engines);
    // Two words, if the low one wraps.
    if (queue !== undefined && queue.room < 2) return 'blocked';
    if (queue === undefined || !channel.isCounterLoaded) {
      channel.counterLow = words.read(memory, offset);
      channel.counterHigh = words.read(memory, offset + 4);
      channel.isCounterLoaded = true;
    }
    channel.counterLow = (channel.counterLow + 1) | 0;
    const wraps = channel.counterLow === 0;
    if (wraps) channel.counterHigh = (channel.counterHigh + 1) | 0;
    if (queue === undefined) {
      if (wraps) words.write(memory, offset + 4, channel.counterHigh);
      words.write(memory, offset, channel.counterLow);
      if (!channel.sendsMessages) return 'next';
      return this.sendDueMessages(channel) && this.#sendMessage(channel) ? 'next' : 'failed';
    }
    if (wraps) queue.writeWord(memory.space, channel.counterHigh, memory.address + offset + 4);
    queue.writeWord(memory.space, channel.counterLow, memory.address + offset);
    channel.job.position = queue.position;
    if (channel.sendsMessages) channel.addMessage(queue.position);
    return 'next';
  }

  /** Sends the messages of completions whose data has moved; false if their address is not one that users may write. */
  sendDueMessages(channel: PdmaChannel): boolean {
    while (channel.takeDueMessage()) if (!this.#sendMessage(channel)) return false;
    return true;
  }

  #sendMessage(channel: PdmaChannel): boolean {
    const { messageHigh, messageLow, messageData } = channel;
    return this.#options.writeRegister(channel, messageHigh, messageLow, messageData);
  }

  /** A message to a register. The packets of a channel cannot write to memory. */
  #message(channel: PdmaChannel, high: number, low: number, value: number): PqmOutcome {
    const { isStrict, writeRegister } = this.#options;
    if (!isStrict && !channel.drained) return 'blocked';
    return writeRegister(channel, high, low, value) ? 'next' : 'failed';
  }

  #messageShort(channel: PdmaChannel, value: number, control: number): PqmOutcome {
    // Unknown what the second word of a double message is: refused.
    if ((control & SHORT_DOUBLE) !== 0) return 'failed';
    const word = 2 * ((control >>> SHORT_BASE_SHIFT) % PDMA_MESSAGE_BASES);
    const { messageBase } = this.#options;
    const sum = (messageBase(channel, word) >>> 0) + (control & 0xffff);
    const high = (messageBase(channel, word + 1) + highOf(sum)) | 0;
    return this.#message(channel, high, sum | 0, this.#valueOf(value, control));
  }

  /** WAIT: adds to a fence after a number of cycles, which take no time here. */
  #wait(channel: PdmaChannel, value: number): PqmOutcome {
    const fence = (value >>> WAIT_FENCE_SHIFT) & 0x3;
    return this.#writeOwn(channel, PdmaChannelA.FENCE_INC + 4 * fence, (value >>> WAIT_INCREMENT_SHIFT) & 0xf);
  }

  /** The word that a message sends: its value, or the low word of the time. */
  #valueOf(value: number, control: number): number {
    return msgOperation(control) === 1 ? this.#options.clock.nowNs() | 0 : value;
  }

  #writeOwn(channel: PdmaChannel, offset: number, value: number): PqmOutcome {
    if (!channel.drained) return 'blocked';
    return this.#options.writeOwn(channel, offset, value) ? 'next' : 'failed';
  }
}

function fenceOutcome(channel: PdmaChannel, word: number): PqmOutcome {
  const result = channel.fence(word);
  if (result === 'blocked') return 'blocked';
  return result === 'passed' ? 'next' : 'failed';
}

/** Offset of the register of a CH_WREG packet: of block B if at least {@link BLOCK_BYTES}. */
function ownRegister(control: number): number {
  const offset = (control >>> CH_REGISTER_SHIFT) & CH_REGISTER_MASK;
  return (control & CH_BLOCK_B) === 0 ? offset : offset + BLOCK_BYTES;
}
