/**
 * The gaudi_ipc component and its memory domain: device memory that other processes of this host may access, and the keys by which this process accesses
 * theirs. It registers allocations of gaudi_copy of the same context, imported dma-bufs, and host memory as the local side of transfers.
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
import { watchResets } from '../base/cards.ts';
import { GAUDI_COPY_CONFIG_TABLE, registerCostOf } from '../base/config.ts';
import { canImportDmabufs, importDmabuf, isDeviceRange, partAt } from '../base/foreign-memory.ts';
import { BlockMemory, RegisteredMemory } from '../base/memory.ts';
import {
  checkResources,
  type GaudiResources,
  HostRegistry,
  type OpenGaudi,
  UNUSABLE_CARDS,
} from '../base/resources.ts';
import { forgedKey, GAUDI_IPC_ALIASES, GAUDI_IPC_CONFIG_TABLE, GAUDI_IPC_NAME, type GaudiIpcConfig } from './config.ts';
import { IpcIface } from './iface.ts';
import { Imports } from './imports.ts';
import { type Channel, Channels, IpcKey } from './key.ts';
import { unpackPayload } from './layout.ts';
import { Registrations } from './registrations.ts';
import { IpcMemory, ipcBlock, ipcImport, ownerKeyOf } from './shared-memory.ts';

export class IpcMd implements MemoryDomain {
  readonly attributes: MdAttributes;
  readonly resources: readonly IfaceResource[];
  /** Imports memory of other devices or processes into a card; absent unless the driver of a card supports that. */
  readonly memRegDmabuf?: (region: DmabufRegion) => IpcMemory;
  /** Remote memory that this domain has imported. */
  readonly imports: Imports;
  readonly #shared: GaudiResources;
  readonly #gaudi: OpenGaudi;
  readonly #config: GaudiIpcConfig;
  readonly #services: ComponentServices;
  readonly #host: HostRegistry;
  readonly #registrations: Registrations;
  readonly #reader: RkeyTableReader = new RkeyTableReader(GAUDI_IPC_NAME);
  readonly #ifaces: OpenIfaces<IpcIface> = new OpenIfaces();
  readonly #channels: Channels = new Channels();
  readonly #unwatch: readonly (() => void)[];
  #closed = false;

  /**
   * Opens the cards, unless another memory domain of the context has opened them.
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
    this.#registrations = new Registrations(cards, services);
    this.#unwatch = cards.map((card) => watchResets(card, () => this.#registrations.loseCard(card)));
  }

  memAlloc(): MdMemory {
    throw statusError(Status.UNSUPPORTED, `allocate memory in ${GAUDI_IPC_NAME}`);
  }

  memFree(memory: MdMemory): void {
    throw invalidParam('memory', 'must be a result of memAlloc', memory);
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): MdMemory {
    this.#checkOpen();
    registeredAccess(options);
    if (!isDeviceRange(source)) return this.#host.register(source);
    return this.#registrations.add(this.#registerDevice(source));
  }

  #import(region: DmabufRegion): IpcMemory {
    this.#checkOpen();
    return this.#registrations.add(ipcImport(importDmabuf(this.#gaudi.cards, region)));
  }

  /** Registers memory of gaudi_copy directly, and memory of the application by its address. */
  #registerDevice(source: DeviceRange): IpcMemory {
    const onFree = (freed: IpcMemory): void => this.#registrations.onFree(freed);
    if (source instanceof IpcMemory && !source.isOfApplication) {
      throw invalidParam('memory', 'must be the original allocation, not a registration of gaudi_ipc', source.mdName);
    }
    if (!(source instanceof BlockMemory) || source.part !== undefined) {
      return ipcBlock(partAt(this.#gaudi.cards, source), onFree);
    }
    if (!source.live) throw invalidParam('memory', 'has been freed', source.address);
    if (!this.#gaudi.cards.includes(source.card)) {
      throw invalidParam('memory', 'must be of this context', source.address);
    }
    return ipcBlock(source, onFree);
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    checkDeregister(options);
    if (this.#host.has(memory)) this.#host.deregister(memory, options);
    else this.#registrations.end(memory, options.force === true);
  }

  /** The card accesses device memory of this process without an import, so advice needs no preparation. */
  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#host.has(memory) ? memory : this.#registrations.own(memory);
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
      throw invalidParam('memory', `must be device memory: ${GAUDI_IPC_NAME} does not share host memory`, 'host');
    }
    const own = this.#registrations.own(memory);
    own.card.device.card.checkUsable();
    checkKeyTarget(target, offset, RKEY_TABLE_KEY_BYTES);
    this.#registrations.pack(own, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): IpcKey {
    this.#checkOpen();
    const published = this.#reader.open(packed);
    const payload = unpackPayload(published.payload, published.byteLength);
    if (payload === undefined) {
      published.release();
      throw forgedKey('has an invalid payload');
    }
    const place = { ...payload, ownerKey: ownerKeyOf(payload.serviceTag) };
    return new IpcKey(published, place, packed.slice(), this.#gaudi.cards.length);
  }

  openIface(resource: IfaceResource): Iface {
    this.#checkOpen();
    const position = this.resources.indexOf(resource);
    const card = this.#gaudi.cards[position];
    if (card === undefined)
      throw invalidParam('resource', 'must be an entry of `resources` of this memory domain', resource);
    const [config, imports, registrations] = [this.#config, this.imports, this.#registrations];
    const options = { card, position, resource, config, imports, registrations, channels: this.#channels };
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
    this.#registrations.close();
    this.imports.close();
    this.#reader.close();
    this.#host.close();
    this.#shared.release();
  }

  stats(): StatsNode {
    const { cache } = this.imports;
    const levels = { regions: cache.numRegions, bytes: cache.totalSize };
    return statsNode('uct_md', GAUDI_IPC_NAME, { memory_handles: this.#registrations.size }, [
      statsNode('gaudi_ipc_cache', '', { ...cache.counters, ...levels }),
      ...this.#channels.all.map(channelStats),
    ]);
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
  const message = `0x${address.toString(16)} is not memory of ${GAUDI_IPC_NAME}: query the memory domain that allocated it`;
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
