/**
 * The files below /dev and /sys of a machine with the cards of a node, as a tree of names, in the layouts of all kernel versions that have the driver
 * (see driver/kernel/discovery.ts). Reading a file of /sys reads the card.
 */

import { basename, join } from 'node:path';
import { EMULATED_DRIVER_VERSION } from '../../driver/port.ts';
import { Errno } from '../../sys/index.ts';
import type { CardPlace } from '../config/card-places.ts';
import { cardAttributes, readCardAttribute, writeCardAttribute } from '../driver/attributes.ts';
import type { EmulatedNode } from '../emulated-node.ts';
import type { SupervisedNode } from './supervisor-link.ts';
import { type PciDevice, pciDevicesOf } from './sysfs/pci-devices.ts';
import { pciFiles, ueventText } from './sysfs/pci-files.ts';

/** Major of the device numbers: that of accel devices (ACCEL_MAJOR of drm/drm_accel.h, Linux 6.12). */
const DEVICE_MAJOR = 261;
/** First inode number of device nodes. */
const DEVICE_INO_FIRST = 0x4755_0000;
const FOLDER_INO_FIRST = 1;
/** Number of the hwmon device of the first card; lower numbers are left to the sensors of the machine. */
const HWMON_FIRST = 100;
/** Name of the folder of debugfs. */
const DEBUG_FOLDER = 'debug';
/** Drivers of cards and of bridges. */
const DRIVER = 'habanalabs';
const BRIDGE_DRIVER = 'pcieport';

export interface Folder {
  readonly kind: 'folder';
  readonly ino: number;
  /** Permission bits. */
  readonly mode: number;
  readonly children: Map<string, TreeNode>;
}

export interface Link {
  readonly kind: 'link';
  readonly ino: number;
  readonly target: string;
  /** The card that must be present; undefined for a permanent link. */
  readonly minor: number | undefined;
}

/** A file with contents. */
export interface Attribute {
  readonly kind: 'attribute';
  readonly ino: number;
  /** Permission bits. */
  readonly mode: number;
  /** Returns the contents, or a negative errno. Undefined for a file that cannot be opened for reading. */
  readonly read: (() => string | Uint8Array | number) | undefined;
  /** Returns the number of bytes written, or a negative errno. Undefined for a file that cannot be opened for writing. */
  readonly write: ((text: string) => number) | undefined;
}

/** A device node. */
export interface DeviceNode {
  readonly kind: 'device';
  readonly ino: number;
  /** The card. */
  readonly minor: number;
  readonly control: boolean;
  /** Device number: st_rdev of the node. */
  readonly major: number;
  readonly deviceMinor: number;
}

/** A file of the tree. */
export type TreeNode = Folder | Link | Attribute | DeviceNode;

/** The tree. Its root has the folders `dev` and `sys`. */
export class DeviceTree {
  readonly root: Folder;
  readonly #nodes: Map<number, TreeNode> = new Map();
  readonly #node: EmulatedNode;
  #nextIno: number = FOLDER_INO_FIRST;
  #nextDevice: number = DEVICE_INO_FIRST;

  constructor(node: EmulatedNode) {
    this.#node = node;
    this.root = this.#newFolder();
    const places = node.cards().map(({ minor }) => node.card(minor).place);
    for (const device of pciDevicesOf(node.config, places)) this.#addPciDevice(device);
    // A root is a device without a subsystem.
    for (const root of new Set(places.map(({ pciPath }) => pciPath.slice(0, pciPath.indexOf('/')))))
      this.#file(`sys/devices/${root}/uevent`, () => ueventText([]));
    for (const place of places) this.#addCard(place);
    this.#text('sys/module/habanalabs/version', () => EMULATED_DRIVER_VERSION);
  }

  /** The file with a number; undefined if there is none. */
  find(ino: number): TreeNode | undefined {
    return this.#nodes.get(ino);
  }

  /** The device node with a number. */
  device(ino: number): DeviceNode | undefined {
    const found = this.#nodes.get(ino);
    return found?.kind === 'device' ? found : undefined;
  }

  /** The device nodes, for supervisors of programs. */
  devices(): readonly SupervisedNode[] {
    return [...devicesBelow(this.root)];
  }

  /** A file of a folder; undefined if there is none. A removed card stays on the PCI bus, but has neither device nodes nor a driver. */
  lookup(folder: Folder, name: string): TreeNode | undefined {
    const found = folder.children.get(name);
    const minor = found?.kind === 'device' || found?.kind === 'link' ? found.minor : undefined;
    return minor !== undefined && this.#node.card(minor).removed ? undefined : found;
  }

  /** A card or a bridge, as programs that list PCI devices see it. */
  #addPciDevice(device: PciDevice): void {
    const { path, busId } = device;
    const minor = device.kind === 'card' ? device.minor : undefined;
    const driver = device.kind === 'card' ? DRIVER : BRIDGE_DRIVER;
    const isBound = (): boolean => minor === undefined || !this.#node.card(minor).removed;
    for (const { name, read } of pciFiles(device, () => (isBound() ? driver : undefined)))
      this.#file(`sys/devices/${path}/${name}`, read);
    this.#link(`sys/devices/${path}/driver`, `${upFrom(path)}bus/pci/drivers/${driver}`, minor);
    this.#link(`sys/devices/${path}/subsystem`, `${upFrom(path)}bus/pci`);
    this.#link(`sys/bus/pci/devices/${busId}`, `../../../devices/${path}`);
    this.#link(`sys/bus/pci/drivers/${driver}/${busId}`, `../../../../devices/${path}`, minor);
  }

  #addCard(place: CardPlace): void {
    const { minor, busId, pciPath } = place;
    const device = `sys/devices/${pciPath}`;
    this.#attributes(device, minor);
    this.#sensors(place);
    // The debugfs files are in the first folder since Linux 6.7, before that in the second.
    this.#debugFiles(`sys/kernel/debug/accel/${busId}`, minor);
    this.#debugFiles(`sys/kernel/debug/habanalabs/hl${minor}`, minor);
    // The library derives the control node from the primary one: the latter has an even minor, the control node the next one.
    const primary = 2 * minor;
    const names = [
      { cls: 'accel', folder: 'accel', primaryName: `accel${minor}`, controlName: `accel_controlD${minor}` },
      { cls: 'habanalabs', folder: '', primaryName: `hl${minor}`, controlName: `hl_controlD${minor}` },
    ];
    for (const { cls, folder, primaryName, controlName } of names) {
      for (const [name, deviceMinor] of [
        [primaryName, primary],
        [controlName, primary + 1],
      ] as const) {
        const deviceName = join(folder, name);
        this.#addDevice(`dev/${deviceName}`, { minor, control: deviceMinor !== primary, deviceMinor });
        const inSysfs = `${pciPath}/${cls}/${name}`;
        const isMinor = deviceName === `accel/${primaryName}`;
        const variables = [`MAJOR=${DEVICE_MAJOR}`, `MINOR=${deviceMinor}`, `DEVNAME=${deviceName}`];
        this.#addClassDevice(cls, inSysfs, [...variables, ...(isMinor ? ['DEVTYPE=accel_minor'] : [])]);
        this.#text(`sys/devices/${inSysfs}/dev`, () => `${DEVICE_MAJOR}:${deviceMinor}`);
        // Linux 6.2 to 6.6 has the attributes here, later kernels only in the folder of the PCI device.
        this.#attributes(`sys/devices/${inSysfs}`, minor);
        if (cls === 'accel') this.#link(`sys/dev/char/${DEVICE_MAJOR}:${deviceMinor}`, `../../devices/${inSysfs}`);
      }
    }
  }

  /** A device of a class, below its PCI device. @param variables of its `uevent` */
  #addClassDevice(cls: string, path: string, variables: readonly string[]): void {
    this.#file(`sys/devices/${path}/uevent`, () => ueventText(variables));
    this.#link(`sys/devices/${path}/device`, '../..');
    this.#link(`sys/devices/${path}/subsystem`, `${upFrom(path)}class/${cls}`);
    this.#link(`sys/class/${cls}/${basename(path)}`, `../../devices/${path}`);
  }

  #addDevice(
    path: string,
    init: { readonly minor: number; readonly control: boolean; readonly deviceMinor: number },
  ): void {
    const ino = this.#nextDevice++;
    this.#put(path, { kind: 'device', ino, major: DEVICE_MAJOR, ...init });
  }

  #attributes(folder: string, minor: number): void {
    const card = this.#node.card(minor);
    for (const { name, readable, writable } of cardAttributes(card.profile.name)) {
      const read = (): string | undefined => readCardAttribute(card, name);
      const write = (text: string): number => writeCardAttribute(card, name, text);
      this.#text(`${folder}/${name}`, readable ? read : undefined, writable ? write : undefined);
    }
  }

  /** A sysfs file with one line; reading returns undefined once the card was removed. */
  #text(path: string, read: (() => string | undefined) | undefined, write?: (text: string) => number): void {
    const mode = (read === undefined ? 0 : 0o444) | (write === undefined ? 0 : 0o200);
    this.#put(path, {
      kind: 'attribute',
      ino: this.#nextIno++,
      mode,
      read: read && (() => lineOf(read())),
      write: write && ((text) => lengthOr(write(text), text)),
    });
  }

  /** The debugfs files of a card, in a folder. */
  #debugFiles(folder: string, minor: number): void {
    const card = this.#node.card(minor);
    const debugFs = this.#node.debugFs(minor);
    for (const { name, mode } of debugFs.entries()) {
      this.#put(`${folder}/${name}`, {
        kind: 'attribute',
        ino: this.#nextIno++,
        mode,
        read: () => (card.removed ? -Errno.ENODEV : debugFs.read(name)),
        write: (text) => (card.removed ? -Errno.ENODEV : debugFs.write(name, text)),
      });
    }
  }

  #sensors({ minor, pciPath }: CardPlace): void {
    const path = `${pciPath}/hwmon/hwmon${HWMON_FIRST + minor}`;
    this.#addClassDevice('hwmon', path, []);
    for (const { name, read, write } of this.#node.card(minor).sensors)
      this.#text(
        `sys/devices/${path}/${name}`,
        read && (() => (this.#node.card(minor).removed ? undefined : read())),
        write,
      );
  }

  /** A file that can only be read. @param read returns the contents */
  #file(path: string, read: () => string | Uint8Array): void {
    this.#put(path, { kind: 'attribute', ino: this.#nextIno++, mode: 0o444, read, write: undefined });
  }

  /** @param minor the card that must be present */
  #link(path: string, target: string, minor?: number): void {
    this.#put(path, { kind: 'link', ino: this.#nextIno++, target, minor });
  }

  /** Adds a file and its parent folders. */
  #put(path: string, node: TreeNode): void {
    const names = path.split('/');
    const last = names.pop()!;
    let folder = this.root;
    for (const name of names) {
      let child = folder.children.get(name);
      if (child === undefined) {
        // Only the superuser may read debugfs, because it has the device memory of all users.
        child = this.#newFolder(name === DEBUG_FOLDER ? 0o700 : 0o755);
        folder.children.set(name, child);
      }
      folder = child as Folder;
    }
    folder.children.set(last, node);
    this.#nodes.set(node.ino, node);
  }

  #newFolder(mode = 0o755): Folder {
    const folder: Folder = { kind: 'folder', ino: this.#nextIno++, mode, children: new Map() };
    this.#nodes.set(folder.ino, folder);
    return folder;
  }
}

function* devicesBelow({ children }: Folder): Generator<SupervisedNode> {
  for (const [name, node] of children) {
    if (node.kind === 'folder') yield* devicesBelow(node);
    else if (node.kind === 'device')
      yield { name, ino: node.ino, control: node.control, major: node.major, minor: node.deviceMinor };
  }
}

/** The way from a folder below `devices`, such as that of a PCI device, to /sys. */
function upFrom(path: string): string {
  return '../'.repeat(path.split('/').length + 1);
}

function lineOf(text: string | undefined): string | number {
  return text === undefined ? -Errno.ENODEV : `${text}\n`;
}

function lengthOr(result: number, text: string): number {
  return result < 0 ? result : text.length;
}
