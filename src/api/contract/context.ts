/**
 * The interface of a context, which owns memory, configuration and devices. The features of a context that a program can select (ucp_feature), by UCX's
 * names.
 */

import type { Config } from '../../ucs/config/config.ts';
import type { MemoryType } from '../../ucs/memory/memory-type.ts';
import type { StatsNode } from '../../ucs/stats/stats-node.ts';
import { invalidParam, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { DmabufExport, MemoryAdvice, RegistrationCache } from '../../uct/api/memory-domain.ts';
import type { Engine } from './explanation.ts';
import type {
  AddressedMemory,
  AdviseOptions,
  MemMapParams,
  MemoryHandle,
  MemoryInfo,
  MemoryTypeEvent,
} from './memory.ts';
import type { CardNode, ContextSnapshot, UnavailableResource } from './snapshot.ts';
import type { Worker, WorkerOptions } from './worker.ts';

/** A registry of prom-client, or another with the same methods. */
export interface MetricsRegistry {
  /** Adds a family, whose `get()` the registry calls for its values. */
  registerMetric(metric: object): void;
  /** The family with a name; undefined if there is none. */
  getSingleMetric(name: string): object | undefined;
}

/** Attributes of a context (ucp_context_attr_t). */
export interface ContextAttributes {
  /** Types of memory that it can allocate. */
  readonly memoryTypes: readonly MemoryType[];
  /** Unused transports, memory domains and devices, and the reasons. */
  readonly unavailable: readonly UnavailableResource[];
  /** The node of its cards. */
  readonly node: CardNode;
}

/**
 * A context.
 * @typeParam Device an open card of hl-thunk; no type of this file depends on it
 */
export interface Context<Device = unknown> extends AsyncDisposable {
  readonly closed: boolean;
  readonly config: Config;
  readonly engine: Engine;
  /** True if the Gaudi cards are emulated: figures obtained with them must be labelled so. */
  readonly emulated: boolean;
  /** The registration caches, with their counters: plain numbers that change. */
  readonly registrationCaches: readonly RegistrationCache[];

  /** Attributes of the context (ucp_context_query). */
  query(): ContextAttributes;

  /**
   * The open card with this logical index: opened by the context, which then closes it, or passed to it. Its memory can
   * be mapped by address.
   * @throws UcxError ERR_INVALID_PARAM; ERR_GAUDI_DEVICE_NOT_FOUND with the existing indices; ERR_CLOSED
   */
  device(index: number): Device;

  /**
   * Creates a worker. @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED
   * @example
   * ```ts
   * const worker = context.worker();
   * const endpoint = worker.endpoint(worker.address()); // to itself
   * ```
   */
  worker(options?: WorkerOptions): Worker;

  /**
   * Maps memory for transfers, and for keys that peers use: new memory of the host or of a card, or a buffer of the program.
   * Allocates memory, or registers a host buffer, foreign memory by its address, or a dma-buf (ucp_mem_map). The owner of host memory that is mapped by
   * its address calls {@link memoryUnmapped} before unmapping it. Device memory of hl-thunk needs no such call: when it is freed, transfers with its
   * registrations fail with INVALID_ADDR. `protection` says what the memory may be used for. Memory behind a dma-buf stays as long as it is mapped, unless
   * its exporter revokes it: transfers then fail.
   * @throws UcxError ERR_INVALID_PARAM that names the argument and its rule; ERR_INVALID_ADDR for addresses that are not mapped in this
   *   process; NO_MEMORY; ERR_UNSUPPORTED with the reason if no transport supports the memory type, for dma-bufs if the driver of no card imports
   *   them, and over libucp for those of host memory without pages that the kernel can pin; ERR_GAUDI_DEVICE_NOT_FOUND for a dma-buf of a card to which no link leads
   * @example
   * ```ts
   * const hbm = context.memMap({ allocate: 2 ** 20, memoryType: MemoryType.GAUDI, sysDevice: 0 });
   * const host = context.memMap({ buffer: new Uint8Array(2 ** 20) });
   * await host.copyTo(hbm);
   * context.memUnmap(hbm);
   * ```
   */
  memMap(params: MemMapParams): MemoryHandle;

  /**
   * Unmaps memory, and frees it if memMap allocated it (ucp_mem_unmap). Its remote keys become invalid.
   * @throws UcxError BUSY while transfers use it, ERR_INVALID_PARAM for a handle that is unmapped or of another context
   */
  memUnmap(handle: MemoryHandle): void;

  /**
   * Declares how mapped memory will be used (ucp_mem_advise). `will-need` backs the pages of host memory and maps them into all cards, so that
   * the next transfer needs no preparation; HBM is mapped when it is allocated. `normal` changes nothing: prepared memory
   * stays prepared while it is mapped.
   * @throws UcxError ERR_INVALID_PARAM for a handle that is unmapped, another advice or a range outside the memory; errors of mapping
   */
  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options?: AdviseOptions): void;

  /**
   * The memory type and the allocation at an address (ucp_mem_query for memory that is not mapped).
   * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that only partly belongs to one allocation
   */
  memQuery(memory: AddressedMemory): MemoryInfo;

  /**
   * Exports memory as a dma-buf, for another driver or library. Device memory is exported by its memory domain; host memory of
   * `memMap({ allocate, shared: true })` through /dev/udmabuf, also if it is registered in another context; memory of `memMap({ dmabuf })` is the dma-buf that
   * was mapped. Other registered host memory (`memMap({ buffer })`) is not in a file that could be shared.
   * @returns a descriptor, which the caller closes, and the offset of the memory in the dma-buf
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR like {@link memQuery}; ERR_UNSUPPORTED with the reason: other host memory, a missing device
   */
  exportDmabuf(memory: AddressedMemory): DmabufExport;

  /**
   * Reports that foreign host memory was unmapped, or is about to be: its registrations are not used again, and its handles are
   * unmapped, with their remote keys. May be called inside any callback: registrations are removed later, when no transfer uses the
   * memory any more.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryUnmapped(address: number | bigint, byteLength: number): void;

  /**
   * Reports that foreign device memory was allocated or freed, for {@link memQuery}, which distinguishes
   * it from host memory. No effect with UCX_MEMTYPE_CACHE=n.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryTypeEvent(event: MemoryTypeEvent): void;

  /**
   * The remote key of mapped memory: bytes to be sent to a peer (ucp_rkey_pack). Over libucp those of host memory begin with the key of libucp: a program
   * that uses libucp directly can pass them to ucp_ep_rkey_unpack unchanged, if it knows the address of the memory too.
   * @throws UcxError ERR_INVALID_PARAM for a handle that is unmapped or of another context, and for memory whose protection permits peers nothing
   * @example
   * ```ts
   * const memory = context.memMap({ allocate: 4096 });
   * await endpoint.amSend(1, context.packRkey(memory)); // the peer calls endpoint.unpackRkey
   * ```
   */
  packRkey(handle: MemoryHandle): Uint8Array;

  /** Statistics of the memory domains and workers since the start, as a tree of counters. Not for hot paths. */
  stats(): StatsNode;

  /**
   * The current state of this context: endpoints with their lanes, pending requests and what they wait for, unexpected messages, memory. As
   * `gaudi-ucx inspect` shows it for a running process. Its lists are bounded. Not for hot paths.
   */
  snapshot(): ContextSnapshot;

  /**
   * Memory domains, transports and devices, as text in the layout of `ucx_info -p` (ucp_context_print_info). Over libucp that of libucp.
   * @throws UcxError ERR_CLOSED
   */
  printInfo(): string;

  /**
   * Adds the metrics of this context to a registry of prom-client, which the program has: operations, bytes, protocols, caches, failures, and from now on
   * histograms of latency, for which every operation has a request and reads the clock. Contexts of one registry have the label `context`; the
   * histograms do not: they are those of the thread, with the operations of all its contexts. Ends with the context.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; the error of the registry for a name that it has
   */
  metrics(registry: MetricsRegistry): void;

  /** Closes workers, memory and memory domains. Idempotent, never fails. */
  close(): Promise<void>;
}

/** The names; wake-up is always available. */
export const FEATURES = ['tag', 'rma', 'amo32', 'amo64', 'stream', 'am'] as const;
/** One of {@link FEATURES}. */
export type Feature = (typeof FEATURES)[number];

/**
 * Checks the selected features.
 * @param features undefined for all
 * @throws UcxError ERR_INVALID_PARAM
 */
export function checkFeatures(features: readonly Feature[] | undefined): readonly Feature[] {
  if (features === undefined) return FEATURES;
  if (!Array.isArray(features) || features.length === 0) {
    throw invalidParam('features', 'must be a list with one feature at least', features);
  }
  for (const feature of features) {
    if (!FEATURES.includes(feature)) {
      throw invalidParam('features', `must have the names ${FEATURES.join(', ')} only`, feature);
    }
  }
  return features;
}

/** The error for an operation whose feature was not selected. */
export function missingFeature(feature: Feature): UcxError {
  return new UcxError({
    code: 'ERR_FEATURE_MISSING',
    status: Status.UNSUPPORTED,
    message: `the context was opened without the feature ${feature}: its option features must have it`,
    details: { feature },
  });
}
