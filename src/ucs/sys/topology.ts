/** Topology of a machine: PCI addresses, the path between two devices, and their distance. Callers pass the sysfs paths of devices. */

import { invalidParam } from '../type/error.ts';

/** A PCI address: domain, bus, device, function (BDF). */
export interface PciAddress {
  /** 0 to 0xffffffff; hot-plug controllers use domains above 0xffff. */
  readonly domain: number;
  readonly bus: number;
  readonly device: number;
  readonly fn: number;
}

/** The path between two devices, for estimates (ucs_sys_dev_distance_t). */
export interface Distance {
  /** The nearest component that the two devices share. */
  readonly kind: DistanceKind;
  readonly latencyNs: number;
  /** Maximum bytes per second of the path; Infinity if the path does not limit the bandwidth. */
  readonly bandwidth: number;
}

/**
 * The nearest component that two devices share, nearest first: the device itself, a PCI switch, the PCI root of a socket, the NUMA node, the machine. `unknown`
 * if the location of one of them is not known.
 */
export const DISTANCE_KINDS = ['same device', 'PCI switch', 'PCI root', 'NUMA node', 'machine', 'unknown'] as const;
export type DistanceKind = (typeof DISTANCE_KINDS)[number];

/** A device and its location. */
export interface SystemDevice {
  /** Such as `gaudi0` or `mlx5_0`. */
  readonly name: string;
  /**
   * The path from the root to the device, such as `pci0000:17/0000:17:01.0/0000:19:00.0`; undefined for a device that is not on PCI, or if the path
   * is unknown.
   */
  readonly pciPath: string | undefined;
  /** -1 if the platform does not report it. */
  readonly numaNode: number;
}

/** A device and its distance. */
export interface Neighbour<T extends SystemDevice> {
  readonly device: T;
  readonly distance: Distance;
}

const ADDRESS = /^(?:([0-9a-f]{1,8}):)?([0-9a-f]{1,2}):([0-9a-f]{1,2})(?:\.([0-7]))?$/i;
const DEVICE_MAX = 31;
/** The constants of UCX's sysfs topology: approximate, and the same for all machines. */
const ROOT_LATENCY_NS = 300;
const ROOT_BANDWIDTH = 3500e6;
const ROOT_BANDWIDTH_BY_HOPS = 17_500e6;
const NUMA_LATENCY_NS = 400;
const MACHINE_LATENCY_NS = 500;
const MACHINE_BANDWIDTH = 220e6;
const UNLIMITED: Pick<Distance, 'latencyNs' | 'bandwidth'> = {
  latencyNs: 0,
  bandwidth: Number.POSITIVE_INFINITY,
};

/**
 * Reads a PCI address: `0000:3b:00.0`, without domain `3b:00.0`, without function `3b:00`. Case and leading zeros do not matter.
 * @throws UcxError ERR_INVALID_PARAM
 */
export function parsePciAddress(text: string): PciAddress {
  const match = ADDRESS.exec(text.trim());
  const device = Number.parseInt(match?.[3] ?? '', 16);
  if (match === null || device > DEVICE_MAX) {
    throw invalidParam('address', 'must be a PCI address such as 0000:3b:00.0', text);
  }
  const [, domain = '0', bus = '0', , fn = '0'] = match;
  return { domain: Number.parseInt(domain, 16), bus: Number.parseInt(bus, 16), device, fn: Number(fn) };
}

/** `0000:3b:00.0`: at least four digits of the domain, in lower case, as the kernel writes it. */
export function printPciAddress({ domain, bus, device, fn }: PciAddress): string {
  const hex = (value: number, digits: number): string => value.toString(16).padStart(digits, '0');
  return `${hex(domain, 4)}:${hex(bus, 2)}:${hex(device, 2)}.${fn}`;
}

/** A PCI address as 32 bits, for handles and keys: `0000:3b:00.0` is 0x3b00. Keeps only the low 16 bits of the domain. */
export function busNumberOf(busId: string): number {
  const { domain, bus, device, fn } = parsePciAddress(busId);
  return ((domain << 16) | (bus << 8) | (device << 3) | fn) >>> 0;
}

/** The PCI address of a number of {@link busNumberOf}. */
export function busIdOf(busNumber: number): string {
  const device = (busNumber >>> 3) & 0x1f;
  return printPciAddress({ domain: busNumber >>> 16, bus: (busNumber >>> 8) & 0xff, device, fn: busNumber & 7 });
}

/**
 * The PCI path of a device, from the real path of its sysfs folder: the part after `/sys/devices` up to the last PCI address. Undefined if there is none, as
 * for a virtual network interface.
 */
export function pciPathOf(sysfsPath: string): string | undefined {
  const parts = sysfsPath.split('/').filter((part) => part !== '');
  const root = parts.findIndex((part) => /^pci[0-9a-f]{4,8}:[0-9a-f]{2}$/i.test(part));
  if (root < 0) return undefined;
  const behindRoot = parts.slice(root + 1);
  const end = behindRoot.findIndex((part) => !/^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/i.test(part));
  const addresses = end < 0 ? behindRoot : behindRoot.slice(0, end);
  return addresses.length === 0 ? undefined : [parts[root]!, ...addresses].join('/');
}

/** The PCI address of the device at the end of a PCI path. */
export function addressOfPath(pciPath: string): PciAddress {
  return parsePciAddress(pciPath.slice(pciPath.lastIndexOf('/') + 1));
}

/** The distance of two devices. Symmetric; a device whose location is unknown counts as near, as in UCX. */
export function distanceBetween(left: SystemDevice, right: SystemDevice): Distance {
  if (left.pciPath === undefined || right.pciPath === undefined) {
    const isSame = left === right;
    return { kind: isSame ? 'same device' : 'unknown', ...UNLIMITED };
  }
  const one = left.pciPath.split('/');
  const other = right.pciPath.split('/');
  let common = 0;
  while (common < one.length && one[common] === other[common]) common += 1;
  if (common === one.length && common === other.length) return { kind: 'same device', ...UNLIMITED };
  if (common > 1 || (common === 1 && isOneCard(one, other))) return { kind: 'PCI switch', ...UNLIMITED };
  if (common === 1) {
    const hops = one.length + other.length - 2;
    const bandwidth = Math.min(ROOT_BANDWIDTH, ROOT_BANDWIDTH_BY_HOPS / hops);
    return { kind: 'PCI root', latencyNs: ROOT_LATENCY_NS, bandwidth };
  }
  if (left.numaNode >= 0 && left.numaNode === right.numaNode) {
    return { kind: 'NUMA node', latencyNs: NUMA_LATENCY_NS, bandwidth: ROOT_BANDWIDTH };
  }
  return { kind: 'machine', latencyNs: MACHINE_LATENCY_NS, bandwidth: MACHINE_BANDWIDTH };
}

/** Devices sorted by their distance from `from`; equally distant ones in the order of the list. */
export function byDistance<T extends SystemDevice>(from: SystemDevice, devices: readonly T[]): Neighbour<T>[] {
  const neighbours = devices.map((device) => ({ device, distance: distanceBetween(from, device) }));
  const rank = ({ distance }: Neighbour<T>): number => DISTANCE_KINDS.indexOf(distance.kind);
  return neighbours.sort(
    (left, right) => rank(left) - rank(right) || right.distance.bandwidth - left.distance.bandwidth,
  );
}

/**
 * The siblings of a device: devices behind the same switch, each of which has a downstream port, or below the same root port, and other functions of the same
 * PCI device. They share its path into the machine.
 */
export function siblingsOf<T extends SystemDevice>(device: SystemDevice, devices: readonly T[]): T[] {
  const { pciPath } = device;
  if (pciPath === undefined) return [];
  return devices.filter((other) => {
    if (other.pciPath === undefined || other.pciPath === pciPath) return false;
    const [one, two] = [pciPath.split('/'), other.pciPath.split('/')];
    if (isOneCard(one, two) || (one.length > 2 && above(one, 1) === above(two, 1))) return true;
    return one.length > 3 && above(one, 2) === above(two, 2);
  });
}

/**
 * The nearest network device of each device.
 * @param devices the devices that need a network device, such as cards
 * @param networks the candidates, the preferred ones first
 * @returns one per device; undefined if there is no candidate
 */
export function chooseNetworkDevices<T extends SystemDevice>(
  devices: readonly SystemDevice[],
  networks: readonly T[],
): (Neighbour<T> | undefined)[] {
  return devices.map((device) => byDistance(device, networks)[0]);
}

/** Whether both are functions of one PCI device. */
function isOneCard(left: readonly string[], right: readonly string[]): boolean {
  const cut = (path: readonly string[]): string => path.join('/').replace(/\.[0-7]$/, '');
  return cut(left) === cut(right);
}

/** The part of a path that is `levels` above its device. */
function above(path: readonly string[], levels: number): string {
  return path.slice(0, -levels).join('/');
}
