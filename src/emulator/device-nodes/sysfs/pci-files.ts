/**
 * The files of a PCI device in its folder of /sys.
 *
 * Source: drivers/pci/pci-sysfs.c and pci.c (pci_uevent, pcie_bandwidth), Linux 6.12.
 */

import { cpuMask, localCpuList } from './cpu-lists.ts';
import { configSpace, LINK_WIDTH, resourceLines } from './pci-config.ts';
import type { PciDevice } from './pci-devices.ts';

/** A file and its contents. */
export interface PciFile {
  readonly name: string;
  readonly read: () => string | Uint8Array;
}

/** Speeds by their number (pci_speed_string of probe.c). */
const SPEEDS: Readonly<Record<number, string>> = { 4: '16.0 GT/s PCIe', 5: '32.0 GT/s PCIe' };

/** @param driver the bound driver; undefined while there is none */
export function pciFiles(device: PciDevice, driver: () => string | undefined): readonly PciFile[] {
  const config = configSpace(device);
  const texts: Readonly<Record<string, string>> = {
    vendor: hex(device.vendor, 4),
    device: hex(device.device, 4),
    subsystem_vendor: hex(device.subsystemVendor, 4),
    subsystem_device: hex(device.subsystemDevice, 4),
    revision: hex(device.revision, 2),
    class: hex(device.classCode, 6),
    modalias: modaliasOf(device),
    resource: resourceLines(device).join('\n'),
    // The legacy interrupt: the devices have none.
    irq: '0',
    enable: '1',
    numa_node: String(device.numaNode),
    current_link_speed: SPEEDS[device.linkSpeed]!,
    current_link_width: String(LINK_WIDTH),
    max_link_speed: SPEEDS[device.linkSpeed]!,
    max_link_width: String(LINK_WIDTH),
    ...(device.kind === 'bridge' && {
      secondary_bus_number: String(device.secondary),
      subordinate_bus_number: String(device.subordinate),
    }),
  };
  return [
    ...Object.entries(texts).map(([name, text]) => ({ name, read: () => `${text}\n` })),
    { name: 'config', read: () => config },
    { name: 'local_cpulist', read: () => `${localCpuList(device.numaNode)}\n` },
    { name: 'local_cpus', read: () => `${cpuMask(localCpuList(device.numaNode))}\n` },
    { name: 'uevent', read: () => ueventOf(device, texts['modalias']!, driver()) },
  ];
}

function ueventOf(device: PciDevice, modalias: string, driver: string | undefined): string {
  return ueventText([
    ...(driver === undefined ? [] : [`DRIVER=${driver}`]),
    `PCI_CLASS=${device.classCode.toString(16).toUpperCase()}`,
    `PCI_ID=${digits(device.vendor, 4)}:${digits(device.device, 4)}`,
    `PCI_SUBSYS_ID=${digits(device.subsystemVendor, 4)}:${digits(device.subsystemDevice, 4)}`,
    `PCI_SLOT_NAME=${device.busId}`,
    `MODALIAS=${modalias}`,
  ]);
}

/** The contents of `uevent`: a line for each variable. */
export function ueventText(variables: readonly string[]): string {
  return variables.map((variable) => `${variable}\n`).join('');
}

function modaliasOf({ vendor, device, subsystemVendor, subsystemDevice, classCode }: PciDevice): string {
  const subsystem = `sv${digits(subsystemVendor, 8)}sd${digits(subsystemDevice, 8)}`;
  const [base, sub, programming] = [classCode >> 16, (classCode >> 8) & 0xff, classCode & 0xff];
  return `pci:v${digits(vendor, 8)}d${digits(device, 8)}${subsystem}bc${digits(base, 2)}sc${digits(sub, 2)}i${digits(programming, 2)}`;
}

function digits(value: number, count: number): string {
  return value.toString(16).toUpperCase().padStart(count, '0');
}

function hex(value: number, count: number): string {
  return `0x${value.toString(16).padStart(count, '0')}`;
}
