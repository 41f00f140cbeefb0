/**
 * The card (struct hl_device) as seen by the parts of the driver. Types only: card.ts implements it, so that the card can own
 * contexts and files while these refer to their card.
 */

import type { AsicProfile, HlDeviceStatus } from '../../../uapi/index.ts';
import type { CardPlace } from '../../config/card-places.ts';
import type { LinkTable } from '../../config/link-table.ts';
import type { NodeConfig } from '../../config/node-config.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { FaultPlan } from '../../faults/fault-plan.ts';
import type { CardLimits } from './card-limits.ts';
import type { CsCounters } from './cs-counters.ts';
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
