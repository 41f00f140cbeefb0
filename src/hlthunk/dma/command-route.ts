/** The route of a card with queues: command buffers, one command submission for each batch, and WAIT_CS. */

import type { DriverFile } from '../../driver/port.ts';
import { CommandRing, type DmaQueueDevice } from './command-ring.ts';
import type { DmaRequest } from './request.ts';
import type { DmaRoute } from './route.ts';
import { type Batches, BatchIoctls, CompletionWait } from './submission.ts';

/** The queue of a route. */
export interface CommandRouteOptions {
  readonly queueIndex: number;
  readonly engineId: number;
  /** Maximum number of batches in flight, a power of two. */
  readonly slots: number;
}

/** The device of such a route. */
export type CommandRouteDevice = Pick<DmaQueueDevice, 'asic' | 'mapHost' | 'createKernelBuffer'> & {
  readonly file: DriverFile;
};

export class CommandRoute implements DmaRoute {
  readonly number: number;
  readonly engineId: number;
  readonly slots: number;
  readonly data: Uint8Array;
  readonly #ring: CommandRing;
  readonly #ioctls: BatchIoctls;
  readonly #wait: CompletionWait;
  #onWatched: (result: number) => void = () => {};
  /** The area of the batch in preparation, its first word, and its next one. */
  #area = 0;
  #first = 0;
  #word = 0;

  constructor(device: CommandRouteDevice, { queueIndex, engineId, slots }: CommandRouteOptions) {
    this.number = queueIndex;
    this.engineId = engineId;
    this.slots = slots;
    this.#ring = new CommandRing(device, slots);
    this.#ioctls = new BatchIoctls(device.file, this.#ring, queueIndex);
    this.#wait = new CompletionWait(device.file, (result) => this.#onWatched(result));
    this.data = this.#ring.data;
  }

  get completed(): number {
    return this.#ring.completed;
  }

  dataOffset(slot: number): number {
    return this.#ring.dataOffset(slot);
  }

  dataLow(offset: number): number {
    return this.#ring.dataLow(offset);
  }

  dataHigh(offset: number): number {
    return this.#ring.dataHigh(offset);
  }

  begin({ nextSlot, retired }: Batches, waiting: number): number {
    const ring = this.#ring;
    this.#area = ring.areaFor(nextSlot, waiting, retired);
    this.#first = ring.packetWord(this.#area);
    this.#word = this.#first;
    return ring.transfersMax(this.#area);
  }

  add(request: DmaRequest, from: number, bytes: number): void {
    this.#word = this.#ring.writeTransfer(this.#word, request, from, bytes);
  }

  submit(slot: number, batch: number): number {
    this.#word = this.#ring.writeCompletion(this.#word, batch);
    const result = this.#ioctls.submit(slot, this.#area, (this.#word - this.#first) * 4);
    if (result === 0) this.#ring.useArea(this.#area, batch);
    return result;
  }

  seqOf(slot: number): number {
    return this.#ioctls.seqOf(slot);
  }

  poll(slot: number): number {
    return this.#ioctls.poll(this.#ioctls.seqOf(slot));
  }

  watch(slot: number, timeoutNs: number): void {
    this.#wait.start(this.#ioctls.seqOf(slot), timeoutNs);
  }

  listen(onWatched: (result: number) => void): void {
    this.#onWatched = onWatched;
  }

  /** The driver reports the end of submissions on a stopped engine. */
  isStoppedBy(): boolean {
    return false;
  }

  lose(): void {
    // The driver ends them.
  }

  disconnect(): void {
    // The driver does not count mapped command buffers of the user as use of the card.
  }

  close(): void {
    this.#ring.close();
    this.#wait.close();
    this.#ioctls.close();
  }
}
