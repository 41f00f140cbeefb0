/**
 * The compute context of an open primary node (struct hl_ctx): its address spaces, buffers, device memory and submissions. At most one per card. Closing
 * it releases everything, in the order of the driver.
 */

import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { UserMapping } from '../base/error-records.ts';
import type { CardState } from '../card-state.ts';
import { VaSpace } from '../memory/address-blocks.ts';
import { BufferTable, CommandBufferVa, type DriverBuffer } from '../memory/buffer-table.ts';
import { DeviceMemoryTable } from '../memory/device-memory-table.ts';
import { HwBlocks } from '../memory/hw-blocks.ts';
import { DmabufImports, HostMappings } from '../memory/mappings.ts';
import type { MmapFile } from '../memory/mmap-file.ts';
import { UserMemory } from '../memory/user-memory.ts';
import { UserCbRanges } from '../submission/command-buffer-check.ts';
import { ChunkList, type CsCounters, SubmissionTable } from '../submission/submission.ts';
import { SyncStream } from '../submission/sync-stream.ts';
import { UserInterrupts } from '../submission/user-interrupts.ts';

export class Context {
  readonly card: CardState;
  readonly device: GaudiDevice;
  /** Memory of the process that opened the card. */
  readonly userMemory: UserMemory;
  readonly va: VaSpace;
  /** Register blocks that the user may map. */
  readonly blocks: HwBlocks;
  /** Device addresses of command buffers. */
  readonly commandBufferVa: CommandBufferVa;
  /** Command buffers and timestamp buffers, with their mmap cookies. */
  readonly buffers: BufferTable;
  /** Pinned host memory in the card's address space. */
  readonly hostMappings: HostMappings;
  /** HBM allocations, their mappings and exports. */
  readonly deviceMemory: DeviceMemoryTable;
  /** Memory of other contexts, mapped through dma-bufs. */
  readonly imports: DmabufImports;
  /** Address ranges in which user command buffers may be. */
  readonly userCbRanges: UserCbRanges;
  readonly submissions: SubmissionTable;
  readonly counters: CsCounters;
  readonly syncStream: SyncStream;
  readonly interrupts: UserInterrupts;
  /** Enabled trace sinks, see debug.ts. */
  readonly traceSinks: Set<number> = new Set();
  /** The chunks of the current submission. */
  readonly chunks: ChunkList = new ChunkList();
  #closed = false;

  /**
   * @param owner the process that opened the card, see {@link UserMemory.owner}
   * @param mmapFile the file that the kernel maps; undefined if the driver makes mappings
   */
  constructor(card: CardState, owner: number, mmapFile?: MmapFile) {
    this.card = card;
    this.device = card.device;
    this.userMemory = new UserMemory(owner);
    this.va = new VaSpace(card);
    this.blocks = new HwBlocks(card, mmapFile);
    this.commandBufferVa = new CommandBufferVa(this.va.host);
    this.buffers = new BufferTable(this.blocks, (buffer) => this.#unmapBuffer(buffer), mmapFile);
    this.hostMappings = new HostMappings(card, this.va, this.userMemory);
    this.deviceMemory = new DeviceMemoryTable(card, this.va);
    this.imports = new DmabufImports(card, this.va);
    this.userCbRanges = new UserCbRanges(card.profile, card.config.hbmBytes);
    this.submissions = new SubmissionTable(Math.max(1, card.profile.maxPendingCs));
    this.counters = this.submissions.counters;
    this.syncStream = new SyncStream(this);
    this.interrupts = new UserInterrupts(this);
  }

  get closed(): boolean {
    return this.#closed;
  }

  /** Whether the context is in use after the close: by an open dma-buf, a mapped buffer, or an incomplete submission. */
  get stillInUse(): boolean {
    return this.deviceMemory.hasLiveExports || this.buffers.hasMappedBuffers || this.submissions.hasActive;
  }

  /** Whether an open dma-buf, a mapped buffer or a mapped block of registers holds the context (`mapped_resource_cnt` of the vendor's driver). */
  get hasMappedResources(): boolean {
    if (!this.card.profile.capabilities.vendorDriver) return false;
    return this.deviceMemory.hasLiveExports || this.buffers.hasMappedBuffers || this.blocks.hasMappings;
  }

  /**
   * The mappings in the MMU that translates an address: that of device memory, or that of host memory for all other addresses (hl_capture_user_mappings,
   * Linux 6.12).
   */
  mappingsBeside(address: bigint): readonly UserMapping[] {
    const { dram } = this.va;
    const isDevice = (other: bigint): boolean =>
      dram !== undefined && other >= dram.base && other < dram.base + BigInt(dram.byteLength);
    const all = [...this.hostMappings.list(), ...this.deviceMemory.list(), ...this.imports.list()];
    return all.filter((mapping) => isDevice(mapping.address) === isDevice(address));
  }

  /** Removes the device address of a command buffer after its last reference (hl_cb_mmap_mem_release, Linux 6.12). */
  #unmapBuffer(buffer: DriverBuffer): void {
    if (buffer.deviceAddress === 0n) return;
    this.card.waitForEngines();
    this.commandBufferVa.unmap(buffer);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.interrupts.close();
    this.submissions.abort(undefined);
    this.submissions.close();
    this.hostMappings.close();
    this.imports.close();
    this.deviceMemory.close();
    for (const buffer of this.buffers.mappedForDevice()) this.commandBufferVa.unmap(buffer);
    this.buffers.close();
    this.commandBufferVa.close();
    this.blocks.close();
    this.userMemory.close();
  }
}
