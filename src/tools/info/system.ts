/**
 * `info -s`: cards of the node as described by the driver, their links and their topology. A card that cannot be queried is shown with the reason.
 * `info -M`: bandwidth of memory copies, as printed by ucx_info -M.
 */

import type { NetworkDevice, PlacedCard, Topology } from '../../assembly/topology.ts';
import {
  type ControlDevice,
  cardLabel,
  type DriverNode,
  getHwIpInfo,
  getNicPorts,
  linksBetween,
  type NamedCard,
  type NicPort,
} from '../../hlthunk/index.ts';
import { allocateScratch, memcpy } from '../../sys/index.ts';
import { systemClock } from '../../ucs/sys/clock.ts';
import {
  type Distance,
  distanceBetween,
  type Neighbour,
  type SystemDevice,
  siblingsOf,
} from '../../ucs/sys/topology.ts';
import { formatBytes, formatTable, MEGABYTE } from '../base/text-table.ts';
import { askCard } from '../node-access/card.ts';

/** Data of the report. */
export interface SystemSources {
  readonly node: DriverNode;
  readonly topology: Topology;
  /** All cards of the node, by logical index. */
  readonly cards: readonly NamedCard[];
}

/** Data that a card reports. */
interface CardDescription {
  readonly name: string;
  readonly moduleId: number;
  /** Bytes available to users, and of a page. */
  readonly hbmBytes: number;
  readonly hbmPageBytes: number;
  readonly sramBytes: number;
  readonly firmware: string;
  /** Undefined if the driver does not report them. */
  readonly ports: readonly NicPort[] | undefined;
}

/** A card of the machine. */
export interface CardReport {
  /** Logical index; undefined for a card that is not in the node or in GAUDI_MAPPING_TABLE. */
  readonly index?: number | undefined;
  /** Undefined for a card that has never had a device node. */
  readonly minor: number | undefined;
  readonly busId: string;
  /** Status by the driver, or the reason why the card cannot be queried, as in `top` and `node status`. */
  readonly state: string;
  /** Complete error message if the card cannot be queried. */
  readonly reason?: string | undefined;
  readonly path?: string | undefined;
  readonly pciPath?: string | undefined;
  /** Undefined if the platform does not report it. */
  readonly numaNode?: number | undefined;
  /** Names of the devices below the same PCIe switch. */
  readonly siblings?: readonly string[] | undefined;
  /** The network device that serves it. */
  readonly network?: string | undefined;
  readonly card?: CardDescription | undefined;
}

/** The machine: what `info -s --json` prints. */
export interface SystemReport {
  readonly emulated: boolean;
  /** Reason why there are no cards, if known. */
  readonly whyNoCards?: string | undefined;
  readonly cards: readonly CardReport[];
  /** Rows and columns in the order of the cards that have a device node. */
  readonly distances: readonly (readonly string[])[];
  /** Rows as in {@link distances}, columns in the order of {@link networks}. */
  readonly networkDistances: readonly (readonly string[])[];
  readonly networks: readonly NetworkDevice[];
}

/** Reads the machine. Uses control nodes only, so cards that are in use are shown too. */
export function readSystem({ node, topology, cards: all }: SystemSources): SystemReport {
  const { cards, networks } = topology;
  const present = cards.map((placed, position) => reportOf(node, topology, placed, position));
  const absent = (node.absentCards?.() ?? []).map((card) => {
    return { index: all.find(({ busId }) => busId === card.busId)?.index, ...card };
  });
  return {
    emulated: node.emulated,
    whyNoCards: cards.length === 0 ? node.whyNoCards?.() : undefined,
    cards: [...present, ...absent].sort(byIndex),
    distances: cards.map((card) => cards.map((other) => (other === card ? '-' : distanceBetween(card, other).kind))),
    networkDistances: cards.map((card) => networks.map((network) => distanceBetween(card, network).kind)),
    networks,
  };
}

/** Cards without an index last. */
function byIndex(left: CardReport, right: CardReport): number {
  const [one, other] = [left.index ?? Number.POSITIVE_INFINITY, right.index ?? Number.POSITIVE_INFINITY];
  return one === other ? 0 : one - other;
}

function reportOf(node: DriverNode, topology: Topology, placed: PlacedCard, position: number): CardReport {
  const { minor, busId, path, pciPath, numaNode } = placed.entry;
  const siblings = siblingsOf<SystemDevice>(placed, [...topology.cards, ...topology.networks]);
  return {
    index: placed.index,
    minor,
    busId,
    path,
    pciPath,
    numaNode: numaNode < 0 ? undefined : numaNode,
    siblings: siblings.map(({ name }) => name),
    network: choiceText(topology.choices[position]),
    ...askCard(node, minor, (control) => descriptionOf(node, control)),
  };
}

function descriptionOf(node: DriverNode, control: ControlDevice): CardDescription {
  const info = getHwIpInfo(control);
  return {
    name: info.cardName,
    moduleId: info.moduleId,
    hbmBytes: Number(info.dramSize),
    hbmPageBytes: Number(info.dramPageSize),
    sramBytes: info.sramSize,
    firmware: info.cpucpVersion || node.attribute(control.minor, 'fw_os_ver') || 'unknown',
    ports: getNicPorts(control, info, node),
  };
}

function choiceText(choice: Neighbour<NetworkDevice> | undefined): string | undefined {
  if (choice === undefined) return undefined;
  const { device, distance } = choice;
  return `${device.name} (${device.kind}, ${distanceText(distance)})`;
}

function distanceText({ kind }: Distance): string {
  return kind === 'unknown' ? 'distance unknown' : `common: ${kind}`;
}

/** The text of a report. `hasScaleOut` is false if UCX_GAUDI_COPY_NIC_SCALE_OUT excludes those ports. */
export function systemText(report: SystemReport, hasScaleOut: boolean): string {
  const source = report.emulated ? 'emulated node' : 'habanalabs kernel driver';
  const lines = ['#', `# ${report.cards.length} Gaudi cards (${source})`, '#'];
  if (report.whyNoCards !== undefined) lines.push(`# ${report.whyNoCards}`, '#');
  for (const card of report.cards) lines.push(...cardLines(card, report, hasScaleOut), '#');
  return [...lines, ...distanceLines(report), ...networkLines(report)].join('\n');
}

function cardLines(report: CardReport, { cards }: SystemReport, hasScaleOut: boolean): string[] {
  const { minor, busId, path, pciPath, numaNode, siblings, state, reason, network, card } = report;
  const title = `# ${cardLabel({ index: report.index, minor, busId })}${path === undefined ? '' : `: ${path}`}`;
  const fields: (readonly [string, string | undefined])[] = [
    ['name', card?.name],
    ['bus id', busId],
    ['PCI path', path === undefined ? undefined : (pciPath ?? 'unknown')],
    ['PCI siblings', siblings === undefined ? undefined : siblings.join(', ') || 'none'],
    ['module id', card === undefined ? undefined : `${card.moduleId}`],
    ['NUMA node', path === undefined ? undefined : String(numaNode ?? 'unknown')],
    ['HBM', card && `${formatBytes(card.hbmBytes)} for users, pages of ${formatBytes(card.hbmPageBytes)}`],
    ['SRAM', card && formatBytes(card.sramBytes)],
    ['firmware', card?.firmware],
    ['status', reason === undefined ? state : `${state} (${reason})`],
    ...(card === undefined ? [] : portFields(card.ports, cards, minor, hasScaleOut)),
    ['network', path === undefined ? undefined : (network ?? 'no network device with a link')],
  ];
  const known = fields.filter(([, value]) => value !== undefined);
  return [title, ...known.map(([name, value]) => `#${`${name}: `.padStart(16)}${value}`)];
}

function portFields(
  ports: readonly NicPort[] | undefined,
  cards: readonly CardReport[],
  self: number | undefined,
  hasScaleOut: boolean,
): (readonly [string, string])[] {
  if (ports === undefined) return [['NIC ports', 'not reported by this driver']];
  const links = cards.flatMap(({ index, minor, busId }): (readonly [string, string])[] => {
    const between = minor === self || minor === undefined ? undefined : linksBetween(ports, busId);
    if (between === undefined || between.total === 0) return [];
    const numbers = ports.filter(({ peer }) => peer?.busId === busId).map(portText);
    return [
      [`to card ${index ?? `at ${busId}`}`, `${between.up} of ${between.total} links up: ports ${numbers.join(', ')}`],
    ];
  });
  const external = ports.filter((port) => port.external).map(portText);
  const scaleOut = external.length === 0 ? 'no ports' : `ports ${external.join(', ')}`;
  return [['NIC ports', portsText(ports)], ...links, ...(hasScaleOut ? [['scale-out', scaleOut] as const] : [])];
}

function portsText(ports: readonly NicPort[]): string {
  const external = ports.filter((port) => port.external).length;
  // A port wired to an empty slot has no link.
  const unwired = ports.filter(({ connected }) => connected !== true).length;
  const wired = ports.filter(({ connected }) => connected === true);
  const states = ports.some(({ linkUp }) => linkUp !== undefined)
    ? `${wired.filter(({ linkUp }) => linkUp === false).length} links down`
    : 'link states not reported';
  const rest = unwired === 0 ? '' : `, ${unwired} without a card at the far end`;
  return `${ports.length} (${ports.length - external} scale-up, ${external} scale-out), ${states}${rest}`;
}

function portText({ port, linkUp, netdev }: NicPort): string {
  return `${port}${linkUp === false ? ' down' : ''}${netdev === undefined ? '' : ` (${netdev})`}`;
}

/** Distance (closest common component) of each card to every card and network device, and its NUMA node. */
export function distanceLines({ cards, networks, distances, networkDistances }: SystemReport): string[] {
  if (distances.length === 0 || distances.length + networks.length < 2) return [];
  const present = cards.filter(({ path }) => path !== undefined);
  const names = present.map(({ index, busId }) => `card ${index ?? busId}`);
  const rows = distances.map((row, index) => {
    const numaNode = present[index]?.numaNode;
    return [
      `# ${names[index]}`,
      ...row,
      ...(networkDistances[index] ?? []),
      numaNode === undefined ? '-' : `${numaNode}`,
    ];
  });
  const header = ['# common', ...names, ...networks.map(({ name }) => name), 'NUMA'];
  return ['# distances between cards, and to network devices', formatTable([header, ...rows]), '#'];
}

/** The network devices of the machine. */
export function networkLines({ networks }: SystemReport): string[] {
  const title = '# network devices (each card uses the nearest)';
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

const BYTES_MIN = 4096;
const BYTES_MAX = 64 * 2 ** 20;
/** Duration of the measurement of one size. */
const MEASURE_NS = 20e6;
/** Copies of the smallest size, after which V8 has compiled the call. */
const WARM_UP_COPIES = 50_000;

/** Parameters of the measurement. */
export interface MeasuredCopies {
  readonly copy: (target: number, source: number, byteLength: number) => void;
  readonly nowNs: () => number;
}

const MEMCPY: MeasuredCopies = { copy: memcpy, nowNs: () => systemClock.nowNs() };

/** Bytes per second for sizes in bytes: powers of two. */
export function measureMemcpy({
  copy,
  nowNs,
}: MeasuredCopies = MEMCPY): { readonly byteLength: number; readonly bytesPerSecond: number }[] {
  const [source, target] = [allocateScratch(BYTES_MAX), allocateScratch(BYTES_MAX)];
  /** Time of a number of copies. */
  const timeNs = (byteLength: number, copies: number): number => {
    const startNs = nowNs();
    for (let count = 0; count < copies; count++) copy(target.address, source.address, byteLength);
    return nowNs() - startNs;
  };
  try {
    // Touches the pages.
    timeNs(BYTES_MAX, 1);
    timeNs(BYTES_MIN, WARM_UP_COPIES);
    const results: { readonly byteLength: number; readonly bytesPerSecond: number }[] = [];
    for (let byteLength = BYTES_MIN; byteLength <= BYTES_MAX; byteLength *= 2) {
      let copies = 1;
      let elapsedNs = timeNs(byteLength, copies);
      while (elapsedNs < MEASURE_NS) {
        copies *= 2;
        elapsedNs = timeNs(byteLength, copies);
      }
      results.push({ byteLength, bytesPerSecond: (copies * byteLength * 1e9) / elapsedNs });
    }
    return results;
  } finally {
    source.free();
    target.free();
  }
}

/** The text of the results. */
export function memcpyText(results: ReturnType<typeof measureMemcpy>): string {
  const lines = results.map(({ byteLength, bytesPerSecond }) => {
    return `# ${String(byteLength).padStart(14)} bytes: ${(bytesPerSecond / MEGABYTE).toFixed(3)} MB/s`;
  });
  return ['#', '# Memcpy bandwidth:', ...lines, '#'].join('\n');
}
