/** `info -s`: the cards of the node as the driver describes them, their links, and where they are. */

import type { NetworkDevice, Topology } from '../assembly/topology.ts';
import {
  type ControlDevice,
  type DriverNode,
  getDeviceStatus,
  getHwIpInfo,
  getNicPorts,
  linksBetween,
  type NicPort,
  openControl,
} from '../hlthunk/index.ts';
import { HL_DEVICE_STATUS } from '../uapi/index.ts';
import { type Distance, distanceBetween, type Neighbour, type SystemDevice, siblingsOf } from '../ucs/sys/topology.ts';
import { formatBytes, formatTable } from './text-table.ts';

const STATUS_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(HL_DEVICE_STATUS).map(([name, value]) => [value, name.toLowerCase().replaceAll('_', ' ')]),
);

/** What is shown. */
export interface SystemSources {
  readonly node: DriverNode;
  readonly topology: Topology;
}

/** The text for all cards of a node. Uses control nodes only, so cards that are in use are shown too. */
export function describeCards(sources: SystemSources): string {
  const { node, topology } = sources;
  const source = node.kind === 'emulator' ? 'emulated node' : 'habanalabs kernel driver';
  const lines = ['#', `# ${topology.cards.length} Gaudi cards (${source})`, '#'];
  for (const [index, { entry }] of topology.cards.entries()) {
    const control = openControl(node, entry.minor);
    try {
      lines.push(`# card ${entry.minor}: ${entry.path}`, ...cardLines(sources, index, control), '#');
    } finally {
      control.close();
    }
  }
  lines.push(...distanceLines(topology), ...networkLines(topology));
  return lines.join('\n');
}

function cardLines({ node, topology }: SystemSources, index: number, control: ControlDevice): string[] {
  const { minor, numaNode, pciPath } = topology.cards[index]!.entry;
  const info = getHwIpInfo(control);
  const ports = getNicPorts(control, info, node);
  const firmware = info.cpucpVersion || node.attribute(minor, 'fw_os_ver') || 'unknown';
  const fields: readonly (readonly [string, string])[] = [
    ['name', info.cardName],
    ['bus id', control.busId],
    ['PCI path', pciPath ?? 'unknown'],
    ['PCI siblings', siblingsText(topology, index)],
    ['module id', `${info.moduleId}`],
    ['NUMA node', numaNode < 0 ? 'unknown' : `${numaNode}`],
    ['HBM', `${formatBytes(Number(info.dramSize))} for users, pages of ${formatBytes(Number(info.dramPageSize))}`],
    ['SRAM', formatBytes(info.sramSize)],
    ['firmware', firmware],
    ['status', STATUS_NAMES.get(getDeviceStatus(control)) ?? 'unknown'],
    ['NIC ports', portsText(ports)],
    ...(ports === undefined ? [] : linkFields(ports, topology, index)),
    ...(ports === undefined || topology.scaleOut === 'no' ? [] : [['scale-out', scaleOutText(ports)] as const]),
    ['network', choiceText(topology.choices[index])],
  ];
  return fields.map(([name, value]) => `#${`${name}: `.padStart(16)}${value}`);
}

/** What shares the way of the card into the machine. */
function siblingsText({ cards, networks }: Topology, index: number): string {
  const siblings = siblingsOf<SystemDevice>(cards[index]!, [...cards, ...networks]);
  return siblings.map(({ name }) => name).join(', ') || 'none';
}

function portsText(ports: readonly NicPort[] | undefined): string {
  if (ports === undefined) return 'not reported by this driver';
  const external = ports.filter((port) => port.external).length;
  const down = ports.filter(
    ({ linkUp, peer, external: out }) => linkUp === false && (out || peer !== undefined),
  ).length;
  const known = ports.some(({ linkUp }) => linkUp !== undefined);
  const links = known ? `${down} links down` : 'link states not reported';
  return `${ports.length} (${ports.length - external} scale-up, ${external} scale-out), ${links}`;
}

/** One field for each card at the far end of a link. */
function linkFields(ports: readonly NicPort[], { cards }: Topology, index: number): [string, string][] {
  const fields: [string, string][] = [];
  for (const [other, { name, entry }] of cards.entries()) {
    const links = other === index ? undefined : linksBetween(ports, entry.busId);
    if (links === undefined) continue;
    const numbers = ports.filter(({ peer }) => peer?.busId === entry.busId).map(portText);
    fields.push([`to ${name}`, `${links.up} of ${links.total} links up: ports ${numbers.join(', ')}`]);
  }
  return fields;
}

function scaleOutText(ports: readonly NicPort[]): string {
  const external = ports.filter((port) => port.external).map(portText);
  return external.length === 0 ? 'no ports' : `ports ${external.join(', ')}`;
}

function portText({ port, linkUp, netdev }: NicPort): string {
  return `${port}${linkUp === false ? ' down' : ''}${netdev === undefined ? '' : ` (${netdev})`}`;
}

function choiceText(choice: Neighbour<NetworkDevice> | undefined): string {
  if (choice === undefined) return 'no network device with a link';
  const { device, distance } = choice;
  return `${device.name} (${device.kind}, ${distanceText(distance)})`;
}

function distanceText({ kind }: Distance): string {
  return kind === 'unknown' ? 'distance unknown' : `common: ${kind}`;
}

/** What any two cards have in common. */
function distanceLines({ cards }: Topology): string[] {
  if (cards.length < 2) return [];
  const rows = cards.map((card) => [
    `# ${card.name}`,
    ...cards.map((other) => (other === card ? '-' : distanceBetween(card, other).kind)),
  ]);
  const header = ['# common', ...cards.map(({ name }) => name)];
  return ['# distances between cards', formatTable([header, ...rows]), '#'];
}

function networkLines({ networks }: Topology): string[] {
  const title = '# network devices (the nearest serves each card)';
  if (networks.length === 0) return [title, '# none', '#'];
  const rows = networks.map(({ name, kind, up, megabitPerSecond, pciPath, numaNode }) => [
    `# ${name}`,
    kind,
    up ? 'up' : 'down',
    megabitPerSecond === undefined ? '-' : `${megabitPerSecond / 1000} Gb/s`,
    numaNode < 0 ? '-' : String(numaNode),
    pciPath ?? '-',
  ]);
  return [title, formatTable([['# name', 'kind', 'link', 'speed', 'NUMA', 'PCI path'], ...rows]), '#'];
}
