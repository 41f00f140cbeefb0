/**
 * What `gaudi-ucx top` reads: of every card what its control node tells, and of an emulated node what it counts. It opens control nodes only, so that
 * whoever has the cards keeps them; a card that does not answer is shown as such and looked for again.
 */

import type { DriverNode, NodeTransfers } from '../../driver/port.ts';
import {
  type CardLinks,
  type ControlDevice,
  getClkRate,
  getCsCounters,
  getCsTimeoutInfo,
  getDeviceStatus,
  getDeviceUtilization,
  getDramUsage,
  getHwIdle,
  getHwIpInfo,
  getNicPorts,
  getOpenStats,
  getPageFaultInfo,
  getPciCounters,
  getRazwiInfo,
  getResetCount,
  getUndefinedOpcodeInfo,
  type HwIpInfo,
  linksBetween,
  openControl,
} from '../../hlthunk/index.ts';
import { HL_DEVICE_STATUS } from '../../uapi/index.ts';
import { isUcxError, UcxError } from '../../ucs/type/error.ts';
import { Status } from '../../ucs/type/status.ts';

/** One card at one moment. */
export interface CardSample {
  readonly minor: number;
  readonly busId: string;
  readonly moduleId: number | undefined;
  /** Value of HL_DEVICE_STATUS in words; why the card does not answer, where it does not. */
  readonly status: string;
  /** False where nothing but minor and bus id is known. */
  readonly answers: boolean;
  readonly hbmUsedBytes: number;
  readonly hbmBytes: number;
  /** Busy engines, by their ids of the generation. */
  readonly busyEngines: readonly number[];
  /** Percent, as the driver says. */
  readonly utilization: number;
  readonly clockMhz: number;
  /** Whether a process has the compute context. */
  readonly inUse: boolean;
  readonly hardResets: number;
  readonly computeResets: number;
  /** Submissions that the driver refused. */
  readonly refusedSubmissions: number;
  /** Kinds of faults on record, such as `page fault`. */
  readonly faults: readonly string[];
  /** Bytes per second over PCIe as the firmware says: into the card and out of it. */
  readonly pciReceive: number;
  readonly pciTransmit: number;
  /** By the minor of the card at the far end; undefined for none, and where nobody tells. */
  readonly links: readonly (CardLinks | undefined)[];
}

/** A node at one moment. */
export interface NodeSample {
  readonly timeNs: number;
  readonly emulated: boolean;
  readonly cards: readonly CardSample[];
  /** Undefined for real cards. */
  readonly transfers: NodeTransfers | undefined;
}

const STATUS_NAMES: ReadonlyMap<number, string> = new Map(
  Object.entries(HL_DEVICE_STATUS).map(([name, value]) => [value, name.toLowerCase().replaceAll('_', ' ')]),
);
const KILOBYTE = 1000;

/** Reads samples of one node. */
export class TopSampler {
  readonly #node: DriverNode;
  readonly #nowNs: () => number;
  readonly #devices: Map<number, { readonly control: ControlDevice; readonly info: HwIpInfo }> = new Map();

  constructor(node: DriverNode, nowNs: () => number) {
    this.#node = node;
    this.#nowNs = nowNs;
  }

  /**
   * Reads the node now.
   * @throws UcxError ERR_NODE_UNREACHABLE for an emulated node that is gone, as when its server has ended
   */
  sample(): NodeSample {
    const entries = this.#node.cards();
    const buses = entries.map(({ busId }) => busId);
    const cards = entries.map(({ minor, busId, moduleId }) => {
      try {
        const { control, info } = this.#open(minor);
        return readCard(this.#node, control, info, buses);
      } catch (error) {
        if (!isUcxError(error)) throw error;
        this.#forget(minor);
        return silentCard(minor, busId, moduleId, reasonOf(error.message));
      }
    });
    // Asked last: a node that answers this was there for all of the above.
    const transfers = this.#node.transfers?.();
    if (this.#node.transfers !== undefined && transfers === undefined) throw nodeGone();
    return { timeNs: this.#nowNs(), emulated: this.#node.kind === 'emulator', cards, transfers };
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

function nodeGone(): UcxError {
  return new UcxError({
    code: 'ERR_NODE_UNREACHABLE',
    status: Status.UNREACHABLE,
    message: 'the emulated node is gone: its server has ended',
  });
}

function readCard(node: DriverNode, control: ControlDevice, info: HwIpInfo, buses: readonly string[]): CardSample {
  const status = getDeviceStatus(control);
  const isOperational = status === HL_DEVICE_STATUS.OPERATIONAL;
  const { freeBytes, resets } = {
    freeBytes: Number(getDramUsage(control).dramFreeMem),
    resets: getResetCount(control),
  };
  const counters = getCsCounters(control);
  // The rest answers EBUSY in reset.
  const pci = isOperational ? getPciCounters(control) : { rxThroughput: 0n, txThroughput: 0n };
  const ports = getNicPorts(control, info, node);
  return {
    minor: control.minor,
    busId: control.busId,
    moduleId: info.moduleId,
    status: STATUS_NAMES.get(status) ?? `status ${status}`,
    answers: true,
    hbmUsedBytes: Math.max(0, Number(info.dramSize) - freeBytes),
    hbmBytes: Number(info.dramSize),
    busyEngines: isOperational ? enginesOf(getHwIdle(control).busyEnginesMaskExt) : [],
    utilization: isOperational ? getDeviceUtilization(control) : 0,
    clockMhz: isOperational ? getClkRate(control).curClkRateMhz : 0,
    inUse: getOpenStats(control).isComputeCtxActive !== 0,
    hardResets: resets.hardResetCnt,
    computeResets: resets.softResetCnt,
    refusedSubmissions: refusedOf(counters),
    faults: faultsOf(control),
    pciReceive: Number(pci.rxThroughput) * KILOBYTE,
    pciTransmit: Number(pci.txThroughput) * KILOBYTE,
    links: buses.map((busId) => {
      const links = ports && linksBetween(ports, busId);
      return links === undefined || links.total === 0 ? undefined : links;
    }),
  };
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

function silentCard(minor: number, busId: string, moduleId: number | undefined, status: string): CardSample {
  return {
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
    hardResets: 0,
    computeResets: 0,
    refusedSubmissions: 0,
    faults: [],
    pciReceive: 0,
    pciTransmit: 0,
    links: [],
  };
}

/** The errno out of a message, which is what fits into a column. */
function reasonOf(message: string): string {
  return /\bE[A-Z0-9]{2,}\b/.exec(message)?.[0] ?? message;
}
