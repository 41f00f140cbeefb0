/** A context, what owns memory, configuration and devices, as users see it. Types only. */

import type { Config } from '../../ucs/config/config.ts';
import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import type { DmabufExport, MemoryAdvice, RegistrationCache } from '../../uct/api/memory-domain.ts';
import type { Engine } from './engine.ts';
import type {
  AddressedMemory,
  AdviseOptions,
  MemMapParams,
  MemoryHandle,
  MemoryInfo,
  MemoryTypeEvent,
} from './memory.ts';
import type { Worker, WorkerOptions } from './worker.ts';

/** A part of a context that is not used. */
export interface UnavailableResource {
  readonly name: string;
  readonly reason: string;
}

/** What is known about a context (ucp_context_attr_t). */
export interface ContextAttributes {
  /** Types of memory that it can allocate. */
  readonly memoryTypes: readonly MemoryType[];
  /** Transports, memory domains and devices that are not used, and why. */
  readonly unavailable: readonly UnavailableResource[];
}

/**
 * A context.
 * @typeParam Device an open card of hl-thunk, which is unknown here
 */
export interface Context<Device = unknown> extends AsyncDisposable {
  readonly closed: boolean;
  readonly config: Config;
  readonly engine: Engine;
  /** True when the Gaudi cards are emulated: every figure obtained with them must say so. */
  readonly emulated: boolean;
  /** The caches of registrations, with their counters: plain numbers that change. */
  readonly registrationCaches: readonly RegistrationCache[];

  /** What it can do (ucp_context_query). */
  query(): ContextAttributes;

  /**
   * The open card with this logical index: one that the context opened, or was given. It is the context's to close in the first case; memory of it can
   * be mapped by its address.
   * @throws UcxError ERR_INVALID_PARAM; ERR_GAUDI_DEVICE_NOT_FOUND with the indices that there are; ERR_CLOSED
   */
  device(index: number): Device;

  /** Makes a worker. @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED */
  worker(options?: WorkerOptions): Worker;

  /**
   * Allocates memory, or registers a host buffer, or memory of others by its address or its dma-buf (ucp_mem_map). The owner of host memory that is mapped by
   * its address calls {@link memoryUnmapped} before unmapping it. Device memory of hl-thunk needs no such call: when it is freed, transfers with its
   * registrations fail with INVALID_ADDR. Memory behind a dma-buf stays as long as it is mapped, unless its exporter takes it away: transfers then fail.
   * @throws UcxError ERR_INVALID_PARAM that names the argument and its rule; ERR_INVALID_ADDR for addresses that are not mapped in this
   *   process; NO_MEMORY; ERR_UNSUPPORTED with the reason when no transport serves the memory type, and for dma-bufs where the driver of no card imports them
   *   and over libucp, whose ucp_mem_map takes none; ERR_GAUDI_DEVICE_NOT_FOUND for a dma-buf of a card to which no link leads
   */
  memMap(params: MemMapParams): MemoryHandle;

  /**
   * Unmaps memory, and frees it if memMap allocated it (ucp_mem_unmap). Its remote keys stop working.
   * @throws UcxError BUSY while transfers use it, ERR_INVALID_PARAM for a handle that is unmapped or of another context
   */
  memUnmap(handle: MemoryHandle): void;

  /**
   * Says how mapped memory is going to be used (ucp_mem_advise). `will-need` backs the pages of host memory and maps them into all cards, so that
   * the next transfer has nothing to prepare; HBM is mapped when it is allocated, and needs nothing. `normal` changes nothing: what was
   * prepared stays while the memory is mapped.
   * @throws UcxError ERR_INVALID_PARAM for a handle that is unmapped, another advice or a range outside the memory; what mapping throws
   */
  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options?: AdviseOptions): void;

  /**
   * What kind of memory lies at an address, and in which allocation (ucp_mem_query for memory that is not mapped).
   * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that lies in one allocation in part only, or in several
   */
  memQuery(memory: AddressedMemory): MemoryInfo;

  /**
   * A dma-buf of memory, for a driver or a library that imports such. Device memory is exported by the memory domain that knows it; host memory of
   * `memMap({ allocate, shared: true })` through /dev/udmabuf; memory of `memMap({ dmabuf })` is the dma-buf that was mapped.
   * @returns a descriptor that belongs to the caller, who closes it, and the byte of the dma-buf at which the memory begins
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR like {@link memQuery}; ERR_UNSUPPORTED with the reason: other host memory, a device that is missing
   */
  exportDmabuf(memory: AddressedMemory): DmabufExport;

  /**
   * Takes the report that host memory of others was unmapped, or is about to be: no registration of it is used again, and handles of it are
   * unmapped, their remote keys included. May be called from inside any callback: drivers are told later, when no transfer uses the
   * memory any more.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryUnmapped(address: number | bigint, byteLength: number): void;

  /**
   * Takes the report that memory which is not host memory and not of this library was allocated or freed: it feeds {@link memQuery}, by which
   * such memory is told from host memory. Without effect with UCX_MEMTYPE_CACHE=n.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryTypeEvent(event: MemoryTypeEvent): void;

  /**
   * The remote key of mapped memory: bytes to be sent to a peer (ucp_rkey_pack). Over libucp those of host memory begin with the key of libucp: a program of
   * another language, which gives them to ucp_ep_rkey_unpack and has heard the address of the memory too, is served as they are.
   */
  packRkey(handle: MemoryHandle): Uint8Array;

  /** What the memory domains and workers have done since the start, as data: nodes with counters. Cold. */
  stats(): StatsNode;

  /** Closes workers, memory and memory domains. Idempotent, never fails. */
  close(): Promise<void>;
}
