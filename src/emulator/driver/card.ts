/**
 * One emulated card as the driver sees it (struct hl_device): status, the one compute context, resets, time-outs, counters.
 * Hardware is in device/, what a context owns in context.ts.
 */

import { Errno, SyscallError } from '../../sys/index.ts';
import {
  type AsicProfile,
  HL_CS_FLAGS,
  HL_DEVICE_STATUS,
  HL_NOTIFIER_EVENT,
  type HlDeviceStatus,
} from '../../uapi/index.ts';
import type { Timer } from '../../ucs/clock.ts';
import type { Log } from '../../ucs/log.ts';
import type { DmaEngines } from '../device/dma-engines.ts';
import { GaudiDevice } from '../device/gaudi-device.ts';
import { FaultPlan } from '../faults/fault-plan.ts';
import type { NodeConfig } from '../node-config.ts';
import type { CardPlace, CardPort, OpenRecord } from './card-port.ts';
import { Context } from './context.ts';
import { CsCounters } from './cs-counters.ts';
import type { DmabufRegistry } from './dmabuf.ts';
import { ErrorRecords, type FaultReporter } from './error-records.ts';
import { ControlFile, PrimaryFile } from './file.ts';
import type { Notifier } from './notifier.ts';
import type { Submission, SubmissionTable } from './submission.ts';
import type { UserMapping } from './user-mapping.ts';
import { UserMemory } from './user-memory.ts';
import { Waiters } from './waiters.ts';

const NS_PER_S = 1e9;
/** Time that a user has to close the file after a fault, when an event fd is registered, before the card resets (driver: 30 s). */
const RELEASE_WATCHDOG_NS = 30e9;

/** One card. */
export class Card implements CardPort, FaultReporter {
  readonly place: CardPlace;
  readonly profile: AsicProfile;
  readonly config: NodeConfig;
  readonly device: GaudiDevice;
  readonly waiters: Waiters;
  readonly faults: FaultPlan;
  readonly records: ErrorRecords;
  readonly dmabufs: DmabufRegistry;
  readonly userMemory: UserMemory = new UserMemory();
  /** The event fds that users registered. */
  readonly notifiers: Set<Notifier> = new Set();
  readonly openRecord: OpenRecord = { opens: 0, openedAtNs: 0, lastPeriodNs: 0, lastErrorNs: 0 };
  dramUsedBytes = 0;
  /** Multi-waits that block right now. */
  multiWaits = 0;
  debugMode = false;
  /** A fault waits for the user to close the file; until then nothing runs (the release watchdog is active). */
  releasePending = false;
  /** Unplugged: every file answers ENODEV. */
  removed = false;
  hardResets = 0;
  computeResets = 0;
  readonly #log: Log;
  /** Refused submissions of contexts that are closed. */
  readonly #closedDrops: CsCounters = new CsCounters();
  #status: HlDeviceStatus = HL_DEVICE_STATUS.OPERATIONAL;
  #file: PrimaryFile | undefined;
  #timeout: Timer | undefined;
  #watchdog: Timer | undefined;
  /** The submission whose time-out runs, since when, and when its timer fires; 0 for none. */
  #headSeq = 0;
  #headSinceNs = 0;
  #deadlineNs = 0;

  constructor(place: CardPlace, config: NodeConfig, engines: DmaEngines, dmabufs: DmabufRegistry) {
    this.place = place;
    this.profile = config.profile;
    this.config = config;
    this.#log = config.log.child(`card${place.minor}`);
    this.dmabufs = dmabufs;
    this.faults = new FaultPlan(config.clock, () => this.progress());
    this.records = new ErrorRecords(this);
    this.device = new GaudiDevice({
      profile: config.profile,
      hbmBytes: config.hbmBytes,
      engines,
      clock: config.clock,
      inlineBytesMax: config.inlineBytesMax,
      faults: this.records,
      onInterrupt: (vector) => this.#file?.context.interrupts.raise(vector),
    });
    this.waiters = new Waiters(engines, config.clock, () => this.device.pump());
  }

  get status(): HlDeviceStatus {
    return this.#status;
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

  userMappings(): readonly UserMapping[] {
    return this.#file?.context.mappings() ?? [];
  }

  /**
   * Opens the primary node.
   * @throws SyscallError ENODEV, EAGAIN, EPERM, EBUSY in the cases of hl_device_open
   */
  open(): PrimaryFile {
    const errno = this.#openErrno();
    if (errno !== 0) {
      this.openRecord.lastErrorNs = this.config.clock.nowNs();
      throw new SyscallError('open', errno, `card ${this.place.minor} (${this.place.busId})`);
    }
    this.records.clear();
    const file = new PrimaryFile(this, new Context(this), () => this.#release());
    this.#file = file;
    this.openRecord.opens += 1;
    this.openRecord.openedAtNs = this.config.clock.nowNs();
    return file;
  }

  /** Opens the control node: refused only for a card that has failed for good. */
  openControl(): ControlFile {
    const failed = this.#status === HL_DEVICE_STATUS.MALFUNCTION;
    if (this.removed || failed) {
      throw new SyscallError('open', failed ? Errno.EPERM : Errno.ENODEV, `control node of card ${this.place.minor}`);
    }
    return new ControlFile(this);
  }

  /** Called after progress of the engines: runs what can run now and tells those who wait. */
  progress(): void {
    this.device.pump();
    this.#file?.context.submissions.retire();
    if (this.waiters.count > 0) this.waiters.wake();
  }

  /** Puts the card into a status, for tests and fault plans. */
  setStatus(status: HlDeviceStatus): void {
    this.#status = status;
    this.waiters.wake();
  }

  /** Tells registered users of an event (bits of HL_NOTIFIER_EVENT). */
  notify(events: number): void {
    for (const notifier of this.notifiers) notifier.raise(events);
  }

  /** Watches the time-out of the oldest incomplete submission: it runs from the moment at which that one is seen to be the oldest. */
  watchTimeout(context: { readonly submissions: SubmissionTable }): void {
    const head = context.submissions.head;
    if (head === undefined) return;
    if (head.seq !== this.#headSeq) {
      this.#headSeq = head.seq;
      this.#headSinceNs = this.config.clock.nowNs();
    }
    const deadlineNs = this.#headSinceNs + head.timeoutSeconds * NS_PER_S;
    // A timer that fires too early is set again then; only one that would fire too late is replaced.
    if (this.#timeout !== undefined && this.#deadlineNs <= deadlineNs) return;
    this.#timeout?.cancel();
    this.#deadlineNs = deadlineNs;
    const delayNs = Math.max(0, deadlineNs - this.config.clock.nowNs());
    this.#timeout = this.config.clock.setTimer(delayNs, () => this.#timeoutExpired(context));
  }

  /**
   * A hard reset: everything in flight is aborted and the card comes back clean. HBM contents are lost on a real card; here they stay.
   * With a registered event fd it is postponed until the user closes the file or the watchdog barks.
   */
  hardReset(reason: string, timedOut?: Submission): void {
    this.#log.info(`hard reset: ${reason}`);
    this.#file?.context.submissions.abort(timedOut);
    const notified = [...this.notifiers].some((notifier) => notifier.registered);
    if (notified && this.#file !== undefined && !this.releasePending) {
      this.releasePending = true;
      this.notify(HL_NOTIFIER_EVENT.DEVICE_RESET);
      this.#watchdog = this.config.clock.setTimer(RELEASE_WATCHDOG_NS, () => this.#reset());
      this.waiters.wake();
      return;
    }
    this.#reset();
  }

  /** Unplugs the card. */
  remove(): void {
    this.removed = true;
    this.#file?.context.submissions.abort(undefined);
    this.waiters.wake();
  }

  /** Closes the primary file, if it is open. The engines must still run. */
  releaseFile(): void {
    this.#file?.close();
  }

  /** Releases the card. Its file is closed and the engines have stopped. */
  close(): void {
    this.#cancelTimers();
    this.device.close();
    this.userMemory.close();
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

  /** The last reference to the primary file is gone (hl_device_release, hpriv_release). */
  #release(): void {
    const context = this.#file?.context;
    if (context === undefined) return;
    this.#waitForEngines();
    context.submissions.retire();
    const held = context.stillInUse;
    const idle = this.device.idle;
    this.openRecord.lastPeriodNs = this.config.clock.nowNs() - this.openRecord.openedAtNs;
    this.#cancelTimers();
    context.close();
    this.#closedDrops.add(context.counters);
    this.#file = undefined;
    this.debugMode = false;
    if (held) this.#log.info('user process closed fd but device still in use');
    if (this.releasePending || held) this.#reset();
    else if (this.profile.capabilities.resetOnClose || !idle) this.computeResets += 1;
    this.releasePending = false;
    this.device.resetState();
    if (this.#status === HL_DEVICE_STATUS.IN_RESET) this.#status = HL_DEVICE_STATUS.OPERATIONAL;
    this.waiters.wake();
  }

  /** Descriptors in flight point into memory that is about to go. */
  #waitForEngines(): void {
    this.waiters.block(Number.MAX_SAFE_INTEGER, () => this.device.drained);
  }

  /** Resets the device. A file that is open across it is dead: the card stays in reset until that file is closed. */
  #reset(): void {
    this.#cancelTimers();
    this.setStatus(HL_DEVICE_STATUS.IN_RESET);
    this.#waitForEngines();
    this.device.resetState();
    this.hardResets += 1;
    if (this.#file === undefined) this.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
  }

  #cancelTimers(): void {
    this.#timeout?.cancel();
    this.#watchdog?.cancel();
    this.#timeout = undefined;
    this.#watchdog = undefined;
    this.#headSeq = 0;
  }

  #timeoutExpired(context: { readonly submissions: SubmissionTable }): void {
    this.#timeout = undefined;
    this.device.pump();
    const head = context.submissions.head;
    if (head === undefined) return;
    const deadlineNs = this.#headSinceNs + head.timeoutSeconds * NS_PER_S;
    if (head.seq !== this.#headSeq || this.config.clock.nowNs() < deadlineNs) {
      this.watchTimeout(context);
      return;
    }
    this.records.csTimeout(head.seq);
    this.notify(HL_NOTIFIER_EVENT.CS_TIMEOUT);
    if ((head.flags & HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT) !== 0) {
      context.submissions.timeOut(head);
      this.watchTimeout(context);
      this.waiters.wake();
      return;
    }
    this.hardReset(`command submission ${head.seq} timed out`, head);
  }
}
