/**
 * An asynchronous DMA transfer: addresses, progress, result; and the instrumentation of a DMA queue: counters for statistics, and events for subscribers of the
 * diagnostics channels.
 */

import { ObjectPool } from '../../ucs/datastruct/object-pool.ts';
import { commandSubmissionEnd, transferEnd } from '../../ucs/debug/diagnostics.ts';
import { throwLater } from '../../ucs/debug/uncaught.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { Status } from '../../ucs/type/status.ts';
import { highAt, lowAt } from '../base/card-file.ts';
import { invalidArgument } from '../base/gaudi-error.ts';
import type { DmaMemory } from '../memory/dma-memory.ts';

/** Called when a request has ended; runs inside `progress()`. */
export type DmaCallback = (request: DmaRequest) => void;

/** A transfer. Requests are pooled: after `dmaRequestFree` the object belongs to another transfer. */
export class DmaRequest {
  /** INPROGRESS, OK, or the failure. Final once it is not INPROGRESS. */
  status: Status = Status.OK;
  /** The status with which the request ends unless the transfer fails: IO_ERROR if a fault of the card may have corrupted it. */
  outcome: Status = Status.OK;
  /** Low word of the source address, signed. */
  sourceLow = 0;
  /** High word of the source address, signed. */
  sourceHigh = 0;
  /** Low word of the destination address, signed. */
  destinationLow = 0;
  /** High word of the destination address, signed. */
  destinationHigh = 0;
  /** Length in bytes. */
  byteLength = 0;
  /** Bytes in submitted or prepared packets. */
  issued = 0;
  /** Number of the batch with the last packet, modulo 2^32. */
  batch = 0;
  /** Start time; -1 without observers. */
  startNs = -1;
  /** Destination of a short get, whose bytes arrive in the data area of a slot. */
  target: Uint8Array | undefined = undefined;
  /** First byte of `target` that the transfer writes. */
  targetOffset = 0;
  /** Byte offset of a short transfer in the data area of the ring. */
  dataOffset = 0;
  /** Arbitrary value of the owner, for `onComplete`. */
  context: unknown = undefined;
  /** False while the request is in its pool. */
  live = false;
  /** The two ranges that are held until the end; undefined if the request holds none. */
  firstMemory: DmaMemory | undefined = undefined;
  /** See `firstMemory`. */
  secondMemory: DmaMemory | undefined = undefined;
  readonly #owner: DmaRequestPool;
  #onComplete: DmaCallback | undefined = undefined;

  constructor(owner: DmaRequestPool) {
    this.#owner = owner;
  }

  /** Whether a value is a request made by this class, rather than an object that imitates one: freed requests return to pools. */
  static isGenuine(value: unknown): value is DmaRequest {
    return typeof value === 'object' && value !== null && #owner in value;
  }

  /**
   * Called at the end of the request, for the owner.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS, when set, if it is neither a function nor undefined
   */
  get onComplete(): DmaCallback | undefined {
    return this.#onComplete;
  }

  set onComplete(callback: DmaCallback | undefined) {
    if (callback !== undefined && typeof callback !== 'function')
      throw invalidArgument('onComplete', 'must be a function', callback);
    this.#onComplete = callback;
  }

  /** The pool of the request. */
  get owner(): DmaRequestPool {
    return this.#owner;
  }

  /** Initializes the request for a new transfer. Its two addresses are set next. */
  begin(byteLength: number): void {
    this.status = Status.INPROGRESS;
    this.outcome = Status.OK;
    this.byteLength = byteLength;
    this.issued = 0;
    this.batch = 0;
    this.target = undefined;
    this.targetOffset = 0;
    this.dataOffset = 0;
    this.#onComplete = undefined;
    this.context = undefined;
    this.live = true;
  }

  /** Sets the device address of the source, as signed words. */
  setSource(low: number, high: number): void {
    this.sourceLow = low;
    this.sourceHigh = high;
  }

  /** Sets the device address of the destination, as signed words. */
  setDestination(low: number, high: number): void {
    this.destinationLow = low;
    this.destinationHigh = high;
  }

  /** Sets the source to an offset in memory. */
  from({ low, high }: DmaMemory, offset: number): void {
    this.setSource(lowAt(low, offset), highAt(low, high, offset));
  }

  /** Sets the destination to an offset in memory. */
  to({ low, high }: DmaMemory, offset: number): void {
    this.setDestination(lowAt(low, offset), highAt(low, high, offset));
  }

  /** Holds the memory of a transfer in flight, which prevents its release before the end. */
  hold(first: DmaMemory, second: DmaMemory | undefined): void {
    if (this.status !== Status.INPROGRESS) return;
    first.retain();
    this.firstMemory = first;
    if (second === undefined) return;
    second.retain();
    this.secondMemory = second;
  }

  /** Releases the held memory. */
  releaseMemory(): void {
    if (this.firstMemory !== undefined) this.firstMemory.release();
    if (this.secondMemory !== undefined) this.secondMemory.release();
    this.firstMemory = undefined;
    this.secondMemory = undefined;
  }

  /** Calls the owner's callback. An exception becomes an uncaught exception, so that other requests end too. */
  notify(onComplete: DmaCallback): void {
    try {
      onComplete(this);
    } catch (error) {
      throwLater(error);
    }
  }
}

/** The requests of one DMA queue. */
export class DmaRequestPool {
  /** Device of the queue: distinguishes requests of different cards. */
  readonly device: object;
  readonly #pool: ObjectPool<DmaRequest>;

  constructor(device: object, capacity: number) {
    this.device = device;
    this.#pool = new ObjectPool(capacity, () => new DmaRequest(this));
  }

  /** Number of requests that are not free. */
  get inUse(): number {
    return this.#pool.inUse;
  }

  /** Takes a request; undefined if all are in use. */
  get(): DmaRequest | undefined {
    return this.#pool.get();
  }

  /** Returns a request to the pool and drops its references. */
  free(request: DmaRequest): void {
    request.live = false;
    request.target = undefined;
    request.onComplete = undefined;
    request.context = undefined;
    this.#pool.put(request);
  }
}

/** Counters of a queue, with their names in statistics. */
export interface DmaCounts {
  /** Number of successful transfers. */
  readonly operations: number;
  /** Bytes that were transferred. */
  readonly bytes: number;
  /** Number of failed transfers. */
  readonly errors: number;
  /** Command submissions. */
  readonly submissions: number;
  /** Number of unfinished command submissions: a level, not a total. */
  readonly in_flight: number;
}

/** Owner and size of an activity record. */
export interface DmaActivityOptions {
  readonly device: { readonly name: string; readonly clock: Clock };
  readonly queueIndex: number;
  /** Maximum number of batches in flight of the queue. */
  readonly slots: number;
}

const OPERATIONS = 0;
const BYTES = 1;
const ERRORS = 2;
const SUBMISSIONS = 3;

/** The activity of a queue. */
export class DmaActivity {
  /** An array, so that counting never allocates heap numbers. */
  readonly #counts: Float64Array = new Float64Array(4);
  /** Submission time of the batch in each slot; -1 without observers. */
  readonly #submittedNs: Float64Array;
  readonly #card: string;
  readonly #queue: number;
  readonly #clock: Clock;

  constructor({ device, queueIndex, slots }: DmaActivityOptions) {
    this.#card = device.name;
    this.#queue = queueIndex;
    this.#clock = device.clock;
    this.#submittedNs = new Float64Array(slots).fill(-1);
  }

  /** Records the start of a transfer. */
  started(request: DmaRequest): void {
    request.startNs = transferEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** Records the end of a transfer. */
  ended(request: DmaRequest): void {
    const { status, byteLength, startNs } = request;
    if (status === Status.OK) {
      this.#counts[OPERATIONS]! += 1;
      this.#counts[BYTES]! += byteLength;
    } else {
      this.#counts[ERRORS]! += 1;
    }
    if (startNs < 0) return;
    const endNs = this.#clock.nowNs();
    transferEnd.publish({ card: this.#card, queue: this.#queue, byteLength, status, startNs, endNs });
  }

  /** Records the submission of the batch in a slot. */
  submitted(slot: number): void {
    this.#counts[SUBMISSIONS]! += 1;
    this.#submittedNs[slot] = commandSubmissionEnd.hasSubscribers ? this.#clock.nowNs() : -1;
  }

  /** Records the completion of the batch in a slot. */
  retired(slot: number, sequence: number): void {
    const startNs = this.#submittedNs[slot]!;
    if (startNs < 0) return;
    const endNs = this.#clock.nowNs();
    commandSubmissionEnd.publish({ card: this.#card, queue: this.#queue, sequence, startNs, endNs });
  }

  /** The counters, together with the given number of submissions in flight. */
  read(inFlight: number): DmaCounts {
    return {
      operations: this.#counts[OPERATIONS]!,
      bytes: this.#counts[BYTES]!,
      errors: this.#counts[ERRORS]!,
      submissions: this.#counts[SUBMISSIONS]!,
      in_flight: inFlight,
    };
  }
}
