/** The time-out of a submission and its effect, from its arguments and the settings of the card. */

import { HL_CS_ARGS, HL_CS_FLAGS } from '../../../uapi/index.ts';
import type { CardPort } from '../base/card-port.ts';

const IN = HL_CS_ARGS.in.words;

/** Seconds: CUSTOM_TIMEOUT, or the default of the driver; without a default there are no time-outs at all (hl_hw_queue_schedule_cs, Linux 6.12). */
export function timeoutSecondsOf(card: CardPort, words: Uint32Array, flags: number): number {
  const isCustom = (flags & HL_CS_FLAGS.CUSTOM_TIMEOUT) !== 0 && card.csTimeoutSeconds !== Number.POSITIVE_INFINITY;
  return isCustom ? words[IN.timeout]! : card.csTimeoutSeconds;
}

/** The flags of a submission with those that the card sets: whether its time-out resets the card is decided when it is submitted (allocate_cs, Linux 6.12). */
export function latchedFlags(card: CardPort, flags: number): number {
  return card.skipResetOnTimeout ? flags | HL_CS_FLAGS.SKIP_RESET_ON_TIMEOUT : flags;
}
