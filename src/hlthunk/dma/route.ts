/**
 * The route of a DMA queue to the engines of a card: writes and submits batches of transfers, reads their completion, and waits for it. A route uses command
 * submissions, or a channel that the process maps; the queue, with its requests and batches, is the same for both.
 */

import type { DmaRequest } from './request.ts';

/** A route. Batches count modulo 2^32; batch n is in slot n - 1 modulo the number of slots. */
export interface DmaRoute {
  /** Queue id, or channel number. */
  readonly number: number;
  /** The engine, with its id in fault records. */
  readonly engineId: number;
  /** Maximum number of batches in flight, a power of two. */
  readonly slots: number;
  /** The data area for short transfers as bytes; slot n starts at `dataOffset(n)`. */
  readonly data: Uint8Array;
  dataOffset(slot: number): number;
  /** Device address of a byte of the data area. */
  dataLow(offset: number): number;
  dataHigh(offset: number): number;
  /** Number of the last batch that the card has completed, modulo 2^32: a read of host memory. */
  readonly completed: number;
  /**
   * Begins the next batch.
   * @param batches before it
   * @param waiting number of transfers that could be in it
   * @returns the maximum number of its transfers; 0 if it must wait until a batch in flight is complete
   */
  begin(
    batches: { readonly nextSlot: number; readonly inFlight: number; readonly retired: number },
    waiting: number,
  ): number;
  /** Adds `bytes` bytes of a transfer, from byte `from` of it on. */
  add(request: DmaRequest, from: number, bytes: number): void;
  /**
   * Submits the batch.
   * @param batch its number
   * @returns 0 or a negative errno
   */
  submit(slot: number, batch: number): number;
  /** The driver's number of the last batch in a slot, or the count of batches where the driver has none. */
  seqOf(slot: number): number;
  /** Checks, without waiting, whether the batch in a slot, which is in flight, has failed: 0 or a negative errno. */
  poll(slot: number): number;
  /** Calls the listener once the batch in a slot is complete, at the latest after `timeoutNs`. Has no effect during an earlier watch. */
  watch(slot: number, timeoutNs: number): void;
  /** Sets the function that receives 0 or a negative errno at the end of a watch. */
  listen(onWatched: (result: number) => void): void;
  /** Whether a reported fault has stopped the engine, so that no batch in flight will complete. */
  isStoppedBy(engineIds: readonly number[]): boolean;
  /** Called when the driver will reset the card: batches that make no progress end soon. */
  lose(): void;
  /** Releases what the driver counts as use of the card. No further batches; those in flight are lost. */
  disconnect(): void;
  /** Releases the memory. The card must no longer access it. */
  close(): void;
}
