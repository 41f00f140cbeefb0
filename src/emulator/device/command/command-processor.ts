/**
 * Executes the packets of command buffers on the streams of one card: fetches packets, and keeps the order of buffers and loops. The driver checks
 * permissions when it parses submissions.
 *
 * Data packets (LIN_DMA, MSG_LONG to memory) are translated at once and passed to the stream's channel; small ones run in this thread if the stream is
 * idle (linear-dma.ts). A stream that is blocked (fence, full channel, registers after data) is kept and retried by {@link CommandProcessor.pump}.
 */

import {
  type AsicProfile,
  LIN_DMA_BYTES,
  PacketOpcode,
  packetBytes,
  packetOpcode,
  packetPredicate,
  RepeatCfg,
  SHORT_PACKET_BYTES,
  wregBulkBytes,
} from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import type { DmaEngines } from '../engine/dma-engines.ts';
import { Opcode } from '../engine/dma-ring.ts';
import { type AddressMap, Target } from '../memory/address-map.ts';
import type { WordAccess } from '../memory/memory-access.ts';
import { PhysicalMemory } from '../memory/physical-memory.ts';
import type { CardTraffic } from '../memory/traffic.ts';
import { WorkBudget } from '../queue/cp-state.ts';
import { EngineAccess, EngineReader, type FaultListener } from '../queue/engine-access.ts';
import { PacketFetch } from '../queue/packet-fetch.ts';
import { Job, type PendingBuffer, Stall, type Stream } from '../queue/stream.ts';
import type { RegisterFile } from '../register-file.ts';
import { DmaCores } from './dma-core.ts';
import { LinearDma, SwappedDma } from './linear-dma.ts';
import { PacketExecutor } from './packet-executor.ts';

/** Bytes of the longest packet. */
const PACKET_BYTES_MAX: number = LIN_DMA_BYTES;

/** CP_DMA buffers that a lower command processor queues; beyond it the upper one is blocked. */
const LOWER_BUFFERS_MAX = 1024;

/** Dependencies of a command processor, provided by its card. */
export interface CommandProcessorOptions {
  readonly profile: AsicProfile;
  readonly addressMap: AddressMap;
  readonly engines: DmaEngines;
  readonly access: WordAccess;
  readonly registers: RegisterFile;
  readonly faults: FaultListener;
  readonly clock: Clock;
  /** Transfers up to this size run in the submitting thread when their stream is idle; 0 never. */
  readonly inlineBytesMax: number;
  readonly traffic: CardTraffic;
  /** Writes 32 bits to any device address. */
  readonly writeWord: (high: number, low: number, value: number) => void;
  /** Called when a pass ends before all work is done: {@link CommandProcessor.pump} must be called soon. */
  readonly onWorkLeft: () => void;
}

/** A command buffer to be executed. */
export interface CommandBuffer {
  /** The copy held by the driver, from byte 0 on; undefined for a buffer that the card fetches at execution. */
  readonly memory: PhysicalMemory | undefined;
  /** The halves of the device address for fetching. */
  readonly high: number;
  readonly low: number;
  /** Bytes of packets. */
  readonly byteLength: number;
}

/** Executes packets. One per card. */
export class CommandProcessor {
  readonly #options: CommandProcessorOptions;
  readonly #map: AddressMap;
  readonly #reach: EngineAccess;
  readonly #reader: EngineReader;
  readonly #swappedDma: SwappedDma;
  readonly #executor: PacketExecutor;
  readonly #budget: WorkBudget = new WorkBudget();
  readonly #fetch: PacketFetch = new PacketFetch(PACKET_BYTES_MAX);
  /** The buffer that a submission starts. Reused: only a blocked buffer gets a separate object. */
  readonly #direct: PendingBuffer = directBuffer();
  /** Streams with pending buffers. */
  readonly #blocked: Set<Stream> = new Set();

  constructor(options: CommandProcessorOptions) {
    const { profile, registers, traffic } = options;
    const budget = this.#budget;
    this.#options = options;
    this.#map = options.addressMap;
    const access = new EngineAccess(options.addressMap, options.faults);
    this.#reach = access;
    const linearDma = new LinearDma({ ...options, access });
    this.#reader = new EngineReader(access);
    this.#swappedDma = new SwappedDma({ access, linearDma, budget, traffic });
    const readRegister = (offset: number): number => registers.readRegister(offset);
    this.#executor = new PacketExecutor({
      asic: profile.name === 'gaudi' ? 'gaudi' : 'gaudi2',
      engines: options.engines,
      access,
      words: options.access,
      reader: this.#reader,
      registers,
      clock: options.clock,
      linearDma,
      swappedDma: this.#swappedDma,
      dmaCores: new DmaCores({ profile, linearDma, budget, readRegister, writeWord: options.writeWord }),
      fetchBuffer: (stream, job, words, index) => this.#fetchLower(stream, job, words, index),
      chainBuffer: (stream, job, words, index) => this.#chain(stream, job, words, index),
    });
  }

  /** True if a stream is blocked by a fence, its channel or another buffer. */
  get hasBlocked(): boolean {
    return this.#blocked.size > 0;
  }

  /**
   * Starts a command buffer on a stream.
   * @param isHeld injected fault: while it returns true, the engine hangs at this buffer
   */
  execute(stream: Stream, job: Job, given: CommandBuffer, isHeld?: () => boolean): void {
    this.#budget.begin();
    const buffer = this.#direct;
    buffer.job = job;
    buffer.memory = given.memory;
    buffer.high = given.high;
    buffer.low = given.low;
    buffer.offset = 0;
    buffer.end = given.byteLength;
    buffer.isHeld = isHeld;
    buffer.isStarted = false;
    this.#start(stream, buffer);
    this.#reportWorkLeft();
  }

  /** Retries every blocked stream until none makes progress. Arbiters grant when nothing else can run. */
  pump(): void {
    if (this.#blocked.size === 0) return;
    this.#budget.begin();
    do {
      while (this.#advanceAll()) {}
    } while (this.#grant());
    this.#reportWorkLeft();
  }

  /** Drops the blocked streams, for a reset. */
  reset(): void {
    this.#blocked.clear();
  }

  close(): void {
    this.#fetch.close();
    this.#reader.close();
    this.#swappedDma.close();
  }

  /** Runs a buffer on the lower command processor of the stream; returns false while its queue is full. */
  #fetchLower(stream: Stream, job: Job, words: Int32Array, index: number): boolean {
    const lower = stream.lower!;
    if (lower.pending.length >= LOWER_BUFFERS_MAX) return false;
    this.#start(lower, fetchedBuffer(job.fetch(), words, index));
    return true;
  }

  /** Runs a buffer on the same command processor, behind the current one; returns false if the turn is over. */
  #chain(stream: Stream, job: Job, words: Int32Array, index: number): boolean {
    if (!this.#budget.take(1)) return false;
    stream.chained.push(fetchedBuffer(job.fetch(), words, index));
    return true;
  }

  /** Runs a buffer, or queues it behind others of its stream. */
  #start(stream: Stream, buffer: PendingBuffer): void {
    if (stream.pending.length === 0 && !stream.stopped && buffer.isHeld === undefined) {
      if (this.#runBuffer(stream, buffer)) {
        if (stream.chained.length === 0) return;
        stream.takeChained();
        this.#blocked.add(stream);
        this.#advance(stream);
        if (stream.pending.length === 0) this.#blocked.delete(stream);
        return;
      }
    }
    const { memory } = buffer;
    const waiting = buffer === this.#direct ? { ...buffer } : buffer;
    stream.pending.push(stream.copies && memory !== undefined ? copied(stream, waiting, memory) : waiting);
    this.#blocked.add(stream);
  }

  #reportWorkLeft(): void {
    if (this.#budget.exhausted) this.#options.onWorkLeft();
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

  /** Runs a blocked stream; returns true if it executed a packet or finished a buffer. */
  #advance(stream: Stream): boolean {
    let progress = false;
    for (let head = stream.pending[0]; head !== undefined && !stream.stopped; head = stream.pending[0]) {
      if (head.isHeld?.() === true) return progress;
      const { offset } = head;
      const isDone = this.#runBuffer(stream, head);
      if (head.offset !== offset) progress = true;
      if (!isDone) return progress;
      stream.pending.shift();
      stream.takeChained();
      progress = true;
    }
    return progress;
  }

  /** Executes packets of a buffer from its position on; returns true if it is finished. */
  #runBuffer(stream: Stream, buffer: PendingBuffer): boolean {
    if (!buffer.isStarted) {
      stream.cp.begin();
      buffer.isStarted = true;
    }
    const { job, end } = buffer;
    buffer.offset = this.#run(stream, buffer);
    return buffer.offset === end && this.#decoded(stream, job);
  }

  /** Called when all packets of a job are executed or in the channel. Returns false while the channel has no free entry for the completion time stamp. */
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
  #run(stream: Stream, { job, memory, high, low, offset: at, end }: PendingBuffer): number {
    const written = job.position;
    const { cp } = stream;
    this.#fetch.begin();
    let next = at;
    let piece = memory ?? this.#map.memory;
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
      else this.#fetch.show(piece, base + next, fetched);
      const { words, index } = this.#fetch;
      const isBulk = cp.bulkLeft > 0;
      const opcode = isBulk ? PacketOpcode.WREG_BULK : packetOpcode(words[index + 1]!);
      const bytes = isBulk ? SHORT_PACKET_BYTES : packetBytes(opcode);
      if (fetched < bytes && next + fetched < end) {
        this.#reach.reach(stream, high, low, next + fetched);
        stream.stopped = true;
        break;
      }
      const total = opcode === PacketOpcode.WREG_BULK && !isBulk ? wregBulkBytes(words[index]!) : bytes;
      if (bytes === 0 || next + total > end) {
        this.#executor.undefinedOpcode(stream, opcode);
        break;
      }
      if (opcode === PacketOpcode.REPEAT) {
        const target = this.#repeat(stream, words, index, next);
        if (target < 0) break;
        // The start of the loop may be in an earlier translation.
        if (target < next && memory === undefined) pieceEnd = target;
        next = target;
        continue;
      }
      const outcome = isBulk
        ? this.#executor.writeBulk(stream, job, words, index)
        : this.#executor.execute(stream, job, words, index);
      if (outcome === 'blocked') break;
      // After the header of a WREG_BULK, its values are executed one by one; a WREG_BULK that its predicate skips is skipped as a whole.
      next += cp.bulkLeft > 0 ? bytes : total;
    }
    if (job.channel !== undefined && job.position !== written) job.channel.publish();
    return next;
  }

  /**
   * REPEAT at byte `at`: the start of a loop, or its end, which jumps back while its predicate holds (inferred: no public source describes it; the packet
   * contains no count, and LOAD_AND_EXE inside the loop loads the predicate anew).
   * @returns the byte to continue at; negative if the turn is over
   */
  #repeat({ cp, stall }: Stream, words: Int32Array, index: number, at: number): number {
    if (stall === Stall.PACKETS) return -1;
    const configuration = words[index]!;
    const level = (configuration & RepeatCfg.OUTER) === 0 ? 0 : 1;
    const next = at + SHORT_PACKET_BYTES;
    if ((configuration & RepeatCfg.SORE) === 0) {
      cp.loops[level] = next;
      return next;
    }
    const start = cp.loops[level];
    if (start < 0 || !cp.holds(packetPredicate(words[index + 1]!))) return next;
    return this.#budget.take(1) ? start : -1;
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
}

function directBuffer(): PendingBuffer {
  return { job: new Job(), memory: undefined, high: 0, low: 0, offset: 0, end: 0, isHeld: undefined, isStarted: false };
}

/** The buffer that a CP_DMA packet refers to. */
function fetchedBuffer(job: Job, words: Int32Array, index: number): PendingBuffer {
  const place = { high: words[index + 3]!, low: words[index + 2]!, end: words[index]! >>> 0 };
  return { job, memory: undefined, ...place, offset: 0, isHeld: undefined, isStarted: false };
}

/** Copies a blocked buffer, which the program may change after the submission: the part that was not executed, or all of it if it has a loop. */
function copied({ cp }: Stream, rest: PendingBuffer, memory: PhysicalMemory): PendingBuffer {
  const from = cp.hasLoops ? 0 : rest.offset;
  const bytes = memory.window(from).u8.slice(from, rest.end);
  const copy = new PhysicalMemory('patched command buffer', { address: 0, byteLength: bytes.byteLength }, () => bytes);
  return { ...rest, memory: copy, offset: rest.offset - from, end: bytes.byteLength };
}
