/** Cards of `gaudi-ucx smi`: values of the driver, of sysfs and of sensors; undefined for unknown values. Only control nodes are opened. */

import {
  type CardEntry,
  type CardLinks,
  type ControlDevice,
  type DriverNode,
  getClkRate,
  getClkThrottleInfo,
  getDeviceUtilization,
  getDramPendingRows,
  getDramUsage,
  getHwIpInfo,
  getNicPorts,
  getPower,
  getResetCount,
  linksBetween,
  type NamedCard,
  type NicPort,
  namedCards,
} from '../../hlthunk/index.ts';
import { processCommand } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { askCard } from '../node-access/card.ts';

/** A card. */
export interface SmiCard {
  /** Logical index; undefined for a card that GAUDI_MAPPING_TABLE leaves out. */
  readonly index: number | undefined;
  /** Undefined for a card whose device node was removed by the driver. */
  readonly minor: number | undefined;
  readonly busId: string;
  readonly state: string;
  readonly emulated: boolean;
  readonly name: string | undefined;
  readonly moduleId: number | undefined;
  /** NUMA node of the card; undefined if the platform does not report it. */
  readonly numaNode: number | undefined;
  readonly driverVersion: string | undefined;
  readonly firmware: string | undefined;
  readonly preboot: string | undefined;
  /** Degrees Celsius. */
  readonly temperature: number | undefined;
  /** Watt. */
  readonly power: number | undefined;
  readonly powerMax: number | undefined;
  readonly memoryBytes: number | undefined;
  readonly memoryUsedBytes: number | undefined;
  /** Percent. */
  readonly utilization: number | undefined;
  readonly clockMhz: number | undefined;
  readonly clockMaxMhz: number | undefined;
  /** Nanoseconds with a throttled clock. */
  readonly powerThrottleNs: number | undefined;
  readonly thermalThrottleNs: number | undefined;
  /** Whether HBM rows wait for replacement. */
  readonly hasPendingRows: boolean | undefined;
  readonly hardResets: number | undefined;
  readonly computeResets: number | undefined;
  readonly ports: readonly NicPort[] | undefined;
  /** Links to every card of the table; undefined for the card itself, and if the driver does not report them. */
  readonly links: readonly (CardLinks | undefined)[];
  /** Process with the compute context, and its command line. */
  readonly pid: number | undefined;
  readonly command: string | undefined;
}

const MICROWATT_PER_WATT = 1e6;
const MILLIWATT_PER_WATT = 1e3;
const COMMAND_LENGTH_MAX = 200;

/** Reads all cards of a node, including removed ones. @param cards by logical index */
export function readSmiCards(node: DriverNode, cards: readonly NamedCard[] = namedCards(node)): SmiCard[] {
  return cards.map((card) => {
    const { index, minor, busId, entry, absence } = card;
    const { emulated } = node;
    if (entry === undefined) return { ...UNKNOWN_CARD, index, minor, busId, state: absence ?? 'removed', emulated };
    return cardOf(node, cards, entry, index);
  });
}

/** A card that cannot be queried, without its names. */
const UNKNOWN_CARD: Omit<SmiCard, 'index' | 'minor' | 'busId' | 'state' | 'emulated'> = {
  name: undefined,
  moduleId: undefined,
  numaNode: undefined,
  driverVersion: undefined,
  firmware: undefined,
  preboot: undefined,
  temperature: undefined,
  power: undefined,
  powerMax: undefined,
  memoryBytes: undefined,
  memoryUsedBytes: undefined,
  utilization: undefined,
  clockMhz: undefined,
  clockMaxMhz: undefined,
  powerThrottleNs: undefined,
  thermalThrottleNs: undefined,
  hasPendingRows: undefined,
  hardResets: undefined,
  computeResets: undefined,
  ports: undefined,
  links: [],
  pid: undefined,
  command: undefined,
};

function cardOf(node: DriverNode, all: readonly NamedCard[], entry: CardEntry, index: number | undefined): SmiCard {
  const { minor, busId, numaNode } = entry;
  const pid = node.ownerOf?.(minor);
  const { state, card } = askCard(node, minor, (control) => answersOf(node, control));
  const powerMax = numberOf(node.attribute(minor, 'max_power'));
  return {
    index,
    minor,
    busId,
    state,
    emulated: node.emulated,
    name: card?.name ?? node.attribute(minor, 'device_type'),
    moduleId: entry.moduleId ?? card?.moduleId,
    numaNode: numaNode < 0 ? undefined : numaNode,
    driverVersion: node.driverVersion,
    firmware: node.attribute(minor, 'fw_os_ver') ?? node.attribute(minor, 'armcp_ver'),
    preboot: node.attribute(minor, 'preboot_btl_ver'),
    temperature: node.temperature?.(minor),
    power: card?.power,
    powerMax: powerMax === undefined ? undefined : powerMax / MICROWATT_PER_WATT,
    memoryBytes: card?.memoryBytes,
    memoryUsedBytes: card?.memoryUsedBytes,
    utilization: card?.utilization,
    clockMhz: card?.clockMhz ?? numberOf(node.attribute(minor, 'clk_cur_freq_mhz')),
    clockMaxMhz: card?.clockMaxMhz ?? numberOf(node.attribute(minor, 'clk_max_freq_mhz')),
    powerThrottleNs: card?.powerThrottleNs,
    thermalThrottleNs: card?.thermalThrottleNs,
    hasPendingRows: card?.hasPendingRows,
    hardResets: card?.hardResets ?? numberOf(node.attribute(minor, 'hard_reset_cnt')),
    computeResets: card?.computeResets,
    ports: card?.ports,
    links: all.map((other) => (other.busId === busId ? undefined : linksTo(card?.ports, other.busId))),
    pid,
    command: pid === undefined ? undefined : processCommand(pid, COMMAND_LENGTH_MAX),
  };
}

/** Values of the driver. In reset, some queries fail. */
function answersOf(node: DriverNode, control: ControlDevice) {
  const info = getHwIpInfo(control);
  const usage = unlessRefused(() => getDramUsage(control));
  const clock = unlessRefused(() => getClkRate(control));
  const throttle = unlessRefused(() => getClkThrottleInfo(control));
  const resets = unlessRefused(() => getResetCount(control));
  const milliwatt = unlessRefused(() => Number(getPower(control)));
  return {
    name: info.cardName || undefined,
    moduleId: info.moduleId,
    // A card without a meter reports 0.
    power: milliwatt ? milliwatt / MILLIWATT_PER_WATT : undefined,
    memoryBytes: Number(info.dramSize),
    memoryUsedBytes: usage && Math.max(0, Number(info.dramSize) - Number(usage.dramFreeMem)),
    utilization: unlessRefused(() => getDeviceUtilization(control)),
    clockMhz: clock?.curClkRateMhz,
    clockMaxMhz: clock?.maxClkRateMhz,
    powerThrottleNs: throttle && Number(throttle.clkThrottlingDurationNs[0]),
    thermalThrottleNs: throttle && Number(throttle.clkThrottlingDurationNs[1]),
    hasPendingRows: unlessRefused(() => getDramPendingRows(control) !== 0),
    hardResets: resets?.hardResetCnt,
    computeResets: resets?.softResetCnt,
    ports: getNicPorts(control, info, node),
  };
}

function unlessRefused<T>(ask: () => T): T | undefined {
  try {
    return ask();
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

function linksTo(ports: readonly NicPort[] | undefined, busId: string): CardLinks | undefined {
  return ports === undefined ? undefined : linksBetween(ports, busId);
}

function numberOf(text: string | undefined): number | undefined {
  return text !== undefined && /^\d+$/.test(text) ? Number(text) : undefined;
}
