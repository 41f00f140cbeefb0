/**
 * The topology of a host with cards: locations of cards and network devices, and the network device of each card. Combines the data of the driver, the kernel
 * and the configuration.
 */

import { cardLabel, type NamedCard, namedCards } from '../driver/card-names.ts';
import { discoverNetworkDevices, type NetworkDevice } from '../driver/kernel/discovery.ts';
import type { CardEntry, DriverNode } from '../driver/port.ts';
import type { DistanceOf } from '../ucp/lane/lanes.ts';
import type { Config } from '../ucs/config/config.ts';
import { chooseNetworkDevices, distanceBetween, type Neighbour, type SystemDevice } from '../ucs/sys/topology.ts';
import type { ScaleOutMode } from '../uct/gaudi/base/cards.ts';
import { GAUDI_COPY_CONFIG_TABLE } from '../uct/gaudi/base/config.ts';
import type { GaudiResources } from '../uct/gaudi/base/resources.ts';

export type { NetworkDevice } from '../driver/kernel/discovery.ts';

/** A card with its location. */
export interface PlacedCard extends SystemDevice {
  readonly entry: CardEntry;
  /** Logical index; undefined for a card that GAUDI_MAPPING_TABLE leaves out. */
  readonly index: number | undefined;
}

/** The cards, and the selected network devices. */
export interface Topology {
  /** By logical index, with names such as `card 0 (accel2, 0000:33:00.0)`. Removed cards are not included. */
  readonly cards: readonly PlacedCard[];
  readonly networks: readonly NetworkDevice[];
  /** UCX_GAUDI_COPY_NIC_SCALE_OUT: whether scale-out ports are considered. */
  readonly scaleOut: ScaleOutMode;
  /** The network device of each card; undefined if none with a link exists. */
  readonly choices: readonly (Neighbour<NetworkDevice> | undefined)[];
}

/** Sources of a topology. */
export interface TopologySources {
  readonly node: DriverNode;
  readonly config: Config;
  /** The cards of the node. Default: in the order of their bus ids. */
  readonly cards?: readonly NamedCard[];
  /** Mount point of sysfs; default: that of the host. Emulated cards have no location there: their distance to its devices is unknown. */
  readonly sysRoot?: string;
}

/** Reads the topology. */
export function readTopology({ node, config, sysRoot, cards: named = namedCards(node) }: TopologySources): Topology {
  const cards = named.flatMap((card) => {
    const { entry, index } = card;
    if (entry === undefined) return [];
    return [{ name: cardLabel(card), pciPath: entry.pciPath, numaNode: entry.numaNode, entry, index }];
  });
  const found = discoverNetworkDevices(sysRoot ?? '/sys');
  const isElsewhere = node.kind === 'emulator' && sysRoot === undefined;
  const ofMachine = isElsewhere ? found.map((device) => ({ ...device, pciPath: undefined, numaNode: -1 })) : found;
  const networks = [...emulatedDevices(node), ...ofMachine];
  const linked = networks.filter(({ up }) => up);
  const { NIC_SCALE_OUT: scaleOut } = config.get(GAUDI_COPY_CONFIG_TABLE);
  return { cards, networks, scaleOut, choices: chooseNetworkDevices(cards, linked) };
}

/** The RDMA devices of an emulated node, which are located next to its cards. */
function emulatedDevices({ verbs }: DriverNode): NetworkDevice[] {
  if (verbs?.emulated !== true) return [];
  return verbs.devices().map((entry) => {
    return { ...entry, kind: 'infiniband', up: true, megabitPerSecond: undefined, netdevs: [] };
  });
}

/**
 * The distances from the topology, which is read at first use and kept: a context opens its devices once. Undefined for a device outside the topology, such
 * as loopback or a veth; `unknown` between emulated cards, which have no location on the host, and devices of the host.
 */
export function distancesOf(gaudi: Pick<GaudiResources, 'cards'>, sources: TopologySources): DistanceOf {
  let topology: Topology | undefined;
  return (sysDevice, { device }) => {
    topology ??= readTopology(sources);
    const busId = gaudi.cards.find(({ index }) => index === sysDevice)?.device.busId;
    const card = topology.cards.find(({ entry }) => entry.busId === busId);
    // For an RDMA device, a transport names the port too.
    const network = topology.networks.find(({ name }) => name === device || name === device.replace(/:\d+$/, ''));
    return card === undefined || network === undefined ? undefined : distanceBetween(card, network);
  };
}
