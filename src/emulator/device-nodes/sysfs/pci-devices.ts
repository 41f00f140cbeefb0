/**
 * The PCI devices of an emulated node as its configuration describes them: the cards, and the root ports and switch ports between the roots and the cards.
 *
 * Sources of the BARs: gaudi.h, gaudi2.h, and hl_pci_bars_map of pci.c (64 bits), Linux 6.12; gaudi3.h of the vendor's driver. Choices: the models of the
 * bridges, all bus addresses, and BAR 4, which has the whole HBM.
 */

import { type AsicName, PCI_VENDOR_HABANALABS } from '../../../uapi/index.ts';
import { parsePciAddress } from '../../../ucs/sys/topology.ts';
import type { CardPlace } from '../../config/card-places.ts';
import type { NodeConfig } from '../../config/node-config.ts';
import { PCI_REVISION } from '../../driver/base/firmware.ts';

/** Types of ports in the PCI Express capability (PCI_EXP_TYPE_* of pci_regs.h, Linux 6.12). */
export const PciPort = { ENDPOINT: 0, ROOT: 4, UPSTREAM: 5, DOWNSTREAM: 6 } as const;
export type PciPort = (typeof PciPort)[keyof typeof PciPort];

/** A range of bus addresses. */
export interface BusRange {
  readonly start: bigint;
  /** First address behind the range. */
  readonly end: bigint;
}

/** The interrupts of a card as messages: MSI, or a table for MSI-X in BAR 2. */
export interface PciMessages {
  readonly kind: 'msi' | 'msi-x';
  /** Number that the device supports, a power of two. */
  readonly count: number;
}

interface PciCommon {
  /** Path from the root: `pci0000:16/0000:16:01.0`. */
  readonly path: string;
  readonly busId: string;
  readonly vendor: number;
  readonly device: number;
  readonly revision: number;
  /** Base class, subclass and programming interface. */
  readonly classCode: number;
  /** 0 for bridges, which have none. */
  readonly subsystemVendor: number;
  readonly subsystemDevice: number;
  readonly port: PciPort;
  /** Number of the link speed: 4 for 16 GT/s. */
  readonly linkSpeed: number;
  readonly numaNode: number;
}

/** A card. */
export interface PciCard extends PciCommon {
  readonly kind: 'card';
  readonly minor: number;
  /** BARs 0, 2 and 4, of 64 bits each. */
  readonly bars: readonly [BusRange, BusRange, BusRange];
  readonly messages: PciMessages;
}

/** A port of the root or of a switch: a bridge. */
export interface PciBridge extends PciCommon {
  readonly kind: 'bridge';
  /** Numbers of the buses above and below, and of the last bus behind. */
  readonly primary: number;
  readonly secondary: number;
  readonly subordinate: number;
  /** The addresses of all BARs behind. */
  readonly window: BusRange;
}

export type PciDevice = PciCard | PciBridge;

const KIB = 1024n;
const MIB: bigint = KIB * KIB;

interface CardFacts {
  readonly linkSpeed: number;
  /** Sizes of BARs 0 and 2, and of the SRAM in front of the HBM in BAR 4. */
  readonly bars: readonly [bigint, bigint];
  readonly sramInHbmBar: bigint;
  readonly messages: PciMessages;
}

/** gaudi2 has a table of 512 vectors, all of which Linux 6.1 uses, and 6.12 a quarter. */
const FACTS: Readonly<Record<AsicName, CardFacts>> = {
  gaudi: { linkSpeed: 4, bars: [64n * MIB, 128n * MIB], sramInHbmBar: 0n, messages: { kind: 'msi', count: 32 } },
  gaudi2: { linkSpeed: 4, bars: [256n * MIB, 16n * KIB], sramInHbmBar: 0n, messages: { kind: 'msi-x', count: 512 } },
  gaudi3: {
    linkSpeed: 5,
    bars: [256n * MIB, 32n * KIB],
    sramInHbmBar: 256n * MIB,
    messages: { kind: 'msi-x', count: 1024 },
  },
};

/** Processing accelerator, and PCI bridge (pci_ids.h, Linux 6.12). */
const ACCELERATOR_CLASS = 0x12_00_00;
const BRIDGE_CLASS = 0x06_04_00;
/** Root ports of Ice Lake and Sapphire Rapids servers, and switches of Broadcom (PEX880xx, PEX890xx), by link speed. */
const ROOT_PORTS: Readonly<Record<number, number>> = { 4: 0x347a, 5: 0x352a };
const SWITCHES: Readonly<Record<number, number>> = { 4: 0xc010, 5: 0xc030 };
const VENDOR_INTEL = 0x8086;
const VENDOR_BROADCOM = 0x1000;

/** Each card has this range of bus addresses: the HBM in the lower half, the other BARs in the upper half. */
const RANGE_FIRST = 0x2000_0000_0000n;
const RANGE_BYTES = 0x400_0000_0000n;

/** The devices of a node: every bridge before those behind it. */
export function pciDevicesOf(config: NodeConfig, places: readonly CardPlace[]): readonly PciDevice[] {
  // Neighbours behind a switch have neighbouring ranges, so that the windows of bridges do not overlap.
  const sorted = [...places].sort((one, other) => (one.pciPath < other.pciPath ? -1 : 1));
  const cards = sorted.map((place, index) => cardAt(place, config, RANGE_FIRST + BigInt(index) * RANGE_BYTES));
  const paths = new Set(cards.flatMap(({ path }) => bridgePathsOf(path)));
  const bridges = [...paths].sort().map((path) =>
    bridgeAt(
      path,
      cards.filter((card) => card.path.startsWith(`${path}/`)),
    ),
  );
  return [...bridges, ...cards];
}

function cardAt({ minor, busId, pciPath, numaNode }: CardPlace, config: NodeConfig, first: bigint): PciCard {
  const { name, pciDeviceId } = config.profile;
  const { linkSpeed, bars, sramInHbmBar, messages } = FACTS[name];
  const upper = first + RANGE_BYTES / 2n;
  return {
    kind: 'card',
    path: pciPath,
    busId,
    vendor: PCI_VENDOR_HABANALABS,
    device: pciDeviceId,
    revision: PCI_REVISION,
    classCode: ACCELERATOR_CLASS,
    port: PciPort.ENDPOINT,
    linkSpeed,
    numaNode,
    minor,
    // lspci of a server with gaudi2 prints these of the device again; assumed for the other generations.
    subsystemVendor: PCI_VENDOR_HABANALABS,
    subsystemDevice: pciDeviceId,
    bars: [
      range(upper, bars[0]),
      range(upper + RANGE_BYTES / 4n, bars[1]),
      range(first, powerOfTwo(sramInHbmBar + BigInt(config.hbmBytes))),
    ],
    messages,
  };
}

/** @param behind the cards behind the bridge */
function bridgeAt(path: string, behind: readonly PciCard[]): PciBridge {
  const names = path.split('/');
  const busId = names.at(-1)!;
  const { bus } = parsePciAddress(busId);
  const port = portAt(names.length - 1);
  const isRoot = port === PciPort.ROOT;
  const [{ linkSpeed, numaNode }] = behind as [PciCard];
  const below = behind.map((card) => parsePciAddress(card.path.split('/')[names.length]!).bus);
  return {
    kind: 'bridge',
    path,
    busId,
    vendor: isRoot ? VENDOR_INTEL : VENDOR_BROADCOM,
    device: (isRoot ? ROOT_PORTS : SWITCHES)[linkSpeed]!,
    revision: 0,
    classCode: BRIDGE_CLASS,
    subsystemVendor: 0,
    subsystemDevice: 0,
    port,
    linkSpeed,
    numaNode,
    primary: bus,
    secondary: Math.min(...below),
    subordinate: Math.max(...behind.map((card) => parsePciAddress(card.busId).bus)),
    window: windowOf(behind),
  };
}

/** The range from the first BAR to the last one, in multiples of 1 MiB as bridges have them. @param cards in the order of their addresses */
function windowOf(cards: readonly PciCard[]): BusRange {
  const { start } = cards[0]!.bars[2];
  const { end } = cards.at(-1)!.bars[1];
  return { start, end: ((end + MIB - 1n) / MIB) * MIB };
}

/** Paths of the bridges above a device. */
function bridgePathsOf(path: string): string[] {
  const names = path.split('/');
  return names.slice(1, -1).map((_name, index) => names.slice(0, index + 2).join('/'));
}

/** @param depth number of bridges from the root to this one */
function portAt(depth: number): PciPort {
  if (depth === 1) return PciPort.ROOT;
  return depth % 2 === 0 ? PciPort.UPSTREAM : PciPort.DOWNSTREAM;
}

function range(start: bigint, size: bigint): BusRange {
  return { start, end: start + size };
}

function powerOfTwo(least: bigint): bigint {
  return 1n << BigInt((least - 1n).toString(2).length);
}
