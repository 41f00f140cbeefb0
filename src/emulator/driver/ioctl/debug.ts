/**
 * The DEBUG ioctl: debug mode and coresight, the trace units of the card. An emulated card produces no trace: parameters
 * are accepted and have no effect.
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
  return readParameters(context, words, byteLength);
}

function setMode({ card }: Context, enable: boolean): number {
  if (card.debugMode === enable) return -Errno.EFAULT;
  card.debugMode = enable;
  return 0;
}

/** The driver copies the parameters before it programs anything; a null pointer means none. */
function readParameters(context: Context, words: Uint32Array, byteLength: number): number {
  const address = readNumber(words, ARGS.input_ptr);
  if (address === 0 || byteLength === 0) return 0;
  const parameters = new Uint8Array(Math.min(byteLength, words[ARGS.input_size]!));
  return context.userMemory.read(address, parameters) ? 0 : -Errno.EFAULT;
}
