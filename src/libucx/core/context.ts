/**
 * A context over libucp: the installed library, the memory mapped with it, and a context of the node's own transports beside it, which knows the memory of
 * cards and moves it on the machine. Workers communicate, contexts own.
 */

import { checkMapParams } from '../../ucp/api/check-options.ts';
import type { Context as ApiContext, ContextAttributes } from '../../ucp/api/context.ts';
import type { Engine } from '../../ucp/api/engine.ts';
import type { Feature } from '../../ucp/api/features.ts';
import type {
  AddressedMemory,
  AdviseOptions,
  MemMapParams,
  MemoryHandle,
  MemoryInfo,
  MemoryTypeEvent,
} from '../../ucp/api/memory.ts';
import type { WorkerOptions } from '../../ucp/api/worker.ts';
import type { Config } from '../../ucs/config/config.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { MemoryType } from '../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { checkStatus, closedError } from '../../ucs/type/error.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import type { DmabufExport, MemoryAdvice, RegistrationCache } from '../../uct/api/memory-domain.ts';
import { UCP_ATTR_FIELD, UCP_CONTEXT_ATTR } from '../c/abi.ts';
import { featureBits } from '../c/features.ts';
import { Fields } from '../c/fields.ts';
import type { Libucp } from '../c/library.ts';
import { UcpConfiguration, warnOfUnused } from '../c/ucp-configuration.ts';
import type { EngineContext } from '../engine/engine.ts';
import { accessAfterProbe, type DeviceAccess, deviceAccess } from '../mem/device-access.ts';
import { Fragments } from '../mem/device-fragments.ts';
import { MemoryMap } from '../mem/memory-map.ts';
import { initContext } from './context-handle.ts';
import { probeDevice, probeOn } from './device-probe.ts';
import { Worker } from './worker.ts';

/** What a context is made of. */
export interface ContextParams<Device> {
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly features: readonly Feature[];
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  /** Time to poll before sleeping (UCX_PROGRESS_SPIN). */
  readonly progressSpinNs: number;
  /** Host memory through which that of cards goes: bytes of a fragment, and how many (UCX_RNDV_FRAG_SIZE, UCX_RNDV_FRAG_ALLOC_COUNT). */
  readonly fragmentBytes: number;
  readonly fragmentCount: number;
  /** The transports of this library on this machine; closed with this context. */
  readonly node: ApiContext<Device>;
  /** Runs when the workers are closed: the last look at the statistics. */
  readonly onClosing?: () => void;
}

/** A context. */
export class Context<Device = unknown> implements ApiContext<Device>, EngineContext {
  readonly thread: symbol = THREAD_BOUND;
  readonly libucp: Libucp;
  readonly engine: Engine;
  readonly features: number;
  readonly config: Config;
  readonly log: Log;
  readonly clock: Clock;
  readonly progressSpinNs: number;
  readonly node: ApiContext<Device>;
  readonly memory: MemoryMap;
  readonly configuration: UcpConfiguration;
  readonly fragments: Fragments;
  /** The handle of libucp. */
  readonly handle: number;
  #access: DeviceAccess;
  readonly #workers: Set<Worker> = new Set();
  readonly #onClosing: () => void;
  #isLeftBehind = false;
  #closed = false;
  #closing: Promise<void> | undefined;

  /** @throws UcxError ERR_CONFIG_VALUE; what ucp_init says */
  constructor(params: ContextParams<Device>) {
    this.libucp = params.libucp;
    this.engine = params.engine;
    this.features = featureBits(params.features);
    this.config = params.config;
    this.log = params.log;
    this.clock = params.clock;
    this.progressSpinNs = params.progressSpinNs;
    this.node = params.node;
    this.#onClosing = params.onClosing ?? (() => {});
    this.configuration = new UcpConfiguration(this.libucp.functions, params.config);
    this.handle = initContext(this.libucp.functions, this.configuration, this.features);
    warnOfUnused(this.libucp, params.config, params.log);
    this.#access = this.#accessOf(this.libucp);
    this.memory = new MemoryMap(this, this.node);
    this.fragments = new Fragments(this.memory, params.fragmentBytes, params.fragmentCount);
  }

  get access(): DeviceAccess {
    return this.#access;
  }

  get closed(): boolean {
    return this.#closed;
  }

  get emulated(): boolean {
    return this.node.emulated;
  }

  get registrationCaches(): readonly RegistrationCache[] {
    return this.node.registrationCaches;
  }

  device(index: number): Device {
    return this.node.device(index);
  }

  query(): ContextAttributes {
    return this.node.query();
  }

  worker(options: WorkerOptions = {}): Worker {
    this.#checkOpen();
    const worker = new Worker(this, options);
    this.#workers.add(worker);
    return worker;
  }

  memMap(params: MemMapParams): MemoryHandle {
    this.#checkOpen();
    return this.memory.map(checkMapParams(params));
  }

  memUnmap(handle: MemoryHandle): void {
    this.memory.unmap(handle);
  }

  memAdvise(handle: MemoryHandle, advice: MemoryAdvice, options: AdviseOptions = {}): void {
    this.memory.advise(handle, advice, options);
  }

  memQuery(memory: AddressedMemory): MemoryInfo {
    return this.node.memQuery(memory);
  }

  exportDmabuf(memory: AddressedMemory): DmabufExport {
    this.#checkOpen();
    return this.node.exportDmabuf(memory);
  }

  memoryUnmapped(address: number | bigint, byteLength: number): void {
    this.memory.unmapped(address, byteLength);
  }

  memoryTypeEvent(event: MemoryTypeEvent): void {
    this.node.memoryTypeEvent(event);
  }

  packRkey(handle: MemoryHandle): Uint8Array {
    return this.memory.packRkey(handle);
  }

  stats(): StatsNode {
    return statsNode('ucp_context', 'libucx', {}, [
      ...[...this.#workers].map((worker) => worker.stats()),
      this.node.stats(),
    ]);
  }

  close(): Promise<void> {
    this.#closing ??= this.#close();
    return this.#closing;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.close();
  }

  /**
   * Tries libucp on memory of a card, where it says that it takes such memory: what it does not reach goes through host memory. To be called before anything is
   * mapped. Where this program has no card there is nothing to try.
   */
  async probeAccess(): Promise<void> {
    const { isDirect, memoryType } = this.#access;
    if (!isDirect || !this.query().memoryTypes.includes(MemoryType.GAUDI)) return;
    this.#access = accessAfterProbe(
      this.#access,
      await probeOn(this.node, (memory) => probeDevice(this, memoryType, memory)),
    );
  }

  /** A worker of libucp could not be destroyed: nor can its context. */
  leaveBehind(): void {
    this.#isLeftBehind = true;
  }

  /** Forgets a closed worker. */
  forget(worker: Worker): void {
    this.#workers.delete(worker);
  }

  #accessOf({ functions, version, memoryTypes }: Libucp): DeviceAccess {
    using attributes = new Fields(UCP_CONTEXT_ATTR);
    attributes.setU64('field_mask', UCP_ATTR_FIELD.MEMORY_TYPES);
    checkStatus(functions.ucp_context_query(this.handle, attributes.address), 'ucp_context_query');
    const usableTypes = attributes.u64('memory_types');
    return deviceAccess({ version, memoryTypes, usableTypes, emulated: this.node.emulated });
  }

  async #close(): Promise<void> {
    for (const worker of this.#workers) await worker.close();
    this.#closed = true;
    this.#onClosing();
    this.memory.close();
    if (!this.#isLeftBehind) this.libucp.functions.ucp_cleanup(this.handle);
    await this.node.close();
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('context');
  }
}
