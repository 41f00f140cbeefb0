/**
 * Events of an open card: its event fd, which the driver signals, and what they say about transfers. One fd serves the DMA queues,
 * who ask at completion, and users, who are called from the event loop. It resets nothing.
 *
 * Faults arrive before the completions that they spoil, so a transfer that completes while a new fault is there has failed.
 */

import { allocateScratch, EventFd, isSyscallError, type PollSubscription, type ScratchBlock } from '../sys/index.ts';
import { HL_INFO_OP, HL_NOTIFIER_EVENT } from '../uapi/index.ts';
import type { Log } from '../ucs/log.ts';
import { Status } from '../ucs/status.ts';
import type { CardFile, CardTarget } from './card-file.ts';
import {
  type CsTimeoutInfo,
  getCsTimeoutInfo,
  getPageFaultInfo,
  getRazwiInfo,
  getUndefinedOpcodeInfo,
  type PageFaultInfo,
  type RazwiInfo,
  type UndefinedOpcodeInfo,
} from './fault-info.ts';
import { GaudiErrorCode, gaudiError } from './gaudi-error.ts';

/** The name of an event: a key of HL_NOTIFIER_EVENT. */
export type NotifierEvent = keyof typeof HL_NOTIFIER_EVENT;

/** Events after which the data of transfers cannot be trusted. */
const DATA_FAULTS: number =
  HL_NOTIFIER_EVENT.UNDEFINED_OPCODE |
  HL_NOTIFIER_EVENT.GENERAL_HW_ERR |
  HL_NOTIFIER_EVENT.RAZWI |
  HL_NOTIFIER_EVENT.PAGE_FAULT |
  HL_NOTIFIER_EVENT.CRITICL_HW_ERR |
  HL_NOTIFIER_EVENT.CRITICL_FW_ERR;

/** Events with the records that the driver kept of them. */
export interface DeviceFault {
  /** Bits of HL_NOTIFIER_EVENT. */
  readonly mask: number;
  readonly events: readonly NotifierEvent[];
  readonly pageFault: PageFaultInfo | undefined;
  readonly razwi: RazwiInfo | undefined;
  readonly undefinedOpcode: UndefinedOpcodeInfo | undefined;
  readonly csTimeout: CsTimeoutInfo | undefined;
}

/** Takes events (bits of HL_NOTIFIER_EVENT). Must not throw. */
export type EventCallback = (mask: number, fault: DeviceFault) => void;

/** A running notification. */
export interface EventSubscription extends Disposable {
  /** Idempotent. */
  close(): void;
}

/** The events of one open device. */
export class DeviceEvents implements CardTarget {
  readonly card: CardFile;
  readonly #log: Log;
  readonly #eventFd: EventFd | undefined;
  readonly #answer: ScratchBlock;
  readonly #callbacks = new Set<EventCallback>();
  #subscription: PollSubscription | undefined;
  #received = 0;
  #lastFault: DeviceFault | undefined;
  #timedOutSeq = 0;

  constructor(card: CardFile, log: Log) {
    this.card = card;
    this.#log = log;
    this.#answer = allocateScratch(8);
    this.#eventFd = this.#registerEventFd();
  }

  /** Whether the driver tells events: Linux 6.0 and later, primary node. */
  get supported(): boolean {
    return this.#eventFd !== undefined;
  }

  /** The latest events with their records; undefined while there were none. */
  get lastFault(): DeviceFault | undefined {
    return this.#lastFault;
  }

  /** Number of the submission that was reported as timed out; 0 for none. */
  get timedOutSeq(): number {
    return this.#timedOutSeq;
  }

  /**
   * Asks whether there are new events, without allocation when there are none.
   * @returns OK, or IO_ERROR when data of transfers is in doubt. A time-out or reset alone spoils no completed transfer: OK.
   */
  check(): Status {
    if (this.#eventFd === undefined || this.#eventFd.closed) return Status.OK;
    if (this.#eventFd.tryRead() === 0) return Status.OK;
    return (this.#collect() & DATA_FAULTS) === 0 ? Status.OK : Status.IO_ERROR;
  }

  /**
   * Calls `callback` from the event loop, or from a transfer's completion, whenever the card has events (hlthunk_notifier_create).
   * The subscription does not keep the process alive.
   * @throws UcxError ERR_GAUDI_INVALID_PARAMS where the driver has no events
   */
  register(callback: EventCallback): EventSubscription {
    this.card.checkOpen();
    if (this.#eventFd === undefined) {
      throw gaudiError(GaudiErrorCode.INVALID_PARAMS, `the driver of ${this.card.name} takes no event fd`);
    }
    // A function of its own, so that the same callback can be registered twice.
    const entry: EventCallback = (mask, fault) => callback(mask, fault);
    this.#callbacks.add(entry);
    if (this.#subscription === undefined) {
      this.#subscription = this.#eventFd.onReadable(() => this.check());
      this.#subscription.unref();
    }
    const close = (): void => this.#unregister(entry);
    return { close, [Symbol.dispose]: close };
  }

  /** The events since the last call (hlthunk_notifier_recv with a time-out of 0): bits of HL_NOTIFIER_EVENT, 0 for none. */
  receive(): number {
    this.card.checkOpen();
    this.check();
    const mask = this.#received;
    this.#received = 0;
    return mask;
  }

  /** Ends all subscriptions. After the file was closed: that unregisters the event fd. */
  close(): void {
    this.#callbacks.clear();
    this.#subscription = undefined;
    this.#eventFd?.close();
    this.#answer.free();
  }

  #registerEventFd(): EventFd | undefined {
    const eventFd = openEventFd();
    if (eventFd === undefined) return undefined;
    const result = this.card.tryInfo(HL_INFO_OP.REGISTER_EVENTFD, undefined, { eventfd: eventFd.fd });
    if (result === 0) return eventFd;
    this.#log.debug(`${this.card.name} takes no event fd: errno ${-result}`);
    eventFd.close();
    return undefined;
  }

  #unregister(entry: EventCallback): void {
    this.#callbacks.delete(entry);
    if (this.#callbacks.size > 0) return;
    this.#subscription?.close();
    this.#subscription = undefined;
  }

  /** Reads the events and their records, tells everybody. */
  #collect(): number {
    this.#answer.words[0] = 0;
    const result = this.card.tryInfo(HL_INFO_OP.GET_EVENTS, this.#answer);
    if (result < 0) {
      this.#log.debug(`${this.card.name}: events cannot be read, errno ${-result}`);
      return 0;
    }
    const mask = this.#answer.words[0]!;
    if (mask === 0) return 0;
    const fault = this.#readFault(mask);
    this.#lastFault = fault;
    if (fault.csTimeout !== undefined) this.#timedOutSeq = Number(fault.csTimeout.seq);
    this.#received |= mask;
    this.#log.error(`${this.card.name} reports ${describe(fault)}`);
    for (const callback of this.#callbacks) callback(mask, fault);
    return mask;
  }

  #readFault(mask: number): DeviceFault {
    const has = (event: number): boolean => (mask & event) !== 0;
    const names = Object.keys(HL_NOTIFIER_EVENT) as NotifierEvent[];
    return {
      mask,
      events: names.filter((name) => has(HL_NOTIFIER_EVENT[name])),
      pageFault: has(HL_NOTIFIER_EVENT.PAGE_FAULT) ? getPageFaultInfo(this) : undefined,
      razwi: has(HL_NOTIFIER_EVENT.RAZWI) ? getRazwiInfo(this) : undefined,
      undefinedOpcode: has(HL_NOTIFIER_EVENT.UNDEFINED_OPCODE) ? getUndefinedOpcodeInfo(this) : undefined,
      csTimeout: has(HL_NOTIFIER_EVENT.CS_TIMEOUT) ? getCsTimeoutInfo(this) : undefined,
    };
  }
}

/** An event fd, or undefined when the process has no descriptor left: a device works without. */
function openEventFd(): EventFd | undefined {
  try {
    return new EventFd();
  } catch (error) {
    if (isSyscallError(error)) return undefined;
    throw error;
  }
}

/** One line: the names of the events and what the records say. */
function describe(fault: DeviceFault): string {
  const parts = [fault.events.join(', ').toLowerCase()];
  if (fault.pageFault !== undefined) parts.push(`page fault at 0x${fault.pageFault.addr.toString(16)}`);
  if (fault.razwi !== undefined) parts.push(`illegal access at 0x${fault.razwi.addr.toString(16)}`);
  if (fault.undefinedOpcode !== undefined) {
    parts.push(`undefined opcode on engine ${fault.undefinedOpcode.engineId}`);
  }
  if (fault.csTimeout !== undefined) parts.push(`time-out of submission ${fault.csTimeout.seq}`);
  return parts.join('; ');
}
