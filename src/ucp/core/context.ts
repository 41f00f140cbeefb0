/**
 * A context: the opened memory domains of a program, its configuration, and the memory mapped with them. Workers communicate, contexts own.
 */

import { ClosableContext } from '../../api/awaited/context.ts';
import type { Context as ApiContext, ContextAttributes } from '../../api/contract/context.ts';
import type { Engine } from '../../api/contract/explanation.ts';
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
import { MemoryCopier } from '../../api/memory/copier.ts';
import type { SignalFd } from '../../api/progress/worker-event.ts';
import { cacheSummary, cardSummary, dmabufSummary, memorySummary } from '../../api/snapshot/summary.ts';
import type { Config } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { hasMemoryType, MemoryType, withMemoryType } from '../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { inJson } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import type { HostDmabufs } from '../../uct/api/host-dmabufs.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type {
  Component,
  DmabufExport,
  HostRange,
  LostDevice,
  MemoryAdvice,
  MemoryDomain,
  RegistrationCache,
} from '../../uct/api/memory-domain.ts';
import type { Connection } from '../base/connection.ts';
import type { UnpackOptions } from '../base/protocol-host.ts';
import type { DistanceOf } from '../lane/lanes.ts';
import { type RailLimits, railsOfConfig, schemeOf, type Thresholds, thresholdsOf } from '../lane/rails.ts';
import {
  type ExportedMemory,
  MEMORY_KEY_NAME,
  type MemoryHandle,
  type OperationRegistrar,
} from '../mem/memory-handle.ts';
import { MemoryMap } from '../mem/memory-map.ts';
import { MemoryTypes } from '../mem/memory-types.ts';
import type { MessageKey } from '../mem/message-keys.ts';
import { RemoteKey, unpackRkey } from '../mem/remote-key.ts';
import type { ProtocolInfoMode } from '../proto/protocol-info.ts';
import { type RendezvousScheme, UCP_CONFIG_TABLE } from '../resources/config.ts';
import { type OpenMd, Resources } from '../resources/resources.ts';
import { contextInfo } from './print-info.ts';
import { Worker, type WorkerContext } from './worker.ts';

/** The parts of a context. */
export interface ContextParams<Device> {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** The engine, as the context reports it. */
  readonly engine: Engine;
  /** True when the Gaudi cards are emulated: every figure obtained with them must say so. */
  readonly emulated: boolean;
  /** The node of the cards, as the context reports it. */
  readonly cardNode: CardNode;
  /** Makes an eventfd, for workers. */
  readonly newSignal: () => SignalFd;
  /** Returns foreign host memory by its address. Throws UcxError for a range that is not mapped. */
  readonly hostRange: (address: number | bigint, byteLength: number) => HostRange;
  /** Host memory that is a dma-buf, or can be exported as one; closed with the context. */
  readonly hostDmabufs: HostDmabufs;
  /** How far cards are from network devices: see {@link DistanceOf}. */
  readonly distanceOf: DistanceOf;
  /** The open card with this index. Throws UcxError where there is none. */
  readonly deviceOf: (index: number) => Device;
  /** Runs when the workers are closed and the memory domains are still open: the last chance to read the statistics. */
  readonly onClosing?: () => void;
  /** Runs when the context is closed, after everything else: releases what the composition root opened for it. */
  readonly onClose: () => void;
}

/** A context. */
export class Context<Device = unknown> extends ClosableContext<Worker> implements ApiContext<Device>, WorkerContext {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly engine: Engine;
  readonly emulated: boolean;
  readonly resources: Resources;
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  readonly keepaliveNs: number;
  readonly thresholds: Thresholds;
  readonly distanceOf: DistanceOf;
  readonly scheme: RendezvousScheme;
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  readonly rails: RailLimits;
  readonly rmaRails: RailLimits;
  readonly unexpectedBytesMax: number;
  readonly protocolInfoMode: ProtocolInfoMode;
  /** Addresses of workers have their names. */
  readonly tellsNames: boolean;
  /** Copies the memory of this context, for its handles. */
  readonly copier: MemoryCopier = new MemoryCopier(this);
  readonly #newSignal: () => SignalFd;
  readonly #memoryTypes: MemoryTypes;
  readonly #memory: MemoryMap;
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
    super();
    this.config = params.config;
    this.log = params.log;
    this.clock = params.clock;
    this.engine = params.engine;
    this.emulated = params.emulated;
    this.#cardNode = params.cardNode;
    const config = params.config.get(UCP_CONFIG_TABLE);
    this.progressSpinNs = config.PROGRESS_SPIN;
    this.requestsMax = config.REQUESTS_MAX;
    this.tellsNames = config.ADDRESS_DEBUG_INFO;
    this.keepaliveNs = config.KEEPALIVE_INTERVAL;
    this.thresholds = thresholdsOf(config);
    this.distanceOf = params.distanceOf;
    this.scheme = schemeOf(config);
    this.fragmentBytes = config.RNDV_FRAG_SIZE;
    this.fragmentCount = config.RNDV_FRAG_ALLOC_COUNT;
    const rails = railsOfConfig(config);
    this.rails = rails.rendezvous;
    this.rmaRails = rails.rma;
    this.unexpectedBytesMax = config.UNEXP_MAX_BYTES;
    this.protocolInfoMode = config.PROTO_INFO;
    this.#newSignal = params.newSignal;
    const { hostRange, hostDmabufs } = params;
    this.#hostDmabufs = hostDmabufs;
    this.#memoryTypes = new MemoryTypes(config.MEMTYPE_CACHE !== 'no', () => this.mds.map(({ md }) => md), hostDmabufs);
    const onDeviceLost = (device: LostDevice): void => this.#memory.loseDevice(device);
    this.resources = new Resources({ ...params, memoryTypes: this.#memoryTypes.cache, onDeviceLost });
    this.#memory = new MemoryMap({
      owner: this,
      resources: this.resources,
      types: this.#memoryTypes,
      clock: params.clock,
      log: params.log,
      keepsRegistrations: config.RCACHE_ENABLE !== 'no',
      hostRange,
      hostDmabufs,
    });
    this.#deviceOf = params.deviceOf;
    this.#onClosing = params.onClosing ?? (() => {});
    this.#onClose = params.onClose;
  }

  get mds(): readonly OpenMd[] {
    return this.resources.mds;
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

  /** The memory of this context that peers may ask for; for protocols. */
  get exported(): ExportedMemory {
    return this.#memory.exported;
  }

  /** Registrars of host buffers that are not mapped, by the index of the memory domain; for protocols. */
  get registrars(): readonly OperationRegistrar[] {
    return this.#memory.registrars;
  }

  get registrationCaches(): readonly RegistrationCache[] {
    return this.mds.flatMap(({ md }) => md.caches ?? []);
  }

  memMap(params: MemMapParams): MemoryHandle {
    this.checkOpen();
    return this.#memory.map(checkMapParams(params));
  }

  /** The mapped memory that contains host bytes; for protocols. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined {
    return this.#memory.handleOf(bytes);
  }

  /** Whether peers may have a key of the ArrayBuffer of host bytes; for protocols. */
  permits(bytes: Uint8Array, access: number): boolean {
    return this.#memory.permits(bytes, access);
  }

  memUnmap(handle: MemoryHandle): void {
    this.#memory.unmap(handle);
  }

  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions = {}): void {
    this.#memory.advise(handle, advice, options);
  }

  memQuery(memory: AddressedMemory): MemoryInfo {
    return inJson(this.#memoryTypes.query(memory));
  }

  exportDmabuf(memory: AddressedMemory): DmabufExport {
    this.checkOpen();
    return this.#memoryTypes.exportDmabuf(memory);
  }

  memoryUnmapped(address: number | bigint, byteLength: number): void {
    this.#memory.unmapped(address, byteLength);
  }

  memoryTypeEvent(event: MemoryTypeEvent): void {
    this.#memoryTypes.take(withMemoryType(event));
  }

  packRkey(handle: MemoryHandle): Uint8Array {
    return this.#memory.packRkey(handle);
  }

  /** The kept key itself, not to be changed; for protocols. */
  packedRkeyOf(handle: MemoryHandle): Uint8Array {
    return this.#memory.packedRkeyOf(handle);
  }

  /** See MemoryMap.makeMessageKey; for protocols. */
  makeMessageKey(handle: MemoryHandle): MessageKey {
    return this.#memory.makeMessageKey(handle);
  }

  /** A key for endpoints to workers of this context; for protocols. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    return this.#memory.packOwnRkey(handle);
  }

  /** Unpacks a remote key for the lanes of a connection; for endpoints. */
  unpackRkey(packed: Uint8Array, connection: Connection, options: UnpackOptions = {}): RemoteKey {
    this.checkOpen();
    const fields = unpackRkey(packed);
    const used = new Set(connection.lanes.map(({ md }) => md.index));
    const parts: (UctRemoteKey | undefined)[] = [];
    try {
      for (const { md, index } of this.resources.mds) {
        const part = used.has(index) ? fields.parts.find(({ name }) => name === md.attributes.name) : undefined;
        parts.push(part === undefined ? undefined : unpackPart(md, part.key));
      }
    } catch (error) {
      for (const part of parts) part?.release();
      throw error;
    }
    const memoryKey =
      options.messages === false ? undefined : fields.parts.find(({ name }) => name === MEMORY_KEY_NAME)?.key;
    return new RemoteKey(connection, fields, parts, memoryKey);
  }

  /** Allocates host memory that every transport reaches; for staging. */
  allocateHost(byteLength: number): MemoryHandle {
    return this.memMap({ allocate: byteLength });
  }

  newSignal(): SignalFd {
    return this.#newSignal();
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
      memory: memorySummary(this.#memory.mapped),
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
    this.#memory.close();
    // The memory domains end operations in flight, then free and deregister all memory themselves.
    this.resources.close();
    this.#hostDmabufs.close();
    this.#onClose();
  }
}

/** One part of a remote key; undefined for memory that its memory domain cannot reach from here. */
function unpackPart(md: MemoryDomain, key: Uint8Array): UctRemoteKey | undefined {
  try {
    return md.rkeyUnpack(key);
  } catch (error) {
    if (isUcxError(error) && error.status === Status.UNREACHABLE) return undefined;
    throw error;
  }
}
