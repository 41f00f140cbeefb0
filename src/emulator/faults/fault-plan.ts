/**
 * Injected faults of one card as data: kind and time. The driver executes them.
 *
 * A fault counts the matching calls after it was added, fires once, and is then recorded.
 */

import { HL_DEVICE_STATUS, type HlDeviceStatus, IOCTL_NAMES, type IoctlName } from '../../uapi/index.ts';
import type { Clock } from '../../ucs/sys/clock.ts';
import { invalidParam } from '../../ucs/type/error.ts';

/** Resources that can be exhausted on demand. */
export type ExhaustibleResource = 'hbm' | 'va' | 'fd';

/** The nth ioctl of a kind fails with an errno, before it is executed. */
export interface IoctlFault {
  readonly kind: 'ioctl';
  /** Kind of the ioctl. */
  readonly ioctl: IoctlName;
  /** 1 is the next one. Default 1. */
  readonly nth?: number | undefined;
  /** Positive error number. */
  readonly errno: number;
}

/** The nth open of the primary node fails. */
export interface OpenFault {
  readonly kind: 'open';
  /** 1 is the next one. Default 1. */
  readonly nth?: number | undefined;
  /** Positive error number. */
  readonly errno: number;
}

/** The completion of the nth accepted submission is withheld: for a time, or forever, so that the submission times out. */
export interface CompletionFault {
  readonly kind: 'completion';
  /** 1 is the next one. Default 1. */
  readonly nth?: number | undefined;
  /** Nanoseconds until the completion is visible; undefined drops it. */
  readonly delayNs?: number | undefined;
}

/** The nth accepted submission hangs its engines: neither it nor later work on its queues runs, for a time or forever. */
export interface HangFault {
  readonly kind: 'hang';
  /** 1 is the next one. Default 1. */
  readonly nth?: number | undefined;
  /** Nanoseconds until the engines continue; undefined for never. */
  readonly delayNs?: number | undefined;
}

/** The nth request for a resource fails as if none were left. */
export interface ExhaustionFault {
  readonly kind: 'exhausted';
  /** The exhausted resource: device memory, device addresses, or file descriptors. */
  readonly resource: ExhaustibleResource;
  /** 1 is the next one. Default 1. */
  readonly nth?: number | undefined;
}

/** A fault planned for a later call. */
export type PlannedFault = IoctlFault | OpenFault | CompletionFault | HangFault | ExhaustionFault;

/** A fault that affects the card at once: a hard reset, its removal, a persistent status, or the failure of the engines, which the cards of a node share. */
export type CardFault =
  | { readonly kind: 'engine-failure' }
  | { readonly kind: 'hard-reset' }
  | { readonly kind: 'unplug' }
  | { readonly kind: 'malfunction' }
  | {
      readonly kind: 'status';
      /** The persistent status. */
      readonly status: HlDeviceStatus;
    }
  | { readonly kind: 'recover' };

/**
 * Links of the card go down or up: the link of a port, or all links to another card. Memory of a card without a remaining link
 * cannot be imported; existing imports stay.
 */
export type LinkFault = LinkDown | LinkUp;

interface LinkDown extends FaultyLinks {
  readonly kind: 'link-down';
}

interface LinkUp extends FaultyLinks {
  readonly kind: 'link-up';
}

interface FaultyLinks {
  readonly port?: number | undefined;
  /** Minor of the card at the far end. */
  readonly peer?: number | undefined;
}

/** All faults that can be injected. */
export type Fault = PlannedFault | CardFault | LinkFault;

/** A submission that can be withheld. */
export interface HeldSubmission {
  /** Sequence number: the object is reused for later submissions. */
  readonly seq: number;
  /** Whether its completion is invisible. */
  withheld: boolean;
  /** Whether its engines do not run it. */
  hung: boolean;
}

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
  /** Submissions that a fault withholds or makes hang without a time limit. */
  #held: { readonly submission: HeldSubmission; readonly seq: number; readonly letGo: () => void }[] = [];

  /** @param onRelease called when a withheld submission may continue */
  constructor(clock: Clock, onRelease: () => void) {
    this.#clock = clock;
    this.#onRelease = onRelease;
  }

  /** The faults that have fired, oldest first. */
  get fired(): readonly PlannedFault[] {
    return this.#fired;
  }

  /** The pending faults, oldest first. */
  get pending(): readonly PlannedFault[] {
    return this.#pending.map(({ fault }) => fault);
  }

  /** Number of pending faults. */
  get waiting(): number {
    return this.#pending.length;
  }

  /**
   * Plans a fault.
   * @throws UcxError ERR_INVALID_PARAM for a count below 1 or an invalid errno
   */
  add(fault: PlannedFault): void {
    const nth = fault.nth ?? 1;
    if (!Number.isSafeInteger(nth) || nth < 1) throw invalidParam('nth', 'must be a positive integer', nth);
    if ('errno' in fault && (!Number.isInteger(fault.errno) || fault.errno < 1 || fault.errno > 4095)) {
      throw invalidParam('errno', 'must be an error number from 1 to 4095', fault.errno);
    }
    this.#pending.push({ fault, remaining: nth });
  }

  /** Drops pending faults. */
  clear(): void {
    this.#pending = [];
  }

  /** Drops pending faults, and releases the submissions that earlier faults hold forever. */
  recover(): void {
    this.clear();
    for (const { submission, seq, letGo } of this.#held.splice(0)) if (submission.seq === seq) letGo();
    this.#onRelease();
  }

  /** The errno with which the current ioctl has to fail, or 0. */
  ioctlErrno(number: number): number {
    if (this.#pending.length === 0) return 0;
    const name = IOCTL_NAMES[number];
    const fault = this.#take((candidate) => candidate.kind === 'ioctl' && candidate.ioctl === name);
    return fault?.kind === 'ioctl' ? fault.errno : 0;
  }

  /** The errno with which the current open has to fail, or 0. */
  openErrno(): number {
    const fault = this.#take((candidate) => candidate.kind === 'open');
    return fault?.kind === 'open' ? fault.errno : 0;
  }

  /** Applies planned faults to the current accepted submission. A timer ends those with a delay. */
  strike(submission: HeldSubmission): void {
    if (this.#pending.length === 0) return;
    submission.withheld = this.#hold('completion', submission, () => {
      submission.withheld = false;
    });
    submission.hung = this.#hold('hang', submission, () => {
      submission.hung = false;
    });
  }

  /** Whether the current request for a resource has to fail. */
  exhausts(resource: ExhaustibleResource): boolean {
    if (this.#pending.length === 0) return false;
    return this.#take((candidate) => candidate.kind === 'exhausted' && candidate.resource === resource) !== undefined;
  }

  #hold(kind: 'completion' | 'hang', submission: HeldSubmission, letGo: () => void): boolean {
    const fault = this.#take((candidate) => candidate.kind === kind);
    if (fault?.kind !== kind) return false;
    const { seq } = submission;
    if (fault.delayNs === undefined) {
      this.#held = this.#held.filter((held) => held.submission.seq === held.seq);
      this.#held.push({ submission, seq, letGo });
    } else {
      this.#clock.setTimer(fault.delayNs, () => {
        if (submission.seq === seq) letGo();
        this.#onRelease();
      });
    }
    return true;
  }

  /** Counts the current call for every matching fault; returns the first one that is due. */
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

type Fields = Readonly<Record<string, unknown>>;

const IOCTLS = ['INFO', 'CB', 'CS', 'WAIT_CS', 'MEMORY', 'DEBUG'] as const;
const RESOURCES = ['hbm', 'va', 'fd'] as const;
/** Faults without parameters. */
const PLAIN = ['engine-failure', 'hard-reset', 'unplug', 'malfunction', 'recover'] as const;
const STATUS_RULE: string = `must be one of ${Object.keys(HL_DEVICE_STATUS).join(', ')}`;
/** Names of all faults. */
export const FAULT_KINDS: readonly string[] = [
  'ioctl',
  'open',
  'completion',
  'hang',
  'exhausted',
  'status',
  'link-down',
  'link-up',
  ...PLAIN,
];
/** Maximum delay, within the range of a timer: a day. */
const DELAY_NS_MAX = 86_400e9;
const ERRNO_MAX = 4095;
/** Port masks have 64 bits. */
const PORT_MAX = 63;
const MINOR_MAX = 255;

/**
 * Parses a fault from untrusted data, such as a message of another process: checks every field.
 * @throws UcxError ERR_INVALID_PARAM that names the field
 */
export function readFault(value: unknown): Fault {
  if (typeof value !== 'object' || value === null) throw invalidParam('fault', 'must be an object', value);
  const fields = value as Fields;
  const fault = faultOf(fields);
  const given = Object.keys(fields).filter((name) => fields[name] !== undefined);
  const unknown = given.find((name) => !(name in fault));
  if (unknown !== undefined)
    throw invalidParam(unknown, `must not be given for a fault of kind ${fault.kind}`, fields[unknown]);
  return fault;
}

function faultOf(fields: Fields): Fault {
  const kind = oneOf(fields, 'kind', FAULT_KINDS);
  const nth = optionalInteger(fields, 'nth', 1, Number.MAX_SAFE_INTEGER);
  switch (kind) {
    case 'ioctl':
      return { kind, ioctl: oneOf(fields, 'ioctl', IOCTLS), errno: integer(fields, 'errno', 1, ERRNO_MAX), ...nth };
    case 'open':
      return { kind, errno: integer(fields, 'errno', 1, ERRNO_MAX), ...nth };
    case 'completion':
    case 'hang':
      return { kind, ...nth, ...optionalInteger(fields, 'delayNs', 0, DELAY_NS_MAX) };
    case 'exhausted':
      return { kind, resource: oneOf(fields, 'resource', RESOURCES), ...nth };
    case 'status': {
      const status = Object.values(HL_DEVICE_STATUS).find((known) => known === fields['status']);
      if (status === undefined) throw invalidParam('status', STATUS_RULE, fields['status']);
      return { kind, status };
    }
    case 'link-down':
    case 'link-up':
      return {
        kind,
        ...optionalInteger(fields, 'port', 0, PORT_MAX),
        ...optionalInteger(fields, 'peer', 0, MINOR_MAX),
      };
    default:
      return { kind: oneOf(fields, 'kind', PLAIN) };
  }
}

function oneOf<T extends string>(fields: Fields, name: string, values: readonly T[]): T {
  const found = values.find((value) => value === fields[name]);
  if (found === undefined) throw invalidParam(name, `must be one of ${values.join(', ')}`, fields[name]);
  return found;
}

function integer(fields: Fields, name: string, min: number, max: number): number {
  const value = fields[name];
  if (typeof value !== 'number' || !Number.isSafeInteger(value) || value < min || value > max) {
    throw invalidParam(name, `must be an integer from ${min} to ${max}`, value);
  }
  return value;
}

function optionalInteger<N extends string>(fields: Fields, name: N, min: number, max: number): { [K in N]?: number } {
  if (fields[name] === undefined) return {};
  return { [name]: integer(fields, name, min, max) } as { [K in N]?: number };
}
