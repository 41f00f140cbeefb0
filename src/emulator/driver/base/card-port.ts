/**
 * What the parts of the driver see of their card (struct hl_device). Types only: card.ts implements it, so that the card can own
 * contexts and files while these refer to their card.
 */

import type { AsicProfile, HlDeviceStatus } from '../../../uapi/index.ts';
import type { CardPlace } from '../../config/card-places.ts';
import type { LinkTable } from '../../config/link-table.ts';
import type { NodeConfig } from '../../config/node-config.ts';
import type { GaudiDevice } from '../../device/gaudi-device.ts';
import type { FaultPlan } from '../../faults/fault-plan.ts';
import type { CsCounters } from './cs-counters.ts';
import type { DmabufRegistry } from './dmabuf.ts';
import type { ErrorRecords } from './error-records.ts';
import type { Notifier } from './notifier.ts';
import type { Waiters } from './waiters.ts';

/** How often and when the primary node was opened (INFO OPEN_STATS, LAST_ERR_OPEN_DEV_TIME). */
export interface OpenRecord {
  opens: number;
  /** When the node was opened last, and how long it was open the time before; nanoseconds. */
  openedAtNs: number;
  lastPeriodNs: number;
  lastErrorNs: number;
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
  readonly status: HlDeviceStatus;
  /** Whether the primary node is open. */
  readonly hasContext: boolean;
  /** Refused submissions of all contexts that the card has had. */
  readonly dropTotals: CsCounters;
  /** Device memory given out to contexts, in bytes. */
  dramUsedBytes: number;
  /** Multi-waits that block right now. */
  multiWaits: number;
  /** Coresight is being programmed (DEBUG SET_MODE). */
  debugMode: boolean;
  /** A fault waits for the user to close the file; until then nothing runs (the release watchdog is active). */
  readonly releasePending: boolean;
  /** Unplugged: every file answers ENODEV. */
  readonly removed: boolean;
  readonly hardResets: number;
  readonly computeResets: number;
  /** The event fds that users registered. */
  readonly notifiers: Set<Notifier>;
  /** Lets everything run that can, and notices what has become of it: time-outs, the death of an engine. */
  service(): void;
  /** Watches the time-out of the oldest incomplete submission, unless it is watched already. */
  watchTimeout(): void;
  /** Blocks until no engine touches memory for the card any more: its translations may go then. */
  waitForEngines(): void;
}
