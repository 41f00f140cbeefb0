/**
 * The DEBUG ioctl: debug mode and coresight, the trace units of the card. An emulated card produces no trace: the
 * output is zeros.
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
import { readNumber } from '../base/words.ts';
import type { Context } from './context.ts';

const ARGS = HL_DEBUG_ARGS.words;

/** Bytes of the parameters of each coresight op; ops with 0 take none. */
const PARAMETER_BYTES: ReadonlyMap<number, number> = new Map<number, number>([
  [HL_DEBUG_OP.ETR, HL_DEBUG_PARAMS_ETR.size],
  [HL_DEBUG_OP.ETF, HL_DEBUG_PARAMS_ETF.size],
  [HL_DEBUG_OP.STM, HL_DEBUG_PARAMS_STM.size],
  [HL_DEBUG_OP.FUNNEL, 0],
  [HL_DEBUG_OP.BMON, HL_DEBUG_PARAMS_BMON.size],
  [HL_DEBUG_OP.SPMU, HL_DEBUG_PARAMS_SPMU.size],
  [HL_DEBUG_OP.TIMESTAMP, 0],
]);

/** Most bytes of output: the largest allocation of kzalloc, with pages of 4 KiB. */
const MAX_OUTPUT_BYTES = 4 << 20;

/** The ioctl. */
export function debugIoctl(context: Context, block: ArgumentBlock): number {
  const { words } = block;
  const { card } = context;
  if (card.status !== HL_DEVICE_STATUS.OPERATIONAL) return -Errno.EBUSY;
  const op = words[ARGS.op]!;
  if (op === HL_DEBUG_OP.SET_MODE) return setMode(context, words[ARGS.enable] !== 0);
  const byteLength = PARAMETER_BYTES.get(op);
  if (byteLength === undefined) return -Errno.EINVAL;
  if (!card.debugMode) return -Errno.EFAULT;
  return debugCoresight(context, words, byteLength);
}

function setMode({ card, traceUnits }: Context, enable: boolean): number {
  if (card.debugMode === enable) return -Errno.EFAULT;
  card.debugMode = enable;
  if (!enable) traceUnits.halt();
  return 0;
}

/** Copies the parameters, before any check of them, and the output after success (debug_coresight of habanalabs_ioctl.c, Linux 6.12). */
function debugCoresight(context: Context, words: Uint32Array, byteLength: number): number {
  const { userMemory } = context;
  const inputBytes = Math.min(byteLength, words[ARGS.input_size]!);
  // The driver's clip is seen by the caller, as arguments are copied back.
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
  const enable = words[ARGS.enable] !== 0;
  const result = context.traceUnits.configure({
    op: words[ARGS.op]!,
    unit: words[ARGS.reg_idx]!,
    enable,
    input,
    outputBytes,
  });
  if (result !== 0 || outputBytes === 0) return result;
  return userMemory.write(outputAddress, new Uint8Array(outputBytes)) ? 0 : -Errno.EFAULT;
}
