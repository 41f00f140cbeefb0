/**
 * The network devices of a machine in /sys/class/net and /sys/class/infiniband: their location and link state. Opens none.
 */

import type { SystemDevice } from '../../ucs/sys/topology.ts';
import { pciPathOf } from '../../ucs/sys/topology.ts';
import { readText } from './discovery.ts';
import { linuxSystemCalls, type SystemCalls } from './system-calls.ts';

/** A network device. */
export interface NetworkDevice extends SystemDevice {
  readonly kind: 'infiniband' | 'ethernet';
  readonly up: boolean;
  /** Undefined if the device does not report it. */
  readonly megabitPerSecond: number | undefined;
  /** The interfaces of an RDMA device; otherwise only the device itself. */
  readonly netdevs: readonly string[];
}

/** PCI vendor of Gaudi cards: their ports are reported with the cards. */
const HABANA = '0x1da3';

/**
 * The network devices: RDMA devices first, then interfaces, each with a link before those without, by name. Interfaces without a physical device,
 * such as bridges and loopback, are omitted, and so are the ports of Gaudi cards.
 * @param sysRoot mount point of sysfs; tests use their own folder
 */
export function discoverNetworkDevices(sysRoot: string, calls: SystemCalls = linuxSystemCalls): NetworkDevice[] {
  const rdma = calls.namesIn(`${sysRoot}/class/infiniband`).map((name) => rdmaDevice(calls, sysRoot, name));
  const netdevs = calls.namesIn(`${sysRoot}/class/net`).map((name) => netDevice(calls, sysRoot, name));
  const found = [...rdma, ...netdevs].filter((device) => device !== undefined);
  const order = (device: NetworkDevice): number => (device.kind === 'infiniband' ? 0 : 2) + (device.up ? 0 : 1);
  const byName = (left: NetworkDevice, right: NetworkDevice): number =>
    left.name.localeCompare(right.name, 'en', { numeric: true });
  return found.sort((left, right) => order(left) - order(right) || byName(left, right));
}

/** Names of the RDMA devices that libibverbs may find: soft ones are among them, the ports of Gaudi cards are not. */
export function rdmaDeviceNames(sysRoot: string, calls: SystemCalls = linuxSystemCalls): string[] {
  const folder = `${sysRoot}/class/infiniband`;
  return calls.namesIn(folder).filter((name) => !isHabana(calls, `${folder}/${name}`));
}

function isHabana(calls: SystemCalls, folder: string): boolean {
  return readText(calls, `${folder}/device/vendor`).text === HABANA;
}

function rdmaDevice(calls: SystemCalls, sysRoot: string, name: string): NetworkDevice | undefined {
  const folder = `${sysRoot}/class/infiniband/${name}`;
  const place = placeOf(calls, folder);
  if (place === undefined) return undefined;
  const ports = calls.namesIn(`${folder}/ports`);
  const states = ports.map((port) => readText(calls, `${folder}/ports/${port}/state`).text);
  const rates = ports.map((port) => Number.parseFloat(readText(calls, `${folder}/ports/${port}/rate`).text ?? ''));
  const rate = Math.max(0, ...rates.filter((value) => Number.isFinite(value)));
  return {
    name,
    ...place,
    kind: 'infiniband',
    // `4: ACTIVE`
    up: states.some((state) => state?.startsWith('4') === true),
    megabitPerSecond: rate === 0 ? undefined : rate * 1000,
    netdevs: calls.namesIn(`${folder}/device/net`).sort(),
  };
}

function netDevice(calls: SystemCalls, sysRoot: string, name: string): NetworkDevice | undefined {
  const folder = `${sysRoot}/class/net/${name}`;
  const place = placeOf(calls, folder);
  if (place === undefined) return undefined;
  const speed = Number(readText(calls, `${folder}/speed`).text ?? '-1');
  return {
    name,
    ...place,
    kind: 'ethernet',
    up: readText(calls, `${folder}/carrier`).text === '1',
    megabitPerSecond: speed > 0 ? speed : undefined,
    netdevs: [name],
  };
}

/** Location of the device behind a class folder; undefined if there is none, and for a Gaudi card. */
function placeOf(calls: SystemCalls, folder: string): Pick<SystemDevice, 'pciPath' | 'numaNode'> | undefined {
  const device = calls.realPath(`${folder}/device`);
  if (device === undefined || isHabana(calls, folder)) return undefined;
  const numaNode = Number(readText(calls, `${folder}/device/numa_node`).text ?? '-1');
  return { pciPath: pciPathOf(device), numaNode: Number.isInteger(numaNode) ? numaNode : -1 };
}
