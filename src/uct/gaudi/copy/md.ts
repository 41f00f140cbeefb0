/** The gaudi_copy component and its memory domain: HBM of the cards, host memory registered with them, and their attributes. */

import { cardLabel, DeviceBlock, exportBlock, GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import { MemoryType, memoryTypeBit } from '../../../ucs/memory/memory-type.ts';
import { MemoryTypeCache } from '../../../ucs/memory/memory-type-cache.ts';
import type { Rcache } from '../../../ucs/rcache/rcache.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { closedError, invalidParam, statusError, UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { DeviceType, type Iface, type IfaceResource } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type DeviceMemoryMaps,
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
import { checkAddress, checkByteLength, checkKeyTarget, checkServices, checkSysDevice } from '../../base/checks.ts';
import { OwnedDmabuf } from '../../base/host/dmabufs.ts';
import {
  allocatedAccess,
  checkAdvice,
  checkDeregister,
  type DeregisterOptions,
  registeredAccess,
} from '../../base/host/memory.ts';
import { OpenIfaces, uniqueAddress } from '../../base/iface.ts';
import { KEY_BYTES, KeyTable } from '../../base/key/keys.ts';
import { cardName, exportLimitation, type GaudiCard } from '../base/cards.ts';
import { GAUDI_COPY_CONFIG_TABLE, type GaudiCopyConfig, registerCostOf } from '../base/config.ts';
import {
  canImportDmabufs,
  cardAt,
  type ImportedDmabuf,
  importDmabuf,
  isDeviceRange,
  partAt,
} from '../base/foreign-memory.ts';
import { BlockMemory, type CardMemory, GaudiMemory, type HostPages, RegisteredMemory } from '../base/memory.ts';
import {
  checkResources,
  type GaudiResources,
  gaudiStats,
  HostRegistry,
  type OpenGaudi,
  UNUSABLE_CARDS,
} from '../base/resources.ts';
import { CopyKey, GAUDI_COPY_ALIASES, GAUDI_COPY_NAME, GAUDI_COPY_TRANSPORT } from './endpoint.ts';
import { CopyIface } from './iface.ts';

const HOST_AND_GAUDI: number = memoryTypeBit(MemoryType.HOST) | memoryTypeBit(MemoryType.GAUDI);

/** The memory domain. */
export class CopyMd implements MemoryDomain {
  readonly attributes: MdAttributes;
  readonly resources: readonly IfaceResource[];
  /** Imports memory of other devices or processes into a card; absent unless the driver of a card supports that. */
  readonly memRegDmabuf?: (region: DmabufRegion) => GaudiMemory;
  readonly #shared: GaudiResources;
  readonly #gaudi: OpenGaudi;
  readonly #cards: readonly GaudiCard[];
  readonly #config: GaudiCopyConfig;
  readonly #keys: KeyTable<CardMemory> = new KeyTable(GAUDI_COPY_NAME);
  /** Device memory that is allocated or registered here. */
  readonly #memories: Set<GaudiMemory> = new Set();
  /** The imports among {@link #memories}. */
  readonly #imports: Map<GaudiMemory, ImportedDmabuf> = new Map();
  readonly #host: HostRegistry;
  readonly #rcache: Rcache<HostPages>;
  /** Allocated ranges of HBM, of any allocator. An entry is added before its address is returned to a caller. */
  readonly #ranges: MemoryTypeCache = new MemoryTypeCache();
  /** The memory types of the context, from this and other memory domains. */
  readonly #memoryTypes: MemoryTypeCache | undefined;
  readonly #ifaces: OpenIfaces<CopyIface> = new OpenIfaces();
  readonly #unwatch: readonly (() => void)[];
  readonly #address: Uint8Array = uniqueAddress();
  #closed = false;

  /**
   * Opens the cards, unless another memory domain of the context has opened them.
   * @throws UcxError as openGaudiCards
   */
  constructor(shared: GaudiResources, services: ComponentServices) {
    this.#config = services.config.get(GAUDI_COPY_CONFIG_TABLE);
    const gaudi = shared.acquire(services);
    this.#shared = shared;
    this.#gaudi = gaudi;
    this.#cards = gaudi.cards;
    this.#host = new HostRegistry(GAUDI_COPY_NAME, true, gaudi);
    this.#rcache = gaudi.rcache;
    this.#memoryTypes = services.memoryTypes;
    this.resources = gaudi.cards.map(({ index }) => resourceOf(index));
    const imports = canImportDmabufs(gaudi.cards);
    if (imports) this.memRegDmabuf = (region) => this.#import(region);
    this.attributes = this.#attributesOf(imports);
    this.#unwatch = gaudi.cards.map((card) => this.#watch(card));
  }

  memAlloc(byteLength: number, options: AllocateOptions): BlockMemory {
    this.#checkOpen();
    allocatedAccess(options, MemoryType.GAUDI, GAUDI_COPY_NAME);
    checkByteLength(byteLength);
    checkSysDevice(options.sysDevice);
    const card = cardAt(this.#cards, options.sysDevice ?? this.#cards[0]!.index);
    const block = card.device.memory.allocate(byteLength, { dedicated: options.shared ?? false });
    const memory = new BlockMemory(GAUDI_COPY_NAME, card, block, undefined);
    this.#memories.add(memory);
    return memory;
  }

  memFree(memory: MdMemory): void {
    const own = this.#own(memory);
    const isAllocated = own instanceof BlockMemory && own.part === undefined;
    if (!isAllocated) throw invalidParam('memory', 'must be a result of memAlloc', own.address);
    own.block.free();
    this.#forget(own);
  }

  /** Registers host memory, or memory of a card that the application owns. */
  memReg(source: RegistrationSource, options?: RegisterOptions): CardMemory {
    this.#checkOpen();
    registeredAccess(options);
    if (!isDeviceRange(source)) return this.#host.register(source);
    const { card, block, part } = partAt(this.#cards, source);
    const memory = new BlockMemory(GAUDI_COPY_NAME, card, block, part);
    this.#memories.add(memory);
    return memory;
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    const own = this.#own(memory);
    checkDeregister(options);
    if (own instanceof RegisteredMemory) {
      this.#host.deregister(own, options);
      this.#keys.revoke(own);
      return;
    }
    const imported = this.#imports.get(own);
    if (imported !== undefined) this.#endImport(own, imported, options.force === true);
    else this.#endPart(own, options);
  }

  #endPart(own: GaudiMemory, options: { readonly force?: boolean }): void {
    if (!(own instanceof BlockMemory) || own.part === undefined) {
      throw invalidParam('memory', 'must be a result of memReg', own.address);
    }
    const { part, block } = own;
    if (part.live && part.inFlight > 0 && options.force !== true) {
      throw gaudiError(
        GaudiErrorCode.DEVICE_BUSY,
        `memory at 0x${own.address.toString(16)} has transfers in flight: wait for them first`,
      );
    }
    block.endPart(part);
    this.#forget(own);
  }

  /** An allocation is always mapped into its card as a whole, so advice about it needs no preparation. */
  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#own(memory);
    checkAdvice(own, advice, offset, byteLength);
    if (own instanceof RegisteredMemory && advice === 'will-need') this.#host.prepare(own, offset, byteLength);
  }

  hostUnmapped(address: number, byteLength: number): void {
    this.#host.unmapped(address, byteLength);
  }

  get caches(): readonly RegistrationCache[] {
    return [this.#rcache];
  }

  memQuery(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes {
    const { sysDevice: device, allocation } = this.#find(address, byteLength, sysDevice);
    return {
      memoryType: MemoryType.GAUDI,
      sysDevice: device,
      baseAddress: allocation.address,
      allocLength: allocation.byteLength,
    };
  }

  /** For imported memory, returns a duplicate of the imported dma-buf. */
  memExportDmabuf(address: bigint, byteLength: number, sysDevice?: number): DmabufExport {
    const { allocation, sysDevice: card } = this.#find(address, byteLength, sysDevice);
    const limitation = exportLimitation(this.#config, cardAt(this.#cards, card).device);
    if (limitation !== undefined) throw statusError(Status.UNSUPPORTED, `export a dma-buf with ${limitation}`);
    const skip = Number(address - allocation.address);
    const exported =
      allocation instanceof DeviceBlock ? exportBlock(allocation) : this.#imports.get(allocation)!.export();
    return new OwnedDmabuf(exported, skip);
  }

  detectMemoryType(address: bigint, byteLength: number, sysDevice?: number): MemoryAttributes | undefined {
    checkAddress(address);
    checkByteLength(byteLength);
    checkSysDevice(sysDevice);
    const range = this.#ranges.lookup(sysDevice, address, byteLength);
    return range === undefined ? undefined : this.memQuery(address, byteLength, sysDevice);
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    const own = this.#own(memory);
    checkKeyTarget(target, offset, KEY_BYTES);
    this.#keys.pack(own, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): CopyKey {
    return new CopyKey(this.#keys.find(packed));
  }

  openIface(resource: IfaceResource): Iface {
    this.#checkOpen();
    const position = this.resources.indexOf(resource);
    const card = this.#cards[position];
    if (card === undefined)
      throw invalidParam('resource', 'must be an entry of `resources` of this memory domain', resource);
    const address = cardAddress(this.#address, position);
    const [config, rcache] = [this.#config, this.#rcache];
    return this.#ifaces.add(new CopyIface({ card, position, resource, address, config, rcache }));
  }

  /** Includes the cards and the registration cache, which gaudi_ipc shares. */
  stats(): StatsNode {
    return statsNode('uct_md', GAUDI_COPY_NAME, { memory_handles: this.#memories.size }, gaudiStats(this.#gaudi));
  }

  deviceMemoryMaps(): ReadonlyMap<string, DeviceMemoryMaps> {
    return new Map(
      this.#gaudi.cards.map(({ index, device }) => {
        const { minor, busId, moduleId, memory } = device;
        return [cardName(index), { label: cardLabel({ index, minor, busId }), moduleId, arenas: memory.maps() }];
      }),
    );
  }

  get leftOut(): readonly LeftOut[] {
    return this.#gaudi.leftOut;
  }

  drain(): Promise<void> {
    return this.#shared.drain();
  }

  /** Aborts all transfers of the cards, including those of other memory domains that share them, because the memory is released. */
  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#ifaces.close();
    this.#shared.abort();
    this.#host.close();
    for (const memory of this.#memories) {
      const isAllocated = memory instanceof BlockMemory && memory.part === undefined;
      if (isAllocated) this.memFree(memory);
      else this.memDereg(memory, { force: true });
    }
    for (const unwatch of this.#unwatch) unwatch();
    this.#shared.release();
  }

  /** Finds the allocation that contains a range; the error names the violated rule. */
  #find(
    address: bigint,
    byteLength: number,
    sysDevice: number | undefined,
  ): { readonly sysDevice: number; readonly allocation: DeviceBlock | GaudiMemory } {
    checkByteLength(byteLength);
    checkSysDevice(sysDevice);
    checkAddress(address);
    const where = `[0x${address.toString(16)}, +${byteLength})`;
    const range = this.#ranges.lookup(sysDevice, address, byteLength);
    if (range === undefined) throw addressError(`${where} is not device memory of gaudi_copy`);
    if (range === 'partial') {
      throw addressError(`${where} is not inside one allocation of one device: pass sysDevice or a shorter range`);
    }
    const { device } = cardAt(this.#cards, range.device);
    const allocation = device.memory.find(address) ?? this.#importedAt(address, range.device);
    if (allocation === undefined) throw addressError(`${where} belongs to memory that was freed`);
    return { sysDevice: range.device, allocation };
  }

  #importedAt(address: bigint, sysDevice: number): GaudiMemory | undefined {
    for (const memory of this.#imports.keys()) {
      const skip = address - memory.address;
      if (memory.sysDevice === sysDevice && skip >= 0n && skip < memory.byteLength) return memory;
    }
    return undefined;
  }

  #import(region: DmabufRegion): GaudiMemory {
    this.#checkOpen();
    const imported = importDmabuf(this.#cards, region);
    const { card, mapping } = imported;
    const memory = new GaudiMemory(GAUDI_COPY_NAME, card, mapping);
    this.#memories.add(memory);
    this.#imports.set(memory, imported);
    this.#onAllocated(card.index, mapping);
    return memory;
  }

  #endImport(memory: GaudiMemory, imported: ImportedDmabuf, isForced: boolean): void {
    imported.close(isForced);
    this.#imports.delete(memory);
    this.#onFreed(memory.sysDevice, memory);
    this.#forget(memory);
  }

  /** Tracks all allocations of a card, including those of the application. Returns a function that ends tracking. */
  #watch({ index, device }: GaudiCard): () => void {
    const onAllocated = (block: DeviceBlock): void => this.#onAllocated(index, block);
    const onFreed = (block: DeviceBlock): void => this.#onFreed(index, block);
    for (const block of device.memory.blocks()) onAllocated(block);
    return device.memory.watch({ onAllocated, onFreed });
  }

  #onAllocated(card: number, { address, byteLength }: Pick<MdMemory, 'address' | 'byteLength'>): void {
    this.#ranges.insert(card, address, byteLength, MemoryType.GAUDI);
    this.#memoryTypes?.insert(card, address, byteLength, MemoryType.GAUDI);
  }

  #onFreed(card: number, { address, byteLength }: Pick<MdMemory, 'address' | 'byteLength'>): void {
    this.#ranges.remove(card, address, byteLength);
    this.#memoryTypes?.remove(card, address, byteLength);
  }

  #forget(memory: GaudiMemory): void {
    this.#keys.revoke(memory);
    this.#memories.delete(memory);
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError('memory domain gaudi_copy');
  }

  #own(memory: MdMemory): CardMemory {
    if (GaudiMemory.isGenuine(memory)) {
      if (this.#memories.has(memory)) return memory;
    } else if (this.#host.has(memory)) return memory;
    const isOwn = GaudiMemory.isGenuine(memory) || memory instanceof RegisteredMemory;
    if (!isOwn) throw invalidParam('memory', 'must be of memory domain gaudi_copy', memory);
    throw invalidParam('memory', 'has been freed or deregistered, or belongs to another context', memory.address);
  }

  #attributesOf(imports: boolean): MdAttributes {
    const gaudi = memoryTypeBit(MemoryType.GAUDI);
    const exports = this.#cards.some(({ device }) => exportLimitation(this.#config, device) === undefined);
    const base = MdFlag.ALLOC | MdFlag.REG | MdFlag.NEED_MEMH | MdFlag.NEED_RKEY | MdFlag.INVALIDATE | MdFlag.ADVISE;
    const flags = base | MdFlag.PINS_PAGES | (imports ? MdFlag.REG_DMABUF : 0);
    return {
      name: GAUDI_COPY_NAME,
      component: GAUDI_COPY_NAME,
      flags: exports ? flags | MdFlag.EXPORT_DMABUF : flags,
      registerMemoryTypes: HOST_AND_GAUDI,
      allocateMemoryTypes: gaudi,
      accessMemoryTypes: HOST_AND_GAUDI,
      detectMemoryTypes: gaudi,
      dmabufMemoryTypes: exports ? gaudi : 0,
      registerDmabufMemoryTypes: imports ? gaudi : 0,
      cacheMemoryTypes: this.#config.RCACHE === 'no' ? 0 : memoryTypeBit(MemoryType.HOST),
      registerCost: registerCostOf(this.#config),
      rkeyPackedBytes: KEY_BYTES,
      allocateBytesMax: Math.max(...this.#cards.map(({ device }) => Number(device.info.dramSize))),
      registerBytesMax: Number.MAX_SAFE_INTEGER,
    };
  }
}

/** Address of the interfaces on one card. The interfaces of one memory domain access the same memory. */
function cardAddress(md: Uint8Array, position: number): Uint8Array {
  const address = new Uint8Array(md.byteLength + 1);
  address.set(md);
  address[md.byteLength] = position;
  return address;
}

function resourceOf(index: number): IfaceResource {
  return {
    transport: GAUDI_COPY_TRANSPORT,
    aliases: GAUDI_COPY_ALIASES,
    device: `gaudi${index}`,
    deviceType: DeviceType.ACC,
    sysDevice: index,
  };
}

function addressError(message: string): UcxError {
  return new UcxError({ code: 'ERR_INVALID_ADDR', status: Status.INVALID_ADDR, message });
}

/**
 * The component `gaudi_copy`, with the transport `gaudi_cpy`.
 * @param shared the cards; the same object for every Gaudi component of a context
 */
export function gaudiCopyComponent(shared: GaudiResources): Component {
  checkResources(shared);
  return {
    name: GAUDI_COPY_NAME,
    transports: [{ name: GAUDI_COPY_TRANSPORT, aliases: GAUDI_COPY_ALIASES }],
    configTable: GAUDI_COPY_CONFIG_TABLE,
    unusableStatuses: UNUSABLE_CARDS,
    isRequired: shared.isRequired,
    get isAbsenceWarned() {
      return shared.isWithoutCards;
    },
    openMd: (services) => {
      checkServices(services);
      return new CopyMd(shared, services);
    },
  };
}
