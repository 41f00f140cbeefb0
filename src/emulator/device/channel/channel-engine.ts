/**
 * The PDMA channels of one card: routes register accesses to them, fetches packets from their rings, and executes them.
 *
 * A channel that waits for a fence, for the DMA engines or for the rest of a packet is retried by {@link ChannelEngine.pump}. An idle channel costs nothing.
 */

import {
  channelBlockA,
  channelBlockB,
  LIN_PDMA_COMPLETION_BYTES,
  PDMA_MESSAGE_BASES,
  PDMA_RING_BYTES_MAX,
  type PdmaChannels,
  PdmaCommon,
  PQM_SHORT_BYTES,
  PqmOpcode,
  pqmOpcode,
  pqmPacketBytes,
} from '../../../uapi/index.ts';
import { Ring } from '../../../ucs/datastruct/ring.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { LinearDma, SwappedDma } from '../command/linear-dma.ts';
import type { DmaEngines } from '../engine/dma-engines.ts';
import { type AddressMap, Target } from '../memory/address-map.ts';
import type { WordAccess } from '../memory/memory-access.ts';
import type { CardTraffic } from '../memory/traffic.ts';
import { WorkBudget } from '../queue/cp-state.ts';
import { EngineAccess, type FaultListener } from '../queue/engine-access.ts';
import { PacketFetch } from '../queue/packet-fetch.ts';
import type { TransferStream } from '../queue/stream.ts';
import { PdmaChannel, type SubmissionHold } from './pdma-channel.ts';
import { PqmExecutor, type PqmOutcome } from './pqm-executor.ts';

/** Bytes of the longest packet except bulks, whose values are executed one by one. */
const PACKET_BYTES_MAX: number = LIN_PDMA_COMPLETION_BYTES;

/** Connections of the channels of a card. */
export interface ChannelEngineOptions {
  readonly channels: PdmaChannels;
  readonly addressMap: AddressMap;
  readonly engines: DmaEngines;
  readonly words: WordAccess;
  readonly faults: FaultListener;
  readonly clock: Clock;
  /** Transfers up to this size run in the submitting thread when their channel is idle; 0 never. */
  readonly inlineBytesMax: number;
  readonly traffic: CardTraffic;
  /** Whether messages overtake data. */
  readonly isStrict: boolean;
  /** Writes a register as user code of the card, at an offset from the configuration base; false if it may not. */
  readonly writeRegister: (offset: number, value: number) => boolean;
  /** Called when packets are submitted: may hold them. */
  readonly onSubmission: (hold: SubmissionHold) => void;
  /** Called when a pass ends before all work is done: {@link ChannelEngine.pump} must be called soon. */
  readonly onWorkLeft: () => void;
}

/** Where a register is: a block of a channel, or the common block of a group. */
interface Place {
  channel: number;
  block: 'a' | 'b' | 'common';
  offset: number;
}

export class ChannelEngine {
  readonly #options: ChannelEngineOptions;
  readonly #channels: readonly PdmaChannel[];
  /** Words of the message bases of each group. */
  readonly #bases: readonly Int32Array[];
  readonly #access: EngineAccess;
  readonly #executor: PqmExecutor;
  readonly #swappedDma: SwappedDma;
  readonly #budget: WorkBudget = new WorkBudget();
  readonly #fetch: PacketFetch = new PacketFetch(PACKET_BYTES_MAX);
  /** Channels to run in this pass, and channels that wait. */
  readonly #ready: ChannelList;
  readonly #waiting: ChannelList;
  readonly #shared: Set<PdmaChannel> = new Set();
  #running = false;
  readonly #place: Place = { channel: 0, block: 'a', offset: 0 };

  constructor(options: ChannelEngineOptions) {
    const { channels, words } = options;
    this.#options = options;
    const count = channels.groups.length * channels.perGroup;
    this.#channels = Array.from({ length: count }, (_, n) => new PdmaChannel(n, channels.firstEngineId + n));
    this.#ready = new ChannelList(count);
    this.#waiting = new ChannelList(count);
    this.#bases = channels.groups.map(() => new Int32Array(2 * PDMA_MESSAGE_BASES));
    const access = new EngineAccess(options.addressMap, stopping(options.faults));
    this.#access = access;
    const linearDma = new LinearDma({
      ...options,
      access,
      inlineBytesMax: options.isStrict ? 0 : options.inlineBytesMax,
    });
    this.#swappedDma = new SwappedDma({ access, linearDma, budget: this.#budget, traffic: options.traffic });
    this.#executor = new PqmExecutor({
      ...options,
      access,
      words,
      linearDma,
      swappedDma: this.#swappedDma,
      writeRegister: (channel, high, low, value) => this.#writeAddress(channel, high, low, value),
      messageBase: (channel, word) => this.#bases[Math.floor(channel.number / channels.perGroup)]![word]!,
      writeOwn: (channel, offset, value) => this.#writeOwn(channel, offset, value),
    });
  }

  /** Channels that have work. */
  *busyChannels(): Iterable<PdmaChannel> {
    for (const channel of this.#channels) if (!channel.idle) yield channel;
  }

  /** True if no descriptor of a channel waits or runs. */
  get drained(): boolean {
    return this.#channels.every((channel) => channel.drained);
  }

  get busyNs(): number {
    return this.#channels.reduce((sum, channel) => sum + channel.busyNs, 0);
  }

  /** Writes a register; returns false if it belongs to no channel. */
  write(offset: number, value: number): boolean {
    const place = this.#find(offset);
    if (place === undefined) return false;
    if (place.block === 'common') {
      const word = (place.offset - PdmaCommon.CP_MSG_BASE_ADDR) >>> 2;
      const bases = this.#bases[place.channel]!;
      if (word >= 0 && word < bases.length) bases[word] = value;
      return true;
    }
    const channel = this.#channels[place.channel]!;
    if (place.block === 'b') channel.writeB(place.offset, value);
    else if (channel.writeA(place.offset, value)) {
      if (PdmaChannel.isSubmission(place.offset)) this.#options.onSubmission(channel.hold);
      this.#run(channel);
    } else if (this.#fail(channel)) this.#options.engines.requestProgressEvent();
    return true;
  }

  /** The value of a register; undefined if it belongs to no channel. */
  read(offset: number): number | undefined {
    const place = this.#find(offset);
    if (place === undefined) return undefined;
    if (place.block === 'common') {
      return this.#bases[place.channel]![(place.offset - PdmaCommon.CP_MSG_BASE_ADDR) >>> 2] ?? 0;
    }
    const channel = this.#channels[place.channel]!;
    return place.block === 'a' ? channel.readA(place.offset) : channel.readB(place.offset);
  }

  /**
   * Moves block A of a channel into memory that a user shares, or back; returns false if no channel has its block at this offset. Stores of the user are seen
   * by {@link pump} only, and those to registers that act on the store (FENCE_INC, a repeated DESC_SUBMIT_FIFO_CFG) have no effect.
   */
  moveBlock(offset: number, words: Int32Array, isShared: boolean): boolean {
    const { channels } = this.#options;
    const channel = this.#channels.find(({ number }) => channelBlockA(channels, number) === offset);
    if (channel === undefined) return false;
    channel.moveBlock(words);
    if (isShared) this.#shared.add(channel);
    else this.#shared.delete(channel);
    return true;
  }

  /** Whether a user shares the block of a channel. Only {@link pump} sees the stores, so it must be called regularly. */
  get hasShared(): boolean {
    return this.#shared.size > 0;
  }

  /** Retries every channel that waits, and looks at those whose block a user shares. */
  pump(): void {
    for (const channel of this.#shared) if (!channel.idle) this.#waiting.add(channel);
    if (this.#waiting.isEmpty) return;
    for (let channel = this.#waiting.take(); channel !== undefined; channel = this.#waiting.take()) {
      this.#ready.add(channel);
    }
    this.#runReady();
  }

  /** Stops all channels until a reset, which must follow. */
  halt(): void {
    for (const channel of this.#channels) channel.halt();
    this.#ready.clear();
    this.#waiting.clear();
  }

  reset(): void {
    this.halt();
    for (const channel of this.#channels) channel.reset();
    for (const bases of this.#bases) bases.fill(0);
  }

  close(): void {
    this.#fetch.close();
    this.#swappedDma.close();
  }

  #run(channel: PdmaChannel): void {
    this.#ready.add(channel);
    // A packet may write registers of channels, which then run after it.
    if (!this.#running) this.#runReady();
  }

  #runReady(): void {
    this.#running = true;
    this.#budget.begin();
    for (let channel = this.#ready.take(); channel !== undefined; channel = this.#ready.take()) {
      if (this.#advance(channel)) this.#waiting.add(channel);
    }
    this.#running = false;
    const { engines, onWorkLeft } = this.#options;
    // Stores to registers are not ioctls: without engine threads, nothing else moves the data of a program that sleeps until its interrupt.
    const needsPass = !engines.hasThreads && !this.#waiting.isEmpty && !this.drained;
    if (this.#budget.exhausted || needsPass) onWorkLeft();
    else if (!this.#waiting.isEmpty) engines.requestProgressEvent();
  }

  /** Executes packets of a channel until it has none, or waits; returns whether it waits. */
  #advance(channel: PdmaChannel): boolean {
    if (channel.isErrorDue || !this.#executor.sendDueMessages(channel)) return this.#fail(channel);
    const position = channel.job.position;
    let outcome: PqmOutcome = 'next';
    this.#fetch.begin();
    if (channel.hold.hung) outcome = 'blocked';
    while (outcome === 'next' && !channel.stopped && channel.hasRing && channel.pendingBytes > 0) {
      outcome = this.#budget.take(1) ? this.#step(channel) : 'blocked';
    }
    if (channel.job.channel !== undefined && channel.job.position !== position) channel.job.channel.publish();
    if (outcome === 'failed') return this.#fail(channel);
    return !channel.stopped && (outcome === 'blocked' || channel.hasMessages);
  }

  /** Executes the packet at the head of the ring. */
  #step(channel: PdmaChannel): PqmOutcome {
    const available = channel.pendingBytes;
    if (!hasValidRing(channel) || channel.producer < channel.consumer) return 'failed';
    const fetched = this.#fetchPacket(channel, Math.min(available, PACKET_BYTES_MAX));
    if (fetched === 0) return 'failed';
    const { words, index } = this.#fetch;
    if (channel.bulkLeft > 0) {
      const outcome = this.#executor.writeBulk(channel, words, index);
      if (outcome === 'next') channel.consume(PQM_SHORT_BYTES);
      return outcome;
    }
    const bytes = headBytes(words, index);
    if (bytes === 0) return 'failed';
    // The rest of the packet has not been submitted.
    if (bytes > available) return 'blocked';
    if (bytes > fetched) return this.#faultAt(channel, fetched);
    const outcome = this.#executor.execute(channel, words, index);
    if (outcome === 'next') channel.consume(bytes);
    return outcome;
  }

  /** Fetches up to `wanted` bytes at the head of the ring, which may continue at its start; returns the number before an address without translation. */
  #fetchPacket(channel: PdmaChannel, wanted: number): number {
    const { map } = this.#access;
    const at = channel.consumer & (channel.ringBytes - 1);
    const { ringHigh, ringLow, ringBytes } = channel;
    if (!this.#access.reach(channel, ringHigh, ringLow, at)) return 0;
    const contiguous = Math.min(ringBytes - at, map.available);
    if (contiguous >= wanted) {
      // A program that shares the block submits while this pass runs: bytes behind its producer index must not be read ahead.
      this.#fetch.show(map.memory, map.offset, Math.min(contiguous, channel.pendingBytes));
      return wanted;
    }
    this.#fetch.beginCopy();
    for (let fetched = 0; ; ) {
      const from = (at + fetched) % ringBytes;
      const piece = Math.min(wanted - fetched, ringBytes - from, map.available);
      this.#fetch.copy(fetched, map.memory, map.offset, piece);
      fetched += piece;
      if (fetched === wanted) return fetched;
      if (map.decode(...addressAfter(ringHigh, ringLow, (at + fetched) % ringBytes)) !== Target.MEMORY) return fetched;
    }
  }

  /** Reports the fault of a packet that continues at an address without translation. */
  #faultAt(channel: PdmaChannel, fetched: number): PqmOutcome {
    const { ringHigh, ringLow, ringBytes, consumer } = channel;
    this.#access.reach(channel, ringHigh, ringLow, (consumer + fetched) % ringBytes);
    return 'failed';
  }

  /** Stops a channel after an error, and reports it once the channel moves no more data. Returns whether the report is still due. */
  #fail(channel: PdmaChannel): boolean {
    channel.stopped = true;
    if (!channel.drained) {
      channel.isErrorDue = true;
      this.#waiting.add(channel);
      return true;
    }
    channel.isErrorDue = false;
    this.#options.faults.engineError(channel);
    return false;
  }

  /** A write to a register over the low-bandwidth bus. */
  #writeAddress(channel: PdmaChannel, high: number, low: number, value: number): boolean {
    const { map } = this.#access;
    if (map.decode(high, low) === Target.REGISTER && this.#options.writeRegister(map.offset, value)) return true;
    this.#access.faults.razwi(channel, high, low, true);
    return false;
  }

  /** Writes a register of a channel's own blocks: block B follows block A in `offset`. */
  #writeOwn(channel: PdmaChannel, offset: number, value: number): boolean {
    const { channels } = this.#options;
    const { blockBytes } = channels;
    if (offset >= blockBytes) {
      return this.write(channelBlockB(channels, channel.number) + offset - blockBytes, value);
    }
    return this.write(channelBlockA(channels, channel.number) + offset, value);
  }

  #find(offset: number): Place | undefined {
    const { groups, perGroup, blockBytes } = this.#options.channels;
    const place = this.#place;
    for (let group = 0; group < groups.length; group++) {
      const { blockA, blockB, common } = groups[group]!;
      if (offset < blockA || offset >= common + blockBytes) continue;
      const isCommon = offset >= common;
      const start = isCommon ? common : offset >= blockB ? blockB : blockA;
      const index = Math.floor((offset - start) / blockBytes);
      place.block = isCommon ? 'common' : offset >= blockB ? 'b' : 'a';
      place.channel = isCommon ? group : group * perGroup + index;
      place.offset = (offset - start) % blockBytes;
      return index < perGroup ? place : undefined;
    }
    return undefined;
  }
}

/** Channels in order, each at most once. Allocates nothing after construction. */
class ChannelList {
  readonly #channels: Ring<PdmaChannel>;
  /** 1 for channels in the list, by number. */
  readonly #has: Uint8Array;

  constructor(count: number) {
    this.#channels = new Ring(2 ** Math.ceil(Math.log2(count)));
    this.#has = new Uint8Array(count);
  }

  get isEmpty(): boolean {
    return this.#channels.isEmpty;
  }

  add(channel: PdmaChannel): void {
    if (this.#has[channel.number] !== 0) return;
    this.#has[channel.number] = 1;
    this.#channels.push(channel);
  }

  /** Removes the first channel; undefined if there is none. */
  take(): PdmaChannel | undefined {
    const channel = this.#channels.shift();
    if (channel !== undefined) this.#has[channel.number] = 0;
    return channel;
  }

  clear(): void {
    while (this.take() !== undefined) {}
  }
}

/** Whether the ring registers of a channel are usable (unknown what hardware does otherwise: the channel reports an error). */
function hasValidRing({ ringBytes, ringLow, producer }: PdmaChannel): boolean {
  const isPower = (ringBytes & (ringBytes - 1)) === 0 && ringBytes >= PQM_SHORT_BYTES;
  return (
    isPower && ringBytes <= PDMA_RING_BYTES_MAX && ringLow % PQM_SHORT_BYTES === 0 && producer % PQM_SHORT_BYTES === 0
  );
}

/** Bytes of the packet at `words[index]`; of a bulk only its header. */
function headBytes(words: Int32Array, index: number): number {
  const control = words[index + 1]!;
  if (pqmOpcode(control) === PqmOpcode.CH_WREG_BULK) return PQM_SHORT_BYTES;
  return pqmPacketBytes(words[index]!, control);
}

function addressAfter(high: number, low: number, bytes: number): [number, number] {
  const sum = (low >>> 0) + bytes;
  return [((high >>> 0) + highOf(sum)) | 0, sum | 0];
}

/** A listener that stops the channel of a fault: stop-on-error is on. */
function stopping(faults: FaultListener): FaultListener {
  const stop = (stream: TransferStream): void => {
    stream.stopped = true;
  };
  return {
    pageFault: (stream, high, low, writes) => {
      stop(stream);
      faults.pageFault(stream, high, low, writes);
    },
    razwi: (stream, high, low, writes) => {
      stop(stream);
      faults.razwi(stream, high, low, writes);
    },
    undefinedOpcode: (stream, opcode) => faults.undefinedOpcode(stream, opcode),
    engineError: (stream) => faults.engineError(stream),
  };
}
