/**
 * The DEBUG ioctl: debug mode, and the trace units of the card (coresight). An emulated card produces no traces: only the sinks have state, and the output
 * is zeros.
 *
 * Source: gaudi_coresight.c, gaudi2_coresight.c and habanalabs_ioctl.c, Linux 6.12.
 */

import type { ArgumentBlock } from '../../../driver/port.ts';
import { Errno } from '../../../sys/index.ts';
import {
  HL_DEBUG_ARGS,
  HL_DEBUG_OP,
  HL_DEBUG_PARAMS_BMON,
  HL_DEBUG_PARAMS_ETF,
  HL_DEBUG_PARAMS_ETR,
  HL_DEBUG_PARAMS_SPMU,
  HL_DEBUG_PARAMS_STM,
  HL_DEVICE_STATUS,
} from '../../../uapi/index.ts';
import { readNumber } from '../base/numbers.ts';
import type { Context } from './context.ts';

const ARGS = HL_DEBUG_ARGS.words;

/** Bytes of the parameters of each coresight op; 0 for none. */
const PARAMETER_BYTES: ReadonlyMap<number, number> = new Map<number, number>([
  [HL_DEBUG_OP.ETR, HL_DEBUG_PARAMS_ETR.size],
  [HL_DEBUG_OP.ETF, HL_DEBUG_PARAMS_ETF.size],
  [HL_DEBUG_OP.STM, HL_DEBUG_PARAMS_STM.size],
  [HL_DEBUG_OP.FUNNEL, 0],
  [HL_DEBUG_OP.BMON, HL_DEBUG_PARAMS_BMON.size],
  [HL_DEBUG_OP.SPMU, HL_DEBUG_PARAMS_SPMU.size],
  [HL_DEBUG_OP.TIMESTAMP, 0],
]);

/**
 * Ops of the vendor's driver with a known errno. Of SCHED_SUBMIT_BUF (1031), which the driver gives to the CPU of the card, and READBLOCK (1032), the
 * effects are unknown: they are EINVAL like unknown ops.
 */
const VENDOR_OPS: ReadonlySet<number> = new Set([HL_DEBUG_OP.FETCH_TRACE, HL_DEBUG_OP.READMEM, HL_DEBUG_OP.MEMCPY]);

/** Limit of the output: the largest allocation of kzalloc with 4 KiB pages. */
const MAX_OUTPUT_BYTES = 4 << 20;

/** Number of units per op, by generation: the lengths of the debug_*_regs tables. Those of gaudi3 were not collected: it has those of gaudi2. */
const UNITS: Readonly<Record<'gaudi' | 'gaudi2', ReadonlyMap<number, number>>> = {
  gaudi: new Map<number, number>([
    [HL_DEBUG_OP.ETF, 48],
    [HL_DEBUG_OP.STM, 46],
    [HL_DEBUG_OP.FUNNEL, 76],
    [HL_DEBUG_OP.BMON, 121],
    [HL_DEBUG_OP.SPMU, 40],
  ]),
  gaudi2: new Map<number, number>([
    [HL_DEBUG_OP.ETF, 141],
    [HL_DEBUG_OP.STM, 139],
    [HL_DEBUG_OP.FUNNEL, 141],
    [HL_DEBUG_OP.BMON, 385],
    [HL_DEBUG_OP.SPMU, 137],
  ]),
};

/** SPMU_MAX_COUNTERS. */
const SPMU_COUNTERS = 6;
/** Minimum number of event types on gaudi (gaudi_config_spmu). */
const GAUDI_SPMU_MIN_EVENTS = 3;
/** Words of SPMU output after the counters: overflow and cycle count. */
const SPMU_EXTRA_WORDS = 2;

/** Id in {@link Context.traceSinks} of the only sink that is not an ETF. */
const ETR = -1;

export function debugIoctl(context: Context, block: ArgumentBlock): number {
  const { words } = block;
  const { card } = context;
  if (card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  const op = words[ARGS.op]!;
  if (op === HL_DEBUG_OP.SET_MODE) return setMode(context, words[ARGS.enable] !== 0);
  if (card.profile.capabilities.vendorDriver && VENDOR_OPS.has(op)) return vendorOp(op, card.debugMode);
  const byteLength = PARAMETER_BYTES.get(op);
  if (byteLength === undefined) return -Errno.EINVAL;
  if (!card.debugMode) return -Errno.EFAULT;
  return debugCoresight(context, words, byteLength);
}

/** The emulated card has no traces to fetch; memory can be read and copied on simulated cards only. */
function vendorOp(op: number, debugMode: boolean): number {
  return op === HL_DEBUG_OP.FETCH_TRACE && debugMode ? 0 : -Errno.EFAULT;
}

function setMode({ card, traceSinks }: Context, enable: boolean): number {
  if (card.debugMode === enable) return -Errno.EFAULT;
  card.debugMode = enable;
  // gaudi_halt_coresight, gaudi2_halt_coresight.
  if (!enable) traceSinks.clear();
  return 0;
}

/** Copies the parameters before any check of them, and the output after success (debug_coresight of habanalabs_ioctl.c, Linux 6.12). */
function debugCoresight(context: Context, words: Uint32Array, byteLength: number): number {
  const { userMemory } = context;
  const inputBytes = Math.min(byteLength, words[ARGS.input_size]!);
  // The caller sees the value that the driver has limited, because arguments are copied back.
  words[ARGS.input_size] = inputBytes;
  const inputAddress = readNumber(words, ARGS.input_ptr);
  let input: DataView | undefined;
  if (inputAddress !== 0 && inputBytes !== 0) {
    const parameters = new Uint8Array(byteLength);
    if (!userMemory.read(inputAddress, parameters.subarray(0, inputBytes))) return -Errno.EFAULT;
    input = new DataView(parameters.buffer);
  }
  const outputAddress = readNumber(words, ARGS.output_ptr);
  const outputBytes = outputAddress === 0 ? 0 : words[ARGS.output_size]!;
  if (outputBytes > MAX_OUTPUT_BYTES) return -Errno.ENOMEM;
  const result = configure(context, {
    op: words[ARGS.op]!,
    unit: words[ARGS.reg_idx]!,
    enable: words[ARGS.enable] !== 0,
    input,
    outputBytes,
  });
  if (result !== 0 || outputBytes === 0) return result;
  return userMemory.write(outputAddress, new Uint8Array(outputBytes)) ? 0 : -Errno.EFAULT;
}

/** Arguments of an op, copied from the caller. */
interface TraceRequest {
  readonly op: number;
  readonly unit: number;
  readonly enable: boolean;
  /** Undefined if the caller provided none. */
  readonly input: DataView | undefined;
  /** Bytes of the output; 0 if the caller requests none. */
  readonly outputBytes: number;
}

/** The checks of the driver before it programs a unit (gaudi_debug_coresight, gaudi2_debug_coresight). Returns 0 or a negative errno. */
function configure({ card, traceSinks }: Context, request: TraceRequest): number {
  const { op, unit, enable, input } = request;
  const isGaudi = card.profile.name === 'gaudi';
  const units = UNITS[isGaudi ? 'gaudi' : 'gaudi2'].get(op);
  if (units !== undefined && unit >= units) return -Errno.EINVAL;
  if (op === HL_DEBUG_OP.ETR) return configureSink(traceSinks, ETR, enable, hasBuffer(input));
  if (op === HL_DEBUG_OP.ETF) return configureSink(traceSinks, unit, enable, input !== undefined);
  if (op === HL_DEBUG_OP.SPMU) return configureSpmu(isGaudi, request);
  const needsInput = op === HL_DEBUG_OP.STM || op === HL_DEBUG_OP.BMON;
  return needsInput && enable && input === undefined ? -Errno.EINVAL : 0;
}

/** If the sink is already in the requested state, the parameters are ignored. */
function configureSink(sinks: Set<number>, sink: number, enable: boolean, hasParameters: boolean): number {
  if (sinks.has(sink) === enable) return 0;
  if (enable && !hasParameters) return -Errno.EINVAL;
  if (enable) sinks.add(sink);
  else sinks.delete(sink);
  return 0;
}

function configureSpmu(isGaudi: boolean, { enable, input, outputBytes }: TraceRequest): number {
  if (enable) {
    if (input === undefined) return -Errno.EINVAL;
    const events = input.getUint32(HL_DEBUG_PARAMS_SPMU.words.event_types_num * 4, true);
    return events > SPMU_COUNTERS || (isGaudi && events < GAUDI_SPMU_MIN_EVENTS) ? -Errno.EINVAL : 0;
  }
  // gaudi reads the counters whenever it stops a unit, and needs memory for them.
  const outputWords = Math.floor(outputBytes / 8);
  if (isGaudi && outputWords <= SPMU_EXTRA_WORDS) return -Errno.EINVAL;
  return outputWords > SPMU_EXTRA_WORDS + SPMU_COUNTERS ? -Errno.EINVAL : 0;
}

function hasBuffer(input: DataView | undefined): boolean {
  return input !== undefined && input.getBigUint64(HL_DEBUG_PARAMS_ETR.words.buffer_size * 4, true) !== 0n;
}
