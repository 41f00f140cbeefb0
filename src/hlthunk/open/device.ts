/**
 * An open card: its file and everything made through it.
 *
 * A device has exclusive use of the card, because the driver allows one compute context. Closing releases everything in the order that hardware needs:
 * transfers end; descriptors and mappings that keep the file open are closed; the file is closed, when the driver waits for the engines and drops the card's
 * mappings; and only then is memory released that the card could have written to. A call in progress in the driver can defer that: see {@link Device.released}.
 */

import { indexOf } from '../../driver/card-names.ts';
import type { CardEntry, DriverFile, DriverNode } from '../../driver/port.ts';
import type { AsicProfile } from '../../uapi/index.ts';
import { createLog, LogLevel, standardErrorSink } from '../../ucs/debug/log.ts';
import { showAs } from '../../ucs/type/inspect.ts';
import { Status } from '../../ucs/type/status.ts';
import { THREAD_BOUND } from '../../ucs/type/thread-bound.ts';
import { CardFile, type CardTarget } from '../base/card-file.ts';
import { GaudiErrorCode, gaudiError, invalidArgument } from '../base/gaudi-error.ts';
import { DeviceDma } from '../dma/dma.ts';
import { asicProfileOf, getHwIpInfo, type HwIpInfo } from '../info/device-info.ts';
import { DeviceEvents } from '../info/events.ts';
import type { DeviceBlock } from '../memory/arena.ts';
import { PhysicalArenaSource, VirtualArenaSource } from '../memory/arena-source.ts';
import { DeviceArenas } from '../memory/device-arenas.ts';
import { type DeviceMemoryRange, DeviceRanges } from '../memory/device-range.ts';
import { DmaMemory, foreignName } from '../memory/dma-memory.ts';
import { type DmabufExport, DmabufImports, exportBlock, type ImportedMapping } from '../memory/dmabuf.ts';
import { type HostMapOptions, type HostMapping, HostMemory } from '../memory/host-memory.ts';
import type { DeviceOptions } from './device-options.ts';

/** Properties of a card: HW_IP_INFO and the constants of its generation. */
export interface DeviceInfo extends HwIpInfo {
  /** Constants of the ASIC. */
  readonly profile: AsicProfile;
}

/** An open card. Made by `open` and `openByModuleId`. */
export class Device implements CardTarget, Disposable {
  /** @internal Marks the object as bound to the thread that made it. */
  readonly thread: symbol = THREAD_BOUND;
  /** The node of the card. */
  readonly node: DriverNode;
  /** The open file of the card. */
  readonly card: CardFile;
  /** Properties that the card reports (HL_INFO_HW_IP_INFO). */
  readonly info: DeviceInfo;
  /** Index of the card in /dev/accel/accelN. */
  readonly minor: number;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly busId: string;
  /** OCP module id, as the card reports it. */
  readonly moduleId: number;
  /** NUMA node; -1 if the platform does not report it. */
  readonly numaNode: number;
  /** Events and faults of the card. */
  readonly events: DeviceEvents;
  /** Host memory that is mapped for the card. */
  readonly hostMemory: HostMemory;
  /** Device memory in blocks. */
  readonly memory: DeviceArenas;
  /** Ranges of device memory by address. */
  readonly ranges: DeviceRanges;
  /** Transfers of the card. */
  readonly dma: DeviceDma;
  /** Imported dma-bufs. */
  readonly imports: DmabufImports;
  readonly #ownsNode: boolean;
  #released: Promise<void> | undefined = undefined;

  /**
   * Takes ownership of `file`, which is closed if this throws.
   * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND for a card of an unknown generation; ERR_GAUDI_* of INFO
   */
  constructor(node: DriverNode, file: DriverFile, entry: CardEntry, options: DeviceOptions = {}) {
    this.node = node;
    this.#ownsNode = options.ownsNode === true;
    const log = options.log ?? createLog('hlthunk', LogLevel.WARN, standardErrorSink);
    this.card = new CardFile(file, { index: options.index ?? indexOf(node, entry), ...entry }, log);
    const clock = options.dma?.clock;
    try {
      this.info = readInfo(this.card);
      this.events = new DeviceEvents(this.card, log, clock);
    } catch (error) {
      this.card.close();
      throw error;
    }
    const { card, info } = this;
    this.minor = entry.minor;
    this.busId = entry.busId;
    this.moduleId = info.moduleId;
    this.numaNode = entry.numaNode;
    this.hostMemory = new HostMemory(card);
    const source = arenaSource(card, info);
    this.memory = new DeviceArenas(card, source, options.arenaBytes);
    const physical = source instanceof PhysicalArenaSource ? source : undefined;
    this.ranges = new DeviceRanges(card, info, this.memory, physical);
    this.imports = new DmabufImports(card);
    const { events, hostMemory, imports } = this;
    this.dma = new DeviceDma({ card, info, hostMemory, events, imports, options: options.dma ?? {} });
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.card.closed;
  }

  /** Whether a value is a device made by this class, rather than an object with its prototype. */
  static isGenuine(value: unknown): value is Device {
    return typeof value === 'object' && value !== null && #released in value;
  }

  /** Bytes of host memory that are pinned for the card, command buffers included. */
  get pinnedBytes(): number {
    return this.hostMemory.pinnedBytes;
  }

  /** Whether the driver can import dma-bufs. */
  get canImportDmabuf(): boolean {
    return this.imports.canImport;
  }

  /** Whether device memory can be exported: true for every kernel with this driver. */
  get canExportDmabuf(): boolean {
    return this.info.dramEnabled !== 0;
  }

  /** Exports a block by the dma-buf of its arena: see {@link exportBlock}. */
  exportDmabuf(block: DeviceBlock): DmabufExport {
    if (!DmaMemory.isGenuine(block) || block.card !== this.card) {
      throw invalidArgument('block', `must be memory of ${this.card.name}`, foreignName(block));
    }
    return exportBlock(block);
  }

  /** Imports `byteLength` bytes of a dma-buf, from `offset` on: see {@link DmabufImports.register}. */
  registerDmabufFd(fd: number, byteLength: number, offset = 0): ImportedMapping {
    return this.imports.register(fd, byteLength, offset);
  }

  /** Pins host memory and maps it to a device address: see {@link HostMemory.map}. The caller keeps the memory mapped. */
  hostMemoryMap(address: number, byteLength: number, options?: HostMapOptions): HostMapping {
    return this.hostMemory.map(address, byteLength, options);
  }

  /** The device memory at an address, for transfers: see {@link DeviceRanges.add}. */
  deviceMemoryRange(address: bigint, byteLength: number): DeviceMemoryRange {
    return this.ranges.add(address, byteLength);
  }

  /**
   * Resolves when the card can be opened again; never rejects. Defined while a closed device has a call in progress in the driver (100 ms at most), which keeps
   * the card. Memory that was mapped for the card must not be reused until then.
   */
  get released(): Promise<void> | undefined {
    return this.#released;
  }

  /**
   * Ends all transfers with CANCELED and releases everything; objects made through the device are then unusable. Idempotent. If transfers are in flight, the
   * driver resets the card (hl_device_release), which cannot be opened meanwhile: wait for the transfers first.
   */
  close(): void {
    if (this.card.closed) return;
    this.dma.abort(Status.CANCELED);
    this.imports.close();
    this.ranges.close();
    this.memory.close();
    this.hostMemory.close();
    this.card.close();
    this.events.close();
    const { released } = this.card.file;
    if (released === undefined) this.#stopped();
    else this.#released = released.then(() => this.#stopped());
  }

  /** Called when the card has stopped: releases the memory that it could access. */
  #stopped(): void {
    this.dma.close();
    this.#released = undefined;
    if (this.#ownsNode) this.node.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

/**
 * Checks the device argument of a call. The operation itself checks whether the device is open.
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS
 */
export function checkDevice(device: Device): void {
  if (!Device.isGenuine(device)) throw invalidArgument('device', 'must be a device returned by open', device);
}

/** An open control node: INFO only, any number of them, while another process uses the card. Made by `openControl`. */
export class ControlDevice implements CardTarget, Disposable {
  /** The open file of the card. */
  readonly card: CardFile;
  /** Index of the card in /dev/accel/accelN. */
  readonly minor: number;
  /** PCI address, such as `0000:3b:00.0`. */
  readonly busId: string;

  /** @param index logical index of the card in messages */
  constructor(file: DriverFile, entry: CardEntry, index?: number) {
    this.card = new CardFile(file, { index, ...entry });
    this.minor = entry.minor;
    this.busId = entry.busId;
  }

  /** True after `close()`. */
  get closed(): boolean {
    return this.card.closed;
  }

  /** Closes the control node. Idempotent. */
  close(): void {
    this.card.close();
  }

  [Symbol.dispose](): void {
    this.close();
  }
}

function readInfo(card: CardFile): DeviceInfo {
  const target = { card };
  const info = getHwIpInfo(target);
  return { ...info, profile: asicProfileOf(target, info) };
}

function arenaSource(card: CardFile, info: DeviceInfo): PhysicalArenaSource | VirtualArenaSource {
  const pageBytes = Number(info.dramPageSize === 0n ? info.profile.dram.pageSize : info.dramPageSize);
  if (info.profile.capabilities.dramMmu) return new VirtualArenaSource(card, pageBytes);
  if (info.dramSize < BigInt(pageBytes)) {
    throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `${card.name} has no device memory`);
  }
  return new PhysicalArenaSource(card, pageBytes, info.dramBaseAddress, Number(info.dramSize));
}

showAs(Device, 'Device', ({ moduleId, minor, busId, closed }) => ({
  busId,
  moduleId,
  minor,
  state: closed ? 'closed' : 'open',
}));
