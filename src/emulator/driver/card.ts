/**
 * One emulated card in the driver (struct hl_device): status, the compute context, resets, time-outs, counters.
 * Hardware is in device/, the resources of a context in context.ts.
 */

import { Errno, SyscallError } from '../../sys/index.ts';
import {
  type AsicProfile,
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_NOTIFIER_EVENT,
  type HlDeviceStatus,
} from '../../uapi/index.ts';
import type { Log } from '../../ucs/debug/log.ts';
import type { Timer } from '../../ucs/sys/clock.ts';
import type { CardPlace } from '../config/card-places.ts';
import type { LinkChoice, LinkTable } from '../config/links.ts';
import type { NodeConfig } from '../config/node-config.ts';
import type { DmaEngines } from '../device/engine/dma-engines.ts';
import { GaudiDevice } from '../device/gaudi-device.ts';
import { CardTraffic, type LinkTraffic } from '../device/memory/traffic.ts';
import { FaultPlan } from '../faults/fault-plan.ts';
import { sensorFiles } from './base/attributes.ts';
import {
  CardLimits,
  type CardPort,
  CsCounters,
  type OpenRecord,
  type SensorFile,
  severityOf,
} from './base/card-port.ts';
import type { DmabufRegistry } from './base/dmabuf.ts';
import { ErrorRecords, type FaultReporter, type UserMapping } from './base/error-records.ts';
import type { Notifier } from './base/notifier.ts';
import { Waiters } from './base/waiters.ts';
import { DebugFs, type DebugFsCard } from './debugfs.ts';
import { Context } from './ioctl/context.ts';
import { ControlFile, PrimaryFile } from './ioctl/file.ts';
import type { MmapFile } from './memory/mmap-file.ts';
import { OWN_PROCESS } from './memory/user-memory.ts';
import { type Submission, TimeoutWatch } from './submission/submission.ts';

/** Time within which a user has to close the file after a fault, if an event fd is registered, before the card resets (driver: 30 s). */
const RELEASE_WATCHDOG_NS = 30e9;
/** Time between two heartbeats of the firmware (HL_HEARTBEAT_PER_USEC). */
const HEARTBEAT_NS = 5e9;
/** Pause between two passes of command processors that do not finish their work in one. */
const CONTINUE_PAUSE_NS = 1e6;
/** Limit of the wait for engines to finish. One that takes longer hangs: a thread cannot be interrupted in a copy. */
const ENGINES_WAIT_NS = 600e9;

/** Objects that the cards of a node share. */
export interface CardSurroundings {
  readonly engines: DmaEngines;
  readonly dmabufs: DmabufRegistry;
  readonly links: LinkTable;
  readonly linkTraffic: LinkTraffic;
}

/** One card. */
export class Card implements CardPort, DebugFsCard, FaultReporter {
  readonly place: CardPlace;
  readonly profile: AsicProfile;
  readonly config: NodeConfig;
  readonly device: GaudiDevice;
  readonly waiters: Waiters;
  readonly faults: FaultPlan;
  readonly records: ErrorRecords;
  readonly dmabufs: DmabufRegistry;
  readonly links: LinkTable;
  /** The event fds that users registered. */
  readonly notifiers: Set<Notifier> = new Set();
  readonly openRecord: OpenRecord = { opens: 0, openedAtNs: 0, lastPeriodNs: 0 };
  dramUsedBytes = 0;
  /** Number of multi-waits that block at present. */
  multiWaits = 0;
  debugMode = false;
  /** After a fault the driver waits until the user closes the file, and nothing runs (the release watchdog is active). */
  releasePending = false;
  /** Unplugged: every file returns ENODEV. */
  removed = false;
  hardResets = 0;
  csTimeoutSeconds: number;
  skipResetOnTimeout = false;
  releaseWatchdogNs: number = RELEASE_WATCHDOG_NS;
  readonly eventCounts: Map<number, number> = new Map();
  readonly eventTotals: Map<number, number> = new Map();
  /** The debugfs files of the card. */
  readonly debugFs: DebugFs;
  readonly limits: CardLimits;
  readonly sensors: readonly SensorFile[];
  readonly #log: Log;
  /** Rejected submissions of closed contexts. */
  readonly #closedDrops: CsCounters = new CsCounters();
  #status: HlDeviceStatus = HL_DEVICE_STATUS.OPERATIONAL;
  #file: PrimaryFile | undefined;
  #watchdog: Timer | undefined;
  /** Whether the postponed reset is a hard one, if the user closes the file in time (HL_DRV_RESET_HARD in the flags of the watchdog). */
  #releaseIsHard = false;
  #heartbeat: Timer | undefined;
  /** The next pass of command processors that did not finish their work in one. */
  #continuation: Timer | undefined;
  readonly #engines: DmaEngines;
  readonly #timeouts: TimeoutWatch;

  /** @throws SyscallError ENOMEM, EMFILE */
  constructor(place: CardPlace, config: NodeConfig, { engines, dmabufs, links, linkTraffic }: CardSurroundings) {
    this.place = place;
    this.links = links;
    this.profile = config.profile;
    this.config = config;
    this.limits = new CardLimits(config.profile.name);
    this.#log = config.log.child(`card${place.minor}`);
    this.dmabufs = dmabufs;
    this.#engines = engines;
    this.csTimeoutSeconds = config.csTimeoutSeconds;
    this.#timeouts = new TimeoutWatch(config.clock, () => {
      this.device.pump();
      this.#checkTimeout();
    });
    this.faults = new FaultPlan(config.clock, () => this.progress());
    this.records = new ErrorRecords(this);
    this.device = new GaudiDevice({
      profile: config.profile,
      hbmBytes: config.hbmBytes,
      engines,
      clock: config.clock,
      minor: place.minor,
      traffic: new CardTraffic(place.minor, linkTraffic, config.clock.nowNs()),
      inlineBytesMax: config.inlineBytesMax,
      faults: this.records,
      onWorkLeft: () => this.#continueSoon(),
      onInterrupt: (vector) => this.#file?.context.interrupts.raise(vector),
    });
    this.waiters = new Waiters(engines, config.clock, () => this.service());
    this.debugFs = new DebugFs(this);
    this.sensors = sensorFiles(this);
  }

  get status(): HlDeviceStatus {
    return this.#status;
  }

  get permitsWaits(): boolean {
    return !this.removed && !this.releasePending && this.#status === HL_DEVICE_STATUS.OPERATIONAL;
  }

  /** The open primary node. */
  get file(): PrimaryFile | undefined {
    return this.#file;
  }

  /** The compute context while the primary node is open. */
  get context(): Context | undefined {
    return this.#file?.context;
  }

  get hasContext(): boolean {
    return this.#file !== undefined;
  }

  get dropTotals(): CsCounters {
    const totals = new CsCounters();
    totals.add(this.#closedDrops);
    if (this.#file !== undefined) totals.add(this.#file.context.counters);
    return totals;
  }

  userMappings(address: bigint): readonly UserMapping[] {
    return this.#file?.context.mappingsBeside(address) ?? [];
  }

  /**
   * Opens the primary node.
   * @param owner the process whose memory the ioctls access
   * @param mmapFile see {@link Context}
   * @throws SyscallError ENODEV, EAGAIN, EPERM, EBUSY in the cases of hl_device_open
   */
  open(owner: number = OWN_PROCESS, mmapFile?: MmapFile): PrimaryFile {
    const errno = this.#openErrno();
    if (errno !== 0) throw new SyscallError('open', errno, `accel${this.place.minor} (${this.place.busId})`);
    this.records.clear();
    const file = new PrimaryFile(this, new Context(this, owner, mmapFile), () => this.#release());
    this.#file = file;
    this.openRecord.opens += 1;
    this.openRecord.openedAtNs = this.config.clock.nowNs();
    return file;
  }

  /** Opens the control node: rejected only for a card that has failed permanently. */
  openControl(owner: number = OWN_PROCESS): ControlFile {
    const failed = this.#status === HL_DEVICE_STATUS.MALFUNCTION;
    if (this.removed || failed) {
      throw new SyscallError('open', failed ? Errno.EPERM : Errno.ENODEV, `control node of accel${this.place.minor}`);
    }
    return new ControlFile(this, owner);
  }

  /** Called after progress of the engines: runs what can run and notifies waiters. */
  progress(): void {
    this.service();
    this.#file?.context.submissions.retire();
    if (this.waiters.any) this.waiters.wake();
  }

  /** Puts the card into a status. Unless it is operational, nothing stays in flight: all of it is aborted, as when the driver gives a device up. */
  setStatus(status: HlDeviceStatus): void {
    if (status !== HL_DEVICE_STATUS.OPERATIONAL) this.#abortAll();
    this.#status = status;
    this.waiters.wakeAll();
  }

  /** Refuses new work. What is in flight continues (hl_device_write of debugfs.c, Linux 6.12). */
  disable(): void {
    this.#status = HL_DEVICE_STATUS.MALFUNCTION;
  }

  /** Notifies registered users of events (bits of HL_NOTIFIER_EVENT). */
  notify(events: number): void {
    for (const notifier of this.notifiers) notifier.raise(events);
  }

  service(): void {
    this.device.pump();
    if (this.#engines.failed) this.#fail('a dma engine has died');
    if (this.#timeouts.active) this.#checkTimeout();
  }

  watchTimeout(): void {
    if (this.#file !== undefined) this.#timeouts.watch(this.#file.context.submissions);
  }

  waitForEngines(): void {
    if (!this.waiters.block(ENGINES_WAIT_NS, () => this.device.drained)) this.#fail('the dma engines make no progress');
  }

  /**
   * A reset after a fault. With a registered event fd it is postponed until the user closes the file or the watchdog expires, and until then every wait ends
   * with EIO; further faults do not advance it (hl_device_cond_reset).
   * @param events bits of HL_NOTIFIER_EVENT, which the user gets in one signal with that of the reset
   * @param timedOut the submission whose time-out is the fault
   */
  hardReset(reason: string, events = 0, timedOut?: Submission): void {
    if (this.#status === HL_DEVICE_STATUS.IN_RESET) return;
    const notified = [...this.notifiers].some((notifier) => notifier.registered);
    this.notify(events | HL_NOTIFIER_EVENT.DEVICE_RESET);
    if (this.#file === undefined || !(notified || this.releasePending)) {
      this.resetNow(reason, timedOut);
      return;
    }
    this.#log.info(`reset when the file is closed: ${reason}`);
    this.#file.context.submissions.forceComplete();
    // The flags of a time-out do not ask for a hard reset (cs_timedout).
    this.#releaseIsHard ||= timedOut === undefined;
    if (!this.releasePending) {
      this.releasePending = true;
      this.#watchdog = this.config.clock.setTimer(this.releaseWatchdogNs, () => this.#reset());
    }
    this.waiters.wakeAll();
  }

  /** A hard reset: everything in flight is aborted and the card is usable again. HBM contents are lost on a real card; here they stay. */
  resetNow(reason: string, timedOut?: Submission): void {
    if (this.#status === HL_DEVICE_STATUS.IN_RESET) return;
    this.#log.info(`hard reset: ${reason}`);
    this.#file?.context.submissions.abort(timedOut);
    this.#reset();
  }

  /** The firmware stops answering: the driver resets the card at the next heartbeat. */
  loseHeartbeat(): void {
    this.#heartbeat ??= this.config.clock.setTimer(HEARTBEAT_NS, () => {
      this.#heartbeat = undefined;
      this.hardReset('device heartbeat failed', HL_NOTIFIER_EVENT.DEVICE_UNAVAILABLE | this.records.heartbeatLost());
    });
  }

  /** An event that the hardware reports: it is counted, the user is notified of an error, and a fatal one resets the card. */
  hardwareEvent(event: number): void {
    if (event >= this.profile.numOfEvents) return;
    for (const counts of [this.eventCounts, this.eventTotals]) counts.set(event, (counts.get(event) ?? 0) + 1);
    const severity = severityOf(this.profile.name, event);
    if (severity === 'fatal') {
      this.hardReset(`hardware event ${event}`, HL_NOTIFIER_EVENT.GENERAL_HW_ERR | this.records.hardwareError(event));
    } else if (severity === 'corrected') this.notify(HL_NOTIFIER_EVENT.GENERAL_HW_ERR);
  }

  commandBuffers(): ReturnType<DebugFsCard['commandBuffers']> {
    return this.#file?.context.buffers.commandBuffers() ?? [];
  }

  /** Takes links of the card down or up. Throws UcxError ERR_INVALID_PARAM. */
  setLink(choice: LinkChoice, up: boolean): void {
    const ports = this.links.set(this.place.minor, choice, up);
    this.#log.info(`link of port ${ports.join(', ')} is ${up ? 'up' : 'down'}`);
  }

  /** Unplugs the card. */
  remove(): void {
    this.removed = true;
    this.links.unplug(this.place.minor);
    this.#file?.context.deviceMemory.leaveBus();
    this.#abortAll();
    this.waiters.wakeAll();
  }

  /** Ends the card together with its node: an open file has no context any more, and returns ENODEV. The engines must still be running. */
  end(): void {
    this.#file?.release();
    this.removed = true;
  }

  /** Releases the card. Its file is closed and the engines have stopped. */
  close(): void {
    this.#cancelTimers();
    this.#heartbeat?.cancel();
    this.device.close();
  }

  #openErrno(): number {
    if (this.removed) return Errno.ENODEV;
    const injected = this.faults.openErrno();
    if (injected !== 0) return injected;
    if (this.#status === HL_DEVICE_STATUS.IN_RESET) return Errno.EAGAIN;
    if (this.#status === HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE) return Errno.EAGAIN;
    if (this.#status !== HL_DEVICE_STATUS.OPERATIONAL) return Errno.EPERM;
    return this.#file === undefined ? 0 : Errno.EBUSY;
  }

  /** Called when the last reference to the primary file is released (hl_device_release, hpriv_release). */
  #release(): void {
    const context = this.#file?.context;
    if (context === undefined) return;
    this.#cancelTimers();
    const inReset = this.#status === HL_DEVICE_STATUS.IN_RESET;
    this.device.pump();
    const held = context.stillInUse;
    if (inReset || this.releasePending || held) this.device.dropPending();
    this.waitForEngines();
    const { idle } = this.device;
    this.openRecord.lastPeriodNs = this.config.clock.nowNs() - this.openRecord.openedAtNs;
    context.close();
    this.#closedDrops.add(context.counters);
    this.#file = undefined;
    this.debugMode = false;
    if (held) this.#log.info('user process closed fd but device still in use');
    if (inReset) {
      this.device.resetState();
      this.#status = HL_DEVICE_STATUS.OPERATIONAL;
    } else if (held) this.#reset();
    else if (this.profile.capabilities.resetOnClose) this.#resetAfterRelease();
    else if (this.releasePending || !idle) this.#reset();
    else this.device.resetState();
    this.waiters.wakeAll();
  }

  /**
   * The compute reset after a release: complete when `close` returns, so that the card can be opened again at once. It is not counted (hl_device_reset,
   * Linux 6.12).
   */
  #resetAfterRelease(): void {
    if (this.releasePending && this.#releaseIsHard) {
      this.#reset();
      return;
    }
    this.releasePending = false;
    const wasOperational = this.#status === HL_DEVICE_STATUS.OPERATIONAL;
    if (wasOperational) this.setStatus(HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE);
    this.device.resetState();
    if (wasOperational) this.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
  }

  /** Resets the device. A file that is open during the reset becomes unusable: the card stays in reset until that file is closed. */
  #reset(): void {
    this.#cancelTimers();
    this.releasePending = false;
    this.#releaseIsHard = false;
    if (this.#status !== HL_DEVICE_STATUS.MALFUNCTION) this.setStatus(HL_DEVICE_STATUS.IN_RESET);
    this.#file?.context.deviceMemory.leaveBus();
    this.waitForEngines();
    this.device.resetState();
    this.eventCounts.clear();
    this.hardResets += 1;
    if (this.#file === undefined && this.#status === HL_DEVICE_STATUS.IN_RESET) {
      this.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
    }
  }

  /** Ends everything in flight (hl_cs_rollback_all). Aborted submissions must not start any more, not even while the engines finish. */
  #abortAll(): void {
    this.#file?.context.submissions.abort(undefined);
    this.device.dropPending();
  }

  /** Marks the card as permanently failed. */
  #fail(reason: string): void {
    if (this.#status === HL_DEVICE_STATUS.MALFUNCTION) return;
    this.#log.error(`malfunction: ${reason}`);
    this.#cancelTimers();
    this.setStatus(HL_DEVICE_STATUS.MALFUNCTION);
  }

  /** Runs the command processors again after other work of this thread. */
  #continueSoon(): void {
    this.#continuation ??= this.config.clock.setTimer(CONTINUE_PAUSE_NS, () => {
      this.#continuation = undefined;
      this.progress();
    });
  }

  #cancelTimers(): void {
    this.#timeouts.cancel();
    this.#continuation?.cancel();
    this.#continuation = undefined;
    this.#watchdog?.cancel();
    this.#watchdog = undefined;
  }

  #checkTimeout(): void {
    const submissions = this.#file?.context.submissions;
    const expired = submissions === undefined ? undefined : this.#timeouts.expired(submissions);
    if (submissions === undefined || expired === undefined) return;
    const events = this.records.csTimeout(expired.seq) ? HL_NOTIFIER_EVENT.CS_TIMEOUT : 0;
    if ((expired.flags & HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT) === 0) {
      this.hardReset(`command submission ${expired.seq} timed out`, events, expired);
    } else if (events !== 0) this.notify(events);
  }
}
