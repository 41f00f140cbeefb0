/**
 * Faults as data: what shall go wrong on one card, and when. The plan only answers questions of the driver; it breaks nothing itself.
 *
 * Every fault counts the calls it is about from the moment it was added, fires once, and is recorded when it does.
 */

import type { HlDeviceStatus, IoctlName } from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** Resources that can run out on demand. */
export type ExhaustibleResource = 'hbm' | 'va' | 'fd';

/** The nth ioctl of a kind fails with an errno, without being looked at. */
export interface IoctlFault {
  readonly kind: 'ioctl';
  /** Kind of the ioctl. */
  readonly ioctl: IoctlName;
  /** 1 is the next one. Default 1. */
  readonly nth?: number;
  /** Positive error number. */
  readonly errno: number;
}

/** The nth open of the primary node fails. */
export interface OpenFault {
  readonly kind: 'open';
  /** 1 is the next one. Default 1. */
  readonly nth?: number;
  /** Positive error number. */
  readonly errno: number;
}

/** The completion of the nth accepted submission is held back: for a time, or for ever, so that the submission times out. */
export interface CompletionFault {
  readonly kind: 'completion';
  /** 1 is the next one. Default 1. */
  readonly nth?: number;
  /** Nanoseconds until the completion is seen; undefined drops it. */
  readonly delayNs?: number;
}

/** The nth accepted submission hangs its engines: neither it nor what is behind it on its queues runs, for a time or for ever. */
export interface HangFault {
  readonly kind: 'hang';
  /** 1 is the next one. Default 1. */
  readonly nth?: number;
  /** Nanoseconds until the engines go on; undefined never. */
  readonly delayNs?: number;
}

/** The nth request for a resource finds none left. */
export interface ExhaustionFault {
  readonly kind: 'exhausted';
  /** What is exhausted: device memory, device addresses, or file descriptors. */
  readonly resource: ExhaustibleResource;
  /** 1 is the next one. Default 1. */
  readonly nth?: number;
}

/** A fault that waits for its moment. */
export type PlannedFault = IoctlFault | OpenFault | CompletionFault | HangFault | ExhaustionFault;

/**
 * A fault that happens to the card at once: a hard reset, its removal, a status that it does not leave by itself, or the death of the
 * engines, which the cards of a node share.
 */
export type CardFault =
  | { readonly kind: 'engine-failure' }
  | { readonly kind: 'hard-reset' }
  | { readonly kind: 'unplug' }
  | { readonly kind: 'malfunction' }
  | {
      readonly kind: 'status';
      /** The status that the card keeps. */
      readonly status: HlDeviceStatus;
    }
  | { readonly kind: 'recover' };

/**
 * Links of the card go down, or come up again: that of a port, or all those to another card (one of the two). Memory of a card to which no link is
 * left cannot be imported; what is imported already stays.
 */
export type LinkFault = LinkDown | LinkUp;

interface LinkDown extends FaultyLinks {
  readonly kind: 'link-down';
}

interface LinkUp extends FaultyLinks {
  readonly kind: 'link-up';
}

interface FaultyLinks {
  readonly port?: number;
  /** Minor of the card at the far end. */
  readonly peer?: number;
}

/** Everything that can be made to go wrong. */
export type Fault = PlannedFault | CardFault | LinkFault;

/** A submission that can be held back. */
export interface HeldSubmission {
  /** Sequence number: the object is reused for later submissions. */
  readonly seq: number;
  /** Its completion is not seen. */
  withheld: boolean;
  /** Its engines do not run it. */
  hung: boolean;
}

/** Index of an ioctl in its family: the order of the request numbers. */
const IOCTL_NAMES: readonly IoctlName[] = ['INFO', 'CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'];

interface Pending {
  readonly fault: PlannedFault;
  remaining: number;
}

/** The faults planned for one card. */
export class FaultPlan {
  readonly #clock: Clock;
  readonly #onRelease: () => void;
  #pending: Pending[] = [];
  readonly #fired: PlannedFault[] = [];

  /** @param onRelease called when what was held back may go on */
  constructor(clock: Clock, onRelease: () => void) {
    this.#clock = clock;
    this.#onRelease = onRelease;
  }

  /** The faults that have happened, oldest first. */
  get fired(): readonly PlannedFault[] {
    return this.#fired;
  }

  /** The number of faults that still wait. */
  get waiting(): number {
    return this.#pending.length;
  }

  /**
   * Plans a fault.
   * @throws UcxError ERR_INVALID_PARAM for a count below 1 or an errno that is none
   */
  add(fault: PlannedFault): void {
    const nth = fault.nth ?? 1;
    if (!Number.isSafeInteger(nth) || nth < 1) throw invalidParam('nth', 'must be a positive integer', nth);
    if ('errno' in fault && (!Number.isInteger(fault.errno) || fault.errno < 1 || fault.errno > 4095)) {
      throw invalidParam('errno', 'must be an error number from 1 to 4095', fault.errno);
    }
    this.#pending.push({ fault, remaining: nth });
  }

  /** Forgets what has not happened yet. */
  clear(): void {
    this.#pending = [];
  }

  /** The errno with which the ioctl at hand shall fail, or 0. */
  ioctlErrno(number: number): number {
    if (this.#pending.length === 0) return 0;
    const name = IOCTL_NAMES[number];
    const fault = this.#take((candidate) => candidate.kind === 'ioctl' && candidate.ioctl === name);
    return fault?.kind === 'ioctl' ? fault.errno : 0;
  }

  /** The errno with which the open at hand shall fail, or 0. */
  openErrno(): number {
    const fault = this.#take((candidate) => candidate.kind === 'open');
    return fault?.kind === 'open' ? fault.errno : 0;
  }

  /** Does to the accepted submission at hand what is planned for it. What has a delay is let go by a timer. */
  strike(submission: HeldSubmission): void {
    if (this.#pending.length === 0) return;
    submission.withheld = this.#hold('completion', submission, () => {
      submission.withheld = false;
    });
    submission.hung = this.#hold('hang', submission, () => {
      submission.hung = false;
    });
  }

  /** Whether the request for a resource at hand shall find none. */
  exhausts(resource: ExhaustibleResource): boolean {
    if (this.#pending.length === 0) return false;
    return this.#take((candidate) => candidate.kind === 'exhausted' && candidate.resource === resource) !== undefined;
  }

  #hold(kind: 'completion' | 'hang', submission: HeldSubmission, letGo: () => void): boolean {
    const fault = this.#take((candidate) => candidate.kind === kind);
    if (fault?.kind !== kind) return false;
    if (fault.delayNs !== undefined) {
      const { seq } = submission;
      this.#clock.setTimer(fault.delayNs, () => {
        if (submission.seq === seq) letGo();
        this.#onRelease();
      });
    }
    return true;
  }

  /** Counts the call at hand against every fault that is about it; takes the first whose turn has come. */
  #take(concerns: (fault: PlannedFault) => boolean): PlannedFault | undefined {
    let due: Pending | undefined;
    for (const pending of this.#pending) {
      if (!concerns(pending.fault)) continue;
      pending.remaining -= 1;
      if (pending.remaining <= 0) due ??= pending;
    }
    if (due === undefined) return undefined;
    const { fault } = due;
    this.#pending = this.#pending.filter((pending) => pending !== due);
    this.#fired.push(fault);
    return fault;
  }
}
