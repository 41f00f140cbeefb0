/**
 * The component tcp and its memory domain: host memory that peers access by frames. The progress of the owner executes the puts and gets in them. Also provides
 * a connection manager.
 */

import { type MappedMemory, mapAnonymous, VIEW_LENGTH_MAX } from '../../sys/index.ts';
import { MemoryType, memoryTypeBit } from '../../ucs/memory/memory-type.ts';
import { UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';
import { DeviceType, type IfaceResource } from '../api/iface.ts';
import {
  type AllocateOptions,
  type Component,
  type ComponentServices,
  type MdAttributes,
  MdFlag,
} from '../api/memory-domain.ts';
import { checkServices } from '../base/checks.ts';
import { HostDomain } from '../base/host/domain.ts';
import { allocatedAccess, type HostMemory } from '../base/host/memory.ts';
import type { ClosableIface } from '../base/iface.ts';
import { listNetworkInterfaces, type NetworkInterface, withFamilies } from './address.ts';
import { tcpConnectionManager } from './cm/manager.ts';
import { TCP_CONFIG_TABLE } from './config.ts';
import { TcpIface } from './iface.ts';
import { TCP_KEY_BYTES, TCP_NAME, type TcpKey, TcpKeyTable } from './key.ts';
import { openSecurity, type Security } from './secure/security.ts';

const HOST: number = memoryTypeBit(MemoryType.HOST);

export class TcpMd extends HostDomain {
  readonly resources: readonly IfaceResource[];
  readonly attributes: MdAttributes = {
    name: TCP_NAME,
    component: TCP_NAME,
    flags: MdFlag.ALLOC | MdFlag.REG | MdFlag.NEED_RKEY | MdFlag.INVALIDATE | MdFlag.ADVISE | MdFlag.PUBLISHES_KEYS,
    registerMemoryTypes: HOST,
    allocateMemoryTypes: HOST,
    accessMemoryTypes: HOST,
    detectMemoryTypes: 0,
    dmabufMemoryTypes: 0,
    cacheMemoryTypes: 0,
    registerCost: { overheadNs: 0, perByteNs: 0 },
    rkeyPackedBytes: TCP_KEY_BYTES,
    allocateBytesMax: VIEW_LENGTH_MAX,
    registerBytesMax: Number.MAX_SAFE_INTEGER,
  };
  readonly #services: ComponentServices;
  readonly #interfaces: readonly NetworkInterface[];
  readonly #keys: TcpKeyTable = new TcpKeyTable();
  readonly #security: Security | undefined;

  /** @throws UcxError ERR_NO_DEVICE if no permitted network interface has an address; ERR_TCP_KEY_FILE */
  constructor(services: ComponentServices) {
    super(TCP_NAME, () => true);
    this.#services = services;
    const config = services.config.get(TCP_CONFIG_TABLE);
    this.#security = openSecurity(config, services.log);
    const families = config.AF_PRIO.map((family) => (family === 'inet' ? 4 : 6));
    const usable = withFamilies(listNetworkInterfaces(), families).filter(
      ({ isBridge }) => config.BRIDGE_ENABLE || !isBridge,
    );
    // Peers on this host are reachable through every device. If the program selects devices, loopback is available only if no other is selected.
    const { isDeviceAllowed = () => false } = services;
    const allowed = usable.filter(({ name }) => isDeviceAllowed(DeviceType.NET, name));
    const isBeside = allowed.some(({ isLoopback }) => !isLoopback);
    const found = usable.filter(({ isLoopback }) => !(isLoopback && isBeside));
    this.#interfaces = found;
    if (found.length === 0) {
      throw new UcxError({
        code: 'ERR_NO_DEVICE',
        status: Status.NO_DEVICE,
        message:
          'no network interface with an address, among those that UCX_NET_DEVICES, UCX_TCP_AF_PRIO and UCX_TCP_BRIDGE_ENABLE allow',
      });
    }
    this.resources = found.map(({ name }) => ({
      transport: TCP_NAME,
      aliases: [],
      device: name,
      deviceType: DeviceType.NET,
      sysDevice: undefined,
    }));
  }

  memAlloc(byteLength: number, options: AllocateOptions): HostMemory {
    this.checkOpen();
    const access = allocatedAccess(options, MemoryType.HOST, TCP_NAME);
    const mapped: MappedMemory = mapAnonymous(byteLength);
    return this.own({ bytes: mapped.u8, allocation: mapped, packable: true, access });
  }

  rkeyUnpack(packed: Uint8Array): TcpKey {
    this.checkOpen();
    return this.#keys.unpack(packed);
  }

  protected packKey(memory: HostMemory, target: Uint8Array, offset: number): void {
    this.#keys.pack(memory, target, offset);
  }

  protected revokeKey(memory: HostMemory): void {
    this.#keys.revoke(memory);
  }

  protected makeIface(resource: IfaceResource): ClosableIface {
    const device = this.#interfaces.find(({ name }) => name === resource.device)!;
    return new TcpIface(resource, device, { keys: this.#keys, security: this.#security }, this.#services);
  }
}

/** The component `tcp`. */
export function tcpComponent(): Component {
  return {
    name: TCP_NAME,
    transports: [{ name: TCP_NAME, aliases: [] }],
    configTable: TCP_CONFIG_TABLE,
    openMd: (services) => {
      checkServices(services);
      return new TcpMd(services);
    },
    openConnectionManager: (services) => {
      checkServices(services);
      return tcpConnectionManager(services, openSecurity(services.config.get(TCP_CONFIG_TABLE), services.log));
    },
  };
}
