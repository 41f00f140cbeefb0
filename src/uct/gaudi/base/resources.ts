/**
 * State that the Gaudi memory domains of one context share: the opened cards, because a process can open a card only once, the registrations of host memory in
 * them, and their statistics. The first domain opens the cards and the last one closes them, unless the application owns them. Domains with the same cards
 * share the mappings: a buffer is mapped into each card once.
 */

import os from 'node:os';
import { Device, type DmaCounts, type DriverNode, GaudiErrorCode, gaudiError } from '../../../hlthunk/index.ts';
import { isMapped } from '../../../sys/index.ts';
import type { Log } from '../../../ucs/debug/log.ts';
import { MemoryType } from '../../../ucs/memory/memory-type.ts';
import type { Rcache } from '../../../ucs/rcache/rcache.ts';
import { type StatsNode, statsNode } from '../../../ucs/stats/stats-node.ts';
import { checkMethods, checkOptions } from '../../../ucs/type/check-options.ts';
import { invalidParam, statusError, type UcxError } from '../../../ucs/type/error.ts';
import { Status } from '../../../ucs/type/status.ts';
import { DeviceType } from '../../api/iface.ts';
import type { MdMemory } from '../../api/memory.ts';
import type { ComponentServices, LeftOut, RegistrationSource } from '../../api/memory-domain.ts';
import { checkByteLength, checkServices } from '../../base/checks.ts';
import { cacheStats, checkHostBuffer, openHostCache, prefault, RawRange } from '../../base/host/memory.ts';
import {
  borrowedCards,
  type CardChoice,
  cardName,
  checkCardChoice,
  checkDemands,
  closeGaudiCards,
  detectScaleOut,
  type GaudiCard,
  missingCards,
  openGaudiCards,
  watchResets,
} from './cards.ts';
import { GAUDI_COPY_CONFIG_TABLE, type GaudiCopyConfig } from './config.ts';
import { HostPages, RegisteredMemory, type RegisteringMd } from './memory.ts';

/** Longest sleep while waiting for transfers in flight. */
const DRAIN_NS = 100e6;

/** Statuses of cards that another process has open, that have failed, or that this user may not open. */
export const UNUSABLE_CARDS: readonly Status[] = [Status.BUSY, Status.IO_ERROR];

/** Selection of the driver and the cards. */
export interface GaudiResourcesOptions extends CardChoice {
  /** The machine: the kernel driver or an emulated node. */
  readonly node: DriverNode;
  /** Devices that the application has opened, instead of those of the table or the machine. The application closes them after the context. */
  readonly devices?: readonly Device[] | undefined;
}

/** Open cards and the registrations of host memory in them. */
export interface OpenGaudi {
  readonly cards: readonly GaudiCard[];
  /** Cards that were skipped, for example because other processes have them open, and cards that have become unusable since. Queries the driver. */
  readonly leftOut: readonly LeftOut[];
  readonly rcache: Rcache<HostPages>;
  /** Registries of host memory, one for each memory domain. */
  readonly registries: object[];
  /** False if every registration ends with its use (UCX_GAUDI_COPY_RCACHE=n). */
  readonly caching: boolean;
  /** Ends watching for resets of the cards. */
  readonly unwatch: () => void;
}

/** The cards of a context, for the components that share them. */
export class GaudiResources {
  /** The machine that has the cards. */
  readonly node: DriverNode;
  readonly #choice: CardChoice;
  readonly #devices: readonly Device[] | undefined;
  #open: OpenGaudi | undefined;
  #users = 0;
  #isWarned = false;

  /**
   * Does not open the cards yet.
   * @throws UcxError ERR_INVALID_PARAM
   */
  constructor(options: GaudiResourcesOptions) {
    checkOptions(options, 'options', ['node', 'devices', 'mappingTable', 'visibleModules', 'visibleDevices']);
    checkMethods('node', options.node, ['cards', 'open', 'openControl', 'attribute', 'close']);
    checkCardChoice(options);
    this.node = options.node;
    this.#choice = options;
    this.#devices = checkDevices(options.devices, options.node);
  }

  /** Whether a value is an instance of this class, rather than an object of the same shape. */
  static isGenuine(value: unknown): value is GaudiResources {
    return typeof value === 'object' && value !== null && #users in value;
  }

  /** Whether the program has selected its cards: by GAUDI_MAPPING_TABLE, or as devices that it has opened. */
  get isRequired(): boolean {
    return this.#devices !== undefined || this.#choice.mappingTable !== undefined;
  }

  /** Whether the node has no cards at all, independently of the program's selection. */
  get isWithoutCards(): boolean {
    return this.#devices === undefined && this.node.lostReason === undefined && this.node.cards().length === 0;
  }

  /** The open cards; empty while they are not in use. */
  get cards(): readonly GaudiCard[] {
    return this.#open?.cards ?? [];
  }

  /**
   * Returns the cards, and opens them at the first call. Each call needs one {@link release}.
   * @throws UcxError as openGaudiCards
   */
  acquire(services: ComponentServices): OpenGaudi {
    checkServices(services);
    this.#open ??= this.#openAll(services);
    this.#users += 1;
    return this.#open;
  }

  /** Waits for the transfers on cards of the application. Because these cards stay open, the resources of transfers can be released only afterwards. */
  async drain(): Promise<void> {
    for (const card of this.cards) {
      const { dma } = card.device;
      while (!card.isOwned && card.inFlight > 0) {
        if (dma.progress() === 0) await dma.wait(DRAIN_NS);
      }
    }
  }

  /** Aborts all transfers of the cards that are about to be closed. */
  abort(): void {
    for (const { device, isOwned } of this.cards) if (isOwned) device.dma.abort(Status.CANCELED);
  }

  /** Releases the cards. The last call aborts all transfers and closes the cards. */
  release(): void {
    this.#users -= 1;
    if (this.#users > 0 || this.#open === undefined) return;
    const { cards, rcache, unwatch } = this.#open;
    unwatch();
    this.abort();
    this.#open = undefined;
    rcache.close();
    closeGaudiCards(cards);
  }

  /** Warns only once, although every memory domain of a context tries to open the cards. */
  #warnOfMissing(log: Log): void {
    if (this.#devices !== undefined || this.#isWarned) return;
    this.#isWarned = true;
    const missing = missingCards(this.#choice, this.node);
    if (missing !== undefined) log.warn(missing);
  }

  #openAll(services: ComponentServices): OpenGaudi {
    const { log, clock, config, isDeviceAllowed } = services;
    const values = config.get(GAUDI_COPY_CONFIG_TABLE);
    for (const { card } of this.#devices ?? []) card.checkUsable();
    const isWanted = isDeviceAllowed && ((name: string): boolean => isDeviceAllowed(DeviceType.ACC, name));
    const leftOut: LeftOut[] = [];
    this.#warnOfMissing(log);
    const onLeftOut = (name: string, { message: reason }: UcxError): number => leftOut.push({ name, reason });
    const cards =
      this.#devices === undefined
        ? openGaudiCards({ node: this.node, choice: this.#choice, log, clock, isWanted, onLeftOut })
        : borrowedCards(this.#devices, isWanted);
    for (const { name, reason } of leftOut) log.warn(`${name} is left out: ${reason}`);
    try {
      checkDemands(cards, values);
      detectScaleOut(cards, this.node, values.NIC_SCALE_OUT, log);
      const rcache = openCache(cards.length, values, services);
      const unwatch = watchAll(cards, services, leftOut);
      return {
        cards,
        rcache,
        get leftOut() {
          return [...leftOut, ...unusable(cards, leftOut)];
        },
        registries: [],
        caching: values.RCACHE !== 'no',
        unwatch,
      };
    } catch (error) {
      closeGaudiCards(cards);
      throw error;
    }
  }
}

/**
 * Checks the devices that a program passes.
 * @param node of the devices; by default that of the first device
 * @throws UcxError ERR_INVALID_PARAM unless it is a list of different open devices of one node
 */
export function checkDevices(devices: readonly Device[] | undefined, node?: DriverNode): readonly Device[] | undefined {
  if (devices === undefined) return undefined;
  if (!Array.isArray(devices) || devices.length === 0) {
    throw invalidParam('devices', 'must be a list of at least one open device of gaudi-ucx/hlthunk', devices);
  }
  const home = node ?? devices.at(0)?.node;
  for (const [index, device] of devices.entries()) {
    const name = `devices[${index}]`;
    if (!Device.isGenuine(device)) throw invalidParam(name, 'must be an open device of gaudi-ucx/hlthunk', device);
    if (device.closed) throw invalidParam(name, 'must be open', device.busId);
    if (device.node !== home) throw invalidParam(name, 'must be of the same node as the others', device.busId);
    if (devices.indexOf(device) !== index) throw invalidParam(name, 'must not be passed twice', device.busId);
  }
  return [...devices];
}

/** @throws UcxError ERR_INVALID_PARAM if the value is not the resources of a context */
export function checkResources(shared: GaudiResources): void {
  if (!GaudiResources.isGenuine(shared)) throw invalidParam('shared', 'must be GaudiResources', shared);
}

/** Watches the cards for resets: a card that is reset counts as unusable from then on. Returns a function that ends watching. */
function watchAll(cards: readonly GaudiCard[], { onDeviceLost }: ComponentServices, leftOut: LeftOut[]): () => void {
  const watches = cards.map((card) =>
    watchResets(card, (error) => {
      const device = { name: cardName(card.index), sysDevice: card.index, error };
      leftOut.push({ name: device.name, reason: error.message });
      onDeviceLost?.(device);
    }),
  );
  return () => {
    for (const unwatch of watches) unwatch();
  };
}

/** The opened cards that have failed, were removed, or fail all transfers, except those that are left out already. */
function unusable(cards: readonly GaudiCard[], leftOut: readonly LeftOut[]): LeftOut[] {
  return cards.flatMap(({ index, device: { card, dma } }) => {
    const name = cardName(index);
    if (leftOut.some((each) => each.name === name)) return [];
    const reason = card.unusableReason();
    if (reason !== undefined) return [{ name, reason: `${card.name}: ${reason}` }];
    return dma.failure === Status.OK ? [] : [{ name, reason: dma.errorOf(dma.failure).message }];
  });
}

/** Creates the cache of registrations in this number of cards. */
function openCache(cards: number, values: GaudiCopyConfig, services: ComponentServices): Rcache<HostPages> {
  const evictIdle = (): boolean => rcache.evictIdle();
  const rcache: Rcache<HostPages> = openHostCache(
    {
      name: 'gaudi_copy',
      config: values,
      wholeBytesMax: wholeBytesMax(values),
      register: (start, byteLength) =>
        isMapped(start, byteLength) ? new HostPages(start, byteLength, cards, evictIdle) : Status.INVALID_ADDR,
      deregister: (pages) => pages.unmap(),
    },
    services,
  );
  return rcache;
}

/** Length of the longest ArrayBuffer, in bytes, that is registered as a whole. */
function wholeBytesMax({ REG_WHOLE_ALLOC, MAX_REG_RATIO }: GaudiCopyConfig): number {
  if (REG_WHOLE_ALLOC === 'auto') return Math.floor(os.totalmem() * MAX_REG_RATIO);
  return REG_WHOLE_ALLOC ? Number.POSITIVE_INFINITY : 0;
}

/** The arenas of a card as levels, and its DMA with one node for each direction that was used. */
function cardStats({ index, device }: GaudiCard): StatsNode {
  const { counts, submissions } = device.dma;
  const { arenas, arenaBytes, blocks, usedBytes, largestFreeBytes } = device.memory.statistics;
  const directions: readonly (readonly [string, DmaCounts | undefined])[] = [
    ['host_to_device', counts.hostToDevice],
    ['device_to_host', counts.deviceToHost],
    ['device_to_device', counts.deviceToDevice],
  ];
  return statsNode(
    'gaudi_card',
    cardName(index),
    {
      cs_in_flight: submissions.inFlight,
      arenas,
      arena_bytes: arenaBytes,
      blocks,
      block_bytes: usedBytes,
      largest_free_bytes: largestFreeBytes,
    },
    directions.flatMap(([name, count]) => (count === undefined ? [] : [statsNode('gaudi_dma', name, { ...count })])),
  );
}

/** Every open card, with its dma-bufs, and the registration cache. */
export function gaudiStats({ cards, rcache }: OpenGaudi): StatsNode[] {
  const dmabufs = cards.map(({ index, device }) => device.card.dmabufs.node(cardName(index)));
  return [cacheStats('gaudi_host', rcache), ...cards.map(cardStats), ...dmabufs];
}

/** The registrations of one memory domain. */
export class HostRegistry {
  readonly #md: RegisteringMd;
  readonly #gaudi: OpenGaudi;
  readonly #registered: Set<RegisteredMemory> = new Set();

  /** @param packable whether the memory domain creates keys of host memory */
  constructor(mdName: string, packable: boolean, gaudi: OpenGaudi) {
    this.#md = { name: mdName, packable };
    this.#gaudi = gaudi;
    gaudi.registries.push(this);
  }

  /** Whether the memory is registered here. */
  has(memory: MdMemory): memory is RegisteredMemory {
    return memory instanceof RegisteredMemory && this.#registered.has(memory);
  }

  /** See MemoryDomain.memReg, for host memory. */
  register(source: RegistrationSource): RegisteredMemory {
    const memory = source instanceof RawRange ? this.#registerRange(source) : this.#registerBuffer(bytesOf(source));
    this.#registered.add(memory);
    return memory;
  }

  /**
   * See MemoryDomain.memDereg, for memory of this registry.
   * @throws UcxError ERR_GAUDI_DEVICE_BUSY
   */
  deregister(
    memory: RegisteredMemory,
    options: { readonly invalidate?: boolean; readonly force?: boolean } = {},
  ): void {
    const invalidate = options.invalidate === true;
    // Transfers in flight need a registration, which keeps the memory alive. The last one, or all of them at once (invalidate), can end only without transfers.
    const mustBeUnused = options.force !== true && (invalidate || memory.region.references === 1);
    if (mustBeUnused && memory.pages.inFlight > 0) {
      throw gaudiError(
        GaudiErrorCode.DEVICE_BUSY,
        `host memory at 0x${memory.address.toString(16)} has transfers in flight: wait for them first`,
      );
    }
    memory.live = false;
    this.#registered.delete(memory);
    const { rcache, caching } = this.#gaudi;
    const { region } = memory;
    rcache.release(region);
    // V8 reports the end of an ArrayBuffer. It does not report the end of memory that was registered by its address: a registration kept without references
    // would leave that memory pinned after its owner has freed it.
    const isKept = region.buffer === undefined ? region.references > 0 : caching;
    if (!invalidate && isKept) return;
    if (region.buffer !== undefined) rcache.invalidate(memory.bytes.buffer);
    else if (region.valid) {
      rcache.unmapped(region.start, region.byteLength);
      rcache.progress();
    }
  }

  /** Populates pages and maps them into all cards, so that the next transfer needs no preparation. */
  prepare(memory: RegisteredMemory, offset: number, byteLength: number): void {
    prefault(memory.pages.address + memory.dmaOffset + offset, byteLength);
    for (const [position, { device }] of this.#gaudi.cards.entries()) memory.dmaIn(position, device);
  }

  /** See MemoryDomain.hostUnmapped. Every memory domain on the cards is notified; one of them notifies their shared cache. */
  unmapped(address: number, byteLength: number): void {
    if (!Number.isSafeInteger(address) || address < 0) {
      throw invalidParam('address', 'must be an integer of at least 0', address);
    }
    checkByteLength(byteLength);
    const { rcache, registries } = this.#gaudi;
    if (registries[0] === this) rcache.unmapped(address, byteLength);
  }

  /** Deregisters all remaining memory. Transfers in flight hold their mappings until their end. */
  close(): void {
    for (const memory of this.#registered) this.deregister(memory, { force: true });
    const { registries } = this.#gaudi;
    registries.splice(registries.indexOf(this), 1);
  }

  #registerBuffer(bytes: unknown): RegisteredMemory {
    checkHostBuffer('buffer', bytes);
    const region = this.#gaudi.rcache.acquire(bytes.buffer, bytes.byteOffset, bytes.byteLength);
    if (typeof region === 'number') throw statusError(region, 'register host memory');
    return new RegisteredMemory(this.#md, bytes, region.buffer!.start + bytes.byteOffset, region);
  }

  #registerRange({ address, byteLength, bytes }: RawRange): RegisteredMemory {
    const region = this.#gaudi.rcache.acquireRange(address, byteLength);
    if (typeof region === 'number') throw statusError(region, 'register host memory');
    return new RegisteredMemory(this.#md, bytes, address, region);
  }
}

/** The bytes of memory that another memory domain allocated; any other source is returned unchanged. */
function bytesOf(source: RegistrationSource): unknown {
  if (source instanceof Uint8Array) return source;
  const memory = source as MdMemory | undefined;
  if (memory?.memoryType !== MemoryType.HOST || memory.bytes === undefined) return source;
  if (!memory.live) throw invalidParam('memory', 'has been freed', memory.address);
  return memory.bytes;
}
