/**
 * Fault records of a card for INFO (struct hl_error_info): the first of each kind since the card was opened. Users are notified by their event fds.
 *
 * Source: gaudi_handle_eqe of gaudi.c, gaudi2_handle_eqe of gaudi2.c, and device.c, Linux 6.12. Every fault of an engine is also a USER_ENGINE_ERR. On
 * gaudi, an error of a queue or of the address decoder is also a DEVICE_RESET, although no reset follows.
 */

import { type AsicProfile, HL_INFO_FW_ERR_TYPE, HL_NOTIFIER_EVENT, HL_RAZWI } from '../../../uapi/index.ts';
import type { Clock } from '../../../ucs/sys/clock.ts';
import { joinBig } from '../../../ucs/type/int64.ts';
import type { FaultListener } from '../../device/queue/engine-access.ts';
import type { Stream, TransferStream } from '../../device/queue/stream.ts';
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

/** What the records of a card need. */
export interface ErrorRecordsOptions {
  readonly profile: AsicProfile;
  readonly clock: Clock;
  readonly notifiers: Notifiers;
  /** The mappings in the MMU that translates an address: that of device memory, or that of host memory. */
  readonly mappingsBeside: (address: bigint) => readonly UserMapping[];
  /** Called after an error that the driver resets the card for, with the events to raise. */
  readonly onEngineError: (engineId: number, events: number) => void;
}

/** Bits of the address that the MMU of gaudi3 does not report: for host memory, and for device memory (negative_tests.c of the vendor's tests). */
const PMMU_ADDRESS_BITS = 0x7fn;
const HMMU_ADDRESS_BITS = 0xf_ffffn;

export class ErrorRecords implements FaultListener {
  readonly #options: ErrorRecordsOptions;
  #pageFault: PageFaultRecord | undefined;
  #razwi: RazwiRecord | undefined;
  #undefinedOpcode: UndefinedOpcodeRecord | undefined;
  #csTimeout: CsTimeoutRecord | undefined;
  #engineError: EngineErrorRecord | undefined;
  #hardwareError: HardwareErrorRecord | undefined;
  #firmwareError: FirmwareErrorRecord | undefined;

  constructor(options: ErrorRecordsOptions) {
    this.#options = options;
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

  /**
   * Records an access to an unmapped address: a page fault of the MMU, and a RAZWI because no device responded. A PDMA channel reports the response as an
   * error of its engine instead ({@link engineError}).
   */
  pageFault(stream: TransferStream, high: number, low: number, writes: boolean): void {
    const address = this.#reported(joinBig(low, high));
    this.#pageFault ??= {
      timestampNs: this.#now(),
      address,
      engineId: stream.engineId,
      mappings: this.#options.mappingsBeside(address),
    };
    const events = HL_NOTIFIER_EVENT.PAGE_FAULT | HL_NOTIFIER_EVENT.USER_ENGINE_ERR;
    if (this.#hasChannels) {
      this.#options.notifiers.raise(events);
      return;
    }
    this.#recordRazwi(stream, address, writes);
    this.#recordEngineError(NO_ENGINE);
    this.#options.notifiers.raise(events | HL_NOTIFIER_EVENT.RAZWI);
  }

  /** Records an access that the hardware rejects. */
  razwi(stream: TransferStream, high: number, low: number, writes: boolean): void {
    this.#recordRazwi(stream, joinBig(low, high), writes);
    if (this.#hasChannels) {
      this.#options.notifiers.raise(HL_NOTIFIER_EVENT.RAZWI | HL_NOTIFIER_EVENT.USER_ENGINE_ERR);
      return;
    }
    this.#recordEngineError(NO_ENGINE);
    this.#notifyEngineError(HL_NOTIFIER_EVENT.RAZWI);
  }

  /** Records an error by which an engine has stopped; the driver resets the card (SEI of a PDMA channel, gaudi3.c). */
  engineError({ engineId }: TransferStream): void {
    this.#recordEngineError(engineId);
    this.#options.onEngineError(engineId, HL_NOTIFIER_EVENT.USER_ENGINE_ERR);
  }

  /** Records a packet that stopped its stream. */
  undefinedOpcode(stream: Stream, opcode: number): void {
    this.#undefinedOpcode ??= {
      timestampNs: this.#now(),
      engineId: stream.engineId,
      streamId: stream.number,
      opcode,
    };
    this.#recordEngineError(stream.engineId);
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
  #recordRazwi(stream: TransferStream, address: bigint, writes: boolean): void {
    const direction = writes ? HL_RAZWI.WRITE : HL_RAZWI.READ;
    const flags = this.#isGaudi ? direction : direction | (this.#hasChannels ? HL_RAZWI.LBW : HL_RAZWI.HBW);
    this.#razwi ??= { timestampNs: this.#now(), address, engineId: stream.engineId, flags };
  }

  #recordEngineError(engineId: number): void {
    if (!this.#isGaudi) this.#engineError ??= { timestampNs: this.#now(), engineId };
  }

  #notifyEngineError(events: number): void {
    const reset = this.#isGaudi ? HL_NOTIFIER_EVENT.DEVICE_RESET : 0;
    this.#options.notifiers.raise(events | HL_NOTIFIER_EVENT.USER_ENGINE_ERR | reset);
  }

  get #isGaudi(): boolean {
    return this.#options.profile.name === 'gaudi';
  }

  /** Whether user code programs channels, whose messages cannot reach memory: a refused access is one of the low-bandwidth bus. */
  get #hasChannels(): boolean {
    return this.#options.profile.channels !== undefined;
  }

  /** The address of a page fault as the MMU reports it. */
  #reported(address: bigint): bigint {
    const { channels, dram } = this.#options.profile;
    if (channels === undefined) return address;
    const isDevice = dram.dmmuEnd !== undefined && address >= dram.base && address < dram.dmmuEnd;
    return address & ~(isDevice ? HMMU_ADDRESS_BITS : PMMU_ADDRESS_BITS);
  }

  #now(): number {
    return this.#options.clock.nowNs();
  }
}

/** One mapping of a context, for INFO USER_MAPPINGS and fault records. */
export interface UserMapping {
  /** Device virtual address. */
  readonly address: bigint;
  readonly byteLength: number;
}
