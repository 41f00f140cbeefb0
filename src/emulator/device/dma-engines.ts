/**
 * The DMA engines of an emulated node: channels of descriptors and the threads that execute them.
 *
 * A channel is ordered; channels are concurrent. With `threads: 0` there are no threads and {@link DmaEngines.pump} executes,
 * in an order drawn from the injected random numbers: that makes whole simulations replay from a seed. This file knows
 * descriptors; it does not know packets, streams or command submissions.
 */

import type { Worker } from 'node:worker_threads';
import { addressOf, EventFd, type PollSubscription, startWorker } from '../../sys/index.ts';
import type { Clock } from '../../ucs/clock.ts';
import type { Log } from '../../ucs/log.ts';
import type { Random } from '../../ucs/random.ts';
import {
  CHANNELS,
  CONTROL_CHANNELS,
  CONTROL_DOORBELL,
  CONTROL_RUNNING,
  CONTROL_SLEEPING,
  CONTROL_STOP,
  CONTROL_WAKE,
  consumerWord,
  DESCRIPTOR_DESTINATION_HIGH,
  DESCRIPTOR_DESTINATION_LOW,
  DESCRIPTOR_LENGTH,
  DESCRIPTOR_OPCODE,
  DESCRIPTOR_SOURCE_HIGH,
  DESCRIPTOR_SOURCE_LOW,
  descriptorWord,
  Opcode,
  producerWord,
  REGION_BYTES,
  RING_SLOTS,
  Wake,
} from './dma-ring.ts';
import { EngineProgram } from './engine-program.ts';
import type { EngineThreadData } from './engine-thread.ts';

const HIGH = 0x1_0000_0000;
/** Bound of the wait for a thread to stop: it is in the middle of a copy, or it has died. */
const STOP_TIMEOUT_MS = 1000;

/** An ordered queue of descriptors. */
export class DmaChannel {
  readonly #words: Int32Array;
  readonly #index: number;
  readonly #producerWord: number;
  readonly #consumerWord: number;
  /** Descriptors written, modulo 2^32; published by {@link publish}. */
  #written = 0;

  constructor(words: Int32Array, index: number) {
    this.#words = words;
    this.#index = index;
    this.#producerWord = producerWord(index);
    this.#consumerWord = consumerWord(index);
  }

  /** The position after the last descriptor written: what {@link isDone} takes. */
  get position(): number {
    return this.#written;
  }

  /** True when everything written up to `position` has been executed. */
  isDone(position: number): boolean {
    return ((Atomics.load(this.#words, this.#consumerWord) - position) | 0) >= 0;
  }

  /** True when everything written has been executed. */
  get idle(): boolean {
    return Atomics.load(this.#words, this.#consumerWord) === this.#written;
  }

  /** Free descriptor slots. */
  get room(): number {
    return RING_SLOTS - ((this.#written - Atomics.load(this.#words, this.#consumerWord)) | 0);
  }

  /** Writes a copy of `byteLength` bytes (below 2^32) between host virtual addresses. The caller has checked the room. */
  copy(source: number, destination: number, byteLength: number): void {
    this.#write(Opcode.COPY, source | 0, Math.floor(source / HIGH) | 0, destination, byteLength);
  }

  /** Writes a descriptor with an immediate of 64 bits: a fill pattern or the value of a 32-bit write. */
  immediate(opcode: number, low: number, high: number, destination: number, byteLength: number): void {
    this.#write(opcode, low, high, destination, byteLength);
  }

  /** Makes the descriptors written so far visible to the engine. */
  publish(): void {
    const words = this.#words;
    Atomics.store(words, this.#producerWord, this.#written);
    if (Atomics.load(words, CONTROL_SLEEPING) === 0) return;
    Atomics.add(words, CONTROL_DOORBELL, 1);
    Atomics.notify(words, CONTROL_DOORBELL);
  }

  #write(opcode: number, low: number, high: number, destination: number, byteLength: number): void {
    const words = this.#words;
    const at = descriptorWord(this.#index, this.#written);
    words[at + DESCRIPTOR_OPCODE] = opcode;
    words[at + DESCRIPTOR_LENGTH] = byteLength;
    words[at + DESCRIPTOR_SOURCE_LOW] = low;
    words[at + DESCRIPTOR_SOURCE_HIGH] = high;
    words[at + DESCRIPTOR_DESTINATION_LOW] = destination;
    words[at + DESCRIPTOR_DESTINATION_HIGH] = Math.floor(destination / HIGH);
    this.#written = (this.#written + 1) | 0;
  }
}

/** One shared region with the thread that serves it, or with the program that {@link DmaEngines.pump} runs. */
class Engine {
  readonly words: Int32Array;
  readonly #region: SharedArrayBuffer = new SharedArrayBuffer(REGION_BYTES);
  readonly #channels: DmaChannel[] = [];
  #worker: Worker | undefined;
  #next = 0;

  constructor() {
    this.words = new Int32Array(this.#region);
  }

  start(eventFd: number, spinNs: number, onError: (error: Error) => void): void {
    const data: EngineThreadData = { region: this.#region, eventFd, spinNs };
    this.#worker = startWorker(import.meta.url, './engine-thread', { workerData: data, name: 'gaudi-dma' });
    this.#worker.on('error', onError);
    this.#worker.unref();
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

  stop(): void {
    Atomics.store(this.words, CONTROL_STOP, 1);
    Atomics.add(this.words, CONTROL_DOORBELL, 1);
    Atomics.notify(this.words, CONTROL_DOORBELL);
    // Memory and event fd may go only when the thread does not touch them any more. One that starts later finds the stop flag.
    if (Atomics.load(this.words, CONTROL_RUNNING) === 1) {
      Atomics.wait(this.words, CONTROL_RUNNING, 1, STOP_TIMEOUT_MS);
    }
    void this.#worker?.terminate();
    this.#worker = undefined;
  }
}

/** How the engines of a node run. */
export interface DmaEnginesOptions {
  /** Engine threads; 0 executes in {@link DmaEngines.pump}. */
  readonly threads: number;
  /** Idle time before an engine thread sleeps, in nanoseconds. */
  readonly spinNs: number;
  readonly clock: Clock;
  readonly log: Log;
  /** Chooses the channel that has the next turn where there are no threads. */
  readonly random: Random;
}

/** The engines of a node. */
export class DmaEngines {
  readonly #options: DmaEnginesOptions;
  readonly #engines: Engine[] = [];
  readonly #programs: EngineProgram[] = [];
  #nextEngine = 0;
  #event: EventFd | undefined;
  #subscription: PollSubscription | undefined;
  /** Called on the owner's thread after progress that somebody asked to hear of. */
  #onProgress: () => void = () => {};

  constructor(options: DmaEnginesOptions) {
    this.#options = options;
  }

  /** Sets who hears of progress. */
  listen(onProgress: () => void): void {
    this.#onProgress = onProgress;
  }

  /** A channel for one stream of one queue. Streams beyond the bound share channels and stay ordered. */
  channel(): DmaChannel {
    if (this.#engines.length === 0) this.#start();
    return this.#engines[this.#nextEngine++ % this.#engines.length]!.channel();
  }

  /** True when no descriptor waits or runs. */
  get idle(): boolean {
    return this.#engines.every((engine) => engine.idle);
  }

  /** Where there are no engine threads: executes everything that was published. */
  pump(): void {
    for (let i = 0; i < this.#programs.length; i++) {
      const words = this.#engines[i]!.words;
      while (this.#turnAny(this.#programs[i]!, words[CONTROL_CHANNELS]!)) {}
    }
  }

  /** Asks for one call of the listener after the next descriptor is finished. */
  requestProgressEvent(): void {
    for (const engine of this.#engines) Atomics.store(engine.words, CONTROL_WAKE, Wake.EVENT);
  }

  /**
   * Blocks the calling thread until a descriptor is finished or `timeoutNs` is over.
   * @param done looked at after the request is made and before sleeping, so that no progress is missed
   */
  waitProgress(timeoutNs: number, done: () => boolean): void {
    if (this.#programs.length > 0) {
      this.pump();
      return;
    }
    const engine = this.#engines[0];
    if (engine === undefined) return;
    for (const other of this.#engines) Atomics.store(other.words, CONTROL_WAKE, Wake.NOTIFY);
    if (done()) return;
    Atomics.wait(engine.words, CONTROL_WAKE, Wake.NOTIFY, Math.min(timeoutNs / 1e6, 1));
  }

  /** Ends the threads. Descriptors that were not executed are dropped. */
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
    const onError = (error: Error): void => log.error(`dma engine thread died: ${error.stack ?? error.message}`);
    for (const engine of this.#engines) engine.start(event.fd, spinNs, onError);
  }

  #turnAny(program: EngineProgram, channels: number): boolean {
    const first = channels > 1 ? this.#options.random.below(channels) : 0;
    for (let i = 0; i < channels; i++) {
      if (program.turn((first + i) % channels) !== 0) return true;
    }
    return false;
  }
}
