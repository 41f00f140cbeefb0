/**
 * The card (struct hl_device) as seen by the parts of the driver. Types only: card.ts implements it, so that the card can own contexts and files
 * while these refer to their card. The clock of the compute engines and the power limit of a card, which programs may lower through sysfs: what the
 * firmware keeps. Nothing here takes time or power. Counters of rejected submissions by reason (struct hl_cs_counters of the driver). The decisions
 * are elsewhere.
 */

import type { AsicName, AsicProfile, HlDeviceStatus } from '../../../uapi/index.ts';
import type { CardPlace } from '../../config/card-places.ts';
import type { LinkTable } from '../../config/links.ts';
import type { NodeConfig } from '../../config/node-config.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { FaultPlan } from '../../faults/fault-plan.ts';
import type { DmabufRegistry } from './dmabuf.ts';
import type { ErrorRecords } from './error-records.ts';
import type { Notifier } from './notifier.ts';
import type { Waiters } from './waiters.ts';

/** Number and times of successful opens of the primary node (INFO OPEN_STATS, LAST_ERR_OPEN_DEV_TIME). */
export interface OpenRecord {
  opens: number;
  /** Time of the last open, and duration of the one before; nanoseconds. */
  openedAtNs: number;
  lastPeriodNs: number;
}

/** A file of hwmon. */
export interface SensorFile {
  readonly name: string;
  /** Undefined for a write-only file. Returns undefined while the card does not work: ENODEV. */
  readonly read?: () => string | undefined;
  /** Returns 0, or a negative errno: EINVAL for text that is no number, ERANGE for a number of more than 64 bits, ENODEV while the card does not work. */
  readonly write?: (text: string) => number;
}

/** A card. */
export interface CardPort {
  readonly place: CardPlace;
  readonly profile: AsicProfile;
  readonly config: NodeConfig;
  readonly device: GaudiDevice;
  readonly waiters: Waiters;
  readonly faults: FaultPlan;
  readonly records: ErrorRecords;
  /** The links of the node. */
  readonly links: LinkTable;
  /** The dma-bufs of the node. */
  readonly dmabufs: DmabufRegistry;
  readonly openRecord: OpenRecord;
  /** The clock and the power limit, which programs may lower. */
  readonly limits: CardLimits;
  /** The files of hwmon: the only source of temperature and power. */
  readonly sensors: readonly SensorFile[];
  readonly status: HlDeviceStatus;
  /** Whether the primary node is open. */
  readonly hasContext: boolean;
  /** Rejected submissions of all contexts of the card. */
  readonly dropTotals: CsCounters;
  /** Device memory allocated by contexts, in bytes. */
  dramUsedBytes: number;
  /** Number of multi-waits that block at present. */
  multiWaits: number;
  /** Whether coresight is being programmed (DEBUG SET_MODE). */
  debugMode: boolean;
  /** After a fault the driver waits until the user closes the file, and nothing runs (the release watchdog is active). */
  readonly releasePending: boolean;
  /** Unplugged: every file returns ENODEV. */
  readonly removed: boolean;
  /** Whether waits may begin and go on: not on a card that was removed, is not operational, or waits until the user closes the file (hl_wait_ioctl). */
  readonly permitsWaits: boolean;
  readonly hardResets: number;
  /** Number of events that the hardware has reported, by event: since the last hard reset, and since the start (INFO HW_EVENTS, HW_EVENTS_AGGREGATE). */
  readonly eventCounts: ReadonlyMap<number, number>;
  readonly eventTotals: ReadonlyMap<number, number>;
  /** Seconds after which submissions time out by default; Infinity for never. */
  readonly csTimeoutSeconds: number;
  /** Submissions that time out from now on do not reset the card (debugfs skip_reset_on_timeout). */
  readonly skipResetOnTimeout: boolean;
  /** The event fds that users registered. */
  readonly notifiers: Set<Notifier>;
  /** Runs everything that can run, and handles the results: time-outs, the failure of an engine. */
  service(): void;
  /** Starts the time-out of the oldest incomplete submission, unless it is running. */
  watchTimeout(): void;
  /** Blocks until no engine accesses memory for the card; then translations of the card may be removed. */
  waitForEngines(): void;
}

/** Clock of the compute engines in MHz: the maximum that the driver reports, and the idle one. */
const CLOCK_MHZ: Readonly<Record<AsicName, { readonly idle: number; readonly max: number }>> = {
  gaudi: { idle: 1900, max: 2200 },
  gaudi2: { idle: 1650, max: 1650 },
  gaudi3: { idle: 1600, max: 1600 },
};
/** Power limits in microwatts: those of the OAM cards of each generation. */
const MAX_POWER_UW: Readonly<Record<AsicName, number>> = { gaudi: 350e6, gaudi2: 600e6, gaudi3: 900e6 };

/** The limits of one card. Firmware refuses values beyond those of the hardware, which the driver does not report: the value before remains. */
export class CardLimits {
  readonly #asic: AsicName;
  #maxClockMhz: number;
  #maxPowerUw: number;

  constructor(asic: AsicName) {
    this.#asic = asic;
    this.#maxClockMhz = CLOCK_MHZ[asic].max;
    this.#maxPowerUw = MAX_POWER_UW[asic];
  }

  get clockMhz(): number {
    return Math.min(CLOCK_MHZ[this.#asic].idle, this.#maxClockMhz);
  }

  get maxClockMhz(): number {
    return this.#maxClockMhz;
  }

  /** In microwatts. */
  get maxPowerUw(): number {
    return this.#maxPowerUw;
  }

  setMaxClock(mhz: bigint): void {
    if (mhz > 0n && mhz <= CLOCK_MHZ[this.#asic].max) this.#maxClockMhz = Number(mhz);
  }

  setMaxPower(microwatt: bigint): void {
    if (microwatt > 0n && microwatt <= MAX_POWER_UW[this.#asic]) this.#maxPowerUw = Number(microwatt);
  }
}

/** One set of counters: those of a context, or sums of several. */
export class CsCounters {
  outOfMemory = 0;
  parsing = 0;
  queueFull = 0;
  inReset = 0;
  maxCsInFlight = 0;
  validation = 0;

  /** Adds another set to this one. */
  add(other: CsCounters): void {
    this.outOfMemory += other.outOfMemory;
    this.parsing += other.parsing;
    this.queueFull += other.queueFull;
    this.inReset += other.inReset;
    this.maxCsInFlight += other.maxCsInFlight;
    this.validation += other.validation;
  }
}

/*
 * Events that the hardware reports through its firmware, as far as programs raise them to inject errors. Handling them belongs to card.ts.
 *
 * Source: mmGIC_DISTRIBUTOR__5_GICD_SETSPI_NSR of include/gaudi/asic_reg/gaudi_regs.h, gaudi_async_events.h and gaudi_handle_eqe of gaudi.c; for gaudi2, the fields gic_host_* of the
 * dynamic registers of its firmware (gaudi2.c), Linux 6.12. hl-thunk injects events into gaudi only.
 */

/** How a program makes the hardware of a generation report an event. */
export type EventInjection =
  /** It writes the number of the event to this register, an offset from CFG_BASE. */
  | { readonly register: bigint; readonly refusal?: undefined }
  /** It cannot, for this reason. */
  | { readonly register?: undefined; readonly refusal: string };

const DYNAMIC =
  'the firmware tells its driver at run time to which register events are written, and no public header names it';

/** By generation. */
export const EVENT_INJECTION: Readonly<Record<AsicName, EventInjection>> = {
  gaudi: { register: 0x80_0040n },
  gaudi2: { refusal: DYNAMIC },
  gaudi3: { refusal: DYNAMIC },
};

/** ECC errors of the eight TPCs of gaudi: those that were corrected (GAUDI_EVENT_TPC0_SERR to TPC7_SERR), and those that were not (TPC0_DERR to TPC7_DERR). */
const GAUDI_TPC_SERR = { first: 38, end: 46 } as const;
const GAUDI_TPC_DERR = { first: 46, end: 54 } as const;

/** How the driver treats an event: it resets the card, notifies of an error of the hardware, or counts only. */
export type EventSeverity = 'fatal' | 'corrected' | 'none';

/** The severity of an event. */
export function severityOf(asic: AsicName, event: number): EventSeverity {
  if (asic !== 'gaudi') return 'none';
  if (event >= GAUDI_TPC_DERR.first && event < GAUDI_TPC_DERR.end) return 'fatal';
  return event >= GAUDI_TPC_SERR.first && event < GAUDI_TPC_SERR.end ? 'corrected' : 'none';
}
