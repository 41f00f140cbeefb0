/**
 * The compute context that an open primary node owns (struct hl_ctx): its address spaces, buffers, device memory and submissions.
 * One per card at most. Closing it releases everything, in the order of the driver.
 */

import type { GaudiDevice } from '../device/gaudi-device.ts';
import { BufferTable } from './buffer-table.ts';
import type { Card } from './card.ts';
import { ChunkList } from './chunk-list.ts';
import { CsCounters } from './cs-counters.ts';
import { DeviceMemoryTable } from './device-memory-table.ts';
import { HostMappings } from './host-mappings.ts';
import { SubmissionTable } from './submission.ts';
import { SyncStream } from './sync-stream.ts';
import { UserInterrupts } from './user-interrupts.ts';
import { UserMemory } from './user-memory.ts';

/** Address space id of the one compute context. */
export const COMPUTE_ASID = 1;

/** A compute context. */
export class Context {
  readonly card: Card;
  readonly device: GaudiDevice;
  readonly asid: number = COMPUTE_ASID;
  readonly userMemory: UserMemory = new UserMemory();
  /** Command buffers and timestamp buffers, with their mmap cookies. */
  readonly buffers: BufferTable;
  /** Pinned host memory in the card's address space. */
  readonly hostMappings: HostMappings;
  /** HBM allocations, their mappings and exports. */
  readonly deviceMemory: DeviceMemoryTable;
  readonly submissions: SubmissionTable;
  readonly syncStream: SyncStream;
  readonly interrupts: UserInterrupts;
  /** The chunks of the submission at hand. */
  readonly chunks: ChunkList = new ChunkList();
  readonly counters: CsCounters = new CsCounters();
  #closed = false;

  constructor(card: Card) {
    this.card = card;
    this.device = card.device;
    this.buffers = new BufferTable(card);
    this.hostMappings = new HostMappings(card.device);
    this.deviceMemory = new DeviceMemoryTable(card);
    this.submissions = new SubmissionTable(Math.max(1, card.profile.maxPendingCs));
    this.syncStream = new SyncStream(this);
    this.interrupts = new UserInterrupts(this);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Something outside still holds the context: a live dma-buf, a buffer that is still mapped, a submission that is not done. */
  get stillInUse(): boolean {
    return this.deviceMemory.hasLiveExports || this.buffers.hasMappedBuffers || this.submissions.pendingCount > 0;
  }

  /** Releases everything the context holds. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.interrupts.close();
    this.submissions.abort(undefined);
    this.submissions.close();
    this.hostMappings.close();
    this.deviceMemory.close();
    this.buffers.close();
    this.userMemory.close();
  }
}
