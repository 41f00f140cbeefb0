/**
 * Discovery of the cards of a machine in /dev and /sys, in the layouts of all kernels with the driver; and facts about a card in /sys and /proc: its NIC ports,
 * and the process that has it open.
 *
 * | Linux | device nodes | attributes |
 * |---|---|---|
 * | up to 6.2 | /dev/hlN, /dev/hl_controlDN | /sys/class/habanalabs/hlN/ |
 * | 6.3 to 6.6 | /dev/accel/accelN, /dev/accel/accel_controlDN | /sys/class/accel/accelN/ |
 * | 6.7 and newer | the same | /sys/class/accel/accelN/device/ |
 *
 * Source: drivers/accel/habanalabs of Linux 6.12, drivers/misc/habanalabs of 6.1, Documentation/ABI/testing/sysfs-driver-habanalabs. The row of 6.3 to 6.6 is
 * inferred from hl-thunk 1.10.
 */

import { allocateScratch, Errno, errnoText, isSyscallError, OpenFlag, SyscallError } from '../../sys/index.ts';
import {
  DRM_IOCTLS,
  HABANALABS_IOCTLS,
  HL_INFO_ARGS,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_OP,
  type IoctlNumbers,
  PCI_VENDOR_HABANALABS,
} from '../../uapi/index.ts';
import { pciPathOf, type SystemDevice } from '../../ucs/sys/topology.ts';
import { invalidParam } from '../../ucs/type/error.ts';
import type { AbsentCard, CardEntry, PortLink } from '../port.ts';
import { RetryBudget } from './kernel-file.ts';
import { linuxSystemCalls, type SystemCalls } from './system-calls.ts';

/** Largest minor in the search (HLTHUNK_MAX_MINOR - 1). */
export const MINOR_MAX = 255;

/** Maximum size of an attribute in sysfs: one page. */
const ATTRIBUTE_BYTES_MAX = 4096;
const ACCEL_NODE = /^accel(\d{1,3})$/;
const LEGACY_NODE = /^hl(\d{1,3})$/;
const BUS_ID = /^([0-9a-f]{4,8}:)?[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$/;
const ATTRIBUTE_NAME = /^\w+$/;
const PROCESS_ID = /^\d+$/;
/** Largest port number of a NIC. */
const PORT_MAX = 63;
/** Base class of processing accelerators, in the highest of the three bytes of a PCI class (PCI_BASE_CLASS_PROCESSING_ACCEL). */
const PCI_CLASS_ACCELERATOR = 0x12;
const PCI_CLASS_SHIFT = 16;

/** Root folders; tests use temporary ones. */
export interface Roots {
  /** `/dev` */
  readonly devRoot: string;
  /** `/sys` */
  readonly sysRoot: string;
  /** `/proc` by default. */
  readonly procRoot?: string;
}

/** A device node that does not belong to a Gaudi card, and the reason. */
export interface SkippedNode {
  readonly path: string;
  readonly reason: string;
}

export interface Discovery {
  /** Ordered by minor. */
  readonly cards: readonly CardEntry[];
  readonly skipped: readonly SkippedNode[];
}

/** A possible path of a device node, and whether it is in the layout of the accel subsystem. */
export interface NodePath {
  readonly path: string;
  readonly accel: boolean;
}

/** The value of an attribute, or the errno of reading it. */
export type AttributeRead =
  | { readonly text: string }
  | { readonly text?: undefined /** 0 if the file does not exist. */; readonly errno: number };

/** The possible paths of a card's primary node, in the order of hl-thunk. */
export function primaryPaths(roots: Roots, minor: number): readonly NodePath[] {
  return [
    { path: `${roots.devRoot}/accel/accel${minor}`, accel: true },
    { path: `${roots.devRoot}/hl${minor}`, accel: false },
  ];
}

/** The possible paths of a card's control node. */
export function controlPaths(roots: Roots, minor: number): readonly NodePath[] {
  return [
    { path: `${roots.devRoot}/accel/accel_controlD${minor}`, accel: true },
    { path: `${roots.devRoot}/hl_controlD${minor}`, accel: false },
  ];
}

/** Throws ERR_INVALID_PARAM unless `minor` is an integer from 0 to {@link MINOR_MAX}. */
export function checkMinor(minor: number): void {
  if (!Number.isInteger(minor) || minor < 0 || minor > MINOR_MAX) {
    throw invalidParam('minor', `must be an integer from 0 to ${MINOR_MAX}`, minor);
  }
}

/** Finds the cards of the machine. Skips nodes without a bus id in sysfs, because /dev/accel also contains cards of other drivers. */
export function discoverCards(calls: SystemCalls, roots: Roots): Discovery {
  const cards: CardEntry[] = [];
  const skipped: SkippedNode[] = [];
  for (const [minor, path] of primaryNodes(calls, roots)) {
    const address = readCardAttribute(calls, roots, minor, 'pci_addr');
    const busId = address.text === undefined ? undefined : canonicalBusId(address.text);
    if (busId === undefined) {
      skipped.push({ path, reason: reasonOf(address) });
      continue;
    }
    cards.push({
      minor,
      busId,
      moduleId: integerOf(readCardAttribute(calls, roots, minor, 'module_id').text),
      numaNode: numaNodeOf(calls, roots, minor, busId),
      pciPath: pciPathOf(calls.realPath(`${roots.sysRoot}/bus/pci/devices/${busId}`) ?? ''),
      path,
    });
  }
  return { cards, skipped };
}

/** Explains why a machine has no cards: the kernel module, the device nodes, the PCI bus. */
export function explainNoCards(calls: SystemCalls, roots: Roots): string {
  const { devRoot, sysRoot } = roots;
  const isLoaded = calls.realPath(`${sysRoot}/module/habanalabs`) !== undefined;
  const nodes = [
    ...calls.namesIn(`${devRoot}/accel`),
    ...calls.namesIn(devRoot).filter((name) => LEGACY_NODE.test(name)),
  ];
  const absent = findAbsentCards(calls, roots, []);
  const { skipped } = discoverCards(calls, roots);
  return [
    isLoaded
      ? 'the habanalabs driver is loaded'
      : `the habanalabs driver is not loaded (no ${sysRoot}/module/habanalabs)`,
    calls.realPath(`${devRoot}/accel`) === undefined
      ? `${devRoot}/accel does not exist`
      : `${devRoot}/accel has ${nodes.length === 0 ? 'no device nodes' : nodes.join(', ')}`,
    ...skipped.map(({ path, reason }) => `${path}: ${reason}`),
    absent.length === 0
      ? 'no Gaudi card is on the PCI bus'
      : `on the PCI bus: ${absent.map(({ busId, state }) => `${busId} (${state})`).join(', ')}`,
  ].join('; ');
}

/**
 * Finds the cards on the PCI bus that are not in `present`: they have no driver, or a driver that has not created a device node, for example because it could
 * not initialise the card.
 */
export function findAbsentCards(calls: SystemCalls, roots: Roots, present: readonly CardEntry[]): AbsentCard[] {
  const folder = `${roots.sysRoot}/bus/pci/devices`;
  const absent: AbsentCard[] = [];
  for (const busId of calls.namesIn(folder).sort()) {
    if (present.some((card) => card.busId === busId)) continue;
    const numberIn = (name: string): number => Number(readText(calls, `${folder}/${busId}/${name}`).text);
    if (numberIn('vendor') !== PCI_VENDOR_HABANALABS || numberIn('class') >>> PCI_CLASS_SHIFT !== PCI_CLASS_ACCELERATOR)
      continue;
    const hasDriver = calls.realPath(`${folder}/${busId}/driver`) !== undefined;
    absent.push({ minor: undefined, busId, state: hasDriver ? 'no device node' : 'no driver' });
  }
  return absent;
}

/**
 * Reads an attribute of a card from the first of its sysfs folders that has it.
 * @param name such as `fw_os_ver`
 * @returns the value without the trailing newline, or the errno
 * @throws UcxError ERR_INVALID_PARAM for an invalid name, such as a path
 */
export function readCardAttribute(calls: SystemCalls, roots: Roots, minor: number, name: string): AttributeRead {
  checkMinor(minor);
  if (!ATTRIBUTE_NAME.test(name)) throw invalidParam('name', 'must be the name of a sysfs attribute', name);
  for (const folder of attributeFolders(roots, minor)) {
    const result = readText(calls, `${folder}/${name}`);
    if (result.text !== undefined || result.errno !== 0) return result;
  }
  return { errno: 0 };
}

/** The value of the first sensor of a card (hwmon, `temp1_input` in thousandths of a degree Celsius); undefined without a sensor. */
export function readTemperature(calls: SystemCalls, roots: Roots, busId: string): number | undefined {
  const folder = `${roots.sysRoot}/bus/pci/devices/${busId}/hwmon`;
  for (const name of calls.namesIn(folder)) {
    const thousandths = integerOf(readText(calls, `${folder}/${name}/temp1_input`).text);
    if (thousandths !== undefined) return thousandths / 1000;
  }
  return undefined;
}

/** The bus id in lower case and with its domain; undefined if it is invalid. */
export function canonicalBusId(text: string): string | undefined {
  const id = text.trim().toLowerCase();
  const match = BUS_ID.exec(id);
  if (match === null) return undefined;
  return match[1] === undefined ? `0000:${id}` : id;
}

/** Minor and path of every primary node, by minor. The accel layout has precedence. */
function primaryNodes(calls: SystemCalls, roots: Roots): [number, string][] {
  const found = new Map<number, string>();
  const collect = (folder: string, pattern: RegExp): void => {
    for (const name of calls.namesIn(folder)) {
      const minor = Number(pattern.exec(name)?.[1] ?? -1);
      // `accel01` is not a valid name: drivers write numbers without leading zeros.
      if (minor < 0 || minor > MINOR_MAX || !name.endsWith(String(minor)) || /\D0\d/.test(name)) continue;
      if (!found.has(minor)) found.set(minor, `${folder}/${name}`);
    }
  };
  collect(`${roots.devRoot}/accel`, ACCEL_NODE);
  collect(roots.devRoot, LEGACY_NODE);
  return [...found].sort((left, right) => left[0] - right[0]);
}

function attributeFolders(roots: Roots, minor: number): string[] {
  const accel = `${roots.sysRoot}/class/accel/accel${minor}`;
  const legacy = `${roots.sysRoot}/class/habanalabs/hl${minor}`;
  return [accel, `${accel}/device`, legacy, `${legacy}/device`];
}

function numaNodeOf(calls: SystemCalls, roots: Roots, minor: number, busId: string): number {
  const ofFunction = integerOf(readText(calls, `${roots.sysRoot}/bus/pci/devices/${busId}/numa_node`).text);
  return ofFunction ?? integerOf(readCardAttribute(calls, roots, minor, 'numa_node').text) ?? -1;
}

function integerOf(text: string | undefined): number | undefined {
  return text !== undefined && /^-?\d{1,9}$/.test(text) ? Number(text) : undefined;
}

function reasonOf(address: AttributeRead): string {
  if (address.text !== undefined) return `pci_addr is ${JSON.stringify(address.text)}, not a PCI address`;
  return address.errno === 0
    ? 'no pci_addr in sysfs: not a habanalabs card'
    : `cannot read pci_addr: ${errnoText(address.errno)}`;
}

/** Reads a file of sysfs, at most a page of it. */
export function readText(calls: SystemCalls, path: string): AttributeRead {
  let fd: number;
  try {
    fd = calls.open(path, OpenFlag.RDONLY);
  } catch (error) {
    if (!isSyscallError(error)) throw error;
    const absent = error.errno === Errno.ENOENT || error.errno === Errno.ENOTDIR;
    return { errno: absent ? 0 : error.errno };
  }
  try {
    const bytes = new Uint8Array(ATTRIBUTE_BYTES_MAX);
    const count = calls.read(fd, bytes);
    if (count < 0) return { errno: -count };
    return { text: Buffer.from(bytes.buffer, 0, count).toString('utf8').replace(/\n$/, '') };
  } finally {
    calls.close(fd);
  }
}

/**
 * The process that has the primary node of a card open, according to /proc. For messages to users, never for decisions. Undefined if there is none, or if the
 * caller may not see the descriptors of that process.
 */
export function findOwner(calls: SystemCalls, roots: Roots, minor: number): number | undefined {
  const procRoot = roots.procRoot ?? '/proc';
  const nodes = new Set(primaryPaths(roots, minor).map(({ path }) => path));
  for (const name of calls.namesIn(procRoot)) {
    if (!PROCESS_ID.test(name)) continue;
    const folder = `${procRoot}/${name}/fd`;
    if (calls.namesIn(folder).some((fd) => nodes.has(calls.realPath(`${folder}/${fd}`) ?? ''))) return Number(name);
  }
  return undefined;
}

/**
 * The links of a card's NIC ports by port, from the network interfaces that the vendor's drivers (habanalabs, hbl_en) create for them: interfaces of the
 * card's PCI device whose `dev_port` is the port. The upstream driver creates none. Derived from the sources of these drivers; not tested on hardware.
 * @returns undefined if the card has no network interface
 */
export function readPortLinks(calls: SystemCalls, { sysRoot }: Roots, busId: string): PortLink[] | undefined {
  const folder = `${sysRoot}/bus/pci/devices/${busId}/net`;
  const links: PortLink[] = [];
  for (const netdev of calls.namesIn(folder)) {
    const port = readText(calls, `${folder}/${netdev}/dev_port`).text;
    if (port === undefined || !/^\d{1,2}$/.test(port) || Number(port) > PORT_MAX) continue;
    // An interface that is down returns EINVAL for its carrier: it has no usable link.
    const up = readText(calls, `${folder}/${netdev}/carrier`).text === '1';
    links.push({ port: Number(port), up, netdev, peer: undefined });
  }
  return links.length === 0 ? undefined : links.sort((left, right) => left.port - right.port);
}

/*
 * Determines the ioctl family of a card's file by querying the card's status, which does not change the card.
 *
 * Linux 6.6 and older number the ioctls with 'H', newer ones with the 'd' of DRM. The kernel version does not determine the family, because the driver is also
 * built out of tree. A driver returns ENOTTY or EINVAL for a number of the other family.
 */

/** Not a valid device status: the driver has not written a result if the block still contains it after the call. */
const UNWRITTEN = 0xffffffff;

/**
 * Returns the ioctl numbers that the file accepts.
 * @param accel try the DRM family first; the other one is tried as well
 * @param path of the file, for messages
 * @throws SyscallError ENOTTY if the file accepts neither family: not a habanalabs device; other errnos from the driver
 */
export function probeIoctlFamily(calls: SystemCalls, fd: number, accel: boolean, path: string): IoctlNumbers {
  for (const numbers of accel ? [DRM_IOCTLS, HABANALABS_IOCTLS] : [HABANALABS_IOCTLS, DRM_IOCTLS]) {
    const result = queryStatus(calls, fd, numbers);
    if (result === 0) return numbers;
    if (result !== -Errno.ENOTTY && result !== -Errno.EINVAL) {
      throw new SyscallError('ioctl', -result, `INFO DEVICE_STATUS of ${path}`);
    }
  }
  throw new SyscallError(
    'ioctl',
    Errno.ENOTTY,
    `${path} is not a habanalabs device: it accepts INFO in neither ioctl family`,
  );
}

/** Returns 0 or -errno; -ENOTTY also if the driver accepted the number without writing a result. */
function queryStatus(calls: SystemCalls, fd: number, numbers: IoctlNumbers): number {
  using block = allocateScratch(HL_INFO_ARGS.size);
  using answer = allocateScratch(HL_INFO_DEVICE_STATUS.size);
  const budget = new RetryBudget();
  let result: number;
  do {
    answer.words.fill(UNWRITTEN);
    HL_INFO_ARGS.encode(
      { return_pointer: BigInt(answer.address), return_size: answer.byteLength, op: HL_INFO_OP.DEVICE_STATUS },
      block.view,
    );
    result = calls.ioctl(fd, numbers.INFO, block.address);
  } while (budget.allows(result));
  if (result < 0) return result;
  return answer.words[HL_INFO_DEVICE_STATUS.words.status] === UNWRITTEN ? -Errno.ENOTTY : 0;
}

/* The network devices of a machine in /sys/class/net and /sys/class/infiniband: their location and link state. */

export interface NetworkDevice extends SystemDevice {
  readonly kind: 'infiniband' | 'ethernet';
  readonly up: boolean;
  /** Undefined if the device does not report it. */
  readonly megabitPerSecond: number | undefined;
  /** The interfaces of an RDMA device; for an interface, only itself. */
  readonly netdevs: readonly string[];
}

/** PCI vendor of Gaudi cards, whose ports are reported with the cards. */
const HABANA = '0x1da3';

/**
 * The network devices: RDMA devices first, then interfaces; within each kind those with a link first, then by name. Omits interfaces without a physical device,
 * such as bridges and loopback, and the ports of Gaudi cards.
 * @param sysRoot mount point of sysfs; tests use a temporary folder
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

/** Names of the RDMA devices that libibverbs may find: includes software devices, excludes the ports of Gaudi cards. */
export function rdmaDeviceNames(sysRoot: string, calls: SystemCalls = linuxSystemCalls): string[] {
  const folder = `${sysRoot}/class/infiniband`;
  return calls.namesIn(folder).filter((name) => !isHabana(calls, `${folder}/${name}`));
}

function isHabana(calls: SystemCalls, folder: string): boolean {
  return readText(calls, `${folder}/device/vendor`).text === HABANA;
}

function rdmaDevice(calls: SystemCalls, sysRoot: string, name: string): NetworkDevice | undefined {
  const folder = `${sysRoot}/class/infiniband/${name}`;
  const location = locationOf(calls, folder);
  if (location === undefined) return undefined;
  const ports = calls.namesIn(`${folder}/ports`);
  const states = ports.map((port) => readText(calls, `${folder}/ports/${port}/state`).text);
  const rates = ports.map((port) => Number.parseFloat(readText(calls, `${folder}/ports/${port}/rate`).text ?? ''));
  const rate = Math.max(0, ...rates.filter((value) => Number.isFinite(value)));
  return {
    name,
    ...location,
    kind: 'infiniband',
    // The content is, for example, `4: ACTIVE`.
    up: states.some((state) => state?.startsWith('4') === true),
    megabitPerSecond: rate === 0 ? undefined : rate * 1000,
    netdevs: calls.namesIn(`${folder}/device/net`).sort(),
  };
}

function netDevice(calls: SystemCalls, sysRoot: string, name: string): NetworkDevice | undefined {
  const folder = `${sysRoot}/class/net/${name}`;
  const location = locationOf(calls, folder);
  if (location === undefined) return undefined;
  const speed = Number(readText(calls, `${folder}/speed`).text ?? '-1');
  return {
    name,
    ...location,
    kind: 'ethernet',
    up: readText(calls, `${folder}/carrier`).text === '1',
    megabitPerSecond: speed > 0 ? speed : undefined,
    netdevs: [name],
  };
}

/** Location of the device behind a class folder; undefined if there is no device, and for a Gaudi card. */
function locationOf(calls: SystemCalls, folder: string): Pick<SystemDevice, 'pciPath' | 'numaNode'> | undefined {
  const device = calls.realPath(`${folder}/device`);
  if (device === undefined || isHabana(calls, folder)) return undefined;
  const numaNode = Number(readText(calls, `${folder}/device/numa_node`).text ?? '-1');
  return { pciPath: pciPathOf(device), numaNode: Number.isInteger(numaNode) ? numaNode : -1 };
}
