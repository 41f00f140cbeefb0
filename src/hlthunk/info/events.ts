/**
 * Events of an open card. Only this module reads the card's event fd, which the driver signals. Events are recorded and passed first to the DMA of the card,
 * then to users, so that the order of readers does not matter.
 *
 * Faults arrive before the completions of the transfers that they corrupted: reading the events after a completion yields all faults that can affect it.
 */

import { allocateScratch, EventFd, errnoText, type PollSubscription, type ScratchBlock } from '../../sys/index.ts';
import { HL_INFO_OP, HL_NOTIFIER_EVENT } from '../../uapi/index.ts';
import { LimitedLog } from '../../ucs/debug/limited-log.ts';
import type { Log } from '../../ucs/debug/log.ts';
import { throwLater } from '../../ucs/debug/uncaught.ts';
import { type Clock, systemClock } from '../../ucs/sys/clock.ts';
import { isUcxError } from '../../ucs/type/error.ts';
import { keysOf } from '../../ucs/type/keys.ts';
import type { CardFile, CardTarget } from '../base/card-file.ts';
import { GaudiErrorCode, gaudiError, invalidArgument, isOpAbsent } from '../base/gaudi-error.ts';
import {
  type CsTimeoutInfo,
  type EngineErrInfo,
  getCsTimeoutInfo,
  getEngineErrInfo,
  getPageFaultInfo,
  getRazwiInfo,
  getUndefinedOpcodeInfo,
  type PageFaultInfo,
  type RazwiInfo,
  type UndefinedOpcodeInfo,
} from './fault-info.ts';

/** The name of an event: a key of HL_NOTIFIER_EVENT. */
export type NotifierEvent = keyof typeof HL_NOTIFIER_EVENT;

/** Maximum number of reports that wait for callbacks; beyond it the oldest is dropped, which shows as a gap in the sequence. */
const UNDELIVERED_MAX = 64;
/** Events after which the open file cannot be used. */
const RESETS: number = HL_NOTIFIER_EVENT.DEVICE_RESET | HL_NOTIFIER_EVENT.DEVICE_UNAVAILABLE;

/** Events, with the driver's records of them. The driver records only the first event of each kind, so later events have no record. */
export interface DeviceFault {
  /** Number of the report of the open card, from 1. */
  readonly sequence: number;
  /** Number of driver signals that the report covers. A record belongs to one of them. */
  readonly signals: number;
  /** Bits of HL_NOTIFIER_EVENT; 0 if the driver has signalled, but the events could not be read or another reader has consumed them. */
  readonly mask: number;
  /** The reported events. */
  readonly events: readonly NotifierEvent[];
  /** The recorded page fault; undefined if there is none. */
  readonly pageFault: PageFaultInfo | undefined;
  /** The recorded illegal access (RAZWI); undefined if there is none. */
  readonly razwi: RazwiInfo | undefined;
  /** The recorded undefined opcode; undefined if there is none. */
  readonly undefinedOpcode: UndefinedOpcodeInfo | undefined;
  /** The recorded engine error; undefined if there is none. */
  readonly engineErr: EngineErrInfo | undefined;
  /** The recorded time-out of a submission; undefined if there is none. */
  readonly csTimeout: CsTimeoutInfo | undefined;
}

/** Receives events (bits of HL_NOTIFIER_EVENT). */
export type EventCallback = (mask: number, fault: DeviceFault) => void;

/** A subscription to events. */
export class EventSubscription implements Disposable {
  /** Ends the subscription. Idempotent; may be called as a plain function. */
  readonly close: () => void;

  /** @internal Made by DeviceEvents.register. */
  constructor(unregister: () => void) {
    this.close = () => unregister();
  }

  /** Ends the subscription. */
  [Symbol.dispose](): void {
    this.close();
  }
}

/** Events of one open device. */
export class DeviceEvents implements CardTarget {
  /** The open file of the card. */
  readonly card: CardFile;
  readonly #log: Log;
  readonly #clock: Clock;
  /** Limits the log to one line for each combination of events, then a count, because a card can report the same event endlessly. */
  readonly #reports: Map<number, LimitedLog> = new Map();
  readonly #eventFd: EventFd | undefined;
  readonly #answer: ScratchBlock;
  readonly #callbacks = new Set<EventCallback>();
  /** Timestamp of each kind of record at its last report. */
  readonly #recorded: Map<unknown, bigint> = new Map();
  /** Reports that callbacks have not received. */
  readonly #undelivered: DeviceFault[] = [];
  #onFault: (fault: DeviceFault) => void = () => {};
  #subscription: PollSubscription | undefined;
  #received = 0;
  #lastFault: DeviceFault | undefined;
  #timedOutSeq = 0;

  /** @throws SyscallError EMFILE, ENFILE: without an event fd, a transfer that faults would appear successful */
  constructor(card: CardFile, log: Log, clock: Clock = systemClock) {
    this.card = card;
    this.#log = log;
    this.#clock = clock;
    this.#eventFd = this.#registerEventFd();
    this.#answer = allocateScratch(8);
  }

  /** Whether the driver reports events: Linux 6.0 and later, primary node only. */
  get supported(): boolean {
    return this.#eventFd !== undefined;
  }

  /** The latest events with their records; undefined if there were none. */
  get lastFault(): DeviceFault | undefined {
    return this.#lastFault;
  }

  /** Number of the submission reported as timed out; 0 for none. */
  get timedOutSeq(): number {
    return this.#timedOutSeq;
  }

  /** Sets the listener that receives every report first, within the call that reads it. It must neither throw nor start transfers. */
  listen(onFault: (fault: DeviceFault) => void): void {
    this.#onFault = onFault;
  }

  /**
   * Reads and records new events; allocates nothing if there are none. Callbacks run later, from the event loop, so this may be called where transfers must not
   * be started.
   * @returns whether there were any
   */
  poll(): boolean {
    if (!this.#read()) return false;
    if (this.#undelivered.length > 0) queueMicrotask(() => this.#deliver());
    return true;
  }

  /**
   * Calls `callback` from the event loop, or from {@link receive}, whenever the card has events (hlthunk_notifier_create), even if another call has read them.
   * The subscription does not keep the process alive.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS if the driver does not report events; SyscallError EMFILE
   */
  register(callback: EventCallback): EventSubscription {
    this.card.checkOpen();
    if (typeof callback !== 'function') throw invalidArgument('callback', 'must be a function', callback);
    if (this.#eventFd === undefined) {
      const what = `the driver of ${this.card.name} does not report events, because it has no INFO REGISTER_EVENTFD`;
      throw gaudiError(GaudiErrorCode.INVALID_PARAMS, what);
    }
    if (this.#subscription === undefined) {
      this.#subscription = this.#eventFd.onReadable(() => this.#readAndDeliver());
      this.#subscription.unref();
    }
    // A separate function, so that the same callback can be registered twice.
    const entry: EventCallback = (mask, fault) => callback(mask, fault);
    this.#callbacks.add(entry);
    return new EventSubscription(() => this.#unregister(entry));
  }

  /** The events since the last call (hlthunk_notifier_recv with a time-out of 0): bits of HL_NOTIFIER_EVENT, 0 for none. */
  receive(): number {
    this.card.checkOpen();
    this.#readAndDeliver();
    const mask = this.#received;
    this.#received = 0;
    return mask;
  }

  /** Ends all subscriptions. Call it after the file was closed, which unregisters the event fd. */
  close(): void {
    this.#callbacks.clear();
    this.#undelivered.length = 0;
    this.#subscription = undefined;
    this.#eventFd?.close();
    this.#answer.free();
    for (const reports of this.#reports.values()) reports.reportOmitted();
    this.#reports.clear();
  }

  #registerEventFd(): EventFd | undefined {
    const eventFd = new EventFd();
    const result = this.card.tryInfo(HL_INFO_OP.REGISTER_EVENTFD, undefined, { eventfd: eventFd.fd });
    if (result === 0) return eventFd;
    eventFd.close();
    if (!isOpAbsent(result)) throw this.card.error(result, 'registration of an event fd');
    this.#log.warn(
      `the driver of ${this.card.name} has no INFO REGISTER_EVENTFD (${errnoText(-result)}): faults of the card cannot be detected; use a newer kernel`,
    );
    return undefined;
  }

  #unregister(entry: EventCallback): void {
    this.#callbacks.delete(entry);
    if (this.#callbacks.size > 0) return;
    this.#subscription?.close();
    this.#subscription = undefined;
  }

  #readAndDeliver(): void {
    this.#read();
    this.#deliver();
  }

  /** Reads the event fd: the only reader. */
  #read(): boolean {
    if (this.#eventFd === undefined || this.#eventFd.closed) return false;
    const signals = this.#eventFd.tryRead();
    if (signals > 0) this.#collect(signals);
    return signals > 0;
  }

  /** Reads the events and their records, and passes them to the DMA listener first. */
  #collect(signals: number): void {
    this.#answer.words[0] = 0;
    const result = this.card.tryInfo(HL_INFO_OP.GET_EVENTS, this.#answer);
    const mask = result < 0 ? 0 : this.#answer.words[0]!;
    const fault = this.#readFault(mask, signals);
    this.#lastFault = fault;
    if (fault.csTimeout !== undefined) this.#timedOutSeq = Number(fault.csTimeout.seq);
    this.#received |= mask;
    if ((mask & RESETS) !== 0) this.card.markReset();
    this.#onFault(fault);
    this.#report(fault);
    if (this.#callbacks.size === 0) return;
    if (this.#undelivered.length === UNDELIVERED_MAX) this.#undelivered.shift();
    this.#undelivered.push(fault);
  }

  #report(fault: DeviceFault): void {
    let reports = this.#reports.get(fault.mask);
    if (reports === undefined) {
      const what = `reports of ${this.card.name} (${nameEvents(fault)})`;
      reports = new LimitedLog(this.#log, this.#clock, { linesMax: 1, what });
      this.#reports.set(fault.mask, reports);
    }
    reports.error(`${this.card.name} reports ${describe(fault)}`);
  }

  #deliver(): void {
    for (let fault = this.#undelivered.shift(); fault !== undefined; fault = this.#undelivered.shift()) {
      for (const callback of this.#callbacks) {
        try {
          callback(fault.mask, fault);
        } catch (error) {
          throwLater(error);
        }
      }
    }
  }

  #readFault(mask: number, signals: number): DeviceFault {
    const has = (event: number): boolean => (mask & event) !== 0;
    const names = keysOf(HL_NOTIFIER_EVENT);
    return {
      sequence: (this.#lastFault?.sequence ?? 0) + 1,
      signals,
      mask,
      events: names.filter((name) => has(HL_NOTIFIER_EVENT[name])),
      pageFault: has(HL_NOTIFIER_EVENT.PAGE_FAULT) ? this.#newRecord(getPageFaultInfo) : undefined,
      razwi: has(HL_NOTIFIER_EVENT.RAZWI) ? this.#newRecord(getRazwiInfo) : undefined,
      undefinedOpcode: has(HL_NOTIFIER_EVENT.UNDEFINED_OPCODE) ? this.#newRecord(getUndefinedOpcodeInfo) : undefined,
      engineErr: has(HL_NOTIFIER_EVENT.USER_ENGINE_ERR) ? this.#newRecord(getEngineErrInfo) : undefined,
      csTimeout: has(HL_NOTIFIER_EVENT.CS_TIMEOUT) ? this.#newRecord(getCsTimeoutInfo) : undefined,
    };
  }

  /** A record, unless an earlier report had it; undefined also if it cannot be read, which must not hide the event. */
  #newRecord<T extends { readonly timestamp: bigint }>(read: (target: CardTarget) => T | undefined): T | undefined {
    try {
      const record = read(this);
      if (record === undefined || this.#recorded.get(read) === record.timestamp) return undefined;
      this.#recorded.set(read, record.timestamp);
      return record;
    } catch (error) {
      if (isUcxError(error)) return undefined;
      throw error;
    }
  }
}

function nameEvents({ mask, events }: DeviceFault): string {
  return mask === 0 ? 'events that could not be read' : events.join(', ').toLowerCase();
}

/** One line: the names of the events and a summary of the records. */
function describe(fault: DeviceFault): string {
  const parts = [nameEvents(fault)];
  if (fault.pageFault !== undefined) parts.push(`page fault at 0x${fault.pageFault.addr.toString(16)}`);
  if (fault.razwi !== undefined) parts.push(`illegal access at 0x${fault.razwi.addr.toString(16)}`);
  if (fault.undefinedOpcode !== undefined) {
    parts.push(`undefined opcode on engine ${fault.undefinedOpcode.engineId}`);
  }
  if (fault.csTimeout !== undefined) parts.push(`time-out of submission ${fault.csTimeout.seq}`);
  return parts.join('; ');
}
