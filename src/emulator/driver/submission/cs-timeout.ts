/** The time-out of a submission, from its arguments and the configuration of the node. */

import { HL_CS_ARGS, HL_CS_FLAGS } from '../../../uapi/index.ts';
import type { NodeConfig } from '../../config/node-config.ts';

const IN = HL_CS_ARGS.in.words;

/** Seconds: CUSTOM_TIMEOUT, or the default of the driver. */
export function timeoutSecondsOf(config: NodeConfig, words: Uint32Array, flags: number): number {
  const isCustom = (flags & HL_CS_FLAGS.CUSTOM_TIMEOUT) !== 0;
  return isCustom ? words[IN.timeout]! : config.csTimeoutSeconds;
}
