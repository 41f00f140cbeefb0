/**
 * The first 256 bytes of the configuration space of PCI devices.
 *
 * Sources: include/uapi/linux/pci_regs.h, Linux 6.12; PCI Local Bus Specification 3.0, PCI-to-PCI Bridge Architecture 1.2, PCI Express Base Specification 5.0.
 * Choices: the offsets of the capabilities, which are those of Synopsys' core, and what the capabilities say beside link, port and messages.
 */

import { parsePciAddress } from '../../../ucs/sys/topology.ts';
import { type BusRange, type PciBridge, type PciCard, type PciDevice, PciPort } from './pci-devices.ts';

const CONFIG_BYTES = 256;
/** Lanes of every link. */
export const LINK_WIDTH = 16;

/** Header: offsets that both types have, then those of type 0 (devices) and type 1 (bridges). */
const HEADER = {
  VENDOR: 0x00,
  DEVICE: 0x02,
  COMMAND: 0x04,
  STATUS: 0x06,
  REVISION: 0x08,
  CLASS: 0x0a,
  TYPE: 0x0e,
  BAR_0: 0x10,
  CAPABILITIES: 0x34,
} as const;
const TYPE_0 = { SUBSYSTEM_VENDOR: 0x2c, SUBSYSTEM: 0x2e } as const;
const TYPE_1 = {
  PRIMARY: 0x18,
  SECONDARY: 0x19,
  SUBORDINATE: 0x1a,
  IO_BASE: 0x1c,
  MEMORY_BASE: 0x20,
  PREFETCH_BASE: 0x24,
  PREFETCH_LIMIT: 0x26,
  PREFETCH_BASE_UPPER: 0x28,
  PREFETCH_LIMIT_UPPER: 0x2c,
} as const;
/** Memory and bus master enabled; INTx disabled, as the devices use messages. */
const COMMAND = 0x0406;
const STATUS_HAS_CAPABILITIES = 0x10;
/** Memory of 64 bits, prefetchable: bridges have no other window above 4 GiB. */
const BAR_FLAGS = 0x0c;
/** An empty window of a bridge has a base above its limit. */
const IO_NONE = 0x00f0;
const MEMORY_NONE = 0x0000_fff0;
const PREFETCH_64_BITS = 1;

/** Ids and offsets of the capabilities. */
const CAPABILITY = {
  POWER: { id: 0x01, at: 0x40 },
  MSI: { id: 0x05, at: 0x50 },
  EXPRESS: { id: 0x10, at: 0x70 },
  MSI_X: { id: 0x11, at: 0xb0 },
} as const;
type Capability = (typeof CAPABILITY)[keyof typeof CAPABILITY];

/** Power management, version 3: only D0 and D3hot. */
const POWER_3 = 3;
/** MSI: 64-bit address, enabled; one vector is in use (gaudi_enable_msi of gaudi.c, Linux 6.12). */
const MSI = { CONTROL: 2, ADDRESS: 4, ENABLED: 1, MULTIPLE_SHIFT: 1, ADDRESS_64: 0x80 } as const;
/** Address of messages to the first processor. */
const MSI_ADDRESS = 0xfee0_0000;
const MSI_X = { CONTROL: 2, TABLE: 4, PENDING: 8, ENABLED: 0x8000, ENTRY_BYTES: 16, BAR: 2 } as const;

const EXPRESS = {
  FLAGS: 0x02,
  DEVICE_CAPABILITIES: 0x04,
  DEVICE_CONTROL: 0x08,
  LINK_CAPABILITIES: 0x0c,
  LINK_CONTROL: 0x10,
  LINK_STATUS: 0x12,
  LINK_CAPABILITIES_2: 0x2c,
  LINK_CONTROL_2: 0x30,
} as const;
/** Version 2 of the capability. */
const EXPRESS_2 = 2;
const PORT_SHIFT = 4;
/** Role-based errors, extended tags, payloads up to 512 bytes. */
const DEVICE_CAPABILITIES = 0x8022;
/** Requests up to 512 bytes, payloads of 256, extended tags, relaxed ordering, no snooping. */
const DEVICE_CONTROL = 0x2930;
const WIDTH_SHIFT = 4;
const PORT_NUMBER_SHIFT = 24;
/** A port above a link reports whether the link is active, and it is. */
const LINK_ACTIVE_REPORTING = 1 << 20;
const LINK_ACTIVE = 0x2000;
/** Both ends of a link use the clock of the slot. */
const COMMON_CLOCK = 0x40;
const SLOT_CLOCK = 0x1000;

/** The bytes of a device. */
export function configSpace(device: PciDevice): Uint8Array {
  const view = new DataView(new ArrayBuffer(CONFIG_BYTES));
  view.setUint16(HEADER.VENDOR, device.vendor, true);
  view.setUint16(HEADER.DEVICE, device.device, true);
  view.setUint16(HEADER.COMMAND, COMMAND, true);
  view.setUint16(HEADER.STATUS, STATUS_HAS_CAPABILITIES, true);
  view.setUint32(HEADER.REVISION, (device.classCode << 8) | device.revision, true);
  if (device.kind === 'card') writeCard(view, device);
  else writeBridge(view, device);
  writeCapabilities(view, device);
  return new Uint8Array(view.buffer);
}

function writeCard(view: DataView, card: PciCard): void {
  card.bars.forEach(({ start }, pair) => {
    view.setBigUint64(HEADER.BAR_0 + 8 * pair, start | BigInt(BAR_FLAGS), true);
  });
  view.setUint16(TYPE_0.SUBSYSTEM_VENDOR, card.subsystemVendor, true);
  view.setUint16(TYPE_0.SUBSYSTEM, card.subsystemDevice, true);
}

function writeBridge(view: DataView, { primary, secondary, subordinate, window }: PciBridge): void {
  view.setUint8(HEADER.TYPE, 1);
  view.setUint8(TYPE_1.PRIMARY, primary);
  view.setUint8(TYPE_1.SECONDARY, secondary);
  view.setUint8(TYPE_1.SUBORDINATE, subordinate);
  view.setUint16(TYPE_1.IO_BASE, IO_NONE, true);
  view.setUint32(TYPE_1.MEMORY_BASE, MEMORY_NONE, true);
  const last = window.end - 1n;
  view.setUint16(TYPE_1.PREFETCH_BASE, megabytes(window.start) | PREFETCH_64_BITS, true);
  view.setUint16(TYPE_1.PREFETCH_LIMIT, megabytes(last) | PREFETCH_64_BITS, true);
  view.setUint32(TYPE_1.PREFETCH_BASE_UPPER, Number(window.start >> 32n), true);
  view.setUint32(TYPE_1.PREFETCH_LIMIT_UPPER, Number(last >> 32n), true);
}

/** Bits 20 to 31 of an address, as base and limit of a window have them. */
function megabytes(address: bigint): number {
  return Number((address >> 16n) & 0xfff0n);
}

function writeCapabilities(view: DataView, device: PciDevice): void {
  const isMsi = device.kind === 'card' && device.messages.kind === 'msi';
  const isMsiX = device.kind === 'card' && device.messages.kind === 'msi-x';
  const list: readonly Capability[] = [
    CAPABILITY.POWER,
    ...(isMsi ? [CAPABILITY.MSI] : []),
    CAPABILITY.EXPRESS,
    ...(isMsiX ? [CAPABILITY.MSI_X] : []),
  ];
  view.setUint8(HEADER.CAPABILITIES, list[0]!.at);
  for (const [index, { id, at }] of list.entries()) {
    view.setUint8(at, id);
    view.setUint8(at + 1, list[index + 1]?.at ?? 0);
  }
  view.setUint16(CAPABILITY.POWER.at + 2, POWER_3, true);
  writeExpress(view, device);
  if (isMsi) writeMsi(view, device);
  if (isMsiX) writeMsiX(view, device);
}

function writeExpress(view: DataView, { port, busId, linkSpeed }: PciDevice): void {
  const { at } = CAPABILITY.EXPRESS;
  const isAboveLink = port === PciPort.ROOT || port === PciPort.DOWNSTREAM;
  const link = linkSpeed | (LINK_WIDTH << WIDTH_SHIFT);
  const portNumber = parsePciAddress(busId).device << PORT_NUMBER_SHIFT;
  view.setUint16(at + EXPRESS.FLAGS, EXPRESS_2 | (port << PORT_SHIFT), true);
  view.setUint32(at + EXPRESS.DEVICE_CAPABILITIES, DEVICE_CAPABILITIES, true);
  view.setUint16(at + EXPRESS.DEVICE_CONTROL, DEVICE_CONTROL, true);
  const reporting = isAboveLink ? LINK_ACTIVE_REPORTING : 0;
  view.setUint32(at + EXPRESS.LINK_CAPABILITIES, link | portNumber | reporting, true);
  view.setUint16(at + EXPRESS.LINK_CONTROL, COMMON_CLOCK, true);
  view.setUint16(at + EXPRESS.LINK_STATUS, link | SLOT_CLOCK | (isAboveLink ? LINK_ACTIVE : 0), true);
  // Bit n is speed n: a link has all speeds up to its highest one.
  view.setUint32(at + EXPRESS.LINK_CAPABILITIES_2, (1 << (linkSpeed + 1)) - 2, true);
  view.setUint16(at + EXPRESS.LINK_CONTROL_2, linkSpeed, true);
}

function writeMsi(view: DataView, { messages }: PciCard): void {
  const { at } = CAPABILITY.MSI;
  const control = MSI.ENABLED | (Math.log2(messages.count) << MSI.MULTIPLE_SHIFT) | MSI.ADDRESS_64;
  view.setUint16(at + MSI.CONTROL, control, true);
  view.setUint32(at + MSI.ADDRESS, MSI_ADDRESS, true);
}

/** The table is at the beginning of the BAR, the bits of pending messages behind it. */
function writeMsiX(view: DataView, { messages }: PciCard): void {
  const { at } = CAPABILITY.MSI_X;
  view.setUint16(at + MSI_X.CONTROL, MSI_X.ENABLED | (messages.count - 1), true);
  view.setUint32(at + MSI_X.TABLE, MSI_X.BAR, true);
  view.setUint32(at + MSI_X.PENDING, (messages.count * MSI_X.ENTRY_BYTES) | MSI_X.BAR, true);
}

/** The lines of `resource`: first and last address and flags of BARs 0 to 5, the ROM, and for a bridge its four windows. */
export function resourceLines(device: PciDevice): readonly string[] {
  if (device.kind === 'card') {
    const pairs = device.bars.flatMap((bar) => [resourceLine(bar, MEMORY_64), NO_RESOURCE]);
    return [...pairs, NO_RESOURCE];
  }
  const windows = [NO_RESOURCE, NO_RESOURCE, resourceLine(device.window, WINDOW_64), NO_RESOURCE];
  return [...Array.from({ length: 7 }, () => NO_RESOURCE), ...windows];
}

/** IORESOURCE_MEM, _PREFETCH, _MEM_64 and, of a BAR, _SIZEALIGN, with the flags of the register (ioport.h, Linux 6.12). */
const MEMORY_64 = 0x14_220c;
const WINDOW_64 = 0x10_2201;
const NO_RESOURCE: string = resourceText([0n, 0n, 0n]);

function resourceLine({ start, end }: BusRange, flags: number): string {
  return resourceText([start, end - 1n, BigInt(flags)]);
}

function resourceText(values: readonly bigint[]): string {
  return values.map((value) => `0x${value.toString(16).padStart(16, '0')}`).join(' ');
}
