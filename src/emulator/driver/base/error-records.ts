/**
 * Fault records of a card for INFO (struct hl_error_info): the first of each kind since the card was opened. Users are notified by their event fds.
 *
 * Source: gaudi_handle_eqe of gaudi.c, gaudi2_handle_eqe of gaudi2.c, and device.c, Linux 6.12. Every fault of an engine is also a USER_ENGINE_ERR. On
 * gaudi, an error of a queue or of the address decoder is also a DEVICE_RESET, although no reset follows.
 */

import {
  type AsicProfile,
  engineIdOf,
  HL_INFO_FW_ERR_TYPE,
  HL_NOTIFIER_EVENT,
  HL_RAZWI,
  STREAMS_PER_QMAN,
} from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { joinBig } from '../../../ucs/type/int64.ts';
import type { FaultListener } from '../../device/queue/engine-access.ts';
import type { Stream } from '../../device/queue/stream.ts';
import type { Notifiers } from './notifier.ts';

/** An access to an unmapped address, with the mappings at that time. */
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

/** Errors of an engine that the driver of gaudi2 counts (hl_capture_engine_err). */
export interface EngineErrorRecord {
  readonly timestampNs: number;
  /** {@link NO_ENGINE} for the MMU and the address decoder. */
  readonly engineId: number;
}

/** A fatal hardware event (hl_capture_hw_err). */
export interface HardwareErrorRecord {
  readonly timestampNs: number;
  readonly event: number;
}

/** The firmware stopped replying (hl_capture_fw_err). */
export interface FirmwareErrorRecord {
  readonly timestampNs: number;
  /** One of HL_INFO_FW_ERR_TYPE. */
  readonly type: number;
}

export interface CsTimeoutRecord {
  readonly timestampNs: number;
  readonly seq: number;
}

/** Engine id of an event that does not belong to an engine (event_id_to_engine_id of gaudi2.c). */
const NO_ENGINE = 0xffff;

export class ErrorRecords implements FaultListener {
  readonly #profile: AsicProfile;
  readonly #clock: Clock;
  readonly #notifiers: Notifiers;
  readonly #mappingsBeside: (address: bigint) => readonly UserMapping[];
  #pageFault: PageFaultRecord | undefined;
  #razwi: RazwiRecord | undefined;
  #undefinedOpcode: UndefinedOpcodeRecord | undefined;
  #csTimeout: CsTimeoutRecord | undefined;
  #engineError: EngineErrorRecord | undefined;
  #hardwareError: HardwareErrorRecord | undefined;
  #firmwareError: FirmwareErrorRecord | undefined;

  /** @param mappingsBeside returns the mappings in the MMU that translates an address: that of device memory, or that of host memory */
  constructor(
    profile: AsicProfile,
    clock: Clock,
    notifiers: Notifiers,
    mappingsBeside: (address: bigint) => readonly UserMapping[],
  ) {
    this.#profile = profile;
    this.#clock = clock;
    this.#notifiers = notifiers;
    this.#mappingsBeside = mappingsBeside;
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

  get lastEngineError(): EngineErrorRecord | undefined {
    return this.#engineError;
  }

  get lastHardwareError(): HardwareErrorRecord | undefined {
    return this.#hardwareError;
  }

  get lastFirmwareError(): FirmwareErrorRecord | undefined {
    return this.#firmwareError;
  }

  /** Records an access to an unmapped address: a page fault of the MMU, and a RAZWI because no device responded. */
  pageFault(stream: Stream, high: number, low: number, writes: boolean): void {
    const address = joinBig(low, high);
    this.#pageFault ??= {
      timestampNs: this.#now(),
      address,
      engineId: this.#engineId(stream),
      mappings: this.#mappingsBeside(address),
    };
    this.#recordRazwi(stream, address, writes);
    this.#recordEngineError(NO_ENGINE);
    this.#notifiers.raise(HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.USER_ENGINE_ERR);
  }

  /** Records an access that the hardware rejects. */
  razwi(stream: Stream, high: number, low: number, writes: boolean): void {
    this.#recordRazwi(stream, joinBig(low, high), writes);
    this.#recordEngineError(NO_ENGINE);
    this.#notifyEngineError(HL_NOTIFIER_EVENT.RAZWI);
  }

  /** Records a packet that stopped its stream. */
  undefinedOpcode(stream: Stream, opcode: number): void {
    this.#undefinedOpcode ??= {
      timestampNs: this.#now(),
      engineId: this.#engineId(stream),
      // The lower command processor of a queue manager has the stream number after the last stream.
      streamId: stream.lower === undefined ? STREAMS_PER_QMAN : this.#profile.queues[stream.queueId]!.stream,
      opcode,
    };
    this.#recordEngineError(this.#engineId(stream));
    this.#notifyEngineError(HL_NOTIFIER_EVENT.UNDEFINED_OPCODE);
  }

  /** Records a fatal hardware event (hl_handle_critical_hw_err). Returns the events for the caller to raise. */
  hardwareError(event: number): number {
    this.#hardwareError ??= { timestampNs: this.#now(), event };
    return HL_NOTIFIER_EVENT.CRITICL_HW_ERR;
  }

  /** Records that the firmware stopped replying (hl_handle_fw_err). Returns the events for the caller to raise. */
  heartbeatLost(): number {
    this.#firmwareError ??= { timestampNs: this.#now(), type: HL_INFO_FW_ERR_TYPE.HEARTBEAT };
    return HL_NOTIFIER_EVENT.CRITICL_FW_ERR;
  }

  /** Records the time-out of a submission. Returns true for the first one, for which the caller raises an event. */
  csTimeout(seq: number): boolean {
    if (this.#csTimeout !== undefined) return false;
    this.#csTimeout = { timestampNs: this.#now(), seq };
    return true;
  }

  /** Clears all records: the driver starts anew for every user of the card (hl_enable_err_info_capture). */
  clear(): void {
    this.#pageFault = undefined;
    this.#razwi = undefined;
    this.#undefinedOpcode = undefined;
    this.#csTimeout = undefined;
    this.#engineError = undefined;
    this.#hardwareError = undefined;
    this.#firmwareError = undefined;
  }

  /** Like hl_handle_razwi: records a read or a write, for gaudi2 as one over the high-bandwidth bus (HBW). */
  #recordRazwi(stream: Stream, address: bigint, writes: boolean): void {
    const direction = writes ? HL_RAZWI.WRITE : HL_RAZWI.READ;
    const flags = this.#isGaudi ? direction : direction | HL_RAZWI.HBW;
    this.#razwi ??= { timestampNs: this.#now(), address, engineId: this.#engineId(stream), flags };
  }

  #recordEngineError(engineId: number): void {
    if (!this.#isGaudi) this.#engineError ??= { timestampNs: this.#now(), engineId };
  }

  #notifyEngineError(events: number): void {
    const reset = this.#isGaudi ? HL_NOTIFIER_EVENT.DEVICE_RESET : 0;
    this.#notifiers.raise(events | HL_NOTIFIER_EVENT.USER_ENGINE_ERR | reset);
  }

  get #isGaudi(): boolean {
    return this.#profile.name === 'gaudi';
  }

  #engineId(stream: Stream): number {
    return engineIdOf(this.#profile.name, this.#profile.queues[stream.queueId]!);
  }

  #now(): number {
    return this.#clock.nowNs();
  }
}

/** One mapping of a context, for INFO USER_MAPPINGS and fault records. */
export interface UserMapping {
  /** Device virtual address. */
  readonly address: bigint;
  readonly byteLength: number;
}
