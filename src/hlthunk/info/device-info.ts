/**
 * The INFO functions of hl-thunk that describe a card, on primary and control files alike. Every call runs an ioctl, without a cache.
 *
 * Records have the field names of the kernel's structs in camelCase, 64-bit fields as bigint. A field that an older kernel does
 * not fill is 0. Source: drm/habanalabs_accel.h, Linux 6.12. Errors: ERR_GAUDI_* by errno; ERR_GAUDI_DEVICE_BUSY in reset.
 */

import { allocateScratch, type ScratchBlock } from '../../sys/index.ts';
import {
  type AsicProfile,
  asicOfPciDeviceId,
  CPUCP_REPLACED_ROWS_BYTES,
  HL_ENGINES_DATA_MAX_SIZE,
  HL_INFO_CLK_RATE,
  HL_INFO_CLK_THROTTLE,
  HL_INFO_CS_COUNTERS,
  HL_INFO_DEV_MEMALLOC_PAGE_SIZES,
  HL_INFO_DEVICE_STATUS,
  HL_INFO_DEVICE_UTILIZATION,
  HL_INFO_DRAM_USAGE,
  HL_INFO_ENERGY,
  HL_INFO_HW_IDLE,
  HL_INFO_HW_IP_INFO,
  HL_INFO_OP,
  HL_INFO_PCI_COUNTERS,
  HL_INFO_RESET_COUNT,
  HL_INFO_SYNC_MANAGER,
  HL_INFO_TIME_SYNC,
  HL_OPEN_STATS_INFO,
  HL_PLL_FREQUENCY_INFO,
  HL_POWER_INFO,
  type HlDeviceStatus,
  type HlInfoOp,
} from '../../uapi/index.ts';
import { type CamelRecord, type CardTarget, camelRecord, cardOf } from '../base/card-file.ts';
import {
  checkFlag,
  checkObject,
  checkWord32,
  GaudiErrorCode,
  gaudiError,
  invalidArgument,
} from '../base/gaudi-error.ts';
import { decodeReplacedRows, type ReplacedDramRow } from './dram-rows.ts';

type Decoded<S extends { decode(...args: never[]): unknown }> = ReturnType<S['decode']>;

/** HW_IP_INFO with decoded strings. */
export type HwIpInfo = Omit<CamelRecord<Decoded<typeof HL_INFO_HW_IP_INFO>>, 'cardName' | 'cpucpVersion'> & {
  /** Card name, such as `HL225`. */
  readonly cardName: string;
  /** Firmware version. */
  readonly cpucpVersion: string;
};
/** Use of device memory in bytes (HL_INFO_DRAM_USAGE). */
export type DramUsage = CamelRecord<Decoded<typeof HL_INFO_DRAM_USAGE>>;
/** Current and maximum clock in MHz (HL_INFO_CLK_RATE). */
export type ClkRate = CamelRecord<Decoded<typeof HL_INFO_CLK_RATE>>;
/** Resets since the driver was loaded (HL_INFO_RESET_COUNT). */
export type ResetCount = CamelRecord<Decoded<typeof HL_INFO_RESET_COUNT>>;
/** Time of the card and of the host, read together (HL_INFO_TIME_SYNC). */
export type TimeSync = CamelRecord<Decoded<typeof HL_INFO_TIME_SYNC>>;
/** Number and duration of opens of the card (HL_INFO_OPEN_STATS). */
export type OpenStats = CamelRecord<Decoded<typeof HL_OPEN_STATS_INFO>>;
/** Dropped command submissions by reason (HL_INFO_CS_COUNTERS). */
export type CsCounters = CamelRecord<Decoded<typeof HL_INFO_CS_COUNTERS>>;
/** Throughput and replays of the PCIe link (HL_INFO_PCI_COUNTERS). */
export type PciCounters = CamelRecord<Decoded<typeof HL_INFO_PCI_COUNTERS>>;
/** Reasons, times and durations of clock throttling (HL_INFO_CLK_THROTTLE_REASON). */
export type ClkThrottle = CamelRecord<Decoded<typeof HL_INFO_CLK_THROTTLE>>;
/** First sync object, monitor and completion queue for users (HL_INFO_SYNC_MANAGER). */
export type SyncManagerInfo = CamelRecord<Decoded<typeof HL_INFO_SYNC_MANAGER>>;

/** Idle state of the engines. */
export interface HwIdle {
  /** True if no engine is busy. */
  readonly isIdle: boolean;
  /** Bit n % 64 of word n / 64: the engine with ASIC id n is busy. Four words, two in Linux 6.1. */
  readonly busyEnginesMaskExt: readonly bigint[];
}

/** Hardware properties: addresses, sizes, masks of engines. */
export function getHwIpInfo(target: CardTarget): HwIpInfo {
  const values = cardOf(target).info(HL_INFO_OP.HW_IP_INFO, HL_INFO_HW_IP_INFO, 'getHwIpInfo');
  return { ...camelRecord(values), cardName: text(values.card_name), cpucpVersion: text(values.cpucp_version) };
}

/** The PCI device id of an open card, such as 0x1020 (hlthunk_get_device_id_from_fd). */
export function getDeviceIdFromFd(target: CardTarget): number {
  return getHwIpInfo(target).deviceId;
}

/**
 * The profile of the card's generation.
 * @throws UcxError ERR_GAUDI_DEVICE_NOT_FOUND for a PCI device id that is unknown to this library
 */
export function asicProfileOf(target: CardTarget, info: HwIpInfo): AsicProfile {
  const { name, minor } = cardOf(target);
  checkObject('info', info);
  checkWord32('info.deviceId', info.deviceId);
  const profile = asicOfPciDeviceId(info.deviceId);
  if (profile !== undefined) return profile;
  const id = `0x${info.deviceId.toString(16)}`;
  throw gaudiError(GaudiErrorCode.DEVICE_NOT_FOUND, `PCI device id ${id} of ${name} is unknown`, {
    minor,
    deviceId: id,
  });
}

/** Device memory in bytes: free for users, and used by the calling context. */
export function getDramUsage(target: CardTarget): DramUsage {
  return camelRecord(cardOf(target).info(HL_INFO_OP.DRAM_USAGE, HL_INFO_DRAM_USAGE, 'getDramUsage'));
}

/** One of HL_DEVICE_STATUS; works in every state of the card. */
export function getDeviceStatus(target: CardTarget): HlDeviceStatus {
  const { status } = cardOf(target).info(HL_INFO_OP.DEVICE_STATUS, HL_INFO_DEVICE_STATUS, 'getDeviceStatus');
  return status as HlDeviceStatus;
}

/** True if no engine is busy. */
export function isIdle(target: CardTarget): boolean {
  return getHwIdle(target).isIdle;
}

/** The busy engines. */
export function getHwIdle(target: CardTarget): HwIdle {
  const values = cardOf(target).info(HL_INFO_OP.HW_IDLE, HL_INFO_HW_IDLE, 'getHwIdle');
  return { isIdle: values.is_idle !== 0, busyEnginesMaskExt: values.busy_engines_mask_ext };
}

/** Current and maximum clock of the compute engines in MHz. */
export function getClkRate(target: CardTarget): ClkRate {
  return camelRecord(cardOf(target).info(HL_INFO_OP.CLK_RATE, HL_INFO_CLK_RATE, 'getClkRate'));
}

/** Hard resets, and compute resets in `softResetCnt`. */
export function getResetCount(target: CardTarget): ResetCount {
  return camelRecord(cardOf(target).info(HL_INFO_OP.RESET_COUNT, HL_INFO_RESET_COUNT, 'getResetCount'));
}

/** The same moment on the clocks of device and host (CLOCK_MONOTONIC_RAW, nanoseconds); `tscTime` is 0 in Linux 6.1. */
export function getTimeSync(target: CardTarget): TimeSync {
  return camelRecord(cardOf(target).info(HL_INFO_OP.TIME_SYNC, HL_INFO_TIME_SYNC, 'getTimeSync'));
}

/** Number and duration of opens of the primary node. */
export function getOpenStats(target: CardTarget): OpenStats {
  return camelRecord(cardOf(target).info(HL_INFO_OP.OPEN_STATS, HL_OPEN_STATS_INFO, 'getOpenStats'));
}

/** Rejected submissions by reason, of the card and of the calling context. */
export function getCsCounters(target: CardTarget): CsCounters {
  return camelRecord(cardOf(target).info(HL_INFO_OP.CS_COUNTERS, HL_INFO_CS_COUNTERS, 'getCsCounters'));
}

/** Throughput in KB/s and replays of the PCI link. */
export function getPciCounters(target: CardTarget): PciCounters {
  return camelRecord(cardOf(target).info(HL_INFO_OP.PCI_COUNTERS, HL_INFO_PCI_COUNTERS, 'getPciCounters'));
}

/** Reasons, times and durations of clock throttling: bits of HL_CLK_THROTTLE, arrays of power and thermal. */
export function getClkThrottleInfo(target: CardTarget): ClkThrottle {
  return camelRecord(cardOf(target).info(HL_INFO_OP.CLK_THROTTLE_REASON, HL_INFO_CLK_THROTTLE, 'getClkThrottleInfo'));
}

/** The first sync object, monitor and completion queue of a dcore for users. @param dcoreId 0 to 7 */
export function getSyncManagerInfo(target: CardTarget, dcoreId: number): SyncManagerInfo {
  checkWord32('dcoreId', dcoreId);
  const input = { dcore_id: dcoreId };
  return camelRecord(cardOf(target).info(HL_INFO_OP.SYNC_MANAGER, HL_INFO_SYNC_MANAGER, 'getSyncManagerInfo', input));
}

/** Busy time of the card in percent. */
export function getDeviceUtilization(target: CardTarget, periodMs = 0): number {
  checkWord32('periodMs', periodMs);
  const op = HL_INFO_OP.DEVICE_UTILIZATION;
  const input = { period_ms: periodMs };
  return cardOf(target).info(op, HL_INFO_DEVICE_UTILIZATION, 'getDeviceUtilization', input).utilization;
}

/** Energy since the driver was loaded, in millijoules as counted by the firmware. */
export function getTotalEnergyConsumption(target: CardTarget): bigint {
  return cardOf(target).info(HL_INFO_OP.TOTAL_ENERGY, HL_INFO_ENERGY, 'getTotalEnergyConsumption')
    .total_energy_consumption;
}

/** The four outputs of a PLL in MHz. */
export function getPllFrequency(target: CardTarget, pllIndex: number): readonly number[] {
  checkWord32('pllIndex', pllIndex);
  const input = { pll_index: pllIndex };
  return cardOf(target).info(HL_INFO_OP.PLL_FREQUENCY, HL_PLL_FREQUENCY_INFO, 'getPllFrequency', input).output;
}

/** Current power in milliwatts. */
export function getPower(target: CardTarget): bigint {
  return cardOf(target).info(HL_INFO_OP.POWER, HL_POWER_INFO, 'getPower').power;
}

/** Page sizes that deviceMemoryAlloc accepts: bit n for 2^n bytes; 0 if the size is fixed. */
export function getDevMemAllocPageOrders(target: CardTarget): bigint {
  const op = HL_INFO_OP.DEV_MEM_ALLOC_PAGE_SIZES;
  return cardOf(target).info(op, HL_INFO_DEV_MEMALLOC_PAGE_SIZES, 'getDevMemAllocPageOrders').page_order_bitmask;
}

/** Counters of all hardware events: since the last hard reset, or (`aggregate`) since the driver was loaded. */
export function getHwEvents(target: CardTarget, aggregate = false): Uint32Array {
  checkFlag('aggregate', aggregate);
  const count = getHwIpInfo(target).numOfEvents;
  if (count === 0) return new Uint32Array(0);
  const op = aggregate ? HL_INFO_OP.HW_EVENTS_AGGREGATE : HL_INFO_OP.HW_EVENTS;
  return withResult(target, { op, what: 'getHwEvents' }, count * 4, (answer) => answer.words.slice());
}

/** HBM rows that the firmware has replaced because of ECC errors. */
export function getDramReplacedRows(target: CardTarget): readonly ReplacedDramRow[] {
  const op = HL_INFO_OP.DRAM_REPLACED_ROWS;
  return withResult(target, { op, what: 'getDramReplacedRows' }, CPUCP_REPLACED_ROWS_BYTES, ({ u8 }) =>
    decodeReplacedRows(u8),
  );
}

/** Whether HBM rows are pending replacement: non-zero if so. */
export function getDramPendingRows(target: CardTarget): number {
  return withResult(
    target,
    { op: HL_INFO_OP.DRAM_PENDING_ROWS, what: 'getDramPendingRows' },
    4,
    (answer) => answer.words[0] ?? 0,
  );
}

/** State of the engines, as the string that the driver writes. */
export function getEngineStatus(target: CardTarget, bufferBytes: number = HL_ENGINES_DATA_MAX_SIZE): string {
  if (!Number.isInteger(bufferBytes) || bufferBytes < 1024 || bufferBytes > HL_ENGINES_DATA_MAX_SIZE) {
    throw invalidArgument('bufferBytes', `must be an integer from 1024 to ${HL_ENGINES_DATA_MAX_SIZE}`, bufferBytes);
  }
  return withResult(target, { op: HL_INFO_OP.ENGINE_STATUS, what: 'getEngineStatus' }, bufferBytes, (answer) => {
    const actual = Math.min(cardOf(target).infoArguments().user_buffer_actual_size, bufferBytes);
    return text(answer.u8.slice(0, actual));
  });
}

/** Largest result of {@link getInfo} in bytes: that of ENGINE_STATUS. */
const INFO_BYTES_MAX: number = HL_ENGINES_DATA_MAX_SIZE;
/** Ops that {@link getInfo} rejects: only events.ts reads events, so that faults are attributed to transfers. */
const EVENT_OPS: readonly number[] = [
  HL_INFO_OP.REGISTER_EVENTFD,
  HL_INFO_OP.UNREGISTER_EVENTFD,
  HL_INFO_OP.GET_EVENTS,
];

/**
 * Runs any op of INFO (hlthunk_get_info), for ops without a function here. Ops of events are excluded: use `device.events`.
 * @param op of HL_INFO_OP, or one that is unknown to this library
 * @param answer 1 byte to 1 MiB, passed to the driver, which writes the result to it
 * @param argument the argument word of the op: dcore_id, pll_index, array_size and the like
 * @returns that word after the call: user_buffer_actual_size or array_size, if the op returns a value there
 * @throws UcxError ERR_GAUDI_INVALID_PARAMS, also for an op that the driver does not have; ERR_GAUDI_DEVICE_BUSY in reset
 */
export function getInfo(target: CardTarget, op: number, answer: Uint8Array, argument = 0): number {
  checkWord32('op', op);
  checkWord32('argument', argument);
  if (EVENT_OPS.includes(op)) throw invalidArgument('op', 'must not be an op of events: use device.events', op);
  if (!(answer instanceof Uint8Array)) throw invalidArgument('answer', 'must be a Uint8Array', answer);
  const { byteLength } = answer;
  if (byteLength < 1 || byteLength > INFO_BYTES_MAX) {
    throw invalidArgument('answer', `must have 1 to ${INFO_BYTES_MAX} bytes`, byteLength);
  }
  const card = cardOf(target);
  const scratch = allocateScratch(byteLength);
  try {
    scratch.u8.set(answer);
    const result = card.tryInfo(op as HlInfoOp, scratch, { dcore_id: argument });
    if (result < 0) throw card.error(result, `getInfo of op ${op}`);
    answer.set(scratch.u8.subarray(0, byteLength));
    return card.infoArguments().dcore_id;
  } finally {
    scratch.free();
  }
}

/** An op, and the name of its function for errors. */
interface Query {
  readonly op: HlInfoOp;
  readonly what: string;
}

/** Runs an op whose result is not a single struct. */
function withResult<T>(
  target: CardTarget,
  { op, what }: Query,
  byteLength: number,
  read: (answer: ScratchBlock) => T,
): T {
  const card = cardOf(target);
  const answer = allocateScratch(byteLength);
  try {
    const result = card.tryInfo(op, answer);
    if (result < 0) throw card.error(result, what);
    return read(answer);
  } finally {
    answer.free();
  }
}

/** The string before the NUL byte. */
function text(bytes: Uint8Array): string {
  const end = bytes.indexOf(0);
  return new TextDecoder().decode(end < 0 ? bytes : bytes.subarray(0, end));
}
