/**
 * The DMA engines of an emulated node: channels of descriptors and the threads that execute them.
 *
 * A channel is ordered; channels are concurrent. With `threads: 0` there are no threads and {@link DmaEngines.pump} executes descriptors, in an order
 * drawn from the injected random numbers, so that simulations replay from a seed.
 */

import {
  addressOf,
  EventFd,
  hasWorker,
  isThreadAlive,
  type PollSubscription,
  startWorker,
} from '../../../sys/index.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { atExit } from '../../../ucs/sys/process-events.ts';
import type { Random } from '../../../ucs/sys/random.ts';
import { highOf } from '../../../ucs/type/int64.ts';
import { DIRECT, type PhysicalMemory } from '../memory/physical-memory.ts';
import {
  busyWord,
  CHANNELS,
  CONTROL_CHANNELS,
  CONTROL_DOORBELL,
  CONTROL_SLEEPING,
  CONTROL_STATE,
  CONTROL_STOP,
  CONTROL_THREAD,
  CONTROL_WAKE,
  consumerWord,
  DESCRIPTOR_DESTINATION_HIGH,
  DESCRIPTOR_DESTINATION_LOW,
  DESCRIPTOR_DESTINATION_SPACE,
  DESCRIPTOR_LENGTH,
  DESCRIPTOR_OPCODE,
  DESCRIPTOR_SOURCE_HIGH,
  DESCRIPTOR_SOURCE_LOW,
  DESCRIPTOR_SOURCE_SPACE,
  descriptorWord,
  EngineState,
  Opcode,
  producerWord,
  REGION_BYTES,
  RING_SLOTS,
  Wake,
} from './dma-ring.ts';
import { EngineProgram } from './engine-program.ts';
import type { EngineThreadData } from './engine-thread.ts';

const NS_PER_US = 1000;
/** Interval of checks for a thread that has not stopped: it is in the middle of a slice, or has failed. */
const STOP_LOOK_MS = 1000;
/** Checks after which a thread is abandoned: an access to memory of another process may never return. */
const STOP_LOOKS_MAX = 30;
/** Time for which an exiting process waits for a thread that is still loading its modules. */
const LOAD_TIMEOUT_MS = 10_000;
/** Limit of one wait for progress: progress that the request missed is noticed after this time. */
const PROGRESS_WAIT_MS_MAX = 1;

/** An ordered queue of descriptors. */
export class DmaChannel {
  readonly #words: Int32Array;
  readonly #index: number;
  readonly #producerWord: number;
  readonly #consumerWord: number;
  /** Descriptors written, modulo 2^32; published by {@link publish}. */
  #written = 0;
  /** Busy time at the last reading, and the accumulated total. */
  #seenUs = 0;
  #busyUs = 0;

  constructor(words: Int32Array, index: number) {
    this.#words = words;
    this.#index = index;
    this.#producerWord = producerWord(index);
    this.#consumerWord = consumerWord(index);
  }

  /** The position after the last descriptor written, for {@link isDone}. */
  get position(): number {
    return this.#written;
  }

  /** True if everything written up to `position` has been executed. */
  isDone(position: number): boolean {
    return ((Atomics.load(this.#words, this.#consumerWord) - position) | 0) >= 0;
  }

  /** True if no written descriptor will be executed any more: all have been, or the engine has failed. */
  get idle(): boolean {
    const words = this.#words;
    return (
      Atomics.load(words, this.#consumerWord) === this.#written ||
      Atomics.load(words, CONTROL_STATE) === EngineState.ENDED
    );
  }

  /** Busy time of the channel in nanoseconds, in steps of a microsecond. */
  get busyNs(): number {
    const now = Atomics.load(this.#words, busyWord(this.#index));
    this.#busyUs += (now - this.#seenUs) >>> 0;
    this.#seenUs = now;
    return this.#busyUs * NS_PER_US;
  }

  /** Number of free descriptor slots. */
  get room(): number {
    return RING_SLOTS - ((this.#written - Atomics.load(this.#words, this.#consumerWord)) | 0);
  }

  /** Writes a copy of `byteLength` bytes (below 2^32) between offsets of two memories. The caller has checked for a free slot. */
  copy(
    destination: PhysicalMemory,
    destinationOffset: number,
    source: PhysicalMemory,
    sourceOffset: number,
    byteLength: number,
  ): void {
    const from = source.address + sourceOffset;
    const to = destination.address + destinationOffset;
    this.#words[descriptorWord(this.#index, this.#written) + DESCRIPTOR_SOURCE_SPACE] = source.space;
    this.immediate(Opcode.COPY, from | 0, highOf(from), to, byteLength, destination.space);
  }

  /** Writes a descriptor with 64 bits: a fill pattern, the value of a 32-bit write, or the source of a copy. Its destination is in an address space. */
  immediate(
    opcode: number,
    low: number,
    high: number,
    destination: number,
    byteLength: number,
    space: number = DIRECT,
  ): void {
    const words = this.#words;
    const at = descriptorWord(this.#index, this.#written);
    words[at + DESCRIPTOR_OPCODE] = opcode;
    words[at + DESCRIPTOR_LENGTH] = byteLength;
    words[at + DESCRIPTOR_SOURCE_LOW] = low;
    words[at + DESCRIPTOR_SOURCE_HIGH] = high;
    words[at + DESCRIPTOR_DESTINATION_LOW] = destination;
    words[at + DESCRIPTOR_DESTINATION_HIGH] = highOf(destination);
    words[at + DESCRIPTOR_DESTINATION_SPACE] = space;
    this.#written = (this.#written + 1) | 0;
  }

  /** Writes a write of 32 bits to an address of an address space, which may be DIRECT. */
  writeWord(space: number, value: number, destination: number): void {
    this.immediate(Opcode.WRITE32, value, 0, destination, 4, space);
  }

  /** Makes the descriptors written so far visible to the engine. */
  publish(): void {
    const words = this.#words;
    Atomics.store(words, this.#producerWord, this.#written);
    if (Atomics.load(words, CONTROL_SLEEPING) === 0) return;
    Atomics.add(words, CONTROL_DOORBELL, 1);
    Atomics.notify(words, CONTROL_DOORBELL);
  }
}

/** Module of the threads. */
const THREAD = './engine-thread';

/** Whether engines can have threads: not if this package was bundled into other files, without the module of the threads. */
export function hasEngineThread(): boolean {
  return hasWorker(import.meta.url, THREAD);
}

/** One region shared with the thread that serves it, or with the program that {@link DmaEngines.pump} runs. */
class Engine {
  readonly words: Int32Array;
  readonly #region: SharedArrayBuffer = new SharedArrayBuffer(REGION_BYTES);
  readonly #channels: DmaChannel[] = [];
  /** Resolves when the thread has loaded its modules, or has ended. */
  loaded: Promise<unknown> = Promise.resolve();
  #next = 0;

  constructor() {
    this.words = new Int32Array(this.#region);
  }

  start(shared: Omit<EngineThreadData, 'region'>, onError: (error: Error) => void): void {
    const data: EngineThreadData = { ...shared, region: this.#region };
    const worker = startWorker(import.meta.url, THREAD, { workerData: data, name: 'gaudi-dma' });
    worker.on('error', (error) => {
      this.markEnded();
      onError(error);
    });
    // The only message of the thread.
    this.loaded = new Promise((resolve) => {
      worker.once('message', resolve);
      worker.once('exit', resolve);
    });
    worker.unref();
    // Node.js interrupts running threads when the process exits, and an interrupt while a thread loads or calls koffi aborts
    // the process (koffi 3.3.4: napi_throw in an isolate that is being terminated), so the thread ends earlier.
    const forget = atExit(() => {
      this.stop();
      this.#awaitLoaded();
    });
    worker.on('exit', forget);
  }

  /** True if it executes nothing any more. */
  get ended(): boolean {
    return this.words[CONTROL_STATE] === EngineState.ENDED;
  }

  /** Marks the engine as ended: its thread or its program has failed. */
  markEnded(): void {
    Atomics.store(this.words, CONTROL_STATE, EngineState.ENDED);
  }

  channel(): DmaChannel {
    const index = this.#next++ % CHANNELS;
    const known = this.#channels[index];
    if (known !== undefined) return known;
    const opened = new DmaChannel(this.words, index);
    this.#channels.push(opened);
    Atomics.store(this.words, CONTROL_CHANNELS, this.#channels.length);
    return opened;
  }

  get idle(): boolean {
    return this.#channels.every((channel) => channel.idle);
  }

  /** Requests the thread to end, and waits until it no longer accesses the region. */
  stop(): void {
    Atomics.store(this.words, CONTROL_STOP, 1);
    Atomics.add(this.words, CONTROL_DOORBELL, 1);
    Atomics.notify(this.words, CONTROL_DOORBELL);
    // Memory and event fd may be released only when the thread no longer accesses them. A thread that starts later finds the stop flag.
    const { words } = this;
    for (let looks = 0; looks < STOP_LOOKS_MAX; looks++) {
      if (Atomics.wait(words, CONTROL_STATE, EngineState.RUNNING, STOP_LOOK_MS) !== 'timed-out') return;
      if (!isThreadAlive(words[CONTROL_THREAD]!)) return;
    }
  }

  /** Waits until the thread runs or has ended; the state is its first write after loading its modules. */
  #awaitLoaded(): void {
    Atomics.wait(this.words, CONTROL_STATE, EngineState.STARTING, LOAD_TIMEOUT_MS);
  }
}

/** Options of the engines of a node. */
export interface DmaEnginesOptions {
  /** Number of engine threads; 0 executes in {@link DmaEngines.pump}. */
  readonly threads: number;
  /** Idle time before an engine thread sleeps, in nanoseconds. */
  readonly spinNs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Selects the channel that is served next if there are no threads. */
  readonly random: Random;
}

/** The engines of a node. */
export class DmaEngines {
  readonly #options: DmaEnginesOptions;
  readonly #engines: Engine[] = [];
  readonly #programs: EngineProgram[] = [];
  /** Counts requested progress of all engines. */
  readonly #progress: Int32Array<SharedArrayBuffer> = new Int32Array(new SharedArrayBuffer(4));
  #nextEngine = 0;
  #event: EventFd | undefined;
  #subscription: PollSubscription | undefined;
  /** Called on the owner's thread after requested progress, and after the failure of an engine. */
  #onProgress: () => void = () => {};

  constructor(options: DmaEnginesOptions) {
    this.#options = options;
  }

  /** Sets the listener for progress and failure. */
  listen(onProgress: () => void): void {
    this.#onProgress = onProgress;
  }

  /** Returns a channel for one stream of one queue. Streams beyond the limit share channels and stay ordered. */
  channel(): DmaChannel {
    if (this.#engines.length === 0) this.#start();
    return this.#engines[this.#nextEngine++ % this.#engines.length]!.channel();
  }

  /** Starts the threads, which otherwise start with the first channel, and resolves when they have loaded their modules. */
  async prepare(): Promise<void> {
    if (this.#engines.length === 0) this.#start();
    if (this.#programs.length > 0) return;
    await Promise.all(this.#engines.map((engine) => engine.loaded));
  }

  /** Whether threads execute the descriptors; otherwise {@link pump} does. */
  get hasThreads(): boolean {
    return this.#options.threads > 0;
  }

  /** True if no descriptor waits or runs. */
  get idle(): boolean {
    return this.#engines.every((engine) => engine.idle);
  }

  /** True if an engine has failed: its pending descriptors are never executed. */
  get failed(): boolean {
    for (let i = 0; i < this.#engines.length; i++) if (this.#engines[i]!.ended) return true;
    return false;
  }

  /** Makes the running engines fail, as on a corrupt ring; starts one if there is none. */
  crash(): void {
    if (this.#engines.length === 0) this.#start();
    for (let i = 0; i < this.#engines.length; i++) {
      const channel = this.channel();
      channel.immediate(0, 0, 0, 0, 0);
      channel.publish();
    }
  }

  /** Without engine threads: executes everything that was published. */
  pump(): void {
    for (let i = 0; i < this.#programs.length; i++) {
      const engine = this.#engines[i]!;
      while (!engine.ended && this.#serveNext(engine, this.#programs[i]!)) {}
    }
  }

  /** Requests one call of the listener after the next descriptor is finished. */
  requestProgressEvent(): void {
    for (const engine of this.#engines) Atomics.or(engine.words, CONTROL_WAKE, Wake.EVENT);
  }

  /**
   * Blocks the calling thread until any engine has finished a descriptor or `timeoutNs` has passed; at most a millisecond.
   * @param done checked after the request and before sleeping, so that no progress is missed
   */
  waitProgress(timeoutNs: number, done: () => boolean): void {
    if (this.#programs.length > 0) {
      this.pump();
      return;
    }
    if (this.#engines.length === 0) return;
    const seen = Atomics.load(this.#progress, 0);
    for (const engine of this.#engines) Atomics.or(engine.words, CONTROL_WAKE, Wake.NOTIFY);
    if (done()) return;
    Atomics.wait(this.#progress, 0, seen, Math.min(timeoutNs / 1e6, PROGRESS_WAIT_MS_MAX));
  }

  /** Ends the threads. Pending descriptors are dropped. */
  close(): void {
    for (const engine of this.#engines) engine.stop();
    this.#subscription?.close();
    this.#event?.close();
    this.#subscription = undefined;
    this.#event = undefined;
    this.#engines.length = 0;
    this.#programs.length = 0;
  }

  #start(): void {
    const { threads, spinNs, clock, log } = this.#options;
    for (let i = 0; i < Math.max(1, threads); i++) {
      const engine = new Engine();
      this.#engines.push(engine);
      if (threads === 0) this.#programs.push(new EngineProgram(engine.words, addressOf(engine.words), CHANNELS, clock));
    }
    if (threads === 0) return;
    const event = new EventFd();
    this.#event = event;
    this.#subscription = event.onReadable(() => {
      event.tryRead();
      this.#onProgress();
    });
    this.#subscription.unref();
    const onError = (error: Error): void => {
      log.error(`DMA engine thread failed: ${error.stack ?? error.message}`);
      this.#onProgress();
    };
    const progress = this.#progress.buffer;
    for (const engine of this.#engines) engine.start({ progress, eventFd: event.fd, spinNs }, onError);
  }

  /** Gives a turn to one channel with pending work; returns false if there is none. */
  #serveNext(engine: Engine, program: EngineProgram): boolean {
    const channels = engine.words[CONTROL_CHANNELS]!;
    const first = channels > 1 ? this.#options.random.below(channels) : 0;
    try {
      for (let i = 0; i < channels; i++) {
        if (program.serve((first + i) % channels) !== 0) return true;
      }
    } catch (error) {
      engine.markEnded();
      this.#options.log.error(`DMA engine failed: ${String(error)}`);
    }
    return false;
  }
}
