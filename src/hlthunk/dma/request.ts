/**
 * One asynchronous DMA transfer: what it moves, how far it is, how it ended. State only; dma-queue.ts drives it.
 */

import { throwLater } from '../../ucs/debug/uncaught.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmaMemory } from '../memory/dma-memory.ts';

/** Called when a request has ended; runs inside `progress()`. */
export type DmaCallback = (request: DmaRequest) => void;

/** Takes requests back. */
export interface DmaRequestOwner {
  /** Whose queue it is: tells requests of different cards apart. */
  readonly device: object;
  free(request: DmaRequest): void;
}

/** A transfer. Requests are pooled: after `dmaRequestFree` the object belongs to another transfer. */
export class DmaRequest {
  /** INPROGRESS, OK, or the failure. Final once it is not INPROGRESS. */
  status: Status = Status.OK;
  /** How it will end unless something worse happens: IO_ERROR once a fault of the card may have spoiled it. */
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
  /** Bytes that are in submitted or prepared packets. */
  issued = 0;
  /** Number of the batch that carries the last packet, modulo 2^32. */
  batch = 0;
  /** When it was started; -1 without observers. */
  startNs = -1;
  /** Destination of a short get: its bytes wait in the data area of a slot. */
  target: Uint8Array | undefined = undefined;
  /** First byte of `target` that the transfer writes. */
  targetOffset = 0;
  /** Byte in the data area of the ring where a short transfer has its bytes. */
  dataOffset = 0;
  /** For the owner: runs at the end, and what it belongs to. */
  onComplete: DmaCallback | undefined = undefined;
  /** What the owner needs in `onComplete`. */
  context: unknown = undefined;
  /** False while the request lies in its pool. */
  live = false;
  /** The two sides that are held until the end; undefined where the request holds none. */
  firstMemory: DmaMemory | undefined = undefined;
  /** See `firstMemory`. */
  secondMemory: DmaMemory | undefined = undefined;
  readonly #owner: DmaRequestOwner;

  constructor(owner: DmaRequestOwner) {
    this.#owner = owner;
  }

  /** Whether a value is a request, and nothing that only looks like one: pools take back what is freed. */
  static isGenuine(value: unknown): value is DmaRequest {
    return typeof value === 'object' && value !== null && #owner in value;
  }

  /** Whose request it is. */
  get owner(): DmaRequestOwner {
    return this.#owner;
  }

  /** Makes the request a new transfer. */
  begin(
    sourceLow: number,
    sourceHigh: number,
    destinationLow: number,
    destinationHigh: number,
    byteLength: number,
  ): void {
    this.status = Status.INPROGRESS;
    this.outcome = Status.OK;
    this.sourceLow = sourceLow;
    this.sourceHigh = sourceHigh;
    this.destinationLow = destinationLow;
    this.destinationHigh = destinationHigh;
    this.byteLength = byteLength;
    this.issued = 0;
    this.batch = 0;
    this.target = undefined;
    this.targetOffset = 0;
    this.dataOffset = 0;
    this.onComplete = undefined;
    this.context = undefined;
    this.live = true;
  }

  /** Keeps the memory of a transfer that is in flight: neither side can be given back before the end. */
  hold(first: DmaMemory, second: DmaMemory | undefined): void {
    if (this.status !== Status.INPROGRESS) return;
    first.retain();
    this.firstMemory = first;
    if (second === undefined) return;
    second.retain();
    this.secondMemory = second;
  }

  /** Lets the memory go. */
  releaseMemory(): void {
    if (this.firstMemory !== undefined) this.firstMemory.release();
    if (this.secondMemory !== undefined) this.secondMemory.release();
    this.firstMemory = undefined;
    this.secondMemory = undefined;
  }

  /** Calls the owner of an ended request. An error that it throws becomes an uncaught exception, so that other requests end too. */
  tell(onComplete: DmaCallback): void {
    try {
      onComplete(this);
    } catch (error) {
      throwLater(error);
    }
  }
}
