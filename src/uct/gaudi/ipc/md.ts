/**
 * The gaudi_ipc memory domain: device memory that other processes of this node may access, and the keys by which this process accesses theirs. It
 * allocates nothing. It registers allocations of gaudi_copy of the same context, imported dma-bufs, and host memory as the local side of transfers.
 * The component gaudi_ipc: makes the memory domain of the cards.
 */

import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { closedError, invalidParam, statusError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { DeviceType, type Iface, type IfaceResource } from '../../api/iface.ts';
import type { ChannelTraffic, MdMemory } from '../../api/memory.ts';
import {
  type Component,
  type ComponentServices,
  type DeviceRange,
  type DmabufExport,
  type DmabufRegion,
  type LeftOut,
  type MdAttributes,
  MdFlag,
  type MemoryAdvice,
  type MemoryAttributes,
  type MemoryDomain,
  type RegisterOptions,
  type RegistrationCache,
  type RegistrationSource,
} from '../../api/memory-domain.ts';
import { checkAddress, checkKeyTarget, checkServices } from '../../base/checks.ts';
import { checkAdvice, checkDeregister, type DeregisterOptions, registeredAccess } from '../../base/host/memory.ts';
import { OpenIfaces } from '../../base/iface.ts';
import { RKEY_TABLE_KEY_BYTES } from '../../base/key/rkey-table.ts';
import { RkeyTableReader } from '../../base/key/rkey-table-reader.ts';
import { type GaudiCard, watchResets } from '../base/cards.ts';
import { GAUDI_COPY_CONFIG_TABLE, registerCostOf } from '../base/config.ts';
import { canImportDmabufs, importDmabuf, isDeviceRange, partAt } from '../base/foreign-memory.ts';
import { BlockMemory, GaudiMemory, RegisteredMemory } from '../base/memory.ts';
import {
  checkResources,
  type GaudiResources,
  HostRegistry,
  type OpenGaudi,
  UNUSABLE_CARDS,
} from '../base/resources.ts';
import { ChannelService } from './channel-service.ts';
import { forgedKey, GAUDI_IPC_ALIASES, GAUDI_IPC_CONFIG_TABLE, GAUDI_IPC_NAME, type GaudiIpcConfig } from './config.ts';
import { IpcIface } from './iface.ts';
import { Imports } from './imports.ts';
import { type Channel, Channels, IpcKey } from './key.ts';
import { unpackPayload } from './layout.ts';
import { IpcMemory, ipcBlock, ipcImport, LOCAL_OWNERS, OwnedKeys, ownerKeyOf } from './shared-memory.ts';

/** Calls of progress between two checks for requests of peers. */
const CALLS_PER_SERVICE = 64;
/** Calls of progress between two checks for resets of the cards, which are a system call for each card. */
const CALLS_PER_EVENTS: number = 64 * CALLS_PER_SERVICE;

/** The memory domain. */
export class IpcMd implements MemoryDomain {
  readonly attributes: MdAttributes;
  readonly resources: readonly IfaceResource[];
  /** Imports memory of others into a card; absent unless the driver of a card supports it. */
  readonly memRegDmabuf?: (region: DmabufRegion) => IpcMemory;
  /** Remote memory that this domain has imported. */
  readonly imports: Imports;
  readonly #shared: GaudiResources;
  readonly #gaudi: OpenGaudi;
  readonly #config: GaudiIpcConfig;
  readonly #services: ComponentServices;
  readonly #host: HostRegistry;
  readonly #registered: Set<IpcMemory> = new Set();
  /** Memory of the application that was freed before its registration ended. */
  readonly #freed: WeakSet<MdMemory> = new WeakSet();
  /** Number of registrations in each arena, by its generation. */
  readonly #inArena: Map<number, number> = new Map();
  readonly #keys: OwnedKeys = new OwnedKeys();
  readonly #reader: RkeyTableReader = new RkeyTableReader(GAUDI_IPC_NAME);
  readonly #ifaces: OpenIfaces<IpcIface> = new OpenIfaces();
  readonly #channels: Channels = new Channels();
  readonly #serve: () => void;
  readonly #unwatch: readonly (() => void)[];
  #service: ChannelService | undefined = undefined;
  #calls = 0;
  #closed = false;

  /**
   * Opens the cards, unless another memory domain of the context has done so.
   * @throws UcxError as openGaudiCards
   */
  constructor(shared: GaudiResources, services: ComponentServices) {
    const { log, clock } = services;
    this.#config = services.config.get(GAUDI_IPC_CONFIG_TABLE);
    this.#shared = shared;
    this.#services = services;
    this.#gaudi = shared.acquire(services);
    const { cards } = this.#gaudi;
    this.#host = new HostRegistry(GAUDI_IPC_NAME, false, this.#gaudi);
    this.imports = new Imports({ cards, config: this.#config, log, clock });
    this.resources = cards.map(({ index }) => resourceOf(index));
    const imports = canImportDmabufs(cards);
    if (imports) this.memRegDmabuf = (region) => this.#import(region);
    this.attributes = this.#attributesOf(imports);
    this.#serve = () => this.#serveSometimes();
    this.#unwatch = cards.map((card) => watchResets(card, () => this.#loseCard(card)));
  }

  memAlloc(): MdMemory {
    throw statusError(Status.UNSUPPORTED, `allocate memory in ${GAUDI_IPC_NAME}`);
  }

  memFree(memory: MdMemory): void {
    throw invalidParam('memory', 'must come from memAlloc', memory);
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): MdMemory {
    this.#checkOpen();
    registeredAccess(options);
    if (!isDeviceRange(source)) return this.#host.register(source);
    return this.#add(this.#registerDevice(source));
  }

  #import(region: DmabufRegion): IpcMemory {
    this.#checkOpen();
    return this.#add(ipcImport(importDmabuf(this.#gaudi.cards, region)));
  }

  #add(memory: IpcMemory): IpcMemory {
    this.#registered.add(memory);
    const { generation } = memory.source;
    this.#inArena.set(generation, (this.#inArena.get(generation) ?? 0) + 1);
    return memory;
  }

  /** Registers memory of gaudi_copy directly, and memory of the application by its address. */
  #registerDevice(source: DeviceRange): IpcMemory {
    const onFree = (freed: IpcMemory): void => {
      this.#end(freed, true);
      if (freed.isOfApplication) this.#freed.add(freed);
    };
    if (source instanceof IpcMemory && !source.isOfApplication) {
      throw invalidParam('memory', 'must be as it was allocated', source.mdName);
    }
    if (!(source instanceof BlockMemory) || source.part !== undefined) {
      return ipcBlock(partAt(this.#gaudi.cards, source), onFree);
    }
    if (!source.live) throw invalidParam('memory', 'must be live', source.address);
    if (!this.#gaudi.cards.includes(source.card)) {
      throw invalidParam('memory', 'must be of this context', source.address);
    }
    return ipcBlock(source, onFree);
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    checkDeregister(options);
    if (this.#host.has(memory)) this.#host.deregister(memory, options);
    else if (!this.#freed.delete(memory)) this.#end(this.#own(memory), options.force === true);
  }

  /** The own card accesses device memory of this process without an import, so advice needs no preparation. */
  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#host.has(memory) ? memory : this.#own(memory);
    checkAdvice(own, advice, offset, byteLength);
    if (own instanceof RegisteredMemory && advice === 'will-need') this.#host.prepare(own, offset, byteLength);
  }

  hostUnmapped(address: number, byteLength: number): void {
    this.#host.unmapped(address, byteLength);
  }

  get caches(): readonly RegistrationCache[] {
    return [this.imports.cache];
  }

  memQuery(address: bigint): MemoryAttributes {
    throw unknownAddress(address);
  }

  memExportDmabuf(): DmabufExport {
    throw statusError(Status.UNSUPPORTED, `export a dma-buf in ${GAUDI_IPC_NAME}`);
  }

  detectMemoryType(): undefined {
    return undefined;
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    this.#checkOpen();
    if (this.#host.has(memory)) {
      throw invalidParam('memory', `must be device memory: others reach no host memory by ${GAUDI_IPC_NAME}`, 'host');
    }
    const own = this.#own(memory);
    own.card.device.card.checkUsable();
    checkKeyTarget(target, offset, RKEY_TABLE_KEY_BYTES);
    this.#keys.pack(own, this.#openService().tag, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): IpcKey {
    this.#checkOpen();
    const published = this.#reader.open(packed);
    const payload = unpackPayload(published.payload, published.byteLength);
    if (payload === undefined) {
      published.release();
      throw forgedKey('says nothing about its place');
    }
    const place = { ...payload, ownerKey: ownerKeyOf(payload.serviceTag) };
    return new IpcKey(published, place, packed.slice(), this.#gaudi.cards.length);
  }

  openIface(resource: IfaceResource): Iface {
    this.#checkOpen();
    const position = this.resources.indexOf(resource);
    const card = this.#gaudi.cards[position];
    if (card === undefined) throw invalidParam('resource', 'must be one of this memory domain', resource);
    const [config, imports, serve] = [this.#config, this.imports, this.#serve];
    const options = { card, position, resource, config, imports, serve, channels: this.#channels };
    return this.#ifaces.add(new IpcIface({ node: this.#shared.node, ...options }));
  }

  get channels(): readonly ChannelTraffic[] {
    return this.#channels.all;
  }

  get leftOut(): readonly LeftOut[] {
    return this.#gaudi.leftOut;
  }

  drain(): Promise<void> {
    return this.#shared.drain();
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#ifaces.close();
    for (const unwatch of this.#unwatch) unwatch();
    for (const memory of this.#registered) this.#end(memory, true);
    this.#keys.close();
    this.#closeService();
    this.imports.close();
    this.#reader.close();
    this.#host.close();
    this.#shared.release();
  }

  stats(): StatsNode {
    const { cache } = this.imports;
    const levels = { regions: cache.numRegions, bytes: cache.totalSize };
    return statsNode('uct_md', GAUDI_IPC_NAME, { memory_handles: this.#registered.size }, [
      statsNode('gaudi_ipc_cache', '', { ...cache.counters, ...levels }),
      ...this.#channels.all.map(channelStats),
    ]);
  }

  /** Revokes the keys of device memory, and notifies peers if it was the last in its arena. */
  #end(memory: IpcMemory, isForced: boolean): void {
    memory.end(isForced);
    this.#keys.revoke(memory);
    this.#registered.delete(memory);
    const { generation } = memory.source;
    const left = (this.#inArena.get(generation) ?? 1) - 1;
    if (left > 0) this.#inArena.set(generation, left);
    else this.#retire(generation);
  }

  /** No memory of an arena is registered any more. Its imports would prevent the arena from being freed. */
  #retire(generation: number): void {
    this.#inArena.delete(generation);
    if (this.#service === undefined) return;
    const ownerKey = ownerKeyOf(this.#service.tag);
    for (const importer of this.#keys.importers) importer.invalidateOwner(ownerKey, generation);
    this.#service.retire(generation);
  }

  #openService(): ChannelService {
    if (this.#service === undefined) {
      const { log, clock } = this.#services;
      this.#service = new ChannelService({ share: (key) => this.#keys.share(key), log, clock });
      LOCAL_OWNERS.set(ownerKeyOf(this.#service.tag), this.#keys);
    }
    return this.#service;
  }

  #closeService(): void {
    if (this.#service === undefined) return;
    const ownerKey = ownerKeyOf(this.#service.tag);
    LOCAL_OWNERS.delete(ownerKey);
    for (const importer of this.#keys.importers) importer.invalidateOwner(ownerKey);
    this.#keys.importers.clear();
    this.#service.close();
    this.#service = undefined;
  }

  /** The memory of a card is lost: revokes its keys, and notifies the processes that have imported it. */
  #loseCard(card: GaudiCard): void {
    for (const memory of this.#registered) {
      if (memory.card !== card) continue;
      this.#keys.revoke(memory);
      this.#retire(memory.source.generation);
    }
  }

  /** For programs that call progress in a loop without returning to the event loop. */
  #serveSometimes(): void {
    this.#calls = (this.#calls + 1) | 0;
    if (this.#service === undefined || this.#calls % CALLS_PER_SERVICE !== 0) return;
    this.#service.progress();
    if (this.#calls % CALLS_PER_EVENTS === 0) this.#readEvents();
  }

  #readEvents(): void {
    for (const card of this.#gaudi.cards) {
      const { device } = card;
      if (!device.closed && device.events.poll() && device.card.lostReason !== undefined) this.#loseCard(card);
    }
  }

  #own(memory: MdMemory): IpcMemory {
    if (!(GaudiMemory.isGenuine(memory) && memory instanceof IpcMemory)) {
      if (memory instanceof RegisteredMemory) throw invalidParam('memory', 'must be live', memory.address);
      throw invalidParam('memory', `must be of memory domain ${GAUDI_IPC_NAME}`, memory);
    }
    if (this.#registered.has(memory)) return memory;
    throw invalidParam('memory', 'must be live: it was freed, or is of another context', memory.address);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError(`memory domain ${GAUDI_IPC_NAME}`);
  }

  #attributesOf(imports: boolean): MdAttributes {
    const host = memoryTypeBit(MemoryType.HOST);
    const gaudi = memoryTypeBit(MemoryType.GAUDI);
    const base =
      MdFlag.REG |
      MdFlag.NEED_MEMH |
      MdFlag.NEED_RKEY |
      MdFlag.INVALIDATE |
      MdFlag.ADVISE |
      MdFlag.PINS_PAGES |
      MdFlag.PUBLISHES_KEYS;
    return {
      name: GAUDI_IPC_NAME,
      component: GAUDI_IPC_NAME,
      flags: imports ? base | MdFlag.REG_DMABUF : base,
      registerMemoryTypes: host | gaudi,
      allocateMemoryTypes: 0,
      accessMemoryTypes: host | gaudi,
      detectMemoryTypes: 0,
      dmabufMemoryTypes: 0,
      registerDmabufMemoryTypes: imports ? gaudi : 0,
      cacheMemoryTypes: this.#gaudi.caching ? host : 0,
      registerCost: registerCostOf(this.#services.config.get(GAUDI_COPY_CONFIG_TABLE)),
      rkeyPackedBytes: RKEY_TABLE_KEY_BYTES,
      allocateBytesMax: 0,
      registerBytesMax: Number.MAX_SAFE_INTEGER,
    };
  }
}

function channelStats({ local, remote, puts, gets, bytesPut, bytesGot }: Channel): StatsNode {
  const counters = { puts, gets, bytes_put: bytesPut, bytes_got: bytesGot };
  return statsNode('gaudi_ipc_channel', `${local}->${remote}`, counters);
}

function resourceOf(index: number): IfaceResource {
  return {
    transport: GAUDI_IPC_NAME,
    aliases: GAUDI_IPC_ALIASES,
    device: `gaudi${index}`,
    deviceType: DeviceType.ACC,
    sysDevice: index,
  };
}

function unknownAddress(address: bigint): UcxError {
  checkAddress(address);
  const message = `0x${address.toString(16)} is no memory of ${GAUDI_IPC_NAME}: ask the one that allocated it`;
  return new UcxError({ code: 'ERR_INVALID_ADDR', status: Status.INVALID_ADDR, message });
}

/**
 * The component `gaudi_ipc`, with the transport of the same name.
 * @param shared the cards; the same object for every Gaudi component of a context
 */
export function gaudiIpcComponent(shared: GaudiResources): Component {
  checkResources(shared);
  return {
    name: GAUDI_IPC_NAME,
    transports: [{ name: GAUDI_IPC_NAME, aliases: GAUDI_IPC_ALIASES }],
    configTable: GAUDI_IPC_CONFIG_TABLE,
    unusableStatuses: UNUSABLE_CARDS,
    isRequired: shared.isRequired,
    get isAbsenceWarned() {
      return shared.isWithoutCards;
    },
    openMd: (services) => {
      checkServices(services);
      return new IpcMd(shared, services);
    },
  };
}
