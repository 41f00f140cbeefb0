/** The component ib and its memory domain: host memory, and device memory by its dma-bufs, registered with every RDMA device behind the verbs port. */

import {
  addressOf,
  Errno,
  isSyscallError,
  type MappedMemory,
  mapAnonymous,
  PAGE_SIZE,
  VIEW_LENGTH_MAX,
} from '../../sys/index.ts';
import type { AnyConfigTable } from '../../ucs/config/config.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import { DEVICE_MEMORY_TYPES, hasMemoryType, MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { DmabufCounts } from '../../ucs/stats/dmabuf-counts.ts';
import { type StatsNode, statsNode } from '../../ucs/stats/stats-node.ts';
import { closedError, invalidParam, statusError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import type { MemoryRegion, VerbsPort } from '../../verbs/port.ts';
import { DeviceType, type Iface, type IfaceResource } from '../api/iface.ts';
import type { MdMemory } from '../api/memory.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type DmabufExport,
  type DmabufRegion,
  type LeftOut,
  type MdAttributes,
  MdFlag,
  MemAccess,
  type MemoryAdvice,
  type MemoryAttributes,
  type MemoryDomain,
  type RegisterOptions,
  type RegistrationCache,
  type RegistrationSource,
} from '../api/memory-domain.ts';
import {
  checkAddress,
  checkByteLength,
  checkKeyTarget,
  checkServices,
  checkSysDevice,
  isInside,
} from '../base/checks.ts';
import { notDetected } from '../base/host/domain.ts';
import {
  allocatedAccess,
  cacheStats,
  checkAccess,
  checkAdvice,
  checkDeregister,
  type DeregisterOptions,
  hostBytesOf,
  prefault,
  registeredAccess,
} from '../base/host/memory.ts';
import { OpenIfaces } from '../base/iface.ts';
import { IB_CONFIG_TABLE, IB_NAME, RC_NAME } from './base/config.ts';
import { AsyncEvents, IbDevice, type IbPort } from './base/device.ts';
import { DEVICES_MAX, type IbKey, IbKeyTable, keyBytes } from './base/key.ts';
import { accessFlags, IbMemory, IbRegistry } from './base/memory.ts';
import { IbIface } from './iface.ts';

const HOST: number = memoryTypeBit(MemoryType.HOST);
const HOST_PLACE = { memoryType: MemoryType.HOST, sysDevice: undefined };

class IbMd implements MemoryDomain {
  readonly attributes: MdAttributes;
  readonly resources: readonly IfaceResource[];
  readonly leftOut: readonly LeftOut[];
  readonly #services: ComponentServices;
  readonly #devices: readonly IbDevice[];
  readonly #ports: readonly IbPort[];
  readonly #keys: IbKeyTable = new IbKeyTable();
  readonly #registry: IbRegistry;
  readonly #live: Set<IbMemory> = new Set();
  readonly #events: readonly AsyncEvents[];
  /** Log for the events of devices. */
  readonly #log: LimitedLog;
  readonly #ifaces: OpenIfaces<IbIface> = new OpenIfaces();
  readonly #onClose: () => void;
  readonly #dmabufs: DmabufCounts;
  #generation = 0;
  #closed = false;

  /** @throws UcxError ERR_NO_DEVICE with the reasons if no port can be used */
  constructor(verbs: VerbsPort, services: ComponentServices, onClose: () => void = () => {}) {
    this.#services = services;
    this.#onClose = onClose;
    this.#dmabufs = new DmabufCounts(services.log);
    const { devices, ports, leftOut, excluded } = openDevices(verbs, services);
    if (ports.length === 0) {
      for (const device of devices) device.close();
      throw noPort(verbs, leftOut, excluded);
    }
    this.#devices = devices;
    this.#ports = ports;
    const events: AsyncEvents[] = [];
    this.#events = events;
    this.#log = new LimitedLog(services.log, services.clock, { what: 'warnings about RDMA devices' });
    try {
      for (const device of devices) events.push(new AsyncEvents(device, this.#log, () => this.#deviceFailed(device)));
    } catch (error) {
      for (const each of [...events, ...devices]) each.close();
      throw error;
    }
    this.leftOut = leftOut;
    this.#registry = new IbRegistry(devices, services);
    this.resources = ports.map(({ resource }) => resource);
    this.attributes = {
      name: IB_NAME,
      component: IB_NAME,
      flags:
        MdFlag.ALLOC |
        MdFlag.REG |
        MdFlag.NEED_MEMH |
        MdFlag.NEED_RKEY |
        MdFlag.INVALIDATE |
        MdFlag.ADVISE |
        MdFlag.REG_DMABUF |
        MdFlag.PINS_PAGES,
      registerMemoryTypes: HOST,
      registerDmabufMemoryTypes: DEVICE_MEMORY_TYPES,
      allocateMemoryTypes: HOST,
      accessMemoryTypes: HOST,
      detectMemoryTypes: 0,
      dmabufMemoryTypes: 0,
      cacheMemoryTypes: this.#registry.isCaching ? HOST : 0,
      registerCost: this.#registry.cost,
      rkeyPackedBytes: keyBytes(devices.length),
      allocateBytesMax: VIEW_LENGTH_MAX,
      registerBytesMax: Math.min(...devices.map(({ attributes: { maxMrSize } }) => maxMrSize)),
    };
  }

  memAlloc(byteLength: number, options: AllocateOptions): IbMemory {
    this.#checkOpen();
    const access = allocatedAccess(options, MemoryType.HOST, IB_NAME);
    const mapped: MappedMemory = mapAnonymous(byteLength);
    try {
      const { u8: bytes, address } = mapped;
      const exposed = this.#registry.expose(bytes, access);
      const { iova, lkeys } = exposed;
      const place = { ...HOST_PLACE, address: BigInt(address), byteLength, bytes };
      return this.#add({ ...place, access, iova, lkeys, exposed, free: () => mapped.close() });
    } catch (error) {
      mapped.close();
      throw error;
    }
  }

  memFree(memory: MdMemory): void {
    const own = this.#own(memory);
    if (own.free === undefined) throw invalidParam('memory', 'must come from memAlloc', own.address);
    this.#checkIdle('memFree', own);
    this.#retire(own);
    own.free();
  }

  memReg(source: RegistrationSource, options?: RegisterOptions): IbMemory {
    this.#checkOpen();
    const access = registeredAccess(options);
    if ((access & MemAccess.LOCAL_WRITE) === 0) return this.#registerToRead(source, access);
    const { bytes, region: cached } = this.#registry.acquire(source);
    const address = addressOf(bytes);
    const place = { ...HOST_PLACE, address: BigInt(address), byteLength: bytes.byteLength, bytes };
    const { iova, lkeys } = cached.registration;
    return this.#add({ ...place, access, iova: iova + address - cached.start, lkeys, cached });
  }

  /** Registers memory that transfers of this process only read, and that may be mapped read-only. */
  #registerToRead(source: RegistrationSource, access: number): IbMemory {
    const bytes = hostBytesOf(source);
    const readOnly = this.#registry.expose(bytes, MemAccess.LOCAL_READ);
    const place = { ...HOST_PLACE, address: BigInt(addressOf(bytes)), byteLength: bytes.byteLength, bytes };
    return this.#add({ ...place, access, iova: readOnly.iova, lkeys: readOnly.lkeys, readOnly });
  }

  memRegDmabuf(region: DmabufRegion): IbMemory {
    this.#checkOpen();
    if (typeof region !== 'object' || region === null) throw invalidParam('region', 'must be an object', region);
    const { fd, offset, byteLength, address, memoryType, sysDevice } = region;
    const access = checkAccess(region.access);
    if (!Number.isInteger(fd) || fd < 0 || fd >= 2 ** 31) throw invalidParam('fd', 'must be a file descriptor', fd);
    if (!isInside(offset, 1, Number.MAX_SAFE_INTEGER))
      throw invalidParam('offset', 'must be an integer of at least 0', offset);
    if (!isInside(0, byteLength, this.attributes.registerBytesMax) || byteLength === 0) {
      throw invalidParam('byteLength', `must be an integer from 1 to ${this.attributes.registerBytesMax}`, byteLength);
    }
    if (!hasMemoryType(DEVICE_MEMORY_TYPES, memoryType)) {
      throw invalidParam(
        'memoryType',
        'must be a type of device memory: host memory is registered directly',
        memoryType,
      );
    }
    checkSysDevice(sysDevice);
    checkAddress(address);
    const iova = offset % PAGE_SIZE;
    const exposed = this.#registry.onDevices(iova, ({ pd }) =>
      registerDmabuf(() => pd.regDmabufMr(fd, offset, byteLength, iova, accessFlags(access)), fd),
    );
    const { lkeys } = exposed;
    this.#dmabufs.imported(byteLength, `fd ${fd} from offset ${offset}, ${byteLength} bytes, by the RDMA devices`);
    const place = { memoryType, sysDevice, address, byteLength, bytes: undefined };
    return this.#add({ ...place, access, iova, lkeys, exposed });
  }

  memDereg(memory: MdMemory, options: DeregisterOptions = {}): void {
    const own = this.#own(memory);
    checkDeregister(options);
    if (own.free !== undefined) throw invalidParam('memory', 'must come from memReg', own.address);
    if (options.force !== true) this.#checkIdle('memDereg', own);
    this.#retire(own, options.invalidate === true);
  }

  hostUnmapped(address: number, byteLength: number): void {
    if (!isInside(address, 1, Number.MAX_SAFE_INTEGER)) {
      throw invalidParam('address', 'must be an integer of at least 0', address);
    }
    checkByteLength(byteLength);
    this.#registry.rcache.unmapped(address, byteLength);
    // Access by peers ends now; the other registrations end when no transfer of this process uses them.
    for (const memory of this.#live) {
      const first = Number(memory.address);
      const isUnmapped = first < address + byteLength && address < first + memory.registeredBytes;
      if (isUnmapped && (memory.cached ?? memory.readOnly) !== undefined) memory.hide();
    }
  }

  get caches(): readonly RegistrationCache[] {
    return [this.#registry.rcache];
  }

  memAdvise(memory: MdMemory, advice: MemoryAdvice, offset: number, byteLength: number): void {
    const own = this.#own(memory);
    checkAdvice(own, advice, offset, byteLength);
    if (advice === 'will-need' && own.bytes !== undefined) prefault(Number(own.address) + offset, byteLength);
  }

  memQuery(address: bigint): MemoryAttributes {
    throw notDetected(IB_NAME, 'memQuery', address);
  }

  memExportDmabuf(address: bigint): DmabufExport {
    throw notDetected(IB_NAME, 'memExportDmabuf', address);
  }

  detectMemoryType(): undefined {
    return undefined;
  }

  mkeyPack(memory: MdMemory, target: Uint8Array, offset: number): void {
    const own = this.#own(memory);
    checkKeyTarget(target, offset, this.attributes.rkeyPackedBytes);
    own.exposed ??= this.#registry.expose(own.bytes!, own.access);
    this.#keys.pack(own, own.exposed, target, offset);
  }

  rkeyUnpack(packed: Uint8Array): IbKey {
    this.#checkOpen();
    return this.#keys.unpack(packed);
  }

  openIface(resource: IfaceResource): Iface {
    this.#checkOpen();
    const port = this.#ports.find((each) => each.resource === resource);
    if (port === undefined)
      throw invalidParam('resource', 'must be an entry of `resources` of this memory domain', resource);
    return this.#ifaces.add(new IbIface(port, this.#services));
  }

  stats(): StatsNode {
    return statsNode('uct_md', IB_NAME, { memory_handles: this.#live.size }, [
      cacheStats(IB_NAME, this.#registry.rcache),
      this.#dmabufs.node(IB_NAME),
    ]);
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    for (const events of this.#events) events.close();
    this.#log.reportOmitted();
    this.#ifaces.close();
    for (const memory of this.#live) {
      this.#retire(memory);
      memory.free?.();
    }
    this.#registry.rcache.close();
    for (const device of this.#devices) device.close();
    this.#onClose();
  }

  #add(params: Omit<ConstructorParameters<typeof IbMemory>[0], 'generation'>): IbMemory {
    this.#generation += 1;
    const memory = new IbMemory({ ...params, generation: this.#generation });
    this.#live.add(memory);
    this.#keys.add(memory);
    return memory;
  }

  #deviceFailed(device: IbDevice): void {
    for (const iface of this.#ifaces) if (iface.port.device === device) iface.deviceFailed();
  }

  #checkOpen(): void {
    if (this.#closed) throw closedError(`memory domain ${IB_NAME}`);
  }

  #checkIdle(call: string, { inFlight }: IbMemory): void {
    if (inFlight > 0)
      throw statusError(Status.BUSY, `${call}: ${inFlight} transfers use the memory: wait for them first`);
  }

  #own(memory: MdMemory): IbMemory {
    if (!(memory instanceof IbMemory)) throw invalidParam('memory', `must be of memory domain ${IB_NAME}`, memory);
    if (this.#live.has(memory)) return memory;
    throw invalidParam('memory', 'has been freed, or belongs to another context', memory.address);
  }

  #retire(memory: IbMemory, invalidate = false): void {
    this.#keys.remove(memory);
    this.#live.delete(memory);
    const { cached, readOnly } = memory;
    if (cached !== undefined && (invalidate || !this.#registry.isCaching)) this.#registry.invalidate(cached);
    memory.retire(() => {
      memory.hide();
      if (memory.bytes === undefined)
        this.#dmabufs.released(memory.byteLength, `${memory.byteLength} bytes of the RDMA devices`);
      readOnly?.close();
      if (cached !== undefined) this.#registry.release(cached);
    });
  }
}

/** The devices and ports that the configuration allows, and those that are unusable. */
function openDevices(
  verbs: VerbsPort,
  { config, isDeviceAllowed = () => true }: ComponentServices,
): {
  readonly devices: IbDevice[];
  readonly ports: IbPort[];
  readonly leftOut: LeftOut[];
  readonly excluded: string[];
} {
  const { GID_INDEX, PKEY } = config.get(IB_CONFIG_TABLE);
  const gidIndex = GID_INDEX === 'auto' ? undefined : GID_INDEX;
  const pkey = PKEY === 'auto' ? undefined : PKEY;
  const devices: IbDevice[] = [];
  const ports: IbPort[] = [];
  const leftOut: LeftOut[] = [];
  const excluded: string[] = [];
  try {
    for (const { name } of verbs.devices().slice(0, DEVICES_MAX)) {
      const device = openDevice(verbs, name, devices.length, leftOut);
      if (device === undefined) continue;
      const usable: IbPort[] = [];
      for (let number = 1; number <= device.attributes.physPortCount; number++) {
        if (!isDeviceAllowed(DeviceType.NET, `${name}:${number}`)) {
          excluded.push(`${name}:${number}`);
          continue;
        }
        const port = device.port(number, gidIndex, pkey);
        if (typeof port === 'string') leftOut.push({ name: `${name}:${number}`, reason: port });
        else usable.push(port);
      }
      if (usable.length === 0) device.close();
      else {
        devices.push(device);
        ports.push(...usable);
      }
    }
    return { devices, ports, leftOut, excluded };
  } catch (error) {
    for (const device of devices) device.close();
    throw error;
  }
}

/** Registers a dma-buf; errors that the arguments cause name them. */
function registerDmabuf(register: () => MemoryRegion, fd: number): MemoryRegion {
  try {
    return register();
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    if (error.errno === Errno.EBADF) throw invalidParam('fd', 'must be an open descriptor', fd);
    if (error.errno !== Errno.EINVAL) throw error;
    throw invalidParam('fd', 'must be a dma-buf of at least byteLength plus offset bytes', fd);
  }
}

function openDevice(verbs: VerbsPort, name: string, index: number, leftOut: LeftOut[]): IbDevice | undefined {
  try {
    return new IbDevice(verbs, name, index);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    leftOut.push({ name, reason: error.message });
    return undefined;
  }
}

function noPort(verbs: VerbsPort, leftOut: readonly LeftOut[], excluded: readonly string[]): UcxError {
  const reasons = leftOut.map(({ name, reason }) => `${name}: ${reason}`);
  if (excluded.length > 0) reasons.push(`UCX_NET_DEVICES does not name ${excluded.join(', ')}`);
  const message = reasons.length === 0 ? verbs.whyNoDevices() : `no port can be used (${reasons.join('; ')})`;
  return noDevice(message);
}

/** The error for a machine without usable RDMA devices. Code ERR_NO_DEVICE. */
function noDevice(message: string): UcxError {
  return new UcxError({ code: 'ERR_NO_DEVICE', status: Status.NO_DEVICE, message });
}

/**
 * The component `ib`.
 * @param verbs the port of the RDMA devices; undefined for a node without RDMA devices
 * @param onClose called when the memory domain has been closed
 */
export function ibComponent(verbs: VerbsPort | undefined, onClose?: () => void): Component {
  return {
    name: IB_NAME,
    transports: [{ name: RC_NAME, aliases: ['rc_verbs', 'rc_v', 'ib'] }],
    configTable: IB_CONFIG_TABLE as AnyConfigTable,
    isReplaceable: true,
    openMd: (services) => {
      checkServices(services);
      if (verbs === undefined)
        throw noDevice(
          'no RDMA device: set UCX_GAUDI_EMULATOR_NICS=1 for an emulated one, or UCX_IB_DRIVER=verbs for those of this machine',
        );
      return new IbMd(verbs, services, onClose);
    },
  };
}
