/**
 * Fault records of a card for INFO (struct hl_error_info): the first of each kind since the card was opened. It notifies users
 * by their event fds; resets are decided elsewhere.
 */

import { type AsicProfile, engineIdOf, HL_NOTIFIER_EVENT, HL_RAZWI } from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { joinBig } from '../../../ucs/type/int64.ts';
import type { FaultListener } from '../../device/queue/engine-access.ts';
import type { Stream } from '../../device/queue/stream.ts';
import type { UserMapping } from './user-mapping.ts';

/** The operations of a card that its fault records need. */
export interface FaultReporter {
  readonly profile: AsicProfile;
  readonly config: { readonly clock: Clock };
  /** The current mappings. */
  userMappings(): readonly UserMapping[];
  /** Notifies registered users of events (bits of HL_NOTIFIER_EVENT). */
  notify(events: number): void;
}

/** An access without translation, with the mappings at that time. */
export interface PageFaultRecord {
  readonly timestampNs: number;
  readonly address: bigint;
  readonly engineId: number;
  readonly mappings: readonly UserMapping[];
}

/** An access to an illegal address. */
export interface RazwiRecord {
  readonly timestampNs: number;
  readonly address: bigint;
  readonly engineId: number;
  /** Bits of HL_RAZWI. */
  readonly flags: number;
}

/** A packet with an undefined opcode. */
export interface UndefinedOpcodeRecord {
  readonly timestampNs: number;
  readonly engineId: number;
  readonly streamId: number;
  readonly opcode: number;
}

/** A submission that timed out. */
export interface CsTimeoutRecord {
  readonly timestampNs: number;
  readonly seq: number;
}

/** The fault records of one card. */
export class ErrorRecords implements FaultListener {
  readonly #card: FaultReporter;
  #pageFault: PageFaultRecord | undefined;
  #razwi: RazwiRecord | undefined;
  #undefinedOpcode: UndefinedOpcodeRecord | undefined;
  #csTimeout: CsTimeoutRecord | undefined;

  constructor(card: FaultReporter) {
    this.#card = card;
  }

  get lastPageFault(): PageFaultRecord | undefined {
    return this.#pageFault;
  }

  get lastRazwi(): RazwiRecord | undefined {
    return this.#razwi;
  }

  get lastUndefinedOpcode(): UndefinedOpcodeRecord | undefined {
    return this.#undefinedOpcode;
  }

  get lastCsTimeout(): CsTimeoutRecord | undefined {
    return this.#csTimeout;
  }

  /** Records an access without translation: a page fault of the memory management unit, and a RAZWI because no device responded. */
  pageFault(stream: Stream, high: number, low: number): void {
    const address = joinBig(low, high);
    this.#pageFault ??= {
      timestampNs: this.#now(),
      address,
      engineId: this.#engineId(stream),
      mappings: this.#card.userMappings(),
    };
    this.#recordRazwi(stream, address, HL_RAZWI.HBW | HL_RAZWI.ADDR_DEC);
    this.#card.notify(HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.RAZWI);
  }

  /** Records an access that the hardware rejects. */
  razwi(stream: Stream, high: number, low: number): void {
    this.#recordRazwi(stream, joinBig(low, high), HL_RAZWI.HBW | HL_RAZWI.RR);
    this.#card.notify(HL_NOTIFIER_EVENT.RAZWI);
  }

  /** Records a packet that stopped its stream. */
  undefinedOpcode(stream: Stream, opcode: number): void {
    this.#undefinedOpcode ??= {
      timestampNs: this.#now(),
      engineId: this.#engineId(stream),
      streamId: this.#card.profile.queues[stream.queueId]!.stream,
      opcode,
    };
    this.#card.notify(HL_NOTIFIER_EVENT.UNDEFINED_OPCODE);
  }

  /** Records the time-out of a submission. Returns whether it is the first, of which the caller notifies. */
  csTimeout(seq: number): boolean {
    if (this.#csTimeout !== undefined) return false;
    this.#csTimeout = { timestampNs: this.#now(), seq };
    return true;
  }

  /** Clears all records: the driver records anew for every user of the card (hl_enable_err_info_capture). */
  clear(): void {
    this.#pageFault = undefined;
    this.#razwi = undefined;
    this.#undefinedOpcode = undefined;
    this.#csTimeout = undefined;
  }

  #recordRazwi(stream: Stream, address: bigint, flags: number): void {
    this.#razwi ??= { timestampNs: this.#now(), address, engineId: this.#engineId(stream), flags };
  }

  #engineId(stream: Stream): number {
    const { profile } = this.#card;
    return engineIdOf(profile.name, profile.queues[stream.queueId]!);
  }

  #now(): number {
    return this.#card.config.clock.nowNs();
  }
}
