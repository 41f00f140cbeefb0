/**
 * Model of `gaudi-ucx top`: rates between two samples of a node. A line of `--json` has this shape, so fields are added and never removed.
 */

import { cardLabel } from '../../hlthunk/index.ts';
import type { CardSample, NodeSample } from './sample.ts';

/** One card. Rates are bytes per second between the two samples. */
export interface TopCard {
  /** Its name for users: `card 0 (accel2, 0000:33:00.0)`. */
  readonly label: string;
  /** Logical index; undefined for a card that GAUDI_MAPPING_TABLE leaves out. */
  readonly index: number | undefined;
  /** Number in /dev/accel/accelN; undefined for a card whose device node was removed by the driver. */
  readonly minor: number | undefined;
  readonly busId: string;
  readonly moduleId: number | undefined;
  readonly status: string;
  readonly inUse: boolean;
  /** The process that has opened the card, if known. */
  readonly pid: number | undefined;
  /** Its command line. */
  readonly command: string | undefined;
  readonly firmware: string | undefined;
  /** Degrees Celsius. */
  readonly temperature: number | undefined;
  /** Watt. */
  readonly power: number | undefined;
  readonly hbmUsedBytes: number;
  readonly hbmBytes: number;
  /**
   * Percent of the time between the samples in which the threads of an emulated node moved bytes: 50 if one of two was busy. Bytes moved by the submitting
   * thread count too, up to 100. For real cards, the value of the driver.
   */
  readonly busyPercent: number;
  readonly busyEngines: readonly number[];
  readonly clockMhz: number;
  /** Undefined if the card does not report it. */
  readonly hostToDevice: number | undefined;
  readonly deviceToHost: number | undefined;
  /** Undefined for real cards, which have no counter. */
  readonly deviceToDevice: number | undefined;
  readonly hardResets: number;
  readonly computeResets: number;
  readonly refusedSubmissions: number;
  readonly faults: readonly string[];
}

/** The links from one card to another, by their minors. */
export interface TopLink {
  readonly from: number;
  readonly to: number;
  readonly up: number;
  readonly total: number;
  /** Bytes per second; undefined for real cards. */
  readonly bytesPerSecond: number | undefined;
}

/** Model of a node. */
export interface TopModel {
  readonly emulated: boolean;
  /** The process that serves an emulated node; undefined for a node in this process. */
  readonly serverPid: number | undefined;
  readonly driverVersion: string | undefined;
  /** Seconds between the samples; 0 for the first sample, which has no rates. */
  readonly seconds: number;
  readonly cards: readonly TopCard[];
  readonly links: readonly TopLink[];
}

const NS_PER_S = 1e9;
const PERCENT = 100;

/** The rates between two samples of a node; all 0 without an earlier sample, and if the node was restarted between them. */
export function topModel(earlier: NodeSample | undefined, sample: NodeSample): TopModel {
  const time = (of: NodeSample | undefined): number => of?.transfers?.timeNs ?? of?.timeNs ?? 0;
  const elapsedNs = earlier === undefined ? 0 : Math.max(0, time(sample) - time(earlier));
  const rate = (now: number | undefined, before: number | undefined): number => {
    if (elapsedNs === 0 || now === undefined || before === undefined || now < before) return 0;
    return ((now - before) * NS_PER_S) / elapsedNs;
  };
  const cards = sample.cards.map((card) => cardOf(card, earlier, sample, rate));
  return {
    emulated: sample.emulated,
    serverPid: sample.serverPid,
    driverVersion: sample.driverVersion,
    seconds: elapsedNs / NS_PER_S,
    cards,
    links: linksOf(earlier, sample, rate),
  };
}

type Rate = (now: number | undefined, before: number | undefined) => number;

function cardOf(card: CardSample, earlier: NodeSample | undefined, sample: NodeSample, rate: Rate): TopCard {
  const find = (of: NodeSample | undefined) => of?.transfers?.cards.find(({ minor }) => minor === card.minor);
  const [now, before] = [find(sample), find(earlier)];
  const { index, minor, busId, moduleId, status, inUse, hbmUsedBytes, hbmBytes, busyEngines, clockMhz } = card;
  const isCounted = now !== undefined;
  const busyThreads = rate(now?.busyNs, before?.busyNs) / NS_PER_S;
  const busyShare = Math.min(1, busyThreads / (sample.transfers?.engineThreads ?? 1));
  return {
    label: cardLabel(card),
    index,
    minor,
    busId,
    moduleId,
    status,
    inUse,
    pid: card.owner?.pid,
    command: card.owner?.command,
    firmware: card.firmware,
    temperature: card.temperature,
    power: card.power,
    hbmUsedBytes,
    hbmBytes,
    busyPercent: isCounted ? busyShare * PERCENT : card.utilization,
    busyEngines,
    clockMhz,
    hostToDevice: isCounted ? rate(now.hostToDevice.bytes, before?.hostToDevice.bytes) : card.pciReceive,
    deviceToHost: isCounted ? rate(now.deviceToHost.bytes, before?.deviceToHost.bytes) : card.pciTransmit,
    deviceToDevice: isCounted ? rate(now.deviceToDevice.bytes, before?.deviceToDevice.bytes) : undefined,
    hardResets: card.hardResets,
    computeResets: card.computeResets,
    refusedSubmissions: card.refusedSubmissions,
    faults: card.faults,
  };
}

function linksOf(earlier: NodeSample | undefined, sample: NodeSample, rate: Rate): TopLink[] {
  const bytes = sample.transfers?.linkBytes;
  return sample.cards.flatMap(({ minor: from, links }) =>
    links.flatMap((link, index) => {
      const to = sample.cards[index]?.minor;
      if (link === undefined || from === undefined || to === undefined) return [];
      const before = earlier?.transfers?.linkBytes[from]?.[to];
      const bytesPerSecond = bytes === undefined ? undefined : rate(bytes[from]?.[to], before);
      return [{ from, to, up: link.up, total: link.total, bytesPerSecond }];
    }),
  );
}
