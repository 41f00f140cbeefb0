/** One emulated card in the driver (struct hl_device): open, release, events, removal. */

import { Errno, SyscallError } from '../../sys/index.ts';
import { HL_CS_FLAGS, HL_DEVICE_STATUS, HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import type { Timer } from '../../ucs/sys/clock.ts';
import type { LinkChoice } from '../config/links.ts';
import type { UserMapping } from './base/error-records.ts';
import { severityOf } from './base/firmware.ts';
import { CardState } from './card-state.ts';
import { Context } from './ioctl/context.ts';
import { ControlFile, PrimaryFile } from './ioctl/file.ts';
import type { MmapFile } from './memory/mmap-file.ts';
import { OWN_PROCESS } from './memory/user-memory.ts';
import { Resets } from './resets.ts';
import type { Submission } from './submission/submission.ts';

/** Interval of checks whether the mappings of a closed file were removed: the kernel does not report it for all of them. */
const HELD_CHECK_NS = 10e6;

/** A release that waits for the last mapping or dma-buf of the context. */
interface HeldRelease {
  readonly context: Context;
  /** Whether the file was closed during a reset, which the release ends. */
  readonly inReset: boolean;
  timer: Timer;
}

export class Card extends CardState {
  readonly resets: Resets = new Resets(this);
  #file: PrimaryFile | undefined;
  /** The release of a file whose context is held. */
  #held: HeldRelease | undefined;

  /** The open primary node; undefined if it is closed. */
  get file(): PrimaryFile | undefined {
    return this.#file;
  }

  /** The compute context while the primary node is open. */
  get context(): Context | undefined {
    return this.resets.context;
  }

  get hasMappedResources(): boolean {
    return this.context?.hasMappedResources ?? false;
  }

  protected mappingsBeside(address: bigint): readonly UserMapping[] {
    return this.context?.mappingsBeside(address) ?? [];
  }

  protected raiseInterrupt(vector: number): void {
    this.context?.interrupts.raise(vector);
  }

  protected onEngineError(engineId: number, events: number): void {
    this.resets.compute(`engine ${engineId} reported an error`, events);
  }

  protected onTimeout(expired: Submission): void {
    const events = this.records.csTimeout(expired.seq) ? HL_NOTIFIER_EVENT.CS_TIMEOUT : 0;
    if ((expired.flags & HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT) === 0) {
      this.resets.hard(`command submission ${expired.seq} timed out`, events, expired);
    } else if (events !== 0) this.notifiers.raise(events);
  }

  /**
   * Opens the primary node.
   * @param owner the process whose memory the ioctls access
   * @param mmapFile see {@link Context}
   * @throws SyscallError ENODEV, EAGAIN, EPERM, EBUSY in the same cases as hl_device_open
   */
  open(owner: number = OWN_PROCESS, mmapFile?: MmapFile): PrimaryFile {
    this.finishRelease();
    const errno = this.#openErrno();
    if (errno !== 0) throw new SyscallError('open', errno, `accel${this.place.minor} (${this.place.busId})`);
    this.records.clear();
    const context = new Context(this, owner, mmapFile);
    const file = new PrimaryFile(this, context, () => this.#release(context));
    this.#file = file;
    this.#setContext(context);
    this.openRecord.opens += 1;
    this.openRecord.openedAtNs = this.config.clock.nowNs();
    return file;
  }

  /** Opens the control node; fails only for a card that has failed permanently. */
  openControl(owner: number = OWN_PROCESS): ControlFile {
    const failed = this.status === HL_DEVICE_STATUS.MALFUNCTION;
    if (this.removed || failed) {
      throw new SyscallError('open', failed ? Errno.EPERM : Errno.ENODEV, `control node of accel${this.place.minor}`);
    }
    return new ControlFile(this, owner);
  }

  /** Handles a hardware event: counts it, notifies the user of an error, and resets the card if it is fatal. */
  hardwareEvent(event: number): void {
    if (event >= this.profile.numOfEvents) return;
    for (const counts of [this.eventCounts, this.eventTotals]) counts.set(event, (counts.get(event) ?? 0) + 1);
    const severity = severityOf(this.profile.name, event);
    if (severity === 'fatal') {
      this.resets.hard(`hardware event ${event}`, HL_NOTIFIER_EVENT.GENERAL_HW_ERR | this.records.hardwareError(event));
    } else if (severity === 'corrected') this.notifiers.raise(HL_NOTIFIER_EVENT.GENERAL_HW_ERR);
  }

  /** Takes links of the card down or up. Throws UcxError ERR_INVALID_PARAM. */
  setLink(choice: LinkChoice, up: boolean): void {
    const ports = this.links.set(this.place.minor, choice, up);
    this.log.info(`link of port ${ports.join(', ')} is ${up ? 'up' : 'down'}`);
  }

  /** Unplugs the card. */
  remove(): void {
    this.removed = true;
    this.links.unplug(this.place.minor);
    this.context?.deviceMemory.leaveBus();
    this.abortAll();
    this.waiters.wakeAll();
  }

  /** Ends the card together with its node: an open file loses its context and returns ENODEV. The engines must still be running. */
  end(): void {
    if (this.#held === undefined) this.#file?.release();
    if (this.#held !== undefined) this.#completeHeld(this.#held);
    this.removed = true;
  }

  /** Releases the card, after its file is closed and the engines have stopped. */
  close(): void {
    this.cancelTimers();
    this.resets.close();
    this.device.close();
  }

  #openErrno(): number {
    if (this.removed) return Errno.ENODEV;
    const injected = this.faults.openErrno();
    if (injected !== 0) return injected;
    if (this.status === HL_DEVICE_STATUS.IN_RESET) return Errno.EAGAIN;
    if (this.status === HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE) return Errno.EAGAIN;
    if (this.status !== HL_DEVICE_STATUS.OPERATIONAL) return Errno.EPERM;
    return this.#file === undefined ? 0 : Errno.EBUSY;
  }

  /** Called when the last reference to the primary file is released (hl_device_release, hpriv_release). */
  #release(context: Context): void {
    this.cancelTimers();
    const inReset = this.status === HL_DEVICE_STATUS.IN_RESET;
    this.device.pump();
    const held = context.stillInUse || context.hasMappedResources;
    if (inReset || this.releasePending || held) this.device.dropPending();
    this.waitForEngines();
    const { idle } = this.device;
    this.openRecord.lastPeriodNs = this.config.clock.nowNs() - this.openRecord.openedAtNs;
    this.debugMode = false;
    if (held) this.log.info('user process closed fd but device still in use');
    if (context.hasMappedResources && !this.removed) {
      this.#hold(context, inReset);
      return;
    }
    this.#dismiss(context);
    this.resets.afterRelease(inReset, held, idle);
    this.waiters.wakeAll();
  }

  /** Keeps the context, and requests a hard reset, which happens after the last munmap (hl_device_release of the vendor's driver). */
  #hold(context: Context, inReset: boolean): void {
    this.#held = { context, inReset, timer: this.#checkHeldLater() };
    this.releasing = true;
    if (this.status === HL_DEVICE_STATUS.OPERATIONAL) this.setStatus(HL_DEVICE_STATUS.IN_RESET);
    this.waiters.wakeAll();
  }

  #checkHeldLater(): Timer {
    return this.config.clock.setTimer(HELD_CHECK_NS, () => {
      this.finishRelease();
      if (this.#held !== undefined) this.#held.timer = this.#checkHeldLater();
    });
  }

  protected finishRelease(): void {
    const held = this.#held;
    if (held !== undefined && (this.removed || !held.context.hasMappedResources)) this.#completeHeld(held);
  }

  #completeHeld({ context, inReset, timer }: HeldRelease): void {
    timer.cancel();
    this.#held = undefined;
    this.releasing = false;
    this.waitForEngines();
    this.#dismiss(context);
    this.resets.afterRelease(inReset, true, true);
    this.waiters.wakeAll();
  }

  #dismiss(context: Context): void {
    context.close();
    this.closedDrops.add(context.counters);
    this.#file = undefined;
    this.#setContext(undefined);
  }

  #setContext(context: Context | undefined): void {
    this.resets.context = context;
    this.submissions = context?.submissions;
  }
}
