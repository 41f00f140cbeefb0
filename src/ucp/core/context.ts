/**
 * A context: the opened memory domains of a program, its configuration, and the memory mapped with them. Workers communicate, contexts own.
 */

import type { Clock } from '../../ucs/clock.ts';
import type { Config } from '../../ucs/config.ts';
import { closedError, isUcxError } from '../../ucs/error.ts';
import type { Log } from '../../ucs/log.ts';
import { mergeStats, type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { Status } from '../../ucs/status.ts';
import type { RemoteKey as UctRemoteKey } from '../../uct/api/memory.ts';
import type {
  Component,
  DmabufExport,
  HostRange,
  MemoryAdvice,
  MemoryDomain,
  RegistrationCache,
} from '../../uct/api/memory-domain.ts';
import { type ExportedMemory, MEMORY_KEY_NAME } from '../mem/exported-memory.ts';
import type { MemMapParams, MemoryHandle } from '../mem/memory-handle.ts';
import { type AdviseOptions, MemoryMap, type OperationRegistrar } from '../mem/memory-map.ts';
import { type AddressedMemory, type MemoryInfo, type MemoryTypeEvent, MemoryTypes } from '../mem/memory-types.ts';
import { RemoteKey } from '../mem/remote-key.ts';
import { unpackRkey } from '../mem/rkey-bytes.ts';
import type { RailLimits } from '../rndv/rails.ts';
import { UCP_CONFIG_TABLE } from './config.ts';
import type { UnpackOptions } from './protocol-host.ts';
import type { ProtocolInfoMode } from './protocol-info.ts';
import type { Connection } from './request.ts';
import { type OpenMd, Resources } from './resources.ts';
import { Worker } from './worker.ts';
import type { WorkerContext, WorkerOptions } from './worker-context.ts';
import type { SignalFd } from './worker-event.ts';

/** What a context is made of. */
export interface ContextParams {
  readonly components: readonly Component[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** True when the Gaudi cards are emulated: every figure obtained with them must say so. */
  readonly emulated: boolean;
  /** Makes an eventfd, for workers. */
  readonly newSignal: () => SignalFd;
  /** Names host memory of others by its address. Throws UcxError for a range that is not mapped. */
  readonly hostRange: (address: number | bigint, byteLength: number) => HostRange;
  /** Runs when the workers are closed and the memory domains are still open: the last look at the statistics. */
  readonly onClosing?: () => void;
  /** Runs when the context is closed, after everything else: releases what the composition root opened for it. */
  readonly onClose: () => void;
}

/** A context. */
export class Context implements WorkerContext<Worker> {
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly emulated: boolean;
  readonly resources: Resources;
  readonly progressSpinNs: number;
  readonly keepaliveNs: number;
  readonly rendezvousThreshold: number;
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  readonly rails: RailLimits;
  readonly protocolInfoMode: ProtocolInfoMode;
  readonly #newSignal: () => SignalFd;
  readonly #memoryTypes: MemoryTypes;
  readonly #memory: MemoryMap;
  readonly #workers: Set<Worker> = new Set();
  /** What workers that are closed have done. */
  #closedWorkers: StatsNode | undefined = undefined;
  readonly #onClosing: () => void;
  readonly #onClose: () => void;
  #closed = false;
  #closing: Promise<void> | undefined;

  /**
   * Opens all memory domains that UCX_TLS allows.
   * @throws UcxError: see Resources
   */
  constructor(params: ContextParams) {
    this.config = params.config;
    this.log = params.log;
    this.clock = params.clock;
    this.emulated = params.emulated;
    const config = params.config.get(UCP_CONFIG_TABLE);
    this.progressSpinNs = config.PROGRESS_SPIN;
    this.keepaliveNs = config.KEEPALIVE_INTERVAL;
    this.rendezvousThreshold = config.RNDV_THRESH === 'auto' ? Number.POSITIVE_INFINITY : config.RNDV_THRESH;
    this.fragmentBytes = config.RNDV_FRAG_SIZE;
    this.fragmentCount = config.RNDV_FRAG_ALLOC_COUNT;
    this.rails = {
      railsMax: config.MAX_RNDV_RAILS,
      chunkBytesMin: config.MIN_RNDV_CHUNK_SIZE,
      bandwidthRatioMax: config.MULTI_LANE_MAX_RATIO,
    };
    this.protocolInfoMode = config.PROTO_INFO;
    this.#newSignal = params.newSignal;
    this.#memoryTypes = new MemoryTypes(config.MEMTYPE_CACHE !== 'no', () => this.mds.map(({ md }) => md));
    this.resources = new Resources({ ...params, memoryTypes: this.#memoryTypes.cache });
    this.#memory = new MemoryMap({
      owner: this,
      resources: this.resources,
      types: this.#memoryTypes,
      clock: params.clock,
      log: params.log,
      keepsRegistrations: config.RCACHE_ENABLE !== 'no',
      hostRange: params.hostRange,
    });
    this.#onClosing = params.onClosing ?? (() => {});
    this.#onClose = params.onClose;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get mds(): readonly OpenMd[] {
    return this.resources.mds;
  }

  /** Makes a worker. @throws UcxError ERR_INVALID_PARAM */
  worker(options: WorkerOptions = {}): Worker {
    this.#checkOpen();
    const worker = new Worker(this, options);
    this.#workers.add(worker);
    return worker;
  }

  /** The memory of this context that peers may ask for; for protocols. */
  get exported(): ExportedMemory {
    return this.#memory.exported;
  }

  /** What registers host buffers that are not mapped, by the index of the memory domain; for protocols. */
  get registrars(): readonly OperationRegistrar[] {
    return this.#memory.registrars;
  }

  /** The caches of registrations, with their counters: plain numbers that change. */
  get registrationCaches(): readonly RegistrationCache[] {
    return this.mds.flatMap(({ md }) => md.caches ?? []);
  }

  /**
   * Allocates memory, or registers a host buffer or memory of another library by its address (ucp_mem_map). Whoever owns memory that is
   * mapped by its address calls {@link memoryUnmapped} before it goes.
   * @throws UcxError ERR_INVALID_PARAM that names the argument and its rule; ERR_INVALID_ADDR for addresses that are not mapped in this
   *   process; NO_MEMORY; ERR_UNSUPPORTED with the reason when no transport serves the memory type
   */
  memMap(params: MemMapParams): MemoryHandle {
    this.#checkOpen();
    return this.#memory.map(params);
  }

  /** The mapped memory that host bytes are of; for protocols. */
  handleOf(bytes: Uint8Array): MemoryHandle | undefined {
    return this.#memory.handleOf(bytes);
  }

  /**
   * Unmaps memory, and frees it if memMap allocated it (ucp_mem_unmap). Its remote keys stop working.
   * @throws UcxError BUSY while transfers use it, ERR_INVALID_PARAM for a handle that is unmapped or of another context
   */
  memUnmap(handle: MemoryHandle): void {
    this.#memory.unmap(handle);
  }

  /**
   * Says how mapped memory is going to be used (ucp_mem_advise). `will-need` backs the pages of host memory and maps them into all cards, so that
   * the next transfer has nothing to prepare; HBM is mapped when it is allocated, and needs nothing. `normal` changes nothing: what was
   * prepared stays while the memory is mapped.
   * @throws UcxError ERR_INVALID_PARAM for a handle that is unmapped, another advice or a range outside the memory; what mapping throws
   */
  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions = {}): void {
    this.#memory.advise(handle, advice, options);
  }

  /**
   * What kind of memory lies at an address, and in which allocation (ucp_mem_query for memory that is not mapped).
   * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that lies in one allocation in part only, or in several
   */
  memQuery(memory: AddressedMemory): MemoryInfo {
    return this.#memoryTypes.query(memory);
  }

  /**
   * A dma-buf of device memory, for a driver or a library that imports such: the memory domain that knows the memory exports it.
   * @returns a descriptor that belongs to the caller, who closes it, and the byte of the dma-buf at which the memory begins
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR like {@link memQuery}; ERR_UNSUPPORTED with the reason, as for host memory
   */
  exportDmabuf(memory: AddressedMemory): DmabufExport {
    this.#checkOpen();
    return this.#memoryTypes.exportDmabuf(memory);
  }

  /**
   * Takes the report that host memory of others was unmapped, or is about to be: no registration of it is used again, and handles of it are
   * unmapped, their remote keys included. May be called from inside any callback: drivers are told later, when no transfer uses the
   * memory any more.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryUnmapped(address: number | bigint, byteLength: number): void {
    this.#memory.unmapped(address, byteLength);
  }

  /**
   * Takes the report that memory which is not host memory and not of this library was allocated or freed: it feeds {@link memQuery}, by which
   * such memory is told from host memory. Without effect with UCX_MEMTYPE_CACHE=n.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryTypeEvent(event: MemoryTypeEvent): void {
    this.#memoryTypes.take(event);
  }

  /** The remote key of mapped memory: bytes to be sent to a peer (ucp_rkey_pack). */
  packRkey(handle: MemoryHandle): Uint8Array {
    return this.#memory.packRkey(handle);
  }

  /** Unpacks a remote key for the lanes of a connection; for endpoints. */
  unpackRkey(packed: Uint8Array, connection: Connection, options: UnpackOptions = {}): RemoteKey {
    this.#checkOpen();
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

  /** Closes workers, memory and memory domains. Idempotent, never fails. */
  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /** What the memory domains and workers have done since the start, as data: nodes with counters. Cold. */
  stats(): StatsNode {
    const closed = this.#closedWorkers === undefined ? [] : [this.#closedWorkers];
    return statsNode('ucp_context', '', {}, [
      ...this.resources.mds.map(({ md }) => md.stats()),
      ...[...this.#workers].map((worker) => worker.stats()),
      ...closed,
    ]);
  }

  /** Forgets a closed worker, but for what it has done. */
  forget(worker: Worker): void {
    this.#workers.delete(worker);
    const left = { ...worker.stats(), name: 'closed' };
    this.#closedWorkers = this.#closedWorkers === undefined ? left : mergeStats(this.#closedWorkers, left);
  }

  async #close(): Promise<void> {
    for (const worker of this.#workers) await worker.close();
    this.#closed = true;
    this.#onClosing();
    this.#memory.close();
    // The memory domains end what is still on its way, then free and deregister all memory themselves.
    this.resources.close();
    this.#onClose();
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('context');
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
