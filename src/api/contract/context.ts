/**
 * The interface of a context, which owns memory, configuration and devices; and the features that a program can select for it (ucp_feature), by UCX's names.
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

/** A registry of prom-client, or an object with the same methods. */
export interface MetricsRegistry {
  /** Adds a family; the registry calls its `get()` for the values. */
  registerMetric(metric: object): void;
  /** The family with a name; undefined for an unknown name. */
  getSingleMetric(name: string): object | undefined;
}

/** Attributes of a context (ucp_context_attr_t). */
export interface ContextAttributes {
  /** Memory types that it can allocate. */
  readonly memoryTypes: readonly MemoryType[];
  /** Unused transports, memory domains and devices, and the reasons. */
  readonly unavailable: readonly UnavailableResource[];
  /** The node of its cards. */
  readonly node: CardNode;
}

/**
 * A context.
 * @typeParam Device an open card of hl-thunk; no type in this file depends on it
 */
export interface Context<Device = unknown> extends AsyncDisposable {
  readonly closed: boolean;
  readonly config: Config;
  readonly engine: Engine;
  /** True if the Gaudi cards are emulated: performance figures must then be labelled as emulated. */
  readonly emulated: boolean;
  /** The registration caches, with live counters. */
  readonly registrationCaches: readonly RegistrationCache[];

  /** Attributes of the context (ucp_context_query). */
  query(): ContextAttributes;

  /**
   * The open card with this logical index, which the context has opened and will close, or which the program has passed. Its memory can be mapped by address.
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
   * Maps memory for local operations and for remote keys: allocates host or device memory, or registers a host buffer, foreign memory by its address, or a
   * dma-buf (ucp_mem_map). The owner of host memory mapped by its address calls {@link memoryUnmapped} before unmapping it. Device memory of hl-thunk needs
   * no such call: when it is freed, transfers with its registrations fail with INVALID_ADDR. `protection` limits the use of the memory. Memory behind a
   * dma-buf is kept while mapped, unless its exporter revokes it: transfers then fail.
   * @throws UcxError ERR_INVALID_PARAM that names the argument and its rule; ERR_INVALID_ADDR for addresses that are not mapped in this process; NO_MEMORY;
   * ERR_UNSUPPORTED with the reason if no transport supports the memory type, for dma-bufs if no card's driver imports them, and over libucp for dma-bufs of
   * host memory without pages that the kernel can pin; ERR_GAUDI_DEVICE_NOT_FOUND for a dma-buf of a card without a link
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
   * @throws UcxError BUSY while transfers use it, ERR_INVALID_PARAM for an unmapped handle or a handle of another context
   */
  memUnmap(handle: MemoryHandle): void;

  /**
   * Declares how mapped memory will be used (ucp_mem_advise). `will-need` populates the pages of host memory and maps them into all cards, so that the next
   * transfer needs no preparation; HBM is mapped when it is allocated. `normal` has no effect: prepared memory stays prepared while it is mapped.
   * @throws UcxError ERR_INVALID_PARAM for an unmapped handle, an unknown advice or a range outside the memory; errors of mapping
   */
  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options?: AdviseOptions): void;

  /**
   * The memory type and the allocation at an address (ucp_mem_query for memory that is not mapped).
   * @throws UcxError ERR_INVALID_PARAM; ERR_INVALID_ADDR for a range that only partly belongs to one allocation
   */
  memQuery(memory: AddressedMemory): MemoryInfo;

  /**
   * Exports memory as a dma-buf, for another driver or library. Device memory is exported by its memory domain; host memory of `memMap({ allocate, shared:
   * true })` through /dev/udmabuf, even if it is registered in another context; for memory of `memMap({ dmabuf })` the mapped dma-buf is returned. Other
   * registered host memory (`memMap({ buffer })`) is not in a file and cannot be shared.
   * @returns a descriptor, which the caller closes, and the offset of the memory in the dma-buf
   * @throws UcxError ERR_INVALID_PARAM, ERR_INVALID_ADDR as {@link memQuery}; ERR_UNSUPPORTED with the reason: other host memory, a missing device
   */
  exportDmabuf(memory: AddressedMemory): DmabufExport;

  /**
   * Reports that foreign host memory was unmapped, or is about to be: its registrations are not used again, and its handles and remote keys become invalid.
   * May be called inside any callback: registrations are removed later, once no transfer uses the memory.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryUnmapped(address: number | bigint, byteLength: number): void;

  /**
   * Reports that foreign device memory was allocated or freed, so that {@link memQuery} can distinguish it from host memory. No effect with
   * UCX_MEMTYPE_CACHE=n.
   * @throws UcxError ERR_INVALID_PARAM
   */
  memoryTypeEvent(event: MemoryTypeEvent): void;

  /**
   * The remote key of mapped memory: bytes to send to a peer (ucp_rkey_pack). Over libucp, keys of host memory begin with the key of libucp: a program that
   * uses libucp directly can pass them to ucp_ep_rkey_unpack unchanged, if it also knows the address of the memory.
   * @throws UcxError ERR_INVALID_PARAM for an unmapped handle or a handle of another context, and for memory whose protection permits no remote access
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
   * The current state of this context: endpoints with their lanes, pending requests and their wait reasons, unexpected messages, memory; as `gaudi-ucx
   * inspect` shows it for a running process. Its lists are bounded. Not for hot paths.
   */
  snapshot(): ContextSnapshot;

  /**
   * Memory domains, transports and devices, as text in the layout of `ucx_info -p` (ucp_context_print_info); over libucp, the text of libucp.
   * @throws UcxError ERR_CLOSED
   */
  printInfo(): string;

  /**
   * Adds the metrics of this context to a prom-client registry of the program: operations, bytes, protocols, caches, failures, and from now on latency
   * histograms, for which every operation gets a request and reads the clock. Contexts of one registry are distinguished by the label `context`, except in
   * histograms, which include the operations of all contexts of the thread. The metrics are removed when the context closes.
   * @throws UcxError ERR_INVALID_PARAM, ERR_CLOSED; the error of the registry for a duplicate name
   */
  metrics(registry: MetricsRegistry): void;

  /** Closes workers, memory and memory domains. Idempotent, never fails. */
  close(): Promise<void>;
}

/** Names of the features; wake-up is always available. */
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
    throw invalidParam('features', 'must be a list of at least one feature', features);
  }
  for (const feature of features) {
    if (!FEATURES.includes(feature)) {
      throw invalidParam('features', `must contain only the names ${FEATURES.join(', ')}`, feature);
    }
  }
  return features;
}

/** The error for an operation of a feature that was not selected. */
export function missingFeature(feature: Feature): UcxError {
  return new UcxError({
    code: 'ERR_FEATURE_MISSING',
    status: Status.UNSUPPORTED,
    message: `the context was opened without the feature ${feature}: add it to the option features`,
    details: { feature },
  });
}
