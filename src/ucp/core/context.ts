/** A context of the native engine, as a program sees it: memory mapping, queries, workers, snapshots and closing. */

import type { Context as ApiContext, ContextAttributes } from '../../api/contract/context.ts';
import type {
  AddressedMemory,
  AdviseOptions,
  MemMapParams,
  MemoryInfo,
  MemoryTypeEvent,
} from '../../api/contract/memory.ts';
import { checkMapParams } from '../../api/contract/request.ts';
import type { CardNode, ContextSnapshot } from '../../api/contract/snapshot.ts';
import type { WorkerOptions } from '../../api/contract/worker.ts';
import { cacheSummary, cardSummary, dmabufSummary, memorySummary } from '../../api/snapshot/summary.ts';
import { hasMemoryType, MemoryType, withMemoryType } from '../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { inJson } from '../../ucs/type/inspect.ts';
import type { HostDmabufs } from '../../uct/api/host-dmabufs.ts';
import type { DmabufExport, MemoryAdvice, RegistrationCache } from '../../uct/api/memory-domain.ts';
import { ContextCore, type CoreParams } from '../base/context-core.ts';
import type { MemoryHandle } from '../mem/memory-handle.ts';
import { contextInfo } from './print-info.ts';
import { Worker } from './worker.ts';

export interface ContextParams<Device> extends CoreParams {
  /** True if the Gaudi cards are emulated: every measurement obtained with them must say so. */
  readonly emulated: boolean;
  /** The node of the cards, as reported by the context. */
  readonly cardNode: CardNode;
  /** The open card with this index. Throws UcxError if there is none. */
  readonly deviceOf: (index: number) => Device;
  /** Called when the workers are closed and the memory domains are still open: the last chance to read statistics. */
  readonly onClosing?: () => void;
  /** Called last, when the context is closed: releases what the composition root opened for it. */
  readonly onClose: () => void;
}

/** A context. */
export class Context<Device = unknown> extends ContextCore<Worker> implements ApiContext<Device> {
  readonly emulated: boolean;
  readonly #hostDmabufs: HostDmabufs;
  readonly #deviceOf: (index: number) => Device;
  readonly #cardNode: CardNode;
  readonly #onClosing: () => void;
  readonly #onClose: () => void;

  /**
   * Opens all memory domains that UCX_TLS allows.
   * @throws UcxError: see Resources
   */
  constructor(params: ContextParams<Device>) {
    super(params);
    this.emulated = params.emulated;
    this.#cardNode = params.cardNode;
    this.#hostDmabufs = params.hostDmabufs;
    this.#deviceOf = params.deviceOf;
    this.#onClosing = params.onClosing ?? (() => {});
    this.#onClose = params.onClose;
  }

  device(index: number): Device {
    this.checkOpen();
    return this.#deviceOf(index);
  }

  query(): ContextAttributes {
    const canAllocate = (type: MemoryType): boolean =>
      this.mds.some(({ md }) => hasMemoryType(md.attributes.allocateMemoryTypes, type));
    return {
      memoryTypes: Object.values(MemoryType).filter(canAllocate),
      unavailable: this.resources.rejections,
      node: this.#cardNode,
    };
  }

  protected override newWorker(options: WorkerOptions): Worker {
    return new Worker(this, options);
  }

  get registrationCaches(): readonly RegistrationCache[] {
    return this.mds.flatMap(({ md }) => md.caches ?? []);
  }

  memMap(params: MemMapParams): MemoryHandle {
    this.checkOpen();
    return this.memory.map(checkMapParams(params));
  }

  memUnmap(handle: MemoryHandle): void {
    this.memory.unmap(handle);
  }

  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions = {}): void {
    this.memory.advise(handle, advice, options);
  }

  memQuery(memory: AddressedMemory): MemoryInfo {
    return inJson(this.memoryTypes.query(memory));
  }

  exportDmabuf(memory: AddressedMemory): DmabufExport {
    this.checkOpen();
    return this.memoryTypes.exportDmabuf(memory);
  }

  memoryUnmapped(address: number | bigint, byteLength: number): void {
    this.memory.unmapped(address, byteLength);
  }

  memoryTypeEvent(event: MemoryTypeEvent): void {
    this.memoryTypes.take(withMemoryType(event));
  }

  packRkey(handle: MemoryHandle): Uint8Array {
    return this.memory.packRkey(handle);
  }

  stats(): StatsNode {
    const mds = this.resources.mds.map(({ md }) => md.stats());
    return statsNode('ucp_context', '', {}, [...mds, this.#hostDmabufs.stats(), ...this.workerStats()]);
  }

  printInfo(): string {
    this.checkOpen();
    return contextInfo(this.engine, this.mds);
  }

  snapshot(): ContextSnapshot {
    const stats = this.stats();
    const { engine, emulated, mds } = this;
    return {
      engine,
      emulated,
      node: this.#cardNode,
      resources: mds.flatMap(({ resources }) => resources.map(({ transport, device }) => `${transport}/${device}`)),
      unavailable: this.resources.rejections.map(({ name, reason }) => ({ name, reason })),
      cards: cardSummary(stats, mds),
      memory: memorySummary(this.memory.mapped),
      dmabufs: dmabufSummary(stats),
      channels: mds.flatMap(({ md }) => (md.channels ?? []).map((each) => ({ ...each }))),
      caches: cacheSummary(this.registrationCaches),
      workers: [...this.workers].map((worker) => worker.snapshot()),
      stats,
    };
  }

  protected override async shutDown(): Promise<void> {
    for (const { md } of this.mds) await md.drain?.();
    this.isClosed = true;
    this.#onClosing();
    this.memory.close();
    // The memory domains end operations in flight, then free and deregister all memory.
    this.resources.close();
    this.#hostDmabufs.close();
    this.#onClose();
  }
}
