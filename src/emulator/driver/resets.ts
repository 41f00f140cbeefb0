/**
 * The resets of a card: at once or when the user closes the file, after a release, and by the watchdog or the heartbeat.
 *
 * Source: hl_device_reset, hl_device_cond_reset and hl_device_release of device.c, Linux 6.12.
 */

import { HL_DEVICE_STATUS, HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import type { Timer } from '../../ucs/sys/clock.ts';
import type { CardState } from './card-state.ts';
import type { Context } from './ioctl/context.ts';
import type { Submission } from './submission/submission.ts';

/** Time for a user with a registered event fd to close the file after a fault, before the card resets (driver: 30 s). */
const RELEASE_WATCHDOG_NS = 30e9;
/** Interval of the firmware heartbeats (HL_HEARTBEAT_PER_USEC). */
const HEARTBEAT_NS = 5e9;

export class Resets {
  /** See {@link RELEASE_WATCHDOG_NS}. */
  releaseWatchdogNs: number = RELEASE_WATCHDOG_NS;
  /** The compute context while the primary node is open. */
  context: Context | undefined = undefined;
  readonly #card: CardState;
  /** Whether the postponed reset is a hard one if the user closes the file in time (HL_DRV_RESET_HARD in the flags of the watchdog). */
  #releaseIsHard = false;
  #heartbeat: Timer | undefined;

  constructor(card: CardState) {
    this.#card = card;
  }

  /**
   * Resets the card after a fault. With a registered event fd, the reset is postponed until the user closes the file or the watchdog expires, and every
   * wait ends with EIO until then; further faults do not advance it (hl_device_cond_reset).
   * @param events bits of HL_NOTIFIER_EVENT, signalled to the user together with the reset event
   * @param timedOut the submission whose time-out is the fault
   */
  hard(reason: string, events = 0, timedOut?: Submission): void {
    // A time-out alone does not request a hard reset (cs_timedout).
    this.#afterFault(reason, events, { isHard: timedOut === undefined, timedOut });
  }

  /** Like {@link hard}, after an error of an engine: a compute reset (gaudi3_handle_eqe of the vendor's driver). */
  compute(reason: string, events: number): void {
    this.#afterFault(reason, events, { isHard: false, timedOut: undefined });
  }

  #afterFault(reason: string, events: number, fault: { isHard: boolean; timedOut: Submission | undefined }): void {
    const card = this.#card;
    if (card.status === HL_DEVICE_STATUS.IN_RESET) return;
    const notified = card.notifiers.anyRegistered;
    card.notifiers.raise(events | HL_NOTIFIER_EVENT.DEVICE_RESET);
    if (this.context === undefined || !(notified || card.releasePending)) {
      this.now(reason, fault.timedOut);
      return;
    }
    card.log.info(`postponed the reset until the file is closed: ${reason}`);
    this.context.submissions.forceComplete();
    this.#releaseIsHard ||= fault.isHard;
    if (!card.releasePending) {
      card.releasePending = true;
      card.watchdog = card.config.clock.setTimer(this.releaseWatchdogNs, () => this.#reset());
    }
    card.waiters.wakeAll();
  }

  /**
   * Resets the card at once, even if the user has registered an event fd: everything in flight is aborted and the card is usable again. A real card loses
   * the contents of its HBM; here they stay.
   */
  now(reason: string, timedOut?: Submission): void {
    const card = this.#card;
    if (card.status === HL_DEVICE_STATUS.IN_RESET) return;
    card.log.info(`hard reset: ${reason}`);
    card.submissions?.abort(timedOut);
    this.#reset();
  }

  /** Called when the firmware stops replying: the driver resets the card at the next heartbeat. */
  loseHeartbeat(): void {
    this.#heartbeat ??= this.#card.config.clock.setTimer(HEARTBEAT_NS, () => {
      this.#heartbeat = undefined;
      this.hard('device heartbeat failed', HL_NOTIFIER_EVENT.DEVICE_UNAVAILABLE | this.#card.records.heartbeatLost());
    });
  }

  /**
   * Resets the card after a release, if necessary.
   * @param inReset whether the file was open during a reset, which this release ends
   * @param held whether memory or submissions of the closed context are still in use
   * @param idle whether the device was idle when the context was closed
   */
  afterRelease(inReset: boolean, held: boolean, idle: boolean): void {
    const card = this.#card;
    if (inReset) {
      card.device.resetState();
      card.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
    } else if (held) this.#reset();
    else if (card.profile.capabilities.resetOnClose) this.#resetCompute();
    else if (card.releasePending || !idle) this.#reset();
    else card.device.resetState();
  }

  /** Stops the heartbeats. */
  close(): void {
    this.#heartbeat?.cancel();
  }

  /**
   * The compute reset after a release: complete when `close` returns, so that the card can be opened again at once. Not counted (hl_device_reset, Linux
   * 6.12).
   */
  #resetCompute(): void {
    const card = this.#card;
    if (card.releasePending && this.#releaseIsHard) {
      this.#reset();
      return;
    }
    card.releasePending = false;
    const wasOperational = card.status === HL_DEVICE_STATUS.OPERATIONAL;
    if (wasOperational) card.setStatus(HL_DEVICE_STATUS.IN_RESET_AFTER_DEVICE_RELEASE);
    card.device.resetState();
    if (wasOperational) card.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
  }

  /** Resets the device. A file that is open during the reset becomes unusable: the card stays in reset until that file is closed. */
  #reset(): void {
    const card = this.#card;
    card.cancelTimers();
    card.releasePending = false;
    this.#releaseIsHard = false;
    if (card.status !== HL_DEVICE_STATUS.MALFUNCTION) card.setStatus(HL_DEVICE_STATUS.IN_RESET);
    this.context?.deviceMemory.leaveBus();
    card.waitForEngines();
    card.device.resetState();
    card.eventCounts.clear();
    card.hardResets += 1;
    if (this.context === undefined && card.status === HL_DEVICE_STATUS.IN_RESET) {
      card.setStatus(HL_DEVICE_STATUS.OPERATIONAL);
    }
  }
}
