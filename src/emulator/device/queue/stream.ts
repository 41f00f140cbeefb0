/**
 * One stream of one hardware queue: the FIFO of waiting command buffers, the fence counters and the channel to the DMA engines. Also the arbiter of a
 * QMAN: only one stream at a time executes the packets between an acquiring and a releasing ARB_POINT. The arbiter waits until no stream can continue, then
 * grants the highest priority, and among equal ones the oldest request.
 */

import { type QueueEntry, STREAMS_PER_QMAN } from '../../../uapi/index.ts';
import type { DmaChannel, DmaEngines } from '../engine/dma-engines.ts';
import type { PhysicalMemory } from '../memory/physical-memory.ts';
import { CpState } from './cp-state.ts';

/** Number of fence counters of a command processor (QMAN CP_FENCE0..3). */
const FENCES = 4;

/** What a stalled engine does not execute: new transfers, or any packets. */
export const Stall = { NONE: 0, TRANSFERS: 1, PACKETS: 2 } as const;
export type Stall = (typeof Stall)[keyof typeof Stall];

/** Number of fetched command buffers of a job at which completed ones are first removed. */
const FETCHED_MIN = 64;

/** One job: a command buffer on a stream. Done when it is decoded and its channel has passed `position`. */
export class Job {
  /** False while some of its packets have not been executed or passed to the channel. */
  decoded = false;
  /** The channel that has its descriptors, if any. */
  channel: DmaChannel | undefined = undefined;
  /** Position in the channel after its last descriptor. */
  position = 0;
  /** Host virtual address for the time of completion in nanoseconds (64 bits); 0 for none. */
  stampAddress = 0;
  /** The jobs of the command buffers that its packets name (CP_DMA, CB_LIST). Those that are done are removed from time to time. */
  fetched: Job[] | undefined = undefined;
  /** The job whose packets have named the command buffer; undefined for a job of the driver. */
  #root: Job | undefined = undefined;
  #pruneAt = FETCHED_MIN;

  /** Returns the channel of its stream, which receives its descriptors from now on. */
  channelOf(stream: TransferStream, engines: DmaEngines): DmaChannel {
    const channel = stream.channel(engines);
    this.channel = channel;
    return channel;
  }

  /** Creates the job of a command buffer that a packet names. It belongs to the job of the driver, however deep the buffers nest. */
  fetch(): Job {
    const root = this.#root ?? this;
    const job = new Job();
    job.#root = root;
    root.fetched ??= [];
    if (root.fetched.length >= root.#pruneAt) {
      root.fetched = root.fetched.filter((each) => !each.done);
      root.#pruneAt = Math.max(FETCHED_MIN, 2 * root.fetched.length);
    }
    root.fetched.push(job);
    return job;
  }

  reset(): void {
    this.#pruneAt = FETCHED_MIN;
    this.decoded = false;
    this.channel = undefined;
    this.position = 0;
    this.stampAddress = 0;
    this.fetched = undefined;
  }

  get done(): boolean {
    if (!this.decoded) return false;
    if (this.channel !== undefined && !this.channel.isDone(this.position)) return false;
    return this.fetched === undefined || this.fetched.every((job) => job.done);
  }
}

/** A command buffer that waits in a stream, from the packet at which it stopped. */
export interface PendingBuffer {
  job: Job;
  /** Copy held by the driver; undefined for a buffer that the card fetches from the device address in `high` and `low`. */
  memory: PhysicalMemory | undefined;
  high: number;
  low: number;
  /** Byte of the buffer where the next packet starts. */
  offset: number;
  /** One past the last byte. */
  end: number;
  /** Injected hang: while it returns true, neither this buffer nor those behind it run. */
  isHeld: (() => boolean) | undefined;
  /** Whether execution has reached its first packet. */
  isStarted: boolean;
}

/** A stream of a queue, or a PDMA channel: executes transfers in order, by a channel to the DMA engines. Has the progress of the transfer at its head. */
export class TransferStream {
  /** Id of its engine in masks and fault records. */
  readonly engineId: number;
  /** Bytes of the transfer at the head that are already in the channel, while the channel is full. */
  movedBytes = 0;
  /** Bytes already copied by the current transfer with reversed byte order. */
  swappedBytes = 0;
  /** Stopped by an undefined opcode, a failed fetch or an error: nothing runs until the device is reset. */
  stopped = false;
  #channel: DmaChannel | undefined;

  constructor(engineId: number) {
    this.engineId = engineId;
  }

  /** The channel, created at first use: most queues of a card are never used. */
  channel(engines: DmaEngines): DmaChannel {
    this.#channel ??= engines.channel();
    return this.#channel;
  }

  /** True if all its descriptors have been executed. */
  get drained(): boolean {
    return this.#channel === undefined || this.#channel.idle;
  }

  /** Busy time of its channel in nanoseconds. */
  get busyNs(): number {
    return this.#channel?.busyNs ?? 0;
  }

  /** Forgets the transfer at the head. Descriptors in the channel are still executed. */
  protected abandonTransfer(): void {
    this.movedBytes = 0;
    this.swappedBytes = 0;
  }
}

/** A stream: an upper command processor with a lower one that CP_DMA feeds. */
export class Stream extends TransferStream {
  readonly queueId: number;
  readonly name: string;
  /** Number of the stream in its QMAN; the lower command processor has the number after the last stream. */
  readonly number: number;
  /** The lower command processor of the same QMAN; it has none itself. */
  readonly lower: Stream | undefined;
  readonly pending: PendingBuffer[] = [];
  /** Buffers that packets of the current buffer have chained to the same command processor: they run after it. */
  readonly chained: PendingBuffer[] = [];
  readonly cp: CpState = new CpState();
  readonly fences: Int32Array = new Int32Array(FENCES);
  /** The arbiter that ARB_POINT acquires: one for all streams of the QMAN. */
  readonly arbiter: Arbiter;
  /** Stall state of the engine, set by the user. */
  stall: Stall = Stall.NONE;
  /** Number of entries of the queue. */
  readonly length: number;
  /** Whether a wait for several submissions accepts those that used the queue. */
  readonly streamMaster: boolean;
  /** Jobs that the driver has put on the queue and not retired. */
  outstanding = 0;
  /** Whether the driver tracks completion of jobs here; it does not on internal queues of gaudi. */
  readonly tracked: boolean;
  /** Whether the driver copies command buffers at submission (external queues); otherwise the card fetches them. */
  readonly copies: boolean;

  /** @param lower the lower command processor that the streams of the QMAN share; undefined for that one itself */
  constructor(queue: QueueEntry, engineId: number, lower: Stream | undefined) {
    super(engineId);
    const isLower = lower === undefined;
    this.number = isLower ? STREAMS_PER_QMAN : queue.stream;
    this.queueId = queue.id;
    this.name = isLower ? `${queue.name}.lower` : queue.name;
    this.length = queue.length;
    this.streamMaster = queue.streamMaster;
    this.tracked = queue.kind !== 'internal';
    this.copies = queue.kind === 'external' && !isLower;
    this.lower = lower;
    this.arbiter = lower?.arbiter ?? new Arbiter();
  }

  /** True if nothing waits here, in the channel or in the lower command processor. */
  get idle(): boolean {
    return this.pending.length === 0 && this.drained && (this.lower === undefined || this.lower.idle);
  }

  /** Puts the chained buffers before the waiting ones. */
  takeChained(): void {
    if (this.chained.length > 0) this.pending.unshift(...this.chained.splice(0));
  }

  /** Drops waiting buffers. Descriptors in the channel are still executed. */
  dropPending(): void {
    this.pending.length = 0;
    this.chained.length = 0;
    this.abandonTransfer();
    this.cp.abandon();
    this.lower?.dropPending();
  }

  /** Returns to the state after a reset. */
  reset(): void {
    this.dropPending();
    this.arbiter.reset();
    this.cp.reset();
    this.fences.fill(0);
    this.stopped = false;
    this.stall = Stall.NONE;
    this.outstanding = 0;
    this.lower?.reset();
  }
}

interface ArbiterRequest {
  readonly stream: object;
  readonly priority: number;
}

/** One arbiter. Streams are compared by identity only. */
class Arbiter {
  #holder: object | undefined;
  readonly #requests: ArbiterRequest[] = [];

  /** Requests the arbiter; a repeated request has no effect. Returns true if the stream holds it. */
  take(stream: object, priority: number): boolean {
    if (this.#holder === stream) return true;
    if (!this.#requests.some((request) => request.stream === stream)) this.#requests.push({ stream, priority });
    return false;
  }

  /** Releases the arbiter if the stream holds it. */
  release(stream: object): void {
    if (this.#holder === stream) this.#holder = undefined;
  }

  /** Called when no stream can continue: grants a free arbiter to the best request. Returns true if it was granted. */
  grant(): boolean {
    if (this.#holder !== undefined || this.#requests.length === 0) return false;
    const best = this.#requests.reduce((left, right) => (right.priority > left.priority ? right : left));
    this.#requests.splice(this.#requests.indexOf(best), 1);
    this.#holder = best.stream;
    return true;
  }

  /** Drops the holder and all requests. */
  reset(): void {
    this.#holder = undefined;
    this.#requests.length = 0;
  }
}
