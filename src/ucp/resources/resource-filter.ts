/** The transports and devices that UCX_TLS and UCX_{NET,SHM,ACC,SELF}_DEVICES allow a context, and names in those lists that this machine does not have. */

import { type AllowList, allowListType, isAllowed, matchesItem } from '../../ucs/config/list.ts';
import { nearestName } from '../../ucs/type/nearest-name.ts';
import { DeviceType, type IfaceResource } from '../../uct/api/iface.ts';
import type { UcpConfig } from './config.ts';

/** An unused resource, and why. */
export interface Rejection {
  /** Transport, device, or a component that could not be opened. */
  readonly name: string;
  readonly reason: string;
}

/** A transport with its names in UCX_TLS. */
export interface NamedTransport {
  readonly name: string;
  readonly aliases: readonly string[];
}

/** Prefix that disables the aliases of a name in UCX_TLS. */
const STRICT = '\\';

const DEVICE_VARIABLES: Readonly<Record<DeviceType, string>> = {
  [DeviceType.NET]: 'UCX_NET_DEVICES',
  [DeviceType.SHM]: 'UCX_SHM_DEVICES',
  [DeviceType.ACC]: 'UCX_ACC_DEVICES',
  [DeviceType.SELF]: 'UCX_SELF_DEVICES',
};

/** The choice of transports and devices by configuration. Records the queried names, to find unavailable ones. */
export class ResourceFilter {
  readonly #transports: AllowList;
  readonly #devices: Readonly<Record<DeviceType, AllowList>>;
  /** Types of the devices of transports, by name. */
  readonly #deviceTypes: Map<string, DeviceType> = new Map();
  readonly #knownTransports: Map<string, NamedTransport> = new Map();
  readonly #knownDevices: Readonly<Record<DeviceType, Set<string>>>;
  readonly #rejections: Map<string, Rejection> = new Map();
  #hasExcludedTransports = false;

  constructor(config: Pick<UcpConfig, 'TLS' | 'NET_DEVICES' | 'SHM_DEVICES' | 'ACC_DEVICES' | 'SELF_DEVICES'>) {
    this.#transports = config.TLS;
    this.#devices = {
      [DeviceType.NET]: config.NET_DEVICES,
      [DeviceType.SHM]: config.SHM_DEVICES,
      [DeviceType.ACC]: config.ACC_DEVICES,
      [DeviceType.SELF]: config.SELF_DEVICES,
    };
    this.#knownDevices = {
      [DeviceType.NET]: new Set(),
      [DeviceType.SHM]: new Set(),
      [DeviceType.ACC]: new Set(),
      [DeviceType.SELF]: new Set(),
    };
  }

  /** True if UCX_TLS is a list of allowed transports, not of excluded ones. */
  get namesTransports(): boolean {
    return this.#transports.mode === 'allow';
  }

  /** True if UCX_ACC_DEVICES is a list of allowed devices, not of excluded ones. */
  get namesAccelerators(): boolean {
    return this.#devices[DeviceType.ACC].mode === 'allow';
  }

  /** The queried resources that are excluded. */
  get rejections(): readonly Rejection[] {
    return [...this.#rejections.values()];
  }

  /** True if UCX_TLS allows a transport. A list of excluded transports matches any of its names, and so does a list of allowed ones. */
  admitsTransport(transport: NamedTransport): boolean {
    this.#knownTransports.set(transport.name, transport);
    const { mode, items } = this.#transports;
    const isNamed = items.some((item) => namesTransport(item, transport));
    if (mode === 'all' || isNamed === (mode === 'allow')) return true;
    this.#hasExcludedTransports = true;
    this.#reject(transport.name, excludedBy('UCX_TLS', this.#transports));
    return false;
  }

  /** True if the list of its type allows a device. An arrow function, because it is passed to components. */
  readonly admitsDevice = (type: DeviceType, device: string): boolean => {
    this.#knownDevices[type].add(device);
    if (isAllowed(this.#devices[type], device)) return true;
    this.#reject(device, excludedBy(DEVICE_VARIABLES[type], this.#devices[type]));
    return false;
  };

  /** Why a resource is excluded; undefined if it is allowed. */
  exclusionOf({ transport, aliases, deviceType, device }: IfaceResource): string | undefined {
    this.#deviceTypes.set(transport, deviceType);
    if (!this.admitsTransport({ name: transport, aliases })) return excludedBy('UCX_TLS', this.#transports);
    if (this.admitsDevice(deviceType, device)) return undefined;
    return excludedBy(DEVICE_VARIABLES[deviceType], this.#devices[deviceType]);
  }

  /** The lists that exclude something, as `UCX_TLS=tpc`. */
  get settings(): string[] {
    const lists = Object.entries(DEVICE_VARIABLES).map(
      ([type, variable]) => [variable, this.#devices[type as DeviceType]] as const,
    );
    return [['UCX_TLS', this.#transports] as const, ...lists]
      .filter(([, { mode }]) => mode !== 'all')
      .map(([variable, list]) => `${variable}=${allowListType.print(list)}`);
  }

  /** A hint for each transport in UCX_TLS that only the UCX library or a machine with RDMA devices has. */
  hints(): string[] {
    if (!this.namesTransports) return [];
    if (this.#transports.items.length === 0) return ['UCX_TLS is empty: unset it to use all transports'];
    return this.#transports.items.flatMap((item) => hintOf(item) ?? []);
  }

  /** Warnings about names in the lists that no resource has, once all resources were queried. */
  unavailable(): string[] {
    const known = [...this.#knownTransports.values()];
    const { mode, items } = this.#transports;
    // Excluding a transport of UCX that this library lacks, such as `^cuda`, is not a mistake.
    const isKnownExclusion = (item: string): boolean => mode === 'deny' && hintOf(item) !== undefined;
    const unknown = items.filter(
      (item) => !known.some((each) => namesTransport(item, each)) && !isKnownExclusion(item),
    );
    const names = new Set(known.flatMap(({ name, aliases }) => [name, ...aliases]));
    return [
      ...notAvailable('transport', unknown, [...names]),
      ...Object.values(DeviceType).flatMap((type) => this.#unavailableDevices(type)),
    ];
  }

  #unavailableDevices(type: DeviceType): string[] {
    const known = [...this.#knownDevices[type]];
    // Devices of unused transports were not searched.
    if (known.length === 0 && this.#hasExcludedTransports) return [];
    const items = this.#devices[type].items.filter((item) => !known.some((name) => matchesItem(item, name)));
    const warnings = notAvailable(`${type} device`, items, known);
    return warnings.map((warning, position) => `${warning}${this.#otherVariable(items[position]!, type)}`);
  }

  /** A hint for an item in the wrong variable: a device of another type, or a transport. */
  #otherVariable(item: string, type: DeviceType): string {
    const other = Object.values(DeviceType).find((each) => each !== type && this.#knownDevices[each].has(item));
    if (other !== undefined) return `; '${item}' is a device for ${DEVICE_VARIABLES[other]}`;
    const transport = [...this.#knownTransports.values()].find((each) => namesTransport(item, each));
    if (transport === undefined) return '';
    const devices = this.#deviceTypes.get(transport.name);
    const also = devices === undefined ? '' : `, and its devices in ${DEVICE_VARIABLES[devices]}`;
    return `; '${item}' is a transport: put it in UCX_TLS${also}`;
  }

  #reject(name: string, reason: string): void {
    this.#rejections.set(`${name} ${reason}`, { name, reason });
  }
}

function excludedBy(variable: string, { mode, items }: AllowList): string {
  const isEmpty = mode === 'allow' && items.length === 0;
  return isEmpty ? `excluded by ${variable}, which is empty` : `excluded by ${variable}`;
}

/** Transports of UCX that this library does not have, and their aliases. */
const LIBRARY_TRANSPORTS =
  /^((ib|rc|dc|ud|srd|gga)(_v|_x|_verbs|_mlx5)?|cuda(_copy|_ipc)?|gdr_copy|rocm(_copy|_ipc|_gdr)?|ze(_copy|_ipc|_gdr)?|sysv|xpmem|knem|ugni)$/;

/** The longer names among them, for hints. */
const LIBRARY_NAMES = [
  'cuda_copy',
  'cuda_ipc',
  'gdr_copy',
  'rocm_copy',
  'rocm_ipc',
  'rc_mlx5',
  'rc_verbs',
  'dc_mlx5',
  'ud_mlx5',
  'ud_verbs',
];

/** Transports that this library has too, on machines with an RDMA device. */
const RDMA_TRANSPORTS: readonly string[] = ['ib', 'rc', 'rc_v', 'rc_verbs'];

function hintOf(item: string): string | undefined {
  const name = item.replace(STRICT, '');
  if (RDMA_TRANSPORTS.includes(name)) {
    return `'${name}' needs an RDMA device: set UCX_GAUDI_EMULATOR_NICS=1 for an emulated one, or UCX_IB_DRIVER to use those of this machine`;
  }
  if (!LIBRARY_TRANSPORTS.test(name)) return undefined;
  return `'${name}' is a transport of the UCX library: set UCX_ENGINE=libucx if the library on this machine has it (see ucx_info -d)`;
}

/** True if an item of UCX_TLS matches a transport. */
function namesTransport(item: string, { name, aliases }: NamedTransport): boolean {
  if (item.startsWith(STRICT)) return matchesItem(item.slice(STRICT.length), name);
  return matchesItem(item, name) || aliases.some((alias) => matchesItem(item, alias));
}

/** The warnings for unavailable items, in the wording of UCX, each with the nearest name. */
function notAvailable(what: string, items: readonly string[], known: readonly string[]): string[] {
  return items.map((item) => {
    const name = item.replace(STRICT, '');
    const nearest = nearestName(name, known) ?? (what === 'transport' ? nearestName(name, LIBRARY_NAMES) : undefined);
    // A known transport that this machine lacks is spelt correctly.
    const hint = nearest === undefined || nearest === item ? '' : ` (maybe: ${nearest}?)`;
    const choice = known.length === 0 ? 'there are none' : `please use one or more of: ${[...known].sort().join(', ')}`;
    const source = hintOf(item);
    return `${what} '${item}' is not available${hint}, ${choice}${source === undefined ? '' : `; ${source}`}`;
  });
}
