/** The state of a card (struct hl_device) that the modules of the driver share: status, records, counters, the work in flight. */

import { type AsicProfile, HL_DEVICE_STATUS, type HlDeviceStatus } from '../../uapi/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Timer } from '../../ucs/sys/clock.ts';
import type { CardPlace } from '../config/card-places.ts';
import type { LinkTable } from '../config/links.ts';
import type { NodeConfig } from '../config/node-config.ts';
import type { DmaEngines } from '../device/engine/dma-engines.ts';
import { GaudiDevice } from '../device/gaudi-device.ts';
import { CardTraffic, type LinkTraffic } from '../device/memory/traffic.ts';
import { FaultPlan } from '../faults/fault-plan.ts';
import type { DmabufRegistry } from './base/dmabuf.ts';
import { ErrorRecords, type UserMapping } from './base/error-records.ts';
import { CardLimits, type SensorFile, sensorFiles } from './base/firmware.ts';
import { Notifiers } from './base/notifier.ts';
import { Waiters } from './base/waiters.ts';
import { CsCounters, type Submission, type SubmissionTable, TimeoutWatch } from './submission/submission.ts';

/** Pause between two passes of the command processors if their work takes more than one. */
const CONTINUE_PAUSE_NS = 1e6;
/** Interval of looks at register blocks that a program shares. */
const SHARED_LOOK_NS = 1e6;
/** Time limit for engines to finish. After it an engine counts as hung: a thread cannot be interrupted during a copy. */
const ENGINES_WAIT_NS = 600e9;

/** Objects shared by the cards of a node. */
export interface CardSurroundings {
  readonly engines: DmaEngines;
  readonly dmabufs: DmabufRegistry;
  readonly links: LinkTable;
  readonly linkTraffic: LinkTraffic;
}

/** Number and times of successful opens of the primary node (INFO OPEN_STATS, LAST_ERR_OPEN_DEV_TIME). */
export interface OpenRecord {
  opens: number;
  /** Time of the last open, and duration of the previous one, in nanoseconds. */
  openedAtNs: number;
  lastPeriodNs: number;
}

export abstract class CardState {
  readonly place: CardPlace;
  readonly profile: AsicProfile;
  readonly config: NodeConfig;
  readonly device: GaudiDevice;
  readonly waiters: Waiters;
  readonly faults: FaultPlan;
  readonly records: ErrorRecords;
  readonly links: LinkTable;
  readonly dmabufs: DmabufRegistry;
  /** The event fds that users registered. */
  readonly notifiers: Notifiers = new Notifiers();
  readonly openRecord: OpenRecord = { opens: 0, openedAtNs: 0, lastPeriodNs: 0 };
  /** The clock and the power limit, which programs may lower. */
  readonly limits: CardLimits;
  /** hwmon files: the source of temperature and power. */
  readonly sensors: readonly SensorFile[];
  readonly log: Log;
  /** Submissions of the compute context while the primary node is open. */
  submissions: SubmissionTable | undefined = undefined;
  /** Device memory allocated by contexts, in bytes. */
  dramUsedBytes = 0;
  /** Number of multi-waits that are blocked. */
  multiWaits = 0;
  /** Whether coresight is being programmed (DEBUG SET_MODE). */
  debugMode = false;
  /** After a fault, the driver waits for the user to close the file, and runs nothing (release watchdog). */
  releasePending = false;
  /** The file was closed, but mappings or dma-bufs of its context are still in use. */
  releasing = false;
  /** Timer of the release watchdog. */
  watchdog: Timer | undefined = undefined;
  /** Unplugged: every file returns ENODEV. */
  removed = false;
  hardResets = 0;
  /** Seconds after which submissions time out by default; Infinity for never. */
  csTimeoutSeconds: number;
  /** Whether submissions that time out from now on do not reset the card (debugfs skip_reset_on_timeout). */
  skipResetOnTimeout = false;
  /** Number of hardware events, by event: since the last hard reset, and since the start (INFO HW_EVENTS, HW_EVENTS_AGGREGATE). */
  readonly eventCounts: Map<number, number> = new Map();
  readonly eventTotals: Map<number, number> = new Map();
  /** Rejected submissions of closed contexts. */
  protected readonly closedDrops: CsCounters = new CsCounters();
  #status: HlDeviceStatus = HL_DEVICE_STATUS.OPERATIONAL;
  /** The next pass of the command processors, if their work takes more than one. */
  #continuation: Timer | undefined;
  /** The next look at shared register blocks. */
  #sharedWatch: Timer | undefined;
  readonly #engines: DmaEngines;
  readonly #timeouts: TimeoutWatch;

  /** @throws SyscallError ENOMEM, EMFILE */
  constructor(place: CardPlace, config: NodeConfig, { engines, dmabufs, links, linkTraffic }: CardSurroundings) {
    const { profile, clock } = config;
    this.place = place;
    this.links = links;
    this.profile = profile;
    this.config = config;
    this.limits = new CardLimits(profile.name);
    this.log = config.log.child(`card${place.minor}`);
    this.dmabufs = dmabufs;
    this.#engines = engines;
    this.csTimeoutSeconds = config.csTimeoutSeconds;
    this.#timeouts = new TimeoutWatch(clock, () => {
      this.device.pump();
      this.#checkTimeout();
    });
    this.faults = new FaultPlan(clock, () => this.progress());
    this.records = new ErrorRecords({
      profile,
      clock,
      notifiers: this.notifiers,
      mappingsBeside: (address) => this.mappingsBeside(address),
      onEngineError: (engineId, events) => this.onEngineError(engineId, events),
    });
    this.device = new GaudiDevice({
      profile,
      hbmBytes: config.hbmBytes,
      engines,
      clock,
      minor: place.minor,
      traffic: new CardTraffic(place.minor, linkTraffic, clock.nowNs()),
      inlineBytesMax: config.inlineBytesMax,
      isStrict: config.strict,
      faults: this.records,
      onSubmission: (hold) => this.faults.strike(hold),
      onWorkLeft: () => this.#continueSoon(),
      onInterrupt: (vector) => this.raiseInterrupt(vector),
    });
    this.waiters = new Waiters(engines, clock, () => this.service());
    this.sensors = sensorFiles(profile, () => this.isOperational);
  }

  /** Completes a release for which {@link releasing} is set, if nothing is in use any more. */
  protected abstract finishRelease(): void;
  /** The mappings of the context in the MMU that translates an address. */
  protected abstract mappingsBeside(address: bigint): readonly UserMapping[];
  /** Called when the card raises a user interrupt. */
  protected abstract raiseInterrupt(vector: number): void;
  /** Called when an engine has stopped by an error. @param events bits of HL_NOTIFIER_EVENT */
  protected abstract onEngineError(engineId: number, events: number): void;
  /** Called when the oldest submission has timed out. */
  protected abstract onTimeout(expired: Submission): void;

  get status(): HlDeviceStatus {
    return this.#status;
  }

  /** Whether the firmware replies (hl_device_operational of device.c). */
  get isOperational(): boolean {
    if (this.removed) return false;
    return this.#status === HL_DEVICE_STATUS.OPERATIONAL || this.#status === HL_DEVICE_STATUS.IN_DEVICE_CREATION;
  }

  /** Whether waits may start and continue: not on a card that was removed, is not operational, or waits for the user to close the file (hl_wait_ioctl). */
  get permitsWaits(): boolean {
    return !this.removed && !this.releasePending && this.#status === HL_DEVICE_STATUS.OPERATIONAL;
  }

  /** Whether the primary node is open. */
  get hasContext(): boolean {
    return this.submissions !== undefined;
  }

  /** See {@link Context.hasMappedResources}. */
  abstract get hasMappedResources(): boolean;

  /** Rejected submissions of all contexts of the card. */
  get dropTotals(): CsCounters {
    const totals = new CsCounters();
    totals.add(this.closedDrops);
    if (this.submissions !== undefined) totals.add(this.submissions.counters);
    return totals;
  }

  /** The number in a hwmon file; undefined while the card does not work. @param name such as `temp1_input` */
  readSensor(name: string): number | undefined {
    const text = this.removed ? undefined : this.sensors.find((file) => file.name === name)?.read?.();
    return text === undefined ? undefined : Number(text);
  }

  /** Called after progress of the engines: runs what can run and wakes waiters. */
  progress(): void {
    this.service();
    this.submissions?.retire();
    if (this.waiters.any) this.waiters.wake();
  }

  /** Runs everything that can run, and handles time-outs and failed engines. */
  service(): void {
    if (this.releasing) this.finishRelease();
    this.device.pump();
    if (this.#engines.failed) this.#fail('a DMA engine thread has failed');
    if (this.#timeouts.active) this.#checkTimeout();
  }

  /** Starts the time-out of the oldest incomplete submission, unless it is running. */
  watchTimeout(): void {
    if (this.submissions !== undefined) this.#timeouts.watch(this.submissions);
  }

  /** Blocks until no engine accesses memory for the card; afterwards mappings of the card may be removed. */
  waitForEngines(): void {
    if (!this.waiters.block(ENGINES_WAIT_NS, () => this.device.drained))
      this.#fail(`the DMA engines did not finish within ${ENGINES_WAIT_NS / 1e9} s`);
  }

  /** Sets the status of the card. Unless it is operational, everything in flight is aborted, as when the driver gives up a device. */
  setStatus(status: HlDeviceStatus): void {
    if (status !== HL_DEVICE_STATUS.OPERATIONAL) this.abortAll();
    this.#status = status;
    this.waiters.wakeAll();
  }

  /** Rejects new work; work in flight continues (hl_device_write of debugfs.c, Linux 6.12). */
  disable(): void {
    this.#status = HL_DEVICE_STATUS.MALFUNCTION;
  }

  /** Aborts everything in flight (hl_cs_rollback_all). Aborted submissions must not start any more, not even while the engines finish. */
  abortAll(): void {
    this.submissions?.abort(undefined);
    this.device.dropPending();
  }

  /** Cancels the time-outs, the watchdog and the next pass of the command processors. */
  cancelTimers(): void {
    this.#timeouts.cancel();
    this.#continuation?.cancel();
    this.#continuation = undefined;
    this.#sharedWatch?.cancel();
    this.#sharedWatch = undefined;
    this.watchdog?.cancel();
    this.watchdog = undefined;
  }

  /** Marks the card as permanently failed. */
  #fail(reason: string): void {
    if (this.#status === HL_DEVICE_STATUS.MALFUNCTION) return;
    this.log.error(`malfunction: ${reason}`);
    this.cancelTimers();
    this.setStatus(HL_DEVICE_STATUS.MALFUNCTION);
  }

  /** Looks at register blocks that a program shares, from now on until it has none: the card cannot see the stores. */
  watchSharedRegisters(): void {
    if (this.device.channels?.hasShared !== true) return;
    this.#sharedWatch ??= this.config.clock.setTimer(SHARED_LOOK_NS, () => {
      this.#sharedWatch = undefined;
      this.progress();
      this.watchSharedRegisters();
    });
  }

  /** Runs the command processors again after other work of this thread. */
  #continueSoon(): void {
    this.#continuation ??= this.config.clock.setTimer(CONTINUE_PAUSE_NS, () => {
      this.#continuation = undefined;
      this.progress();
    });
  }

  #checkTimeout(): void {
    const expired = this.submissions === undefined ? undefined : this.#timeouts.expired(this.submissions);
    if (expired !== undefined) this.onTimeout(expired);
  }
}
