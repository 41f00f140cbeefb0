/**
 * Samples of a node: the state of every card by its control node, and the counters of an emulated node. The compute contexts of the cards stay free. A card
 * that cannot be queried is sampled with its state and queried again in the next sample.
 */

import type { CardEntry, DriverNode, NodeTransfers } from '../../driver/port.ts';
import {
  type CardLinks,
  type ControlDevice,
  getClkRate,
  getCsCounters,
  getCsTimeoutInfo,
  getDeviceUtilization,
  getDramUsage,
  getHwIdle,
  getHwIpInfo,
  getNicPorts,
  getOpenStats,
  getPageFaultInfo,
  getPciCounters,
  getPower,
  getRazwiInfo,
  getResetCount,
  getUndefinedOpcodeInfo,
  type HwIpInfo,
  linksBetween,
  type NamedCard,
  namedCards,
  openControl,
} from '../../hlthunk/index.ts';
import { processCommand } from '../../sys/index.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { lostNode, OPERATIONAL, stateOf, stateOfRefusal } from '../node-access/card.ts';

/** One card at one moment. */
export interface CardSample {
  /** Logical index; undefined for a card that GAUDI_MAPPING_TABLE leaves out. */
  readonly index: number | undefined;
  /** Undefined for a card whose device node was removed by the driver. */
  readonly minor: number | undefined;
  readonly busId: string;
  readonly moduleId: number | undefined;
  /** Status by the driver, or the reason why the card cannot be queried, as in `info -s` and `node status`. */
  readonly status: string;
  /** False if only minor and bus id are known. */
  readonly answers: boolean;
  readonly hbmUsedBytes: number;
  readonly hbmBytes: number;
  /** Ids of the busy engines, as of this generation. */
  readonly busyEngines: readonly number[];
  /** Utilization in percent, from the driver. */
  readonly utilization: number;
  readonly clockMhz: number;
  /** Whether a process has the compute context. */
  readonly inUse: boolean;
  /** That process, and its command line; undefined if unknown. */
  readonly owner: { readonly pid: number; readonly command: string | undefined } | undefined;
  /** Undefined if the card does not report it. */
  readonly firmware: string | undefined;
  /** Degrees Celsius; undefined without a sensor. */
  readonly temperature: number | undefined;
  /** Watt; undefined if the card does not report it. */
  readonly power: number | undefined;
  readonly hardResets: number;
  readonly computeResets: number;
  /** Submissions that the driver rejected. */
  readonly refusedSubmissions: number;
  /** Kinds of recorded faults, such as `page fault`. */
  readonly faults: readonly string[];
  /** Bytes per second over PCIe, from the firmware: into the card and out of it; undefined if not reported. */
  readonly pciReceive: number | undefined;
  readonly pciTransmit: number | undefined;
  /** In the order of the cards of the sample, by the card at the far end; undefined without links, and if the driver does not report them. */
  readonly links: readonly (CardLinks | undefined)[];
}

/** A node at one moment. */
export interface NodeSample {
  readonly timeNs: number;
  readonly emulated: boolean;
  /** The process that serves an emulated node; undefined for a node in this process, and for real cards. */
  readonly serverPid: number | undefined;
  /** Version of the driver; undefined if it does not report one. */
  readonly driverVersion: string | undefined;
  readonly cards: readonly CardSample[];
  /** Undefined for real cards. */
  readonly transfers: NodeTransfers | undefined;
}

const KILOBYTE = 1000;
const MILLIWATT_PER_WATT = 1000;
/** Limit for the command line of an owner, in characters. */
const COMMAND_LENGTH_MAX = 200;

/** Reads samples of one node. */
export class TopSampler {
  readonly #node: DriverNode;
  readonly #nowNs: () => number;
  readonly #devices: Map<number, { readonly control: ControlDevice; readonly info: HwIpInfo }> = new Map();
  readonly #cards: () => readonly NamedCard[];

  /** @param cards of the node, by logical index */
  constructor(node: DriverNode, nowNs: () => number, cards: () => readonly NamedCard[] = () => namedCards(node)) {
    this.#node = node;
    this.#nowNs = nowNs;
    this.#cards = cards;
  }

  /**
   * Reads the node now.
   * @throws UcxError ERR_NODE_UNREACHABLE for an emulated node that is closed, for example because its server has ended
   */
  sample(): NodeSample {
    const node = this.#node;
    const known = this.#cards();
    const buses = known.map(({ busId }) => busId);
    const cards = known.map((card) => {
      const { entry, absence = 'removed' } = card;
      return entry === undefined ? silentCard(card, undefined, absence) : this.#read(card, entry, buses);
    });
    // Queried last: if the node replies, all queries above reached it.
    const transfers = node.transfers?.();
    if (node.transfers !== undefined && transfers === undefined) throw lostNode(node);
    return {
      timeNs: this.#nowNs(),
      emulated: node.emulated,
      serverPid: node.serverPid,
      driverVersion: node.driverVersion,
      cards,
      transfers,
    };
  }

  #read(card: NamedCard, { minor, moduleId }: CardEntry, buses: readonly string[]): CardSample {
    try {
      const { control, info } = this.#open(minor);
      return { ...readCard(this.#node, control, info, buses), index: card.index };
    } catch (error) {
      if (!isUcxError(error)) throw error;
      this.#forget(minor);
      return silentCard(card, moduleId, stateOfRefusal(this.#node, minor, error));
    }
  }

  /** Closes the control nodes. */
  close(): void {
    for (const minor of [...this.#devices.keys()]) this.#forget(minor);
  }

  #open(minor: number): { readonly control: ControlDevice; readonly info: HwIpInfo } {
    const known = this.#devices.get(minor);
    if (known !== undefined) return known;
    const control = openControl(this.#node, minor);
    try {
      const opened = { control, info: getHwIpInfo(control) };
      this.#devices.set(minor, opened);
      return opened;
    } catch (error) {
      control.close();
      throw error;
    }
  }

  #forget(minor: number): void {
    this.#devices.get(minor)?.control.close();
    this.#devices.delete(minor);
  }
}

function readCard(
  node: DriverNode,
  control: ControlDevice,
  info: HwIpInfo,
  buses: readonly string[],
): Omit<CardSample, 'index'> {
  const status = stateOf(control);
  const isOperational = status === OPERATIONAL;
  const freeBytes = Number(getDramUsage(control).dramFreeMem);
  const resets = getResetCount(control);
  const counters = getCsCounters(control);
  // During a reset, all other queries fail with EBUSY.
  const pci = isOperational ? pciOf(control) : undefined;
  const ports = getNicPorts(control, info, node);
  return {
    minor: control.minor,
    busId: control.busId,
    moduleId: info.moduleId,
    status,
    answers: true,
    hbmUsedBytes: Math.max(0, Number(info.dramSize) - freeBytes),
    hbmBytes: Number(info.dramSize),
    busyEngines: isOperational ? enginesOf(getHwIdle(control).busyEnginesMaskExt) : [],
    utilization: isOperational ? getDeviceUtilization(control) : 0,
    clockMhz: isOperational ? getClkRate(control).curClkRateMhz : 0,
    inUse: getOpenStats(control).isComputeCtxActive !== 0,
    owner: ownerOf(node, control.minor),
    firmware: info.cpucpVersion || node.attribute(control.minor, 'fw_os_ver'),
    temperature: node.temperature?.(control.minor),
    power: isOperational ? powerOf(control) : undefined,
    hardResets: resets.hardResetCnt,
    computeResets: resets.softResetCnt,
    refusedSubmissions: refusedOf(counters),
    faults: faultsOf(control),
    pciReceive: pci && Number(pci.rxThroughput) * KILOBYTE,
    pciTransmit: pci && Number(pci.txThroughput) * KILOBYTE,
    links: buses.map((busId) => {
      const links = ports && linksBetween(ports, busId);
      return links === undefined || links.total === 0 ? undefined : links;
    }),
  };
}

function ownerOf(node: DriverNode, minor: number): CardSample['owner'] {
  const pid = node.ownerOf?.(minor);
  return pid === undefined ? undefined : { pid, command: processCommand(pid, COMMAND_LENGTH_MAX) };
}

/** Undefined for a card that reports 0, as one without a meter does. */
function powerOf(control: ControlDevice): number | undefined {
  const milliwatt = Number(getPower(control));
  return milliwatt === 0 ? undefined : milliwatt / MILLIWATT_PER_WATT;
}

/** Undefined for a card whose firmware does not measure it. */
function pciOf(control: ControlDevice): ReturnType<typeof getPciCounters> | undefined {
  try {
    return getPciCounters(control);
  } catch (error) {
    if (!isUcxError(error)) throw error;
    return undefined;
  }
}

function refusedOf(counters: ReturnType<typeof getCsCounters>): number {
  const totals = Object.entries(counters).filter(([name]) => name.startsWith('total'));
  return totals.reduce((sum, [, value]) => sum + Number(value), 0);
}

function faultsOf(control: ControlDevice): string[] {
  const records: readonly (readonly [string, unknown])[] = [
    ['time-out', getCsTimeoutInfo(control)],
    ['page fault', getPageFaultInfo(control)],
    ['illegal access', getRazwiInfo(control)],
    ['undefined opcode', getUndefinedOpcodeInfo(control)],
  ];
  return records.filter(([, record]) => record !== undefined).map(([name]) => name);
}

/** The set bits of a mask of words. */
function enginesOf(mask: readonly bigint[]): number[] {
  const engines: number[] = [];
  for (const [word, bits] of mask.entries()) {
    for (let bit = 0; bit < 64; bit++) if ((bits & (1n << BigInt(bit))) !== 0n) engines.push(word * 64 + bit);
  }
  return engines;
}

function silentCard({ index, minor, busId }: NamedCard, moduleId: number | undefined, status: string): CardSample {
  return {
    index,
    minor,
    busId,
    moduleId,
    status,
    answers: false,
    hbmUsedBytes: 0,
    hbmBytes: 0,
    busyEngines: [],
    utilization: 0,
    clockMhz: 0,
    inUse: false,
    owner: undefined,
    firmware: undefined,
    temperature: undefined,
    power: undefined,
    hardResets: 0,
    computeResets: 0,
    refusedSubmissions: 0,
    faults: [],
    pciReceive: undefined,
    pciTransmit: undefined,
    links: [],
  };
}
