/** The time-out of a submission, from its arguments and the setting of the card. */

import { HL_CS_ARGS, HL_CS_FLAGS } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';

const IN = HL_CS_ARGS.in.words;

/** Seconds: CUSTOM_TIMEOUT, or the default of the driver. */
export function timeoutSecondsOf(card: CardPort, words: Uint32Array, flags: number): number {
  const isCustom = (flags & HL_CS_FLAGS.CUSTOM_TIMEOUT) !== 0;
  return isCustom ? words[IN.timeout]! : card.csTimeoutSeconds;
}
