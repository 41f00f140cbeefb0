/** A context over libucp: the loaded library, the memory mapped with it, and a native context, which manages and copies memory of the cards of this machine. */

import { ClosableContext } from '../../api/awaited/context.ts';
import type { Context as ApiContext, ContextAttributes, Feature } from '../../api/contract/context.ts';
import type { Engine } from '../../api/contract/explanation.ts';
import type {
  AddressedMemory,
  AdviseOptions,
  MemMapParams,
  MemoryHandle,
  MemoryInfo,
  MemoryTypeEvent,
} from '../../api/contract/memory.ts';
import { checkMapParams } from '../../api/contract/request.ts';
import type { ContextSnapshot } from '../../api/contract/snapshot.ts';
import type { WorkerOptions } from '../../api/contract/worker.ts';
import { cacheSummary, dmabufSummary, memorySummary } from '../../api/snapshot/summary.ts';
import type { CopyingContext } from '../../api/staging/device-copier.ts';
import { FragmentPool } from '../../api/staging/fragment-pool.ts';
import { textWrittenBy } from '../../sys/index.ts';
import type { Config } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkStatus } from '../../ucs/type/error.ts';
import type { DmabufExport, MemoryAdvice, RegistrationCache } from '../../uct/api/memory-domain.ts';
import { UCP_ATTR_FIELD, UCP_CONTEXT_ATTR } from '../c/abi.ts';
import { Fields } from '../c/fields.ts';
import { featureBits, type Libucp } from '../c/library.ts';
import { posixShortage, tlsWithoutPosix } from '../c/limits.ts';
import { UcpConfiguration, warnOfUnused } from '../c/ucp-configuration.ts';
import { withMarkedId } from '../endpoint/unproven-peers.ts';
import type { EngineContext } from '../engine/engine.ts';
import { ownLocation } from '../mem/key-segments.ts';
import { accessAfterProbe, type DeviceAccess, deviceAccess, type UcpMemory } from '../mem/memory-handle.ts';
import { MemoryMap } from '../mem/memory-map.ts';
import { probeDevice, probeOn } from './device-probe.ts';
import { openContext } from './open-context.ts';
import { WORKER_CLASS, Worker } from './worker.ts';

export interface ContextParams<Device> {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly features: readonly Feature[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** Time to poll before sleeping (UCX_PROGRESS_SPIN). */
  readonly progressSpinNs: number;
  /** See UCX_REQUESTS_MAX. */
  readonly requestsMax: number;
  /** Time limit for the reply of a listener (UCX_TCP_CM_ANSWER_TIMEOUT). */
  readonly answerTimeoutNs: number;
  /** Fragment size and number of fragments, in host memory that stages device memory (UCX_RNDV_FRAG_SIZE, UCX_RNDV_FRAG_ALLOC_COUNT). */
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** The native context with the transports of this machine; closed together with this context. */
  readonly native: CopyingContext<Device>;
  /** Called when all workers are closed, before the final statistics. */
  readonly onClosing?: () => void;
}

export class Context<Device = unknown> extends ClosableContext<Worker> implements ApiContext<Device>, EngineContext {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly features: number;
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly requestsMax: number;
  readonly answerTimeoutNs: number;
  readonly native: CopyingContext<Device>;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  readonly fragments: FragmentPool<UcpMemory>;
  /** The handle of libucp. */
  readonly handle: number;
  readonly requestBytes: number;
  #access: DeviceAccess;
  readonly #onClosing: () => void;
  #isLeaked = false;

  /** @throws UcxError ERR_NO_TRANSPORT, ERR_CONFIG_VALUE; errors of ucp_init */
  constructor(params: ContextParams<Device>) {
    super();
    this.libucp = params.libucp;
    this.engine = params.engine;
    this.features = featureBits(params.features);
    this.config = params.config;
    this.log = params.log;
    this.clock = params.clock;
    this.progressSpinNs = params.progressSpinNs;
    this.requestsMax = params.requestsMax;
    this.answerTimeoutNs = params.answerTimeoutNs;
    this.native = params.native;
    this.#onClosing = params.onClosing ?? (() => {});
    const { libucp, config, features } = this;
    const configuration = new UcpConfiguration(libucp.functions, config, features, this.#withoutFullPosix());
    this.configuration = configuration;
    // Read now, while descriptors are free: addresses and keys need it later.
    ownLocation();
    const unusedNative = this.native.emulated ? this.native.query().unavailable.map(({ name }) => name) : [];
    this.handle = openContext({ libucp, config, configuration, features, unusedNative });
    warnOfUnused(this.libucp, params.config, params.log);
    using attributes = new Fields(UCP_CONTEXT_ATTR);
    attributes.setU64('field_mask', UCP_ATTR_FIELD.MEMORY_TYPES | UCP_ATTR_FIELD.REQUEST_SIZE);
    checkStatus(libucp.functions.ucp_context_query(this.handle, attributes.address), 'ucp_context_query');
    this.requestBytes = attributes.number('request_size');
    const { version, memoryTypes } = libucp;
    const usableTypes = attributes.u64('memory_types');
    this.#access = deviceAccess({ version, memoryTypes, usableTypes, emulated: this.native.emulated });
    this.memory = new MemoryMap(this, this.native);
    const { fragmentBytes, fragmentCount: countMax } = params;
    this.fragments = new FragmentPool<UcpMemory>(
      (byteLength) => this.memory.map({ allocate: byteLength }),
      (fragment) => this.memory.unmap(fragment),
      { fragmentBytes, countMax },
    );
  }

  get access(): DeviceAccess {
    return this.#access;
  }

  get emulated(): boolean {
    return this.native.emulated;
  }

  get registrationCaches(): readonly RegistrationCache[] {
    return this.native.registrationCaches;
  }

  device(index: number): Device {
    return this.native.device(index);
  }

  query(): ContextAttributes {
    return this.native.query();
  }

  protected override newWorker(options: WorkerOptions): Worker {
    // Listeners of this engine recognise the worker by its marked id.
    return new Worker(this, withMarkedId(options), {
      onClosed: (worker) => this.forget(worker),
      onLeaked: () => {
        this.#isLeaked = true;
      },
    });
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
    return this.native.memQuery(memory);
  }

  exportDmabuf(memory: AddressedMemory): DmabufExport {
    this.checkOpen();
    return this.native.exportDmabuf(memory);
  }

  memoryUnmapped(address: number | bigint, byteLength: number): void {
    this.memory.unmapped(address, byteLength);
  }

  memoryTypeEvent(event: MemoryTypeEvent): void {
    this.native.memoryTypeEvent(event);
  }

  packRkey(handle: MemoryHandle): Uint8Array {
    return this.memory.packRkey(handle);
  }

  /** A key for endpoints between workers of this context; used by collective operations. */
  packOwnRkey(handle: MemoryHandle): Uint8Array {
    return this.memory.packOwnRkey(handle);
  }

  stats(): StatsNode {
    // Native interfaces are shown under the workers that use them.
    const parts = this.native.stats().children.filter(({ className }) => className !== WORKER_CLASS);
    return statsNode('ucp_context', '', {}, [...parts, ...this.workerStats()]);
  }

  printInfo(): string {
    this.checkOpen();
    return textWrittenBy((stream) => this.libucp.functions.ucp_context_print_info(this.handle, stream));
  }

  /** Properties that libucp reports, and the native transports. */
  snapshot(): ContextSnapshot {
    const stats = this.stats();
    const { node, resources, unavailable, cards, channels } = this.native.snapshot();
    return {
      engine: this.engine,
      emulated: this.emulated,
      node,
      resources,
      unavailable,
      cards,
      memory: memorySummary(this.memory.mapped),
      dmabufs: dmabufSummary(stats),
      channels,
      caches: cacheSummary(this.registrationCaches),
      workers: [...this.workers].map((worker) => worker.snapshot()),
      stats,
    };
  }

  /**
   * Checks by a probe whether libucp can access memory of a card, if it claims support: otherwise such memory is staged through host memory. Call this
   * before anything is mapped. Does nothing if the program uses no card.
   */
  async probeAccess(): Promise<void> {
    const { isDirect, memoryType } = this.#access;
    if (!isDirect || !this.query().memoryTypes.includes(MemoryType.GAUDI)) return;
    this.#access = accessAfterProbe(
      this.#access,
      await probeOn(this.native, (memory) => probeDevice(this, memoryType, memory)),
    );
  }

  /** The system limit that prevents libucp from creating a worker; undefined if there is none. */
  get shortage(): Error | undefined {
    const reason = posixShortage(this.config);
    return reason === undefined ? undefined : new Error(reason);
  }

  /** Settings that leave out posix if its directory is full, because no worker could be created with it. */
  #withoutFullPosix(): Readonly<Record<string, string>> {
    const tls = tlsWithoutPosix(this.config);
    const reason = tls === undefined ? undefined : posixShortage(this.config);
    if (tls === undefined || reason === undefined) return {};
    this.log.warn(`posix is left out of UCX_TLS: ${reason}`);
    return { UCX_TLS: tls };
  }

  protected override async shutDown(): Promise<void> {
    this.isClosed = true;
    this.#onClosing();
    this.memory.close();
    if (!this.#isLeaked) this.libucp.functions.ucp_cleanup(this.handle);
    await this.native.close();
  }
}
